//! Events on their way to the API server.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use k8s_openapi::api::{core, events};
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::correlate::Write;
use super::recorder::Counters;

const TRIES: usize = 12;
const PAUSE: Duration = Duration::from_secs(10);
const REQUEST_WITHIN: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub(super) enum Message {
    Core(Write),
    /// With a series, what is there is patched.
    Series(events::v1::Event),
}

pub(super) struct Sender {
    client: kube::Client,
    counters: Arc<Counters>,
}

impl Sender {
    pub fn new(client: kube::Client, counters: Arc<Counters>) -> Self {
        Self { client, counters }
    }

    /// Tries for two minutes, so that an API server may be restarted meanwhile.
    pub async fn send(&self, message: Message) {
        for tried in 1..=TRIES {
            let Err(error) = self.attempt(&message).await else {
                return;
            };
            // Only silence is a reason to try again; an event that was refused once will be refused again.
            if let kube::Error::Api(status) = &error
                && !message.may_overtake_itself(status)
            {
                if !status.is_already_exists() {
                    self.counters.failed.fetch_add(1, Ordering::Relaxed);
                    let (reason, message) = (&status.reason, &status.message);
                    tracing::debug!(reason, message, "an event was refused");
                }
                return;
            }
            if tried == TRIES {
                self.counters.failed.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(%error, "an event could not be sent");
                return;
            }
            // Not all at once when an API server comes back.
            let share = match tried {
                1 => fastrand::f64(),
                _ => 1.0 + 0.25 * fastrand::f64(),
            };
            tokio::time::sleep(PAUSE.mul_f64(share)).await;
        }
    }

    async fn attempt(&self, message: &Message) -> Result<(), kube::Error> {
        match message {
            Message::Core(write) => {
                let metadata = &write.event.metadata;
                let namespace = metadata.namespace.as_deref().unwrap_or_default();
                let api = Api::<core::v1::Event>::namespaced(self.client.clone(), namespace);
                let name = metadata.name.as_deref().unwrap_or_default();
                write_event(&api, name, &write.event, write.patch.as_ref()).await
            }
            Message::Series(event) => {
                let namespace = event.metadata.namespace.as_deref().unwrap_or_default();
                let api = Api::<events::v1::Event>::namespaced(self.client.clone(), namespace);
                let name = event.metadata.name.as_deref().unwrap_or_default();
                let patch = event.series.as_ref();
                let patch = patch.map(|series| json!({ "series": series }));
                write_event(&api, name, event, patch.as_ref()).await
            }
        }
    }
}

impl Message {
    /// The first of a series may be on its way still when the second is sent: not there to be patched, and then there
    /// when it is to be created.
    fn may_overtake_itself(&self, status: &kube::core::Status) -> bool {
        let is_series = matches!(self, Self::Series(event) if event.series.is_some());
        is_series && status.is_already_exists()
    }
}

/// Patches what is there, or creates it.
async fn write_event<K>(
    api: &Api<K>,
    name: &str,
    event: &K,
    patch: Option<&Value>,
) -> Result<(), kube::Error>
where
    K: Clone + serde::Serialize + serde::de::DeserializeOwned + std::fmt::Debug,
{
    if let Some(patch) = patch {
        let params = PatchParams::default();
        match in_time(api.patch(name, &params, &Patch::Strategic(patch))).await {
            Err(kube::Error::Api(status)) if status.is_not_found() => {}
            outcome => return outcome.map(drop),
        }
    }
    let params = PostParams::default();
    in_time(api.create(&params, event)).await.map(drop)
}

async fn in_time<T>(
    request: impl Future<Output = Result<T, kube::Error>>,
) -> Result<T, kube::Error> {
    match tokio::time::timeout(REQUEST_WITHIN, request).await {
        Ok(outcome) => outcome,
        Err(elapsed) => Err(kube::Error::Service(Box::new(elapsed))),
    }
}
