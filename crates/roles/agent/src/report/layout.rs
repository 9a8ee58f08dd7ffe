//! Keeps the topology object, and what the board says of it.

use std::sync::Arc;
use std::time::Duration;

use kube::api::Api;
use kube::core::DynamicObject;
use kube::runtime::watcher;
use plimsoll_api::node_topology;
use plimsoll_client::explain;
use plimsoll_client::reflector::{CacheSync, Change, Reflector};
use plimsoll_client::shutdown::Shutdown;
use plimsoll_host::machine::{CpuFacts, NumaFacts};
use plimsoll_host::{HostError, ReadBuf};
use plimsoll_waiting::Waiting;
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::live::{Config, Counters, Sources, blocking};
use super::send::{ADVICE, Wanted, is_undefined, keep, objects, owned};
use super::topology;
use crate::states::{Known, Topology};

/// The machine is looked at this often without a reason …
const AFRESH: Duration = Duration::from_secs(60);
/// … and what others may have done to the object this often.
const REPAIR: Duration = Duration::from_secs(300);
/// What the kubelet has given out, below its folder.
const CPU_MANAGER_STATE: &str = "cpu_manager_state";

pub struct Layout {
    api: Api<DynamicObject>,
    config: Config,
    sources: Sources,
    every: Duration,
    /// Hundreds of files say them, and they hardly ever change.
    facts: Option<(Instant, Arc<(CpuFacts, NumaFacts)>)>,
    counters: Arc<Counters>,
}

struct WantedTopology<'a> {
    told: &'a topology::Told,
    name: &'a str,
    uid: &'a str,
}

impl Wanted for WantedTopology<'_> {
    fn object(&self) -> Option<Value> {
        Some(self.told.object(self.name, self.uid))
    }

    fn merged(&self, present: &Value) -> Option<Value> {
        owned(present, self.told.merged(present), self.name, self.uid)
    }
}

impl Layout {
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

    /// Until told to stop.
    pub async fn run(mut self, shutdown: Shutdown) {
        let mut changes = self.sources.board.follow();
        let deleted = self.watch(&shutdown);
        let mut kept: Option<(topology::Told, Box<str>, Instant)> = None;
        let mut complained = Vec::new();
        let waiting = Waiting::new("the cluster to take how the node's CPUs lie", ADVICE);
        // To be tried again soon.
        let mut is_due = false;
        loop {
            let known = changes.borrow_and_update().clone();
            let told = self.told(known.clone()).await;
            if let (Some(node), Some((told, complaints))) = (&known.node, told) {
                if complaints != complained {
                    for complaint in &complaints {
                        tracing::warn!(complaint, "about this node's CPUs");
                    }
                    complained = complaints;
                }
                if known.topology.as_deref() != Some(&told.shares) {
                    let shares = Arc::new(told.shares.clone());
                    let board = &self.sources.board;
                    board.change(|known| known.topology = Some(shares));
                }
                let fresh = kept.as_ref().is_some_and(|(before, uid, at)| {
                    *before == told && *uid == node.uid && at.elapsed() < REPAIR
                });
                if !fresh {
                    let wanted = WantedTopology {
                        told: &told,
                        name: &self.config.name,
                        uid: &node.uid,
                    };
                    let kept_there = keep(&self.api, &self.config.name, &wanted);
                    let outcome = waiting.during(kept_there).await;
                    self.counters.topology.count(&outcome);
                    is_due = outcome.is_err();
                    match outcome {
                        Ok(_) => {
                            waiting.over();
                            kept = Some((told, node.uid.clone(), Instant::now()));
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
                () = tokio::time::sleep(if is_due { AFRESH / 6 } else { AFRESH }) => {}
                () = deleted.notified() => kept = None,
                changed = changes.changed() => if changed.is_err() {
                    return;
                },
            }
        }
    }

    /// Rings when somebody has deleted the object.
    fn watch(&self, shutdown: &Shutdown) -> Arc<Notify> {
        let deleted = Arc::new(Notify::new());
        let bell = Arc::clone(&deleted);
        let ours = format!("metadata.name={}", self.config.name);
        let topologies =
            Reflector::<Topology>::all(node_topology::PLURAL, self.api.clone().into_client())
                .with(watcher::Config::default().fields(&ours))
                .if_defined(&self.config.absence)
                .on_change(move |change| {
                    if matches!(change, Change::Deleted(_)) {
                        bell.notify_one();
                    }
                });
        topologies.spawn(&CacheSync::default(), shutdown.clone());
        deleted
    }

    /// `None`: the machine does not tell.
    async fn told(&mut self, known: Known) -> Option<(topology::Told, Vec<String>)> {
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
            topology::told(&known, &facts)
        })
        .await
    }

    async fn facts(&mut self) -> Option<Arc<(CpuFacts, NumaFacts)>> {
        if let Some((at, facts)) = &self.facts
            && at.elapsed() < AFRESH
        {
            return Some(Arc::clone(facts));
        }
        let root = self.sources.root.clone();
        let read = blocking(move || {
            let mut buf = ReadBuf::default();
            let cpus = CpuFacts::read(&root, &mut buf)?;
            Ok((cpus, NumaFacts::read(&root, &mut buf)?))
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
