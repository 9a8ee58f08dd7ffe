//! One second's work: look, plan, apply.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_actuate::{Actuator, Applied, Mode, Now, OpenError, Recovered};
use plimsoll_api::kubelet_cgroups::CgroupLayout;
use plimsoll_history::UsageHistory;
use plimsoll_host::HostRoot;
use plimsoll_host::cgroup::Hierarchies;
use plimsoll_host::machine::NodeCpuInfo;
use plimsoll_observe::store::Store;
use plimsoll_plan::Eviction;
use plimsoll_qos::input::{
    ContainerUsage, Input, NodeView, PodUsage, PodView, Seen, UsageSnapshot,
};
use plimsoll_qos::{KubeletBases, Planned, Planner, Policy, Settings};

use super::{kernel, node, pods};
use crate::states::ClusterStateCell;
use crate::states::{ClusterState, NodeSlo, Pod};

/// Steps that strategies have to ask again for what an earlier process wrote. Some wait for a second look.
const CLAIM_STEPS: u32 = 30;
/// A list of pods that is watched is as fresh as it can be.
const WATCHED: Duration = Duration::from_secs(1);

#[derive(Debug, Clone)]
pub struct Config {
    pub mode: Mode,
    pub settings: Settings,
    /// Where the journal is. `None`: in memory, which is for demonstrations only.
    pub journal: Option<PathBuf>,
    /// Where `plimsoll qos` reaches the agent. `None`: nowhere.
    pub socket: Option<PathBuf>,
    /// Give everything back when the agent ends. A rolling upgrade must not unprotect a node, so this is off by default.
    pub restore_on_exit: bool,
    /// Where evictions go by the API: ask the manager for them, and have no right to evict.
    pub ask_manager: bool,
    /// CRI socket of the runtime that stops containers, if evictions are done so.
    pub evict_socket: PathBuf,
    /// So long the kubelet's own word is waited for where its cgroups are; then the usual place counts.
    pub kubelet_within: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            mode: Mode::Observe,
            settings: Settings::default(),
            journal: None,
            socket: None,
            restore_on_exit: false,
            ask_manager: true,
            evict_socket: "/run/containerd/containerd.sock".into(),
            kubelet_within: Duration::ZERO,
        }
    }
}

/// Where it looks.
#[derive(Debug, Clone)]
pub struct Sources {
    pub board: ClusterStateCell,
    pub history: Arc<UsageHistory>,
    pub store: Arc<Store>,
    pub hierarchies: Arc<Hierarchies>,
    pub root: HostRoot,
}

/// What one step did.
#[derive(Debug, Default)]
pub struct Step {
    pub planned: Planned,
    pub applied: Applied,
    /// Pods that have to go now.
    pub evictions: Vec<Eviction>,
}

#[derive(Debug)]
pub struct Protector {
    sources: Sources,
    pub(super) actuator: Actuator,
    pub(super) planner: Planner,
    policy: Policy,
    slo: Option<Arc<NodeSlo>>,
    /// The policy that holds until the cluster has told one.
    built_in: Arc<NodeSlo>,
    pods: Views,
    node: Option<NodeView>,
    usage: UsageSnapshot,
    bases: KubeletBases,
    capabilities: plimsoll_qos::input::Capabilities,
    /// AMD counts memory bandwidth otherwise than Intel.
    is_amd: bool,
    /// Steps in which everything was known, up to a few.
    open_steps: u32,
    kubelet_within: Duration,
    /// Of the first step.
    began: Option<Duration>,
}

/// Pods as strategies look at them, made anew when the list changes, or the place of their cgroups.
#[derive(Debug, Default)]
struct Views {
    of: Option<Arc<[Pod]>>,
    layout: CgroupLayout,
    list: Vec<PodView>,
}

impl Protector {
    /// Reads what an earlier process left. Nothing is written to the machine.
    pub fn open(config: &Config, sources: Sources) -> Result<(Self, Recovered), OpenError> {
        let machine =
            plimsoll_actuate::Machine::new(sources.root.clone(), (*sources.hierarchies).clone());
        let actuator = plimsoll_actuate::Config {
            journal: config.journal.clone(),
            mode: config.mode,
            ..plimsoll_actuate::Config::new(machine)
        };
        let (actuator, recovered) = Actuator::open(actuator)?;
        let built_in = sources.board.current().node_slo;
        let this = Self {
            capabilities: kernel::capabilities(&sources.hierarchies),
            sources,
            actuator,
            planner: Planner::new(config.settings.clone()),
            policy: Policy::default(),
            slo: None,
            built_in,
            pods: Views::default(),
            node: None,
            usage: UsageSnapshot::default(),
            bases: KubeletBases::default(),
            is_amd: false,
            open_steps: 0,
            kubelet_within: config.kubelet_within,
            began: None,
        };
        Ok((this, recovered))
    }

