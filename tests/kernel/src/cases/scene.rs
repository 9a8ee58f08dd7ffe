//! Pods and programs that use something, and what two agents remember of the same seconds.
//!
//! All comparisons share one look of ten seconds: emulated time passes no faster than real time.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use plimsoll_test_support::cgroup::{self, Group};
use plimsoll_test_support::poll;
use plimsoll_test_support::report::Runner;
use serde_json::Value;

use super::host_applications::{self, applications, told_bytes};
use super::memory::{self, busy_seconds, cpu_seconds, memory_bytes, used_bytes, wait_noted};
use super::{NO_BUDGET, PATIENCE, Rig};
use crate::api_server::ApiServer;
use crate::init::DATA;
use crate::workload::Workload;

pub const POD: &str = "12345678-1234-1234-1234-123456789abc";
pub const THROTTLED: &str = "12345678-1234-1234-1234-123456789def";
pub const CACHING: &str = "12345678-1234-1234-1234-123456789cac";
const BEST_EFFORT: &str = "12345678-1234-1234-1234-123456789bec";
pub const BEST_EFFORT_TIER: &str = "/kubepods/besteffort";
/// Of a core, in thousandths: the quota of all best-effort pods.
pub const QUOTA_MILLI: f64 = 300.0;
/// What burns is held back, so that all of it together leaves the agents a CPU: an agent that is starved takes a note
/// every few seconds, and there is nothing to compare.
const BURNING_MILLI: f64 = 200.0;
/// So little that its program runs into it in every period, however little of the machine is left for it.
const THROTTLED_MILLI: f64 = 20.0;
/// Long enough that its edges do not matter.
const LOOK: Duration = Duration::from_secs(10);
/// An emulator that stands still for a moment spoils one look, not all.
const LOOKS: usize = 3;
/// Cgroups whose trees the scene makes.
const TOPS: [&str; 5] = [
    "/kubepods",
    "/apps",
    "/host-latency-sensitive",
    "/host-best-effort",
    "/plain",
];
/// Of the agent that finds pods by their cgroups.
const METRICS: [&str; 10] = [
    "node_memory_usage",
    "node_cpu_usage",
    "sys_cpu_usage",
    "pod_memory_usage",
    "pod_cpu_usage",
    "container_cpu_usage",
    "pod_cpu_throttled",
    "node_be",
    "node_numa_cpu_usage",
    "node_numa_memory_usage",
];
/// Of the agent that has a policy.
const METRICS_BY_POLICY: [&str; 2] = [
    "host_application_memory_usage",
    "host_application_cpu_usage",
];

type Compared = fn(&Look) -> Result<String>;
type Asked = fn(&Rig, &Scene) -> Result<String>;

pub fn cases(runner: &mut Runner<impl Write>, rig: &Rig) {
    let stage = Stage {
        rig,
        scene: OnceCell::new(),
        looks: Vec::new(),
    };
    let mut stage = stage;
    for (name, compare) in [
        ("memory_pod", memory::pod as Compared),
        ("memory_best_effort", memory::best_effort),
        ("memory_node", memory::node),
        ("memory_numa", memory::numa),
        ("memory_throttled", memory::throttled),
        ("memory_host_applications", host_applications::usage),
    ] {
        runner.case(name, || stage.compare(compare));
    }
    for (name, ask) in [
        ("memory_page_cache", memory::page_cache as Asked),
        ("memory_pressure_supported", memory::pressure),
    ] {
        runner.case(name, || ask(rig, stage.scene()?));
    }
}

/// The scene is set by the first case that needs it, so that each can be run alone.
struct Stage<'a> {
    rig: &'a Rig,
    scene: OnceCell<Result<Scene, String>>,
    looks: Vec<Look>,
}

impl Stage<'_> {
    fn scene(&self) -> Result<&Scene> {
        let set = || Scene::set(self.rig).map_err(|error| format!("{error:#}"));
        let scene = self.scene.get_or_init(set);
        scene.as_ref().map_err(|error| anyhow!("{error}"))
    }

    /// One look that agrees is enough.
    fn compare(&mut self, compare: Compared) -> Result<String> {
        let mut outcome = Err(anyhow!("no look"));
        for index in 0..LOOKS {
            if self.looks.len() == index {
                let look = self.scene()?.look(self.rig)?;
                self.looks.push(look);
            }
            outcome = compare(&self.looks[index]);
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }
}

