//! Informers of the node's pods, object and policy: build, spawn, drain.

use std::sync::Arc;
use std::time::Duration;

use kube::runtime::watcher;
use plimsoll_client::node_slo::NodeSlo as NodeSloObject;
use plimsoll_client::reflector::{CacheSync, Change, MissingKind, Reflector, ReflectorStatus};
use plimsoll_client::shutdown;
use plimsoll_client::shutdown::{Failure, Shutdown, ShutdownTrigger};
use plimsoll_waiting::Repeated;
use tokio::task::JoinSet;

use super::claims::Volumes;
use super::cluster_state::{Node, NodeSlo};
use super::counters::Counters;
use super::kubelet::{Access, Kubelet};
use super::pods::{KubeletPodPoller, PodHint, PodInformerSink};
use super::reporting_check::{ReportingCheck, Watched};
use super::{ClusterStateCell, objects};

/// The kubelet's configuration changes with a restart of it at most.
const SETTINGS_EVERY: Duration = Duration::from_secs(60);
const SETTINGS_AGAIN: Duration = Duration::from_secs(5);

#[derive(Debug, Clone)]
pub struct Config {
    /// Of the node.
    pub name: String,
    pub pods: PodSource,
    /// Ask about the claims that pods mount.
    pub volumes: bool,
    /// Ask the kubelet how it is set up.
    pub kubelet_settings: bool,
    pub pod_hint: PodHint,
    /// Of the kinds that come with the manager.
    pub absence: MissingKind,
}

#[derive(Debug, Clone)]
pub enum PodSource {
    Kubelet {
        access: Box<Access>,
        every: Duration,
    },
    /// Those whose node the API server says this is; static pods are known by their mirrors.
    ApiServer,
}

/// What is logged if the manager's CRDs are missing.
pub fn crds_missing() -> MissingKind {
    MissingKind::new(
        "NodeMetric/NodeSLO CRDs are missing: usage is not reported, default policy applies; apply deploy/manager/crds.yaml",
    )
}

/// Built, not started.
pub struct StatesInformer {
    config: Config,
    client: kube::Client,
    cluster_state: ClusterStateCell,
}

impl std::fmt::Debug for StatesInformer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StatesInformer")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

impl Config {
    /// Everything from the API server, and nothing beyond what everybody needs.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            pods: PodSource::ApiServer,
            volumes: false,
            kubelet_settings: false,
            pod_hint: PodHint::default(),
            absence: crds_missing(),
        }
    }

    pub fn build(self, client: kube::Client, cluster_state: ClusterStateCell) -> StatesInformer {
        StatesInformer {
            config: self,
            client,
            cluster_state,
        }
    }
}

impl StatesInformer {
    /// Must be called within a tokio runtime. It waits for nothing; state arrives later.
    pub fn spawn(self) -> Running {
        let (stopper, shutdown) = shutdown::channel();
        let gate = CacheSync::default();
        let counters = Arc::<Counters>::default();
        let mut rounds = vec![
            ("nodes", self.follow_node(&gate, &shutdown)),
            ("nodeslos", self.follow_policy(&gate, &shutdown)),
            ("nodemetrics", self.follow_collecting(&gate, &shutdown)),
        ];
        let mut tasks = JoinSet::new();
        let reporting_check = ReportingCheck::default();
        let watched = Watched {
            node: self.config.name.clone(),
            cluster_state: self.cluster_state.clone(),
            gate: gate.clone(),
            nodes: rounds[0].1.clone(),
            collecting: rounds[2].1.clone(),
            absence: self.config.absence.clone(),
        };
        let looking = reporting_check.clone().run(watched, shutdown.clone());
        tasks.spawn(shutdown.kept("looking after reporting", looking));
        match self.config.pods {
            PodSource::ApiServer => {
                let ours = format!("spec.nodeName={}", self.config.name);
                let pods = Reflector::<objects::Pod>::all("pods", self.client.clone())
                    .with(watcher::Config::default().fields(&ours));
                let followed = PodInformerSink::new(self.cluster_state.clone());
                rounds.push(("pods", pods.feed(followed, &gate, shutdown.clone())));
            }
            PodSource::Kubelet { access, every } => {
                let kubelet = Arc::new(Kubelet::new(*access, Arc::clone(&counters)));
                let poller = KubeletPodPoller {
                    kubelet: Arc::clone(&kubelet),
                    cluster_state: self.cluster_state.clone(),
                    pod_hint: self.config.pod_hint,
                    every,
                    counters: Arc::clone(&counters),
                };
                let polling = poller.run(shutdown.clone());
                tasks.spawn(shutdown.kept("asking the kubelet for pods", polling));
                if self.config.kubelet_settings {
                    let following = follow_settings(
                        kubelet,
                        self.cluster_state.clone(),
                        Arc::clone(&counters),
                        shutdown.clone(),
                    );
                    tasks.spawn(shutdown.kept("following the kubelet's settings", following));
                }
            }
        }
        if self.config.volumes {
            let volumes = Volumes {
                client: self.client,
                cluster_state: self.cluster_state,
                counters: Arc::clone(&counters),
            };
            tasks.spawn(shutdown.kept("following volumes", volumes.run(shutdown.clone())));
        }
        Running {
            stopper,
            tasks,
            counters,
            rounds,
            reporting_check,
        }
    }

