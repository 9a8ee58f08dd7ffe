//! Carries out evictions that strategies ask for.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use http::Request;
use http::header::CONTENT_TYPE;
use parking_lot::Mutex;
use plimsoll_client::events::{self, EventApi, Recorder, Reference};
use plimsoll_client::explain;
use plimsoll_client::shutdown::Shutdown;
use plimsoll_containers::stop_container;
use plimsoll_plan::{Eviction, EvictionScope};
use plimsoll_qos::{EVICTION_REASON, eviction_message};
use plimsoll_waiting::Repeated;
use serde_json::json;
use tokio::sync::mpsc;

use crate::states::ClusterStateCell;

/// Pods that were evicted of late, for `pod_eviction_detail`.
const MOST_DETAILS: usize = 1000;
/// Who tells, in koordlet's words.
const COMPONENT: &str = "koordlet-qosManager";
const EVENTS_WITHIN: Duration = Duration::from_secs(2);

/// How pods are made to go.
#[derive(Debug, Clone)]
pub enum Method {
    /// The eviction API is asked: disruption budgets are respected.
    Api,
    /// Containers are stopped through the runtime's CRI socket, as koordlet does by default. Nobody else is asked.
    Kill { socket: PathBuf },
}

/// Namespace and name.
type PodName = (Box<str>, Box<str>);

#[derive(Debug, Default)]
pub struct EvictionCounters {
    succeeded: AtomicU64,
    failed: AtomicU64,
    /// By namespace and name, the newest last.
    details: Mutex<BTreeMap<PodName, u64>>,
}

impl EvictionCounters {
    pub fn succeeded(&self) -> u64 {
        self.succeeded.load(Ordering::Relaxed)
    }

    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    pub fn details(&self) -> Vec<(PodName, u64)> {
        let details = self.details.lock();
        details.iter().map(|(pod, n)| (pod.clone(), *n)).collect()
    }

    fn succeed(&self, eviction: &Eviction) {
        self.succeeded.fetch_add(1, Ordering::Relaxed);
        let mut details = self.details.lock();
        if details.len() >= MOST_DETAILS {
            details.clear();
        }
        let pod = (eviction.namespace.clone(), eviction.name.clone());
        *details.entry(pod).or_default() += 1;
    }
}

pub type Told = Box<dyn Fn(&Eviction, bool) + Send + Sync>;

/// Takes evictions from a queue, one after the other.
pub struct Evictor {
    pub client: kube::Client,
    pub board: ClusterStateCell,
    pub method: Method,
    pub counters: Arc<EvictionCounters>,
    /// Told of each eviction, and whether it worked.
    pub told: Told,
    /// The node's name, for events.
    pub node: String,
}

impl std::fmt::Debug for Evictor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Evictor")
            .field("method", &self.method)
            .finish_non_exhaustive()
    }
}

impl Evictor {
    pub async fn run(self, mut queue: mpsc::Receiver<Eviction>, shutdown: Shutdown) {
        let config = events::Config {
            host: self.node.clone(),
            ..events::Config::new(EventApi::Core, COMPONENT)
        };
        let (recorder, task) = config.spawn(self.client.clone());
        let mut failing = Repeated::default();
        loop {
            let eviction = tokio::select! {
                () = shutdown.begins() => break,
                eviction = queue.recv() => eviction,
            };
            let Some(eviction) = eviction else { break };
            let outcome = self.evict(&eviction).await;
            if matches!(self.method, Method::Api) {
                tell(&recorder, &eviction, &outcome);
            }
            (self.told)(&eviction, outcome.is_ok());
            match outcome {
                Ok(()) => {
                    self.counters.succeed(&eviction);
                    let _ = failing.well();
                    tracing::warn!(
                        namespace = &*eviction.namespace,
                        pod = &*eviction.name,
                        feature = eviction.feature,
                        resource = resource(eviction.scope),
                        "evicted a pod"
                    );
                }
                Err(trouble) => {
                    self.counters.failed.fetch_add(1, Ordering::Relaxed);
                    if let Some(said) = failing.failed() {
                        tracing::warn!(
                            namespace = &*eviction.namespace,
                            pod = &*eviction.name,
                            feature = eviction.feature,
                            trouble,
                            times = said.times,
                            "cannot evict a pod; other pods are tried as long as the node needs it"
                        );
                    }
                }
            }
        }
        task.drain(EVENTS_WITHIN).await;
    }

    async fn evict(&self, eviction: &Eviction) -> Result<(), String> {
        match &self.method {
            Method::Api => self.ask_api(eviction).await,
            Method::Kill { socket } => self.kill(eviction, socket).await,
        }
    }

    /// The UID makes sure that a new pod of the same name stays. The request is written out here because kube's own
    /// spells `deleteOptions` in a way that servers pass over, and the UID with it.
    async fn ask_api(&self, eviction: &Eviction) -> Result<(), String> {
        let (namespace, name) = (&eviction.namespace, &eviction.name);
        let body = json!({
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"namespace": namespace, "name": name},
            "deleteOptions": {"preconditions": {"uid": eviction.uid}},
        });
        let path = format!("/api/v1/namespaces/{namespace}/pods/{name}/eviction");
        let request = Request::post(path)
            .header(CONTENT_TYPE, "application/json")
            .body(body.to_string().into_bytes())
            .map_err(|error| error.to_string())?;
        let asked = self
            .client
            .request_status::<serde_json::Value>(request)
            .await;
        asked.map(|_| ()).map_err(|error| explain(&error))
    }

    async fn kill(&self, eviction: &Eviction, socket: &std::path::Path) -> Result<(), String> {
        let known = self.board.current();
        let pods = known.pods.iter().flat_map(|pods| pods.iter());
        let pod = pods
            .into_iter()
            .find(|pod| pod.uid == eviction.uid)
            .ok_or("the pod is not on this node any more")?;
        for container in pod.containers.iter().filter(|one| one.running) {
            let Some(id) = container.id.as_deref() else {
                continue;
            };
            stop_container(socket, id)
                .await
                .map_err(|error| format!("stop container {}: {error}", container.name))?;
        }
        Ok(())
    }
}

/// An event of the pod, in koordlet's words.
fn tell(recorder: &Recorder, eviction: &Eviction, outcome: &Result<(), String>) {
    let pod = Reference {
        namespace: Some(eviction.namespace.to_string()),
        uid: Some(eviction.uid.to_string()),
        ..Reference::new("v1", "Pod", &eviction.name)
    };
    let (namespace, name) = (&eviction.namespace, &eviction.name);
    let message = eviction_message(eviction);
    let text =
        format!("evict Pod:{namespace}/{name}, reason: {EVICTION_REASON}, message: {message}");
    match outcome {
        Ok(()) => recorder.warning(&pod, "evictPodSuccess", "", text),
        Err(error) => {
            recorder.warning(&pod, "evictPodFail", "", format!("{text}, error {error}"));
        }
    }
}

fn resource(scope: EvictionScope) -> &'static str {
    match scope {
        EvictionScope::Cpu => "cpu",
        EvictionScope::Memory => "memory",
    }
}
