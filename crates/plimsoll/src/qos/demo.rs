//! `plimsoll qos demo`: protection on two pod-shaped cgroups of real processes, below a folder of its own.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use plimsoll_actuate::{Actuator, Filter, Machine, Mode, Now};
use plimsoll_api::kubelet_cgroups::{CgroupDriver, CgroupLayout};
use plimsoll_api::priority::KubeQos;
use plimsoll_host::cgroup::{CgroupReader, Controller, Cpu, Hierarchies, Wanted};
use plimsoll_host::{Clock, Descriptors, HostRoot, ReadBuf};
use plimsoll_plan::{Asker, Knob, Plan, Reason, Target, Value};
use plimsoll_qos::input::{
    Capabilities, Cpu as CpuView, Input, Kernel, NodeView, PodUsage, PodView, Seen, UsageSnapshot,
};
use plimsoll_qos::{Gates, KubeletBases, Planner, Policy, Settings};
use serde_json::json;

const EVERY: Duration = Duration::from_secs(1);
/// The demonstration competes with everything else on the machine; this weight gives it most of the CPUs.
const WEIGHT: u64 = 262_144;
/// Seconds in which the service uses little, and in which it uses more.
const CALM: u32 = 6;
const BUSY: u32 = 8;
const SERVICE: &str = "11111111-0000-0000-0000-000000000001";
const BATCH: &str = "22222222-0000-0000-0000-000000000002";

/// Runs the story on this machine and prints it. Only cgroups of its own are changed, and all of them are removed.
pub fn run() -> Result<()> {
    let root = HostRoot::new("/");
    let mut buf = ReadBuf::default();
    let hierarchies = Hierarchies::detect(&root, &mut buf)?;
    let stage = Stage::set(&hierarchies).context(
        "make cgroups for the demonstration; run it as root, with cgroups that can be written",
    )?;
    let mut demo = Demo::new(root, hierarchies, &stage)?;
    println!(
        "Two pods share this machine, in cgroups below {}:",
        stage.name
    );
    println!("  a service (latency-sensitive), and a batch job that takes whatever it gets.");
    println!(
        "The policy: services, the system and batch work use at most 65 % of the CPUs together.\n"
    );
    println!("  time  service    batch      batch may use");
    let mut busy = Vec::new();
    for second in 0..CALM + BUSY {
        if second == CALM {
            println!("  -- the service gets more requests --");
            busy.push(stage.start(&stage.service, demo.cpus.div_ceil(2).max(1))?);
        }
        std::thread::sleep(EVERY);
        let line = demo.step();
        println!("  {:3} s  {line}", second + 1);
    }
    println!("\nWhat was written, and why:");
    for line in demo.actuator.journal(0, 1000) {
        println!("  {}", line.text);
    }
    let applied = demo.actuator.restore(&Filter::All, demo.now(), &demo.bases);
    println!(
        "\nThe demonstration ends: {} values were given back.",
        applied.restored
    );
    let after = demo.limit();
    println!("Batch may use {after} again. Its cgroups are removed now.");
    drop(busy);
    Ok(())
}

/// The cgroups and the processes in them. Dropped, all of it is gone.
struct Stage {
    name: String,
    tops: Vec<PathBuf>,
    service: Vec<PathBuf>,
    _processes: Vec<Burners>,
    layout: CgroupLayout,
}

/// Processes that burn; dropped, they end.
struct Burners(Vec<Child>);

impl Drop for Burners {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // They may have ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self._processes.clear();
        for top in &self.tops {
            remove(top);
        }
    }
}

