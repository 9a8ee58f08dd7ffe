//! Steps of a protector on a machine of plain files.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use plimsoll_actuate::{Filter, Mode, Now};
use plimsoll_api::pod::{Amounts, Classes};
use plimsoll_api::priority::KubeQos;
use plimsoll_history::{UsageHistory, UsageNow, machine_facts};
use plimsoll_host::cgroup::Hierarchies;
use plimsoll_host::machine::{NodeCpuInfo, Processor};
use plimsoll_host::{Clock, HostRoot};
use plimsoll_observe::store::Store;
use serde_json::{Value, json};

use super::{Config, Protector, Sources};
use crate::states::{ClusterStateCell, Container, KubeletConfiguration, Node, NodeSlo, Phase, Pod};

const TIER: &str = "kubepods/besteffort";
/// As the kubelet and the runtime leave the files that these tests look at.
const FILES: [(&str, &str); 6] = [
    ("cpu.max", "max 100000\n"),
    ("cpu.max.burst", "0\n"),
    ("cpu.weight", "1\n"),
    ("cpuset.cpus", "\n"),
    ("cpuset.cpus.effective", "0-3\n"),
    ("memory.max", "max\n"),
];

struct Rig {
    dir: tempfile::TempDir,
    clock: Clock,
    board: ClusterStateCell,
    history: Arc<UsageHistory>,
    protector: Protector,
    node_memory: f64,
}

impl Rig {
    fn new(mode: Mode) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let folders = [
            "",
            "kubepods",
            "kubepods/burstable",
            TIER,
            "kubepods/besteffort/podbe",
        ];
        for folder in folders
            .iter()
            .copied()
            .chain(["kubepods/burstable/podls", "kubepods/besteffort/podbe/c"])
        {
            let folder = dir.path().join("cg").join(folder);
            std::fs::create_dir_all(&folder).unwrap();
            for (name, text) in FILES {
                std::fs::write(folder.join(name), text).unwrap();
            }
        }
        let clock = Clock::stepped(plimsoll_host::Timestamp::from_secs(1_700_000_000));
        let history = plimsoll_history::Config::default();
        let history = Arc::new(UsageHistory::open(history, clock.now()));
        history
            .facts()
            .set(machine_facts::NODE_CPU_INFO, four_cpus());
        let board = ClusterStateCell::default();
        let (protector, _) = open(dir.path(), mode, &board, &history);
        Self {
            dir,
            clock,
            board,
            history,
            protector,
            node_memory: 1e9,
        }
    }

    /// A second later, with everything measured anew.
    fn step(&mut self, node_cpu: f64) -> super::protector::Step {
        self.clock.step(Duration::from_secs(1));
        let pods = [("be", 1.0), ("ls", 0.5)].map(|(uid, cpu)| plimsoll_history::PodUsage {
            uid: uid.into(),
            cpu: Some(cpu),
            memory: Some(1e6),
        });
        self.history.publish_usage(UsageNow {
            at: self.clock.monotonic(),
            every: Duration::from_secs(1),
            node_cpu: Some(node_cpu),
            node_memory: Some(self.node_memory),
            best_effort_cpu: Some(1.0),
            pods: pods.into(),
            ..UsageNow::default()
        });
        self.protector.step(Now::of(&self.clock))
    }

    fn file(&self, cgroup: &str, name: &str) -> String {
        let path = self.dir.path().join("cg").join(cgroup).join(name);
        std::fs::read_to_string(path).unwrap().trim().to_owned()
    }

    fn know_node_and_pods(&self) {
        self.board.update(|known| {
            known.node = Some(Arc::new(node()));
            known.pods = Some(
                [
                    pod("be", KubeQos::BestEffort, "BE"),
                    pod("ls", KubeQos::Burstable, "LS"),
                ]
                .into(),
            );
            known.kubelet = Some(Arc::new(KubeletConfiguration {
                cgroup_driver: "cgroupfs".into(),
                cpu_manager_policy: "none".into(),
                ..KubeletConfiguration::default()
            }));
        });
    }

    fn policy(&self, spec: &Value) {
        let slo = Arc::new(NodeSlo::of(spec));
        self.board.update(|known| known.node_slo = slo);
    }
}

#[test]
fn evictions_are_for_agents_that_enforce() {
    for (mode, expected) in [(Mode::Observe, 0), (Mode::Enforce, 1)] {
        let mut rig = Rig::new(mode);
        rig.protector.planner.settings.gates.be_memory_evict = true;
        rig.node_memory = 8e9;
        rig.know_node_and_pods();
        rig.policy(&json!({"resourceUsedThresholdWithBE": {
            "enable": true, "memoryEvictThresholdPercent": 70,
        }}));
        let evicted: Vec<_> = (0..3).flat_map(|_| rig.step(1.6).evictions).collect();
        assert_eq!(evicted.len(), expected, "{mode:?}: {evicted:?}");
        assert!(evicted.iter().all(|one| &*one.name == "be"));
    }
}