    /// One second's work.
    pub fn step(&mut self, now: Now) -> Step {
        let known = self.sources.board.current();
        self.look(&known, now.monotonic);
        let seen_usage = self.usage(now.monotonic);
        let confirmed = self.sources.board.pods_confirmed();
        let (age, pods_every) = confirmed.map_or((Duration::ZERO, WATCHED), |confirmed| {
            (confirmed.at.elapsed(), confirmed.every)
        });
        let node = self.node.as_ref();
        let layout = node.map(|node| node.layout.clone()).unwrap_or_default();
        let pods = known.pods.as_ref().map(|_| Seen {
            value: self.pods.list.as_slice(),
            at: now.monotonic.saturating_sub(age),
            every: pods_every,
        });
        let mut input = Input {
            now: now.monotonic,
            policy: &self.policy,
            node,
            pods,
            usage: seen_usage.map(|(at, every)| Seen {
                value: &self.usage,
                at,
                every,
            }),
            kernel: &plimsoll_qos::input::Kernel::default(),
        };
        let wanted = self.planner.reads(&input);
        let places = kernel::Places {
            root: &self.sources.root,
            hierarchies: &self.sources.hierarchies,
            store: &self.sources.store,
            layout: &layout,
        };
        let active = self.pods.list.iter().filter(|pod| pod.is_active());
        let kernel = kernel::read(
            self.capabilities,
            &wanted,
            &self.actuator,
            places,
            self.is_amd,
            active,
        );
        input.kernel = &kernel;
        let mut planned = self.planner.plan(&input);
        for plan in &planned.plans {
            self.actuator.submit(plan.clone());
        }
        if planned.gate.open && self.open_steps <= CLAIM_STEPS {
            // What no strategy has asked for by now was wanted by an earlier program only.
            if self.open_steps == CLAIM_STEPS {
                self.actuator.release_unclaimed();
            }
            self.open_steps += 1;
        }
        let applied = self.actuator.turn(now, &self.bases);
        let mut evictions = std::mem::take(&mut planned.evictions.evictions);
        if self.actuator.effective_mode() != Mode::Enforce {
            // What is only observed goes nowhere.
            for eviction in evictions.drain(..) {
                self.planner.eviction_failed(&eviction.uid, now.monotonic);
            }
        }
        Step {
            planned,
            applied,
            evictions,
        }
    }

    /// Takes over what has changed in the cluster.
    fn look(&mut self, known: &ClusterState, now: Duration) {
        let same_slo = self
            .slo
            .as_ref()
            .is_some_and(|slo| Arc::ptr_eq(slo, &known.node_slo));
        if !same_slo {
            self.policy.update(&known.node_slo.sections);
            self.slo = Some(Arc::clone(&known.node_slo));
        }
        let layout = node::layout(known, &self.sources.hierarchies);
        let facts = self.cpu_info();
        let cpus = facts.as_deref().map(node::cpus).unwrap_or_default();
        self.is_amd = facts.is_some_and(|facts| facts.vendor_id == "AuthenticAMD");
        let began = *self.began.get_or_insert(now);
        // The built-in policy enables nothing: acting by it before the node's own is known would give everything back.
        let policy_told = !Arc::ptr_eq(&self.built_in, &known.node_slo);
        let missing = known.kubelet.is_none() || !policy_told;
        let waits = missing && now.saturating_sub(began) < self.kubelet_within;
        // The cgroups of another kubelet must not be taken for those of this one.
        let view = node::view(known, &cpus, layout.clone());
        self.node = view.filter(|_| !waits);
        let same_pods = match (&self.pods.of, &known.pods) {
            (Some(before), Some(now)) => Arc::ptr_eq(before, now),
            (before, now) => before.is_none() && now.is_none(),
        };
        if self.pods.of.is_some() && self.pods.layout != layout {
            // Last plans are about folders that are not this kubelet's.
            self.planner = Planner::new(self.planner.settings.clone());
        }
        if !same_pods || self.pods.layout != layout {
            let list = known.pods.iter().flat_map(|pods| pods.iter());
            self.pods.list = list.map(|pod| pods::view(pod, &layout)).collect();
            self.pods.of.clone_from(&known.pods);
            self.pods.layout = layout;
        }
        if let Some(node) = &self.node {
            self.bases = KubeletBases::of(node, &self.pods.list, self.sources.hierarchies.is_v2());
        }
    }

    fn cpu_info(&self) -> Option<Arc<NodeCpuInfo>> {
        let facts = self.sources.history.facts();
        facts.get(plimsoll_history::machine_facts::NODE_CPU_INFO)
    }

    /// When usage was measured last, and how often it is.
    fn usage(&mut self, now: Duration) -> Option<(Duration, Duration)> {
        let latest = self.sources.history.usage_now()?;
        let usage = &mut self.usage;
        usage.node_cpu = latest.node_cpu;
        usage.node_memory = latest.node_memory;
        usage.best_effort_cpu = latest.best_effort_cpu;
        usage.best_effort_real_limit = latest.best_effort_real_limit;
        usage.pods = latest
            .pods
            .iter()
            .map(|pod| {
                let (cpu, memory) = (pod.cpu, pod.memory);
                (Arc::clone(&pod.uid), PodUsage { cpu, memory })
            })
            .collect();
        usage.containers = latest
            .containers
            .iter()
            .map(|one| {
                let (cpu, throttled) = (one.cpu, one.throttled);
                (Arc::clone(&one.id), ContainerUsage { cpu, throttled })
            })
            .collect();
        usage.host_applications = latest
            .host_applications
            .iter()
            .filter_map(|(name, cpu)| Some((name.clone(), (*cpu)?)))
            .collect();
        Some((latest.at.min(now), latest.every))
    }

    pub fn eviction_failed(&mut self, uid: &Arc<str>, now: Duration) {
        self.planner.eviction_failed(uid, now);
    }

    pub fn bases(&self) -> &KubeletBases {
        &self.bases
    }
}