impl Drop for Stage<'_> {
    fn drop(&mut self) {
        let Some(Ok(scene)) = self.scene.take() else {
            return;
        };
        drop(scene);
        // Later cases watch the whole tree, and have less to watch without these.
        for top in TOPS {
            cgroup::remove_below(&self.rig.mounts, top);
        }
    }
}

/// What runs: pods of every kind and a few other programs. Dropped, all of it ends.
pub struct Scene {
    /// An agent that a cluster tells which programs are no pods.
    policy: Rig,
    groups: Vec<Group>,
    _workloads: Vec<Workload>,
}

impl Scene {
    fn set(rig: &Rig) -> Result<Self> {
        let applications = applications();
        let server = host_applications::serve_policy(&applications)?;
        let policy = start_with_policy(rig, &server)?;
        // Only now: by whose names the kubelet's cgroups go is not known before they are there.
        let mut workloads = Vec::new();
        let (pod, container) = pod_group(rig, POD)?;
        set_quota(rig, &pod, BURNING_MILLI)?;
        workloads.push(Workload::start(&container, &["burn"])?);
        workloads.push(Workload::start(&container, &["alloc", "67108864"])?);
        let (_, container) = pod_group(rig, CACHING)?;
        let file = format!("{DATA}/remembered");
        workloads.push(Workload::start(&container, &["cache", &file, "25165824"])?);
        let (throttled, container) = pod_group(rig, THROTTLED)?;
        set_quota(rig, &throttled, THROTTLED_MILLI)?;
        workloads.push(Workload::start(&container, &["burn"])?);
        let tier = Group::create(&rig.mounts, BEST_EFFORT_TIER)?;
        set_quota(rig, &tier, QUOTA_MILLI)?;
        let id = container_id(BEST_EFFORT);
        let container = format!("{BEST_EFFORT_TIER}/pod{BEST_EFFORT}/{id}");
        let container = Group::create(&rig.mounts, &container)?;
        workloads.push(Workload::start(&container, &["burn"])?);
        let mut groups = vec![pod, tier, throttled];
        for (index, application) in applications.iter().enumerate() {
            let group = Group::create(&rig.mounts, application.cgroup)?;
            let bytes = told_bytes(index).to_string();
            workloads.push(Workload::start(&group, &["alloc", &bytes])?);
            if application.burns {
                set_quota(rig, &group, BURNING_MILLI)?;
                workloads.push(Workload::start(&group, &["burn"])?);
            }
            groups.push(group);
        }
        wait_noted(&rig.agent, "pod_cpu_usage", &format!("pod_uid={POD}"), 3)?;
        let usage = "be_resource=cpu,be_allocation=usage";
        wait_noted(&rig.agent, "node_be", usage, 3)?;
        for application in &applications {
            let series = application.series();
            wait_noted(&policy.agent, "host_application_cpu_usage", &series, 3)?;
        }
        Ok(Self {
            policy,
            groups,
            _workloads: workloads,
        })
    }

    fn look(&self, rig: &Rig) -> Result<Look> {
        let counted = || -> Result<Vec<Counted>> {
            let groups = self.groups.iter().map(|group| Counted::of(rig, group));
            groups.collect()
        };
        let (begin, busy, before) = (Instant::now(), busy_seconds()?, counted()?);
        std::thread::sleep(LOOK);
        let elapsed = begin.elapsed().as_secs_f64();
        let (busy, after) = (busy_seconds()? - busy, counted()?);
        let node = Kernel {
            cores: busy / elapsed,
            bytes: used_bytes()?,
            throttled: 0.0,
        };
        let mut remembered = BTreeMap::new();
        for (of, metrics) in [
            (rig, METRICS.as_slice()),
            (&self.policy, METRICS_BY_POLICY.as_slice()),
        ] {
            for metric in metrics {
                let seconds = LOOK.as_secs();
                let path = format!("/debug/history?metric={metric}&window={seconds}s");
                remembered.insert(*metric, of.agent.json(&path)?);
            }
        }
        let mut kernel = BTreeMap::new();
        for (index, group) in self.groups.iter().enumerate() {
            let (before, after) = (before[index], after[index]);
            let periods = (after.periods - before.periods).max(1.0);
            let figures = Kernel {
                cores: (after.seconds - before.seconds) / elapsed,
                bytes: memory_bytes(rig, group)?,
                throttled: (after.throttled - before.throttled) / periods,
            };
            kernel.insert(group.path().to_owned(), figures);
        }
        Ok(Look {
            node,
            kernel,
            remembered,
        })
    }
}