/// From the leaves up; a cgroup whose processes are about to end is tried again for a second.
fn remove(dir: &Path) {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
        remove(&entry.path());
    }
    for _ in 0..20 {
        if std::fs::remove_dir(dir).is_ok() || !dir.exists() {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    eprintln!(
        "plimsoll: {} could not be removed; remove it with rmdir",
        dir.display()
    );
}

impl Stage {
    fn set(hierarchies: &Hierarchies) -> Result<Self> {
        let name = format!("plimsoll-demo-{}", std::process::id());
        let layout = CgroupLayout::new(CgroupDriver::Cgroupfs, &name);
        let service = format!("{}/c", layout.pod(SERVICE, KubeQos::Burstable));
        let batch = format!("{}/c", layout.pod(BATCH, KubeQos::BestEffort));
        let controllers = match hierarchies.is_v2() {
            true => vec![Controller::Cpu],
            false => vec![Controller::Cpu, Controller::Cpuacct],
        };
        let mut stage = Self {
            tops: Vec::new(),
            service: Vec::new(),
            _processes: Vec::new(),
            layout,
            name,
        };
        let mut batches = Vec::new();
        for controller in controllers {
            let dir = |cgroup: &str| hierarchies.dir(controller, cgroup);
            let top =
                dir(&format!("/{}", stage.name)).context("this machine has no cpu controller")?;
            if !stage.tops.contains(&top) {
                std::fs::create_dir(&top).with_context(|| format!("make {}", top.display()))?;
                stage.tops.push(top);
            }
            for (cgroup, list) in [(&service, &mut stage.service), (&batch, &mut batches)] {
                let dir = dir(cgroup).context("this machine has no cpu controller")?;
                std::fs::create_dir_all(&dir).with_context(|| format!("make {}", dir.display()))?;
                list.push(dir);
            }
        }
        if hierarchies.is_v2() {
            stage.enable_cpu()?;
        }
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let batch = stage.start(&batches, cpus)?;
        let service = stage.start(&stage.service, 1)?;
        stage._processes.extend([batch, service]);
        Ok(stage)
    }

    /// v2 has a controller's files only where its parent hands the controller on. A shell does it: this program opens
    /// kernel files for writing in one place only.
    fn enable_cpu(&self) -> Result<()> {
        for top in &self.tops {
            let script = "find \"$0\" -type d ! -name c | sort | while read -r d; do echo +cpu > \"$d/cgroup.subtree_control\" || exit 1; done";
            let done = Command::new("sh").arg("-c").arg(script).arg(top).status()?;
            if !done.success() {
                bail!(
                    "the cpu controller cannot be enabled below {}",
                    top.display()
                );
            }
        }
        Ok(())
    }

    /// Starts processes that burn in a cgroup of each hierarchy.
    fn start(&self, cgroups: &[PathBuf], number: usize) -> Result<Burners> {
        let mut started = Burners(Vec::new());
        for _ in 0..number {
            let script = "for d in \"$@\"; do echo $$ > \"$d/cgroup.procs\" || exit 1; done; while :; do :; done";
            let child = Command::new("sh")
                .arg("-c")
                .arg(script)
                .arg("sh")
                .args(cgroups)
                .stdin(Stdio::null())
                .spawn()
                .context("start a process for the demonstration")?;
            started.0.push(child);
        }
        Ok(started)
    }
}

struct Meter {
    reader: CgroupReader,
    last: Option<(Duration, u64)>,
}

impl Meter {
    /// Cores since the last time.
    fn cores(&mut self, now: Duration, buf: &mut ReadBuf) -> Option<f64> {
        let mut cpu = Cpu::default();
        if !self.reader.cpu_time(buf, &mut cpu).ok()? {
            return None;
        }
        let before = self.last.replace((now, cpu.total_ns));
        let (at, total) = before?;
        let elapsed = now.saturating_sub(at).as_nanos() as f64;
        (elapsed > 0.0).then(|| cpu.total_ns.saturating_sub(total) as f64 / elapsed)
    }
}

struct Demo {
    clock: Clock,
    cpus: usize,
    planner: Planner,
    policy: Policy,
    node: NodeView,
    pods: Vec<PodView>,
    bases: KubeletBases,
    actuator: Actuator,
    service: Meter,
    batch: Meter,
    buf: ReadBuf,
    capabilities: Capabilities,
}

impl Demo {
    fn new(root: HostRoot, hierarchies: Hierarchies, stage: &Stage) -> Result<Self> {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        let is_v2 = hierarchies.is_v2();
        let mut buf = ReadBuf::default();
        let descriptors = Descriptors::new(64);
        let mut meter = |cgroup: &str| Meter {
            reader: CgroupReader::new(
                &hierarchies,
                &root,
                cgroup,
                Wanted {
                    cpu: true,
                    ..Wanted::default()
                },
                &descriptors,
                &mut buf,
            ),
            last: None,
        };
        let service = meter(&stage.layout.pod(SERVICE, KubeQos::Burstable));
        let batch = meter(&stage.layout.pod(BATCH, KubeQos::BestEffort));
        let mut node = NodeView::from_json(&json!({
            "status": {
                "capacity": {"cpu": cpus.to_string(), "memory": "1Gi"},
                "allocatable": {"cpu": cpus.to_string(), "memory": "1Gi"},
            },
        }));
        node.layout = stage.layout.clone();
        node.cpus = (0..cpus as u32)
            .map(|id| CpuView {
                id,
                core: id,
                socket: 0,
                node: 0,
            })
            .collect();
        let pod = |uid: &str, name: &str, class: &str, kube: &str| {
            let pod = json!({
                "metadata": {"uid": uid, "name": name, "namespace": "demo", "labels": {"koordinator.sh/qosClass": class}},
                "spec": {"containers": [{"name": "c"}]},
                "status": {"phase": "Running", "qosClass": kube},
            });
            PodView::from_json(&pod, &stage.layout)
        };
        let pods = vec![
            pod(SERVICE, "service", "LS", "Burstable")?,
            pod(BATCH, "batch", "BE", "BestEffort")?,
        ];
        let config = plimsoll_actuate::Config {
            mode: Mode::Enforce,
            ..plimsoll_actuate::Config::new(Machine::new(root, hierarchies))
        };
        let (mut actuator, _) = Actuator::open(config)?;
        let mut whole = Plan::empty(Asker::Operator);
        let top: Arc<str> = format!("/{}", stage.name).into();
        let weight = Target::cgroup(&top, Knob::CpuShares);
        whole.want(weight, Value::Shares(WEIGHT), Reason::new("demonstration"));
        actuator.submit(whole);
        let gates = Gates {
            cpu_burst: false,
            rdt_resctrl: false,
            ..Gates::default()
        };
        let policy = json!({"resourceUsedThresholdWithBE": {
            "enable": true, "cpuSuppressThresholdPercent": 65, "cpuSuppressPolicy": "cfsQuota",
        }});
        Ok(Self {
            clock: Clock::Real,
            planner: Planner::new(Settings {
                gates,
                ..Settings::default()
            }),
            policy: Policy::of(&policy),
            bases: KubeletBases::of(&node, &pods, is_v2),
            capabilities: match is_v2 {
                true => Capabilities::v2(),
                false => Capabilities::v1(),
            },
            cpus,
            node,
            pods,
            actuator,
            service,
            batch,
            buf,
        })
    }

    fn now(&self) -> Now {
        Now::of(&self.clock)
    }

    /// One second: measure, plan, write. Gives the line for people.
    fn step(&mut self) -> String {
        let now = self.now();
        let service = self.service.cores(now.monotonic, &mut self.buf);
        let batch = self.batch.cores(now.monotonic, &mut self.buf);
        if let (Some(service), Some(batch)) = (service, batch) {
            let usage = UsageSnapshot {
                node_cpu: Some(service + batch),
                node_memory: Some(1.0),
                best_effort_cpu: Some(batch),
                pods: [(SERVICE, service), (BATCH, batch)]
                    .map(|(uid, cpu)| {
                        let usage = PodUsage {
                            cpu: Some(cpu),
                            memory: Some(0.0),
                        };
                        (Arc::from(uid), usage)
                    })
                    .into(),
                ..UsageSnapshot::default()
            };
            self.plan(now, &usage);
        }
        let cores =
            |value: Option<f64>| value.map_or("–".into(), |cores| format!("{cores:.2} CPU"));
        format!("{:9}  {:9}  {}", cores(service), cores(batch), self.limit())
    }

    fn plan(&mut self, now: Now, usage: &UsageSnapshot) {
        let kernel = Kernel {
            capabilities: self.capabilities,
            below_best_effort: Some(vec![self.pods[1].cgroup.clone()]),
            ..Kernel::default()
        };
        let seen = |at| Seen {
            value: (),
            at,
            every: EVERY,
        };
        let at = seen(now.monotonic);
        let input = |kernel| Input {
            now: now.monotonic,
            policy: &self.policy,
            node: Some(&self.node),
            pods: Some(Seen {
                value: self.pods.as_slice(),
                at: at.at,
                every: at.every,
            }),
            usage: Some(Seen {
                value: usage,
                at: at.at,
                every: at.every,
            }),
            kernel,
        };
        let wanted = self.planner.reads(&input(&kernel)).into_iter();
        let with_values = Kernel {
            values: wanted
                .filter_map(|target| {
                    let value = self.actuator.read(&target)?;
                    Some((target, value))
                })
                .collect(),
            ..kernel.clone()
        };
        let planned = self.planner.plan(&input(&with_values));
        for plan in planned.plans {
            self.actuator.submit(plan);
        }
        self.actuator.turn(now, &self.bases);
    }

    /// What the kernel allows batch pods together.
    fn limit(&self) -> String {
        let tier: Arc<str> = self.node.layout.tier(KubeQos::BestEffort).into();
        let target = Target::cgroup(&tier, Knob::CpuQuota);
        match self.actuator.read(&target) {
            Some(Value::Quota {
                quota_us: Some(quota),
                period_us,
            }) => {
                let period = period_us.unwrap_or(100_000).max(1);
                format!("{:.2} CPU", quota as f64 / period as f64)
            }
            Some(_) => "everything".to_owned(),
            None => "not known".to_owned(),
        }
    }
}