/// Annotations are whatever the pod's owner writes.
#[test]
fn an_annotation_does_not_lead_to_another_pods_folder() {
    let layout = plimsoll_api::kubelet_cgroups::CgroupLayout::default();
    let mut pod = pod("own", KubeQos::Burstable, "LS");
    let folder = |pod: &Pod| super::pods::view(pod, &layout).cgroup.to_string();
    let own = folder(&pod);
    let hash = "0123456789abcdef0123456789abcdef";
    for (source, told, expected) in [
        (None, "victim", &*own),
        (None, hash, &*own),
        (Some("file"), "11111111-2222-3333-4444-555555555555", &*own),
        (Some("file"), hash, "hash"),
    ] {
        pod.annotations = [("kubernetes.io/config.hash".into(), told.into())].into();
        if let Some(source) = source {
            let name = "kubernetes.io/config.source";
            pod.annotations.insert(name.into(), source.into());
        }
        match expected {
            "hash" => assert!(folder(&pod).contains(hash)),
            own => assert_eq!(folder(&pod), own, "{told}"),
        }
    }
}

/// What the kubelet says may come after its pods are known.
#[test]
fn pods_are_looked_for_where_the_kubelet_says_later() {
    let mut rig = Rig::new(Mode::Observe);
    rig.know_node_and_pods();
    rig.policy(&suppress_by_quota());
    rig.step(1.6);
    rig.board.update(|known| {
        known.kubelet = Some(Arc::new(KubeletConfiguration {
            cgroup_driver: "cgroupfs".into(),
            cgroup_root: "/root".into(),
            ..KubeletConfiguration::default()
        }));
    });
    let step = rig.step(1.6);
    let effects = step.planned.plans.iter().flat_map(|plan| &plan.effects);
    let paths: Vec<_> = effects
        .filter_map(|effect| effect.target.cgroup_path())
        .collect();
    assert!(
        paths.iter().any(|path| path.contains("/podls")),
        "{paths:?}"
    );
    assert!(
        paths.iter().all(|path| path.starts_with("/root/kubepods")),
        "{paths:?}"
    );
}

#[test]
fn the_kubelet_says_where_its_cgroups_are_or_is_waited_for() {
    let mut rig = Rig::new(Mode::Enforce);
    rig.know_node_and_pods();
    rig.policy(&suppress_by_quota());
    rig.board.update(|known| known.kubelet = None);
    let within = Duration::from_secs(5);
    let config = Config {
        mode: Mode::Enforce,
        kubelet_within: within,
        ..Config::default()
    };
    rig.protector = open_with(&config, rig.dir.path(), &rig.board, &rig.history).0;
    for _ in 0..5 {
        assert!(!rig.step(1.6).planned.gate.open);
    }
    assert!(rig.step(1.6).planned.gate.open);
}

fn open(
    dir: &Path,
    mode: Mode,
    board: &ClusterStateCell,
    history: &Arc<UsageHistory>,
) -> (Protector, plimsoll_actuate::Recovered) {
    let config = Config {
        mode,
        journal: Some(dir.join("journal")),
        ..Config::default()
    };
    open_with(&config, dir, board, history)
}

fn open_with(
    config: &Config,
    dir: &Path,
    board: &ClusterStateCell,
    history: &Arc<UsageHistory>,
) -> (Protector, plimsoll_actuate::Recovered) {
    let sources = Sources {
        board: board.clone(),
        history: Arc::clone(history),
        store: Arc::new(Store::new(Duration::from_secs(60))),
        hierarchies: Arc::new(Hierarchies::v2(dir.join("cg"))),
        root: HostRoot::new(dir),
    };
    Protector::open(config, sources).unwrap()
}

fn four_cpus() -> NodeCpuInfo {
    NodeCpuInfo {
        model: String::new(),
        vendor_id: String::new(),
        hyper_threads: false,
        turbo: false,
        l3_mask: String::new(),
        processors: (0..4)
            .map(|cpu| Processor {
                cpu,
                core: cpu,
                socket: 0,
                node: 0,
                l3: None,
            })
            .collect(),
    }
}

fn node() -> Node {
    let amounts = |cpu: &str| -> Amounts {
        [("cpu", cpu), ("memory", "8Gi")]
            .into_iter()
            .map(|(name, text)| (name.into(), text.parse().unwrap()))
            .collect()
    };
    Node {
        capacity: amounts("4"),
        allocatable: amounts("4"),
        ..Node::default()
    }
}