/// Figures of one look.
pub struct Look {
    pub node: Kernel,
    /// By cgroup.
    kernel: BTreeMap<String, Kernel>,
    /// By metric.
    remembered: BTreeMap<&'static str, Value>,
}

/// By the kernel's own files.
#[derive(Debug, Clone, Copy)]
pub struct Kernel {
    pub cores: f64,
    pub bytes: f64,
    /// The share of the periods in which the quota was used up.
    pub throttled: f64,
}

/// What only grows.
#[derive(Debug, Clone, Copy)]
struct Counted {
    seconds: f64,
    periods: f64,
    throttled: f64,
}

impl Counted {
    fn of(rig: &Rig, group: &Group) -> Result<Self> {
        let stat = |key| Ok::<_, anyhow::Error>(group.keyed("cpu", "cpu.stat", key)? as f64);
        Ok(Self {
            seconds: cpu_seconds(rig, group)?,
            periods: stat("nr_periods")?,
            throttled: stat("nr_throttled")?,
        })
    }
}

impl Look {
    pub fn kernel(&self, path: &str) -> Result<Kernel> {
        let found = self.kernel.get(path).copied();
        found.with_context(|| format!("nobody looked at {path}"))
    }

    /// All series of a metric.
    pub fn page(&self, metric: &str) -> Result<&Value> {
        let found = self.remembered.get(metric);
        found.with_context(|| format!("nobody asked for {metric}"))
    }

    pub fn figure(&self, metric: &str, of: &str, name: &str) -> Result<f64> {
        let page = self.page(metric)?;
        let key = match of {
            "" => metric.to_owned(),
            of => format!("{metric}{{{of}}}"),
        };
        let found = page.get(&key).and_then(|series| series[name].as_f64());
        found.with_context(|| format!("no {name} of {key} in {page}"))
    }
}

fn start_with_policy(rig: &Rig, server: &ApiServer) -> Result<Rig> {
    let kubeconfig = format!("{DATA}/kubeconfig");
    std::fs::write(&kubeconfig, server.kubeconfig().to_string())?;
    let arguments = [
        NO_BUDGET,
        "--kubeconfig",
        &kubeconfig,
        // Its stand-in of a cluster lets nobody in.
        "--open-to-all=everything",
        "--node-name",
        host_applications::NODE,
        "--pods-from",
        "apiserver",
    ];
    let policy = Rig::start(&rig.mounts, &arguments, "/tmp/policy.log")?;
    poll::until("the policy is known", PATIENCE, || {
        Ok(server.is_watched("nodeslos").then_some(()))
    })
    .map_err(|error| anyhow!("{error:#}; agent's log: {}", policy.agent.log_tail()))?;
    Ok(policy)
}

pub fn pod_path(uid: &str) -> String {
    format!("/kubepods/burstable/pod{uid}")
}

/// A pod and its container.
pub fn pod_group(rig: &Rig, uid: &str) -> Result<(Group, Group)> {
    let pod = Group::create(&rig.mounts, &pod_path(uid))?;
    let container = format!("{}/{}", pod_path(uid), container_id(uid));
    let container = Group::create(&rig.mounts, &container)?;
    Ok((pod, container))
}

/// Of the only container of a pod: no two are called the same.
pub fn container_id(uid: &str) -> String {
    uid.replace('-', "").repeat(2)
}

fn set_quota(rig: &Rig, group: &Group, milli: f64) -> Result<()> {
    let micros = (milli * 100.0) as u64;
    match rig.is_v1() {
        true => group.write("cpu", "cpu.cfs_quota_us", &micros.to_string()),
        false => group.write("cpu", "cpu.max", &format!("{micros} 100000")),
    }
}
