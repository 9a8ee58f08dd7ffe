//! Sends events to the API server.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use k8s_openapi::api::{core, events};
use kube::api::{Api, Patch, PatchParams, PostParams};
use parking_lot::Mutex;
use plimsoll_waiting::Repeated;
use serde_json::{Value, json};

use super::correlator::Write;
use super::recorder::Counters;
use crate::explain;
use crate::leader_election::NotLeading;

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
    trouble: Mutex<Repeated>,
}

impl Sender {
    pub fn new(client: kube::Client, counters: Arc<Counters>) -> Self {
        Self {
            client,
            counters,
            trouble: Mutex::default(),
        }
    }

    /// Says once for all events what keeps them, and again at growing intervals.
    fn complain(&self, error: &kube::Error) {
        if let Some(said) = self.trouble.lock().failed() {
            let (trouble, times) = (explain(error), said.times);
            tracing::warn!(trouble, times, "events cannot be written");
        }
    }

    fn works(&self) {
        if let Some(over) = self.trouble.lock().well() {
            let (failures, seconds) = (over.failures, over.lasted.as_secs());
            tracing::info!(failures, seconds, "events are written again");
        }
    }

    /// Tries for two minutes, so that an API server may be restarted meanwhile.
    pub async fn send(&self, message: Message) {
        for tried in 1..=TRIES {
            let Err(error) = self.attempt(&message).await else {
                self.works();
                return;
            };
            // Whoever leads now has its own to tell.
            if NotLeading::is_cause_of(&error) {
                self.counters.failed.fetch_add(1, Ordering::Relaxed);
                return;
            }
            // Only silence is a reason to try again; an event that was refused once will be refused again.
            if let kube::Error::Api(status) = &error
                && !message.may_overtake_itself(status)
            {
                if status.is_already_exists() {
                    self.works();
                    return;
                }
                self.counters.failed.fetch_add(1, Ordering::Relaxed);
                // A namespace that goes takes its events with it.
                match is_about_to_go(status) {
                    true => tracing::debug!(message = status.message, "an event was refused"),
                    false => self.complain(&error),
                }
                return;
            }
            self.complain(&error);
            if tried == TRIES {
                self.counters.failed.fetch_add(1, Ordering::Relaxed);
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

fn is_about_to_go(status: &kube::core::Status) -> bool {
    status.code == 404 || status.message.contains("being terminated")
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
