//! Keeps the topology object, and what the cluster state says of it.

use std::sync::Arc;
use std::time::Duration;

use kube::api::Api;
use kube::core::DynamicObject;
use kube::runtime::watcher;
use plimsoll_api::node_topology;
use plimsoll_client::explain;
use plimsoll_client::reflector::{CacheSync, Change, Reflector};
use plimsoll_client::shutdown::Shutdown;
use plimsoll_host::machine::{NodeCpuInfo, NodeNumaInfo};
use plimsoll_host::{HostError, ReadBuf};
use plimsoll_waiting::Waiting;
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::live::{Config, Counters, Sources, blocking};
use super::topology;
use super::upsert::{ADVICE, DesiredObject, is_undefined, objects, owned, upsert};
use crate::states::{ClusterState, Topology};

/// The machine is looked at this often without a reason …
const REFRESH_INTERVAL: Duration = Duration::from_secs(60);
/// … and what others may have done to the object this often.
const RESYNC_INTERVAL: Duration = Duration::from_secs(300);
/// What the kubelet has given out, below its folder.
const CPU_MANAGER_STATE: &str = "cpu_manager_state";

pub struct TopologyReporter {
    api: Api<DynamicObject>,
    config: Config,
    sources: Sources,
    every: Duration,
    /// Hundreds of files say them, and they hardly ever change.
    facts: Option<(Instant, Arc<(NodeCpuInfo, NodeNumaInfo)>)>,
    counters: Arc<Counters>,
}

struct WantedTopology<'a> {
    report: &'a topology::TopologyReport,
    name: &'a str,
    uid: &'a str,
}

impl DesiredObject for WantedTopology<'_> {
    fn object(&self) -> Option<Value> {
        Some(self.report.object(self.name, self.uid))
    }

    fn merged(&self, present: &Value) -> Option<Value> {
        owned(present, self.report.merged(present), self.name, self.uid)
    }
}

impl TopologyReporter {
    /// Looks no more often than `every`.
    pub fn new(
        config: &Config,
        every: Duration,
        client: kube::Client,
        sources: &Sources,
        counters: &Arc<Counters>,
    ) -> Self {
        Self {
            api: objects(
                client,
                node_topology::GROUP,
                node_topology::VERSION,
                node_topology::KIND,
                node_topology::PLURAL,
            ),
            config: config.clone(),
            sources: sources.clone(),
            every,
            facts: None,
            counters: Arc::clone(counters),
        }
    }

    /// Runs until stopped.
    pub async fn run(mut self, shutdown: Shutdown) {
        let mut changes = self.sources.cluster_state.subscribe();
        let deleted = self.watch(&shutdown);
        let mut kept: Option<(topology::TopologyReport, Box<str>, Instant)> = None;
        let mut logged_warnings = Vec::new();
        let waiting = Waiting::new("the cluster to accept NodeResourceTopology", ADVICE);
        // To be tried again soon.
        let mut is_due = false;
        loop {
            let cluster = changes.borrow_and_update().clone();
            let report = self.build(cluster.clone()).await;
            if let (Some(node), Some((report, warnings))) = (&cluster.node, report) {
                if warnings != logged_warnings {
                    for problem in &warnings {
                        tracing::warn!(problem, "ignoring a CPU annotation");
                    }
                    logged_warnings = warnings;
                }
                if cluster.cpu_pools.as_deref() != Some(&report.pools) {
                    let shares = Arc::new(report.pools.clone());
                    let cluster_state = &self.sources.cluster_state;
                    cluster_state.update(|cluster| cluster.cpu_pools = Some(shares));
                }
                let fresh = kept.as_ref().is_some_and(|(before, uid, at)| {
                    *before == report && *uid == node.uid && at.elapsed() < RESYNC_INTERVAL
                });
                if !fresh {
                    let wanted = WantedTopology {
                        report: &report,
                        name: &self.config.name,
                        uid: &node.uid,
                    };
                    let kept_there = upsert(&self.api, &self.config.name, &wanted);
                    let outcome = waiting.during(kept_there).await;
                    self.counters.topology.count(&outcome);
                    is_due = outcome.is_err();
                    match outcome {
                        Ok(_) => {
                            waiting.over();
                            kept = Some((report, node.uid.clone(), Instant::now()));
                        }
                        Err(error) if is_undefined(&error) => {
                            self.config.absence.tell(node_topology::PLURAL);
                        }
                        Err(error) => waiting.failed(explain(&error)),
                    }
                }
            }
            let settle = tokio::time::sleep(self.every);
            tokio::select! {
                () = shutdown.begins() => return,
                () = settle => {}
            }
            tokio::select! {
                () = shutdown.begins() => return,
                // A failure is not waited out in full.
                () = tokio::time::sleep(if is_due { REFRESH_INTERVAL / 6 } else { REFRESH_INTERVAL }) => {}
                () = deleted.notified() => kept = None,
                changed = changes.changed() => if changed.is_err() {
                    return;
                },
            }
        }
    }

    /// Notified when the object was deleted.
    fn watch(&self, shutdown: &Shutdown) -> Arc<Notify> {
        let deleted = Arc::new(Notify::new());
        let pod_hint = Arc::clone(&deleted);
        let ours = format!("metadata.name={}", self.config.name);
        let topologies =
            Reflector::<Topology>::all(node_topology::PLURAL, self.api.clone().into_client())
                .with(watcher::Config::default().fields(&ours))
                .if_defined(&self.config.absence)
                .on_change(move |change| {
                    if matches!(change, Change::Deleted(_)) {
                        pod_hint.notify_one();
                    }
                });
        topologies.spawn(&CacheSync::default(), shutdown.clone());
        deleted
    }

    /// `None`: the machine does not tell.
    async fn build(
        &mut self,
        cluster: ClusterState,
    ) -> Option<(topology::TopologyReport, Vec<String>)> {
        let facts = self.facts().await?;
        let state = self.sources.root.path(&self.config.kubelet_folder);
        let state = state.join(CPU_MANAGER_STATE);
        let hugepages = self.config.hugepages;
        blocking(move || {
            let state = std::fs::read_to_string(state).ok();
            let facts = topology::Facts {
                cpus: &facts.0,
                numa: &facts.1,
                hugepages,
                cpu_manager_state: state.as_deref(),
            };
            topology::build_topology(&cluster, &facts)
        })
        .await
    }

    async fn facts(&mut self) -> Option<Arc<(NodeCpuInfo, NodeNumaInfo)>> {
        if let Some((at, facts)) = &self.facts
            && at.elapsed() < REFRESH_INTERVAL
        {
            return Some(Arc::clone(facts));
        }
        let root = self.sources.root.clone();
        let read = blocking(move || {
            let mut buf = ReadBuf::default();
            let cpus = NodeCpuInfo::read(&root, &mut buf)?;
            Ok((cpus, NodeNumaInfo::read(&root, &mut buf)?))
        });
        match read.await? {
            Ok(facts) => {
                let facts = Arc::new(facts);
                self.facts = Some((Instant::now(), Arc::clone(&facts)));
                Some(facts)
            }
            Err(error) => {
                let error: HostError = error;
                tracing::debug!(%error, "the machine does not tell how its CPUs lie");
                None
            }
        }
    }
}