    fn named<K>(&self, what: &str) -> Reflector<K>
    where
        K: kube::Resource<DynamicType = ()>
            + Clone
            + serde::de::DeserializeOwned
            + std::fmt::Debug
            + Send
            + Sync
            + 'static,
    {
        let ours = format!("metadata.name={}", self.config.name);
        Reflector::all(what, self.client.clone()).with(watcher::Config::default().fields(&ours))
    }

    /// Heartbeats change the object and nothing that is looked at here: nobody is woken for them.
    fn follow_node(&self, gate: &CacheSync, shutdown: &Shutdown) -> ReflectorStatus {
        let cluster_state = self.cluster_state.clone();
        let nodes = self.named::<objects::Node>("nodes");
        let nodes = nodes.on_change(move |change| {
            let node = present(change).map(Node::from);
            // A node that was deleted registers again; until then it is what it was.
            if let Some(node) = node
                && cluster_state.current().node.as_deref() != Some(&node)
            {
                cluster_state.update(|known| known.node = Some(node.into()));
            }
        });
        nodes.spawn(gate, shutdown.clone()).1
    }

    fn follow_policy(&self, gate: &CacheSync, shutdown: &Shutdown) -> ReflectorStatus {
        let cluster_state = self.cluster_state.clone();
        let policies = self.named::<NodeSloObject>("nodeslos");
        let policies = policies.if_defined(&self.config.absence);
        let policies = policies.on_change(move |change| {
            let spec = present(change).map(|object| object.spec);
            let slo = NodeSlo::of(&spec.unwrap_or_default());
            if *cluster_state.current().node_slo != slo {
                cluster_state.update(|known| known.node_slo = slo.into());
            }
        });
        policies.spawn(gate, shutdown.clone()).1
    }

    /// Our own reports also change the object.
    fn follow_collecting(&self, gate: &CacheSync, shutdown: &Shutdown) -> ReflectorStatus {
        let cluster_state = self.cluster_state.clone();
        let metrics = self.named::<objects::NodeMetric>("nodemetrics");
        let metrics = metrics.if_defined(&self.config.absence);
        let metrics = metrics.on_change(move |change| {
            let collect =
                present(change).map(|object| object.spec.metric_collect_policy.unwrap_or_default());
            if cluster_state.current().collect_policy.as_deref() != collect.as_ref() {
                cluster_state.update(|known| known.collect_policy = collect.map(Into::into));
            }
        });
        metrics.spawn(gate, shutdown.clone()).1
    }
}

fn present<K: Clone>(change: Change<K>) -> Option<K> {
    match change {
        Change::Added(new) | Change::Updated { new, .. } => Some(Arc::unwrap_or_clone(new)),
        Change::Deleted(_) => None,
    }
}

async fn follow_settings(
    kubelet: Arc<Kubelet>,
    cluster_state: ClusterStateCell,
    counters: Arc<Counters>,
    shutdown: Shutdown,
) {
    let mut failing = Repeated::default();
    loop {
        let node = cluster_state.current().node;
        match kubelet.settings(node.as_deref()).await {
            Ok(settings) => {
                if let Some(over) = failing.well() {
                    let (failures, seconds) = (over.failures, over.lasted.as_secs());
                    tracing::info!(
                        failures,
                        seconds,
                        "the kubelet tells its configuration again"
                    );
                }
                if cluster_state.current().kubelet.as_deref() != Some(&settings) {
                    cluster_state.update(|known| known.kubelet = Some(settings.into()));
                }
            }
            Err(trouble) => {
                counters.kubelet_settings_failures.add();
                if let Some(said) = failing.failed() {
                    let times = said.times;
                    tracing::warn!(
                        trouble,
                        times,
                        "the kubelet does not tell its configuration"
                    );
                }
            }
        }
        let pause = if failing.is_failing() {
            SETTINGS_AGAIN
        } else {
            SETTINGS_EVERY
        };
        tokio::select! {
            () = shutdown.begins() => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

#[derive(Debug)]
pub struct Running {
    stopper: ShutdownTrigger,
    tasks: JoinSet<()>,
    counters: Arc<Counters>,
    rounds: Vec<(&'static str, ReflectorStatus)>,
    reporting_check: ReportingCheck,
}

impl Running {
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    /// Why the cluster cannot be told what the node uses, if so.
    pub fn reporting_check(&self) -> ReportingCheck {
        self.reporting_check.clone()
    }

    /// How following each kind of object goes.
    pub fn rounds(&self) -> &[(&'static str, ReflectorStatus)] {
        &self.rounds
    }

    /// Waits for a failure of what must not fail.
    pub fn failure(&self) -> impl Future<Output = Failure> + Send + use<> {
        self.stopper.failure()
    }

    pub async fn drain(mut self, deadline: Duration) {
        self.stopper.stop();
        let ending = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(deadline, ending).await.is_err() {
            tracing::warn!("following the cluster did not end in time");
        }
    }
}
