//! Carries out evictions that strategies ask for.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, EvictParams, Preconditions};
use parking_lot::Mutex;
use plimsoll_client::explain;
use plimsoll_client::shutdown::Shutdown;
use plimsoll_containers::stop_container;
use plimsoll_plan::{Eviction, EvictionScope};
use plimsoll_waiting::Repeated;
use tokio::sync::mpsc;

use super::Protection;
use crate::states::ClusterStateCell;

/// Pods that were evicted of late, for `pod_eviction_detail`.
const MOST_DETAILS: usize = 1000;

/// How pods are made to go.
#[derive(Debug, Clone)]
pub enum Method {
    /// The eviction API is asked: disruption budgets are respected.
    Api,
    /// Containers are stopped through the runtime's CRI socket, as koordlet does by default. Nobody else is asked.
    Kill { socket: PathBuf },
}

#[derive(Debug, Default)]
pub struct EvictionCounters {
    succeeded: AtomicU64,
    failed: AtomicU64,
    /// By namespace and name, the newest last.
    details: Mutex<BTreeMap<(Box<str>, Box<str>), u64>>,
}

impl EvictionCounters {
    pub fn succeeded(&self) -> u64 {
        self.succeeded.load(Ordering::Relaxed)
    }

    pub fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }

    pub fn details(&self) -> Vec<((Box<str>, Box<str>), u64)> {
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

/// Takes evictions from a queue, one after the other.
pub struct Evictor {
    pub client: kube::Client,
    pub board: ClusterStateCell,
    pub method: Method,
    pub counters: Arc<EvictionCounters>,
    pub protection: Protection,
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
        let mut failing = Repeated::default();
        loop {
            let eviction = tokio::select! {
                () = shutdown.begins() => return,
                eviction = queue.recv() => eviction,
            };
            let Some(eviction) = eviction else { return };
            match self.evict(&eviction).await {
                Ok(()) => {
                    self.counters.succeed(&eviction);
                    self.protection.evicted(&eviction);
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
                    self.protection.eviction_failed(&eviction.uid);
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
    }

    async fn evict(&self, eviction: &Eviction) -> Result<(), String> {
        match &self.method {
            Method::Api => self.ask_api(eviction).await,
            Method::Kill { socket } => self.kill(eviction, socket).await,
        }
    }

    /// The UID makes sure that a new pod of the same name stays.
    async fn ask_api(&self, eviction: &Eviction) -> Result<(), String> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &eviction.namespace);
        let parameters = EvictParams {
            delete_options: Some(DeleteParams {
                preconditions: Some(Preconditions {
                    uid: Some(eviction.uid.to_string()),
                    resource_version: None,
                }),
                ..DeleteParams::default()
            }),
            ..EvictParams::default()
        };
        let asked = pods.evict(&eviction.name, &parameters).await;
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

fn resource(scope: EvictionScope) -> &'static str {
    match scope {
        EvictionScope::Cpu => "cpu",
        EvictionScope::Memory => "memory",
    }
}
