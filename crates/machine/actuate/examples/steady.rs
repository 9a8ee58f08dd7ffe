//! What a turn costs while nothing changes: 110 pods with 250 containers, six values each, on plain files.
//!
//! `cargo run --release -p plimsoll-actuate --example steady`

use std::path::Path;
use std::time::Duration;

use plimsoll_actuate::{Actuator, Config, Machine, Mode, Now};
use plimsoll_host::cgroup::Hierarchies;
use plimsoll_host::{HostRoot, Timestamp};
use plimsoll_plan::{Asker, Knob, Plan, Reason, Target, Value};

const PODS: usize = 110;
const CONTAINERS: usize = 250;
const SECONDS: u64 = 120;

fn files() -> [(&'static str, &'static str, Asker, Knob, Value); 6] {
    let quota = Value::Quota {
        quota_us: Some(50_000),
        period_us: None,
    };
    let bytes = Value::Bytes(Some(4096));
    [
        (
            "cpu.max",
            "max 100000\n",
            Asker::BatchResource,
            Knob::CpuQuota,
            quota,
        ),
        (
            "cpu.weight",
            "100\n",
            Asker::BatchResource,
            Knob::CpuShares,
            Value::Shares(2048),
        ),
        (
            "cpu.max.burst",
            "0\n",
            Asker::CpuBurst,
            Knob::CpuBurst,
            Value::Number(10_000),
        ),
        (
            "memory.min",
            "0\n",
            Asker::MemoryQos,
            Knob::MemoryMin,
            bytes.clone(),
        ),
        (
            "memory.low",
            "0\n",
            Asker::MemoryQos,
            Knob::MemoryLow,
            bytes,
        ),
        (
            "memory.oom.group",
            "0\n",
            Asker::MemoryQos,
            Knob::OomGroup,
            Value::Switch(true),
        ),
    ]
}

fn cgroups() -> Vec<String> {
    let pods = (0..PODS).map(|pod| format!("/kubepods/burstable/pod{pod}"));
    let containers = (0..CONTAINERS).map(|number| {
        let pod = number % PODS;
        format!("/kubepods/burstable/pod{pod}/{number:064x}")
    });
    pods.chain(containers).collect()
}

fn plans(cgroups: &[String]) -> Vec<Plan> {
    let mut plans = Vec::new();
    for asker in [Asker::BatchResource, Asker::CpuBurst, Asker::MemoryQos] {
        let mut plan = Plan::empty(asker);
        for cgroup in cgroups {
            for (_, _, by, knob, value) in files() {
                if by == asker {
                    let target = Target::cgroup(&cgroup.as_str().into(), knob);
                    plan.want(target, value, Reason::new("steady"));
                }
            }
        }
        plans.push(plan);
    }
    plans
}

fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let temp = std::env::temp_dir().join(format!("plimsoll-steady-{}", std::process::id()));
    let cgroups = cgroups();
    for cgroup in &cgroups {
        let dir = temp.join(cgroup.trim_start_matches('/'));
        std::fs::create_dir_all(&dir)?;
        for (file, text, ..) in files() {
            std::fs::write(dir.join(file), text)?;
        }
    }
    let outcome = measure(&temp, &cgroups);
    std::fs::remove_dir_all(&temp)?;
    outcome
}

fn measure(mount: &Path, cgroups: &[String]) -> Result<(), Box<dyn std::error::Error>> {
    let machine = Machine::new(HostRoot::new("/"), Hierarchies::v2(mount));
    let mut config = Config::new(machine);
    config.mode = Mode::Enforce;
    let (mut actuator, _) = Actuator::open(config)?;
    let plans = plans(cgroups);
    let at = |second: u64| Now {
        monotonic: Duration::from_secs(1000 + second),
        wall: Timestamp::from_secs(i64::try_from(second).unwrap_or(0)),
    };
    plans.iter().cloned().for_each(|plan| actuator.submit(plan));
    let started = cpu_time();
    let first = actuator.turn(at(0), &());
    println!(
        "first turn: {} writes, {:?}",
        first.writes,
        cpu_time() - started
    );
    for second in 1..30 {
        actuator.turn(at(second), &());
    }
    let before = actuator.counters();
    let started = cpu_time();
    for second in 30..30 + SECONDS {
        // Cloned here, made by strategies there.
        plans.iter().cloned().for_each(|plan| actuator.submit(plan));
        actuator.turn(at(second), &());
    }
    let used = cpu_time() - started;
    let after = actuator.counters();
    println!(
        "{} targets: {:.3} % of a core, {} reads and {} writes a second",
        cgroups.len() * files().len(),
        100.0 * used.as_secs_f64() / SECONDS as f64,
        (after.reads - before.reads) / SECONDS,
        (after.writes - before.writes) / SECONDS,
    );
    Ok(())
}