fn pod(uid: &str, kube_qos: KubeQos, class: &str) -> Pod {
    let label = "koordinator.sh/qosClass";
    let labels = [(label.to_owned(), class.to_owned())].into();
    Pod {
        uid: uid.into(),
        namespace: "default".into(),
        name: uid.into(),
        classes: Classes {
            kube_qos,
            ..Classes::of(Some(&labels), None, None)
        },
        priority: None,
        phase: Phase::Running,
        created: Timestamp::UNIX_EPOCH,
        terminating: false,
        requests: Amounts::new(),
        limits: Amounts::new(),
        containers: [Container {
            name: "c".into(),
            id: Some("c".into()),
            full_id: Some("containerd://c".into()),
            sidecar: false,
            running: true,
            actual: None,
            requests: Amounts::new(),
            limits: Amounts::new(),
        }]
        .into(),
        claims: [].into(),
        labels: [(label.into(), class.into())].into(),
        annotations: std::collections::BTreeMap::new(),
    }
}

fn suppress_by_quota() -> Value {
    json!({"resourceUsedThresholdWithBE": {
        "enable": true, "cpuSuppressThresholdPercent": 65, "cpuSuppressPolicy": "cfsQuota",
    }})
}

#[test]
fn nothing_is_written_before_everything_is_known() {
    let mut rig = Rig::new(Mode::Enforce);
    rig.policy(&suppress_by_quota());
    for _ in 0..5 {
        let step = rig.step(2.0);
        assert!(!step.planned.gate.open);
        assert_eq!(step.applied.writes, 0);
    }
    assert_eq!(rig.file(TIER, "cpu.max"), "max 100000");
}

#[test]
fn batch_is_suppressed_and_everything_is_given_back() {
    let mut rig = Rig::new(Mode::Enforce);
    rig.know_node_and_pods();
    rig.policy(&suppress_by_quota());
    let mut writes = 0;
    for _ in 0..20 {
        writes = rig.step(1.6).applied.writes;
    }
    // 65 % of 4 cores, less 0.5 of the service and 0.1 of the system, are 2 cores.
    assert_eq!(rig.file(TIER, "cpu.max"), "200000 100000");
    assert_eq!(writes, 0, "nothing changes, so nothing is written");
    rig.policy(&json!({}));
    for _ in 0..3 {
        rig.step(1.6);
    }
    assert_eq!(rig.file(TIER, "cpu.max"), "max 100000");
}

#[test]
fn what_a_killed_agent_left_is_given_back_by_its_journal() {
    let mut rig = Rig::new(Mode::Enforce);
    rig.know_node_and_pods();
    rig.policy(&suppress_by_quota());
    for _ in 0..20 {
        rig.step(1.6);
    }
    assert_eq!(rig.file(TIER, "cpu.max"), "200000 100000");
    // It is gone without a word.
    let (dir, now) = (rig.dir, Now::of(&rig.clock));
    drop(rig.protector);
    let (mut next, recovered) = open(dir.path(), Mode::Observe, &rig.board, &rig.history);
    assert!(!recovered.targets.is_empty());
    next.actuator.restore(&Filter::All, now, &());
    let file = dir.path().join("cg").join(TIER).join("cpu.max");
    assert_eq!(std::fs::read_to_string(file).unwrap().trim(), "max 100000");
}

#[test]
fn observing_writes_nothing_and_says_what_it_would() {
    let mut rig = Rig::new(Mode::Observe);
    rig.know_node_and_pods();
    rig.policy(&suppress_by_quota());
    for _ in 0..5 {
        let step = rig.step(1.6);
        assert_eq!(step.applied.writes, 0);
    }
    assert_eq!(rig.file(TIER, "cpu.max"), "max 100000");
    let lines = rig.protector.actuator.journal(0, 100);
    assert!(
        lines.iter().any(|line| line.file.ends_with("cpu.max")),
        "{lines:?}"
    );
}

#[test]
fn usage_that_is_old_lets_the_last_plan_stand_and_then_go() {
    let mut rig = Rig::new(Mode::Enforce);
    rig.know_node_and_pods();
    rig.policy(&suppress_by_quota());
    for _ in 0..20 {
        rig.step(1.6);
    }
    let silent = |rig: &mut Rig| {
        rig.clock.step(Duration::from_secs(1));
        rig.protector.step(Now::of(&rig.clock))
    };
    for _ in 0..10 {
        silent(&mut rig);
    }
    assert_eq!(rig.file(TIER, "cpu.max"), "200000 100000", "it is held");
    for _ in 0..40 {
        silent(&mut rig);
    }
    assert_eq!(rig.file(TIER, "cpu.max"), "max 100000", "it is released");
}
