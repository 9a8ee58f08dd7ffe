//! Carries out evictions that strategies ask for.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use kube::api::{Api, Patch, PatchParams};
use kube::core::{DynamicObject, GroupVersionKind};
use kube::discovery::ApiResource;
use parking_lot::Mutex;
use plimsoll_api::eviction_wishes::{self, Wish};
use plimsoll_api::node_metric;
use plimsoll_client::events::{self, EventApi, Recorder, Reference};
use plimsoll_client::shutdown::Shutdown;
use plimsoll_client::{evict, explain};
use plimsoll_containers::stop_container;
use plimsoll_plan::{Eviction, EvictionScope};
use plimsoll_qos::{EVICTION_REASON, eviction_message};
use plimsoll_waiting::Repeated;
use serde_json::json;
use tokio::sync::mpsc;

use crate::states::ClusterStateCell;

/// A wish stays in the annotation for so many seconds.
const WISHED_FOR: i64 = 120;
/// Pods that were evicted of late, for `pod_eviction_detail`.
const MOST_DETAILS: usize = 1000;
/// Who tells, in koordlet's words.
const COMPONENT: &str = "koordlet-qosManager";
/// The runtime's answer is waited for so long.
const STOP_WITHIN: Duration = Duration::from_secs(10);
const EVENTS_WITHIN: Duration = Duration::from_secs(2);

/// How pods are made to go.
#[derive(Debug, Clone)]
pub enum Method {
    /// The manager is asked, by an annotation of the node's NodeMetric: an agent has no right to evict anything.
    Ask { node: String },
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
    asked: AtomicU64,
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

    /// The manager was asked.
    pub fn asked(&self) -> u64 {
        self.asked.load(Ordering::Relaxed)
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

/// What became of an eviction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    Evicted,
    /// The manager decides.
    Asked,
    Failed,
}

pub type Permit = Box<dyn Fn() -> bool + Send + Sync>;
pub type Listener = Box<dyn Fn(&Eviction, Told) + Send + Sync>;

/// Takes evictions from a queue, one after the other.
pub struct Evictor {
    pub client: kube::Client,
    pub board: ClusterStateCell,
    pub method: Method,
    pub counters: Arc<EvictionCounters>,
    /// Whether evictions are carried out now.
    pub may: Permit,
    /// Told of each eviction.
    pub told: Listener,
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
        let mut wishes = Vec::new();
        loop {
            let eviction = tokio::select! {
                () = shutdown.begins() => break,
                eviction = queue.recv() => eviction,
            };
            let Some(eviction) = eviction else { break };
            // It was planned while the agent enforced; that may be over.
            if !(self.may)() {
                (self.told)(&eviction, Told::Failed);
                continue;
            }
            let outcome = self.evict(&eviction, &mut wishes).await;
            let asked = matches!(self.method, Method::Ask { .. });
            if matches!(self.method, Method::Api) {
                tell(&recorder, &eviction, &outcome);
            }
            (self.told)(
                &eviction,
                match &outcome {
                    Ok(()) if asked => Told::Asked,
                    Ok(()) => Told::Evicted,
                    Err(_) => Told::Failed,
                },
            );
            match outcome {
                Ok(()) if asked => {
                    self.counters.asked.fetch_add(1, Ordering::Relaxed);
                    let _ = failing.well();
                    tracing::warn!(
                        namespace = &*eviction.namespace,
                        pod = &*eviction.name,
                        feature = eviction.feature,
                        resource = resource(eviction.scope),
                        "asked the manager to evict a pod"
                    );
                }
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

    async fn evict(&self, eviction: &Eviction, wishes: &mut Vec<Wish>) -> Result<(), String> {
        match &self.method {
            Method::Ask { node } => self.ask_manager(eviction, node, wishes).await,
            Method::Api => self.ask_api(eviction).await,
            Method::Kill { socket } => self.kill(eviction, socket).await,
        }
    }

    async fn ask_manager(
        &self,
        eviction: &Eviction,
        node: &str,
        wishes: &mut Vec<Wish>,
    ) -> Result<(), String> {
        let now = Timestamp::now().as_second();
        let why = &eviction.why;
        let wish = Wish {
            uid: eviction.uid.to_string(),
            namespace: eviction.namespace.to_string(),
            name: eviction.name.to_string(),
            feature: eviction.feature.to_owned(),
            reason: why.code.to_owned(),
            at: now,
        };
        // One that cannot be sent now must not be sent later: another pod may have gone by then.
        let mut next = wishes.clone();
        eviction_wishes::add(&mut next, wish, now.saturating_sub(WISHED_FOR));
        let text = serde_json::to_string(&next).map_err(|error| error.to_string())?;
        let kind =
            GroupVersionKind::gvk(node_metric::GROUP, node_metric::VERSION, node_metric::KIND);
        let resource = ApiResource::from_gvk_with_plural(&kind, node_metric::PLURAL);
        let metrics: Api<DynamicObject> = Api::all_with(self.client.clone(), &resource);
        let patch = json!({
            "metadata": {"annotations": {eviction_wishes::ANNOTATION: text}},
        });
        let asked = metrics
            .patch(node, &PatchParams::default(), &Patch::Merge(patch))
            .await;
        let sent = asked.map(drop);
        if sent.is_ok() {
            *wishes = next;
        }
        sent.map_err(|error| {
            let trouble = explain(&error);
            format!("ask the manager by the NodeMetric of this node: {trouble}")
        })
    }

    async fn ask_api(&self, eviction: &Eviction) -> Result<(), String> {
        let (namespace, name) = (&eviction.namespace, &eviction.name);
        let asked = evict(&self.client, namespace, name, &eviction.uid).await;
        asked.map_err(|error| explain(&error))
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
            let stopped = tokio::time::timeout(STOP_WITHIN, stop_container(socket, id)).await;
            let stopped =
                stopped.map_err(|_| format!("stop container {}: no answer", container.name))?;
            stopped.map_err(|error| format!("stop container {}: {error}", container.name))?;
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
