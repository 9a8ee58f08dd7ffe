//! Changes to the machine: the order in which they are made, what the kernel refuses, and giving everything back.
//!
//! The actuator makes the changes; what came of them is read from the kernel's own files.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use plimsoll_actuate::{Actuator, Applied, Config, Filter, Machine, Mode as Acting, Now, Outcome};
use plimsoll_host::cgroup::Hierarchies;
use plimsoll_host::{Clock, HostRoot, ReadBuf};
use plimsoll_plan::{Asker, Knob, Plan, Reason, Target, Value};
use plimsoll_test_support::cgroup::{Group, Mode, Mounts};
use plimsoll_test_support::janitor;
use plimsoll_test_support::poll;
use plimsoll_test_support::report::Runner;

use super::PATIENCE;
use crate::workload::Workload;

const TOP: &str = "/tests/actuate";
const POD: &str = "/tests/actuate/pod";
const CONTAINER: &str = "/tests/actuate/pod/container";
const JOURNAL: &str = "/tmp/actuate";
const MIB: u64 = 1 << 20;
/// How often a process is killed while it writes.
const KILLS: usize = 5;

pub fn cases(runner: &mut Runner<impl Write>, mounts: &Mounts) {
    runner.case("actuate_order", || order(mounts));
    runner.case("actuate_burst", || burst(mounts));
    if mounts.mode == Mode::V2 {
        runner.case("actuate_promises", || promises(mounts));
        runner.case("actuate_slow_writes", || slow_writes(mounts));
    }
    runner.case("actuate_refusals", || refusals(mounts));
    runner.case("actuate_killed", || killed(mounts));
}

/// Three cgroups, one below the other, and what their files had.
struct Scene {
    groups: [Group; 3],
    journal: PathBuf,
    before: Vec<String>,
}

impl Scene {
    fn new(mounts: &Mounts) -> Result<Self> {
        let make = |path| Group::create(mounts, path);
        let groups = [make(TOP)?, make(POD)?, make(CONTAINER)?];
        let journal = PathBuf::from(JOURNAL);
        let _ = std::fs::remove_dir_all(&journal);
        let mut scene = Self {
            groups,
            journal,
            before: Vec::new(),
        };
        scene.before = scene.files()?;
        Ok(scene)
    }

    fn v1(&self) -> bool {
        self.groups[0].mode() == Mode::V1
    }

    fn cpus(&self, level: usize) -> Result<String> {
        let text = self.groups[level].read("cpuset", "cpuset.cpus")?;
        Ok(text.trim().to_owned())
    }

    /// Quota and burst in microseconds.
    fn bandwidth(&self, level: usize) -> Result<(String, String)> {
        let group = &self.groups[level];
        let (quota, burst) = match self.v1() {
            true => ("cpu.cfs_quota_us", "cpu.cfs_burst_us"),
            false => ("cpu.max", "cpu.max.burst"),
        };
        let quota = group.read("cpu", quota)?;
        let quota = quota.split_ascii_whitespace().next().unwrap_or("");
        Ok((
            quota.to_owned(),
            group.read("cpu", burst)?.trim().to_owned(),
        ))
    }

    /// All that the cases change.
    fn files(&self) -> Result<Vec<String>> {
        let mut files = Vec::new();
        for (level, group) in self.groups.iter().enumerate() {
            // A cpuset that was empty cannot be emptied again while there are tasks; what counts is what they may use.
            files.push(match self.v1() {
                true => self.cpus(level)?,
                false => group.read("cpuset", "cpuset.cpus.effective")?,
            });
            let (quota, burst) = self.bandwidth(level)?;
            files.extend([quota, burst]);
            files.push(match self.v1() {
                true => group.read("cpu", "cpu.shares")?,
                false => {
                    let high = group.read("memory", "memory.high")?;
                    let min = group.read("memory", "memory.min")?;
                    group.read("cpu", "cpu.weight")? + &high + &min
                }
            });
        }
        Ok(files)
    }

    fn given_back(self) -> Result<()> {
        let after = self.files()?;
        ensure!(
            after == self.before,
            "before: {:?}, after: {after:?}",
            self.before
        );
        for group in self.groups.iter().rev() {
            group.remove()?;
        }
        Ok(())
    }
}

fn actuator(journal: &Path) -> Result<Actuator> {
    let root = HostRoot::new("/");
    let hierarchies = Hierarchies::detect(&root, &mut ReadBuf::default())?;
    let mut config = Config::new(Machine::new(root, hierarchies));
    config.mode = Acting::Enforce;
    config.journal = Some(journal.to_owned());
    Ok(Actuator::open(config)?.0)
}

fn now() -> Now {
    Now::of(&Clock::Real)
}

fn plan(effects: &[(&str, Knob, Value)]) -> Plan {
    let mut plan = Plan::empty(Asker::CpuSuppress);
    for (path, knob, value) in effects {
        let target = Target::cgroup(&(*path).into(), *knob);
        plan.want(target, value.clone(), Reason::new("test"));
    }
    plan
}

fn cpus(cpu: u32) -> Value {
    Value::Cpus([cpu].into_iter().collect())
}

fn quota(quota_us: u64) -> Value {
    Value::Quota {
        quota_us: Some(quota_us),
        period_us: None,
    }
}

/// Applies a plan and waits for what is written slowly.
fn apply(actuator: &mut Actuator, plan: Plan) -> Result<Applied> {
    actuator.submit(plan);
    let mut all = Applied::default();
    poll::until("everything is written", PATIENCE, || {
        let applied = actuator.turn(now(), &());
        all.writes += applied.writes;
        all.refused += applied.refused;
        Ok((applied.writing == 0 && applied.writes == 0).then_some(()))
    })?;
    Ok(all)
}

#[track_caller]
fn nothing_refused(actuator: &Actuator, applied: &Applied) -> Result<()> {
    let refused = actuator.journal(0, 100);
    let refused: Vec<_> = refused
        .iter()
        .filter(|line| line.outcome == Outcome::Refused)
        .map(|line| &line.text)
        .collect();
    ensure!(applied.refused == 0, "refused: {refused:?}");
    Ok(())
}

/// CPUs of a whole tree move from one to the other and back, with a process inside. v1 refuses a child that has a CPU
/// which its parent lacks; quotas likewise.
fn order(mounts: &Mounts) -> Result<String> {
    let scene = Scene::new(mounts)?;
    let sleeper = Workload::start(&scene.groups[2], &["sleep"])?;
    let mut actuator = actuator(&scene.journal)?;
    let mut writes = 0;
    for (cpu, limits) in [
        (0, [80_000, 60_000, 40_000]),
        (1, [30_000, 20_000, 10_000]),
        (0, [90_000, 90_000, 90_000]),
    ] {
        let paths = [TOP, POD, CONTAINER];
        let sets = paths.map(|path| (path, Knob::Cpuset, cpus(cpu)));
        let quotas = [0, 1, 2].map(|level| (paths[level], Knob::CpuQuota, quota(limits[level])));
        let applied = apply(&mut actuator, plan(&[sets, quotas].concat()))?;
        nothing_refused(&actuator, &applied)?;
        writes += applied.writes;
        for (level, limit) in limits.iter().enumerate() {
            let found = (scene.cpus(level)?, scene.bandwidth(level)?.0);
            let wanted = (cpu.to_string(), limit.to_string());
            ensure!(
                found == wanted,
                "level {level}: {found:?}, wanted {wanted:?}"
            );
        }
    }
    let steady = actuator.turn(now(), &());
    ensure!(steady.writes == 0, "{} writes without need", steady.writes);
    let applied = apply(&mut actuator, Plan::empty(Asker::CpuSuppress))?;
    nothing_refused(&actuator, &applied)?;
    drop(sleeper);
    scene.given_back()?;
    Ok(format!("{writes} writes"))
}

/// The kernel refuses a burst above the quota, and a quota below the burst.
fn burst(mounts: &Mounts) -> Result<String> {
    let scene = Scene::new(mounts)?;
    let mut actuator = actuator(&scene.journal)?;
    for (limit, wanted) in [(50_000, 500_000), (20_000, 500_000), (80_000, 30_000)] {
        let effects = [
            (POD, Knob::CpuBurst, Value::Number(wanted)),
            (POD, Knob::CpuQuota, quota(limit)),
        ];
        let applied = apply(&mut actuator, plan(&effects))?;
        nothing_refused(&actuator, &applied)?;
        let found = scene.bandwidth(1)?;
        let burst = wanted.min(i64::try_from(limit)?);
        ensure!(
            found == (limit.to_string(), burst.to_string()),
            "{found:?} where {limit} and {burst} are wanted"
        );
    }
    let applied = apply(&mut actuator, Plan::empty(Asker::CpuSuppress))?;
    nothing_refused(&actuator, &applied)?;
    scene.given_back()?;
    Ok(String::new())
}

/// Nobody ever sees a child that is promised more memory than its parent.
fn promises(mounts: &Mounts) -> Result<String> {
    let scene = Scene::new(mounts)?;
    let mut actuator = actuator(&scene.journal)?;
    let (done, round_now) = (AtomicBool::new(false), AtomicUsize::new(0));
    let min = |level: usize| scene.groups[level].number("memory", "memory.min");
    let looks = std::thread::scope(|scope| {
        let looker = scope.spawn(|| -> Result<usize> {
            let mut looks = 0;
            while !done.load(Ordering::Acquire) {
                let round = round_now.load(Ordering::Acquire);
                // What is written last is read first.
                let (child, parent) = match round % 2 == 0 {
                    true => (min(1)?, min(0)?),
                    false => {
                        let parent = min(0)?;
                        (min(1)?, parent)
                    }
                };
                // Of two rounds, nothing can be said.
                if round_now.load(Ordering::Acquire) == round {
                    ensure!(child <= parent, "{child} in a parent of {parent}");
                    looks += 1;
                }
            }
            Ok(looks)
        });
        let outcome = (0..60).try_for_each(|round| {
            round_now.store(round, Ordering::Release);
            let size = if round % 2 == 0 { 2 * MIB } else { MIB };
            let effects = [POD, TOP].map(|path| (path, Knob::MemoryMin, Value::Bytes(Some(size))));
            actuator.submit(plan(&effects));
            let applied = actuator.turn(now(), &());
            ensure!(applied.writes == 2 || round == 0, "{applied:?}");
            ensure!(min(0)? == size && min(1)? == size, "round {round}");
            Ok(())
        });
        done.store(true, Ordering::Release);
        let looks = looker.join().ok().context("the looker ended")??;
        outcome.map(|()| looks)
    })?;
    apply(&mut actuator, Plan::empty(Asker::CpuSuppress))?;
    scene.given_back()?;
    Ok(format!("{looks} looks"))
}

/// Memory that cannot be reclaimed: the kernel tries for long. Nothing else waits for it.
fn slow_writes(mounts: &Mounts) -> Result<String> {
    let scene = Scene::new(mounts)?;
    let bytes = (24 * MIB).to_string();
    let hog = Workload::start(&scene.groups[2], &["alloc", &bytes])?;
    let mut actuator = actuator(&scene.journal)?;
    let effects = [
        (CONTAINER, Knob::MemoryHigh, Value::Bytes(Some(8 * MIB))),
        (TOP, Knob::CpuShares, Value::Shares(2)),
    ];
    actuator.submit(plan(&effects));
    let applied = actuator.turn(now(), &());
    let weight = scene.groups[0].read("cpu", "cpu.weight")?;
    ensure!(
        weight.trim() == "1",
        "the weight is {weight:?} after a turn"
    );
    poll::until("the kernel has the mark", PATIENCE, || {
        let high = scene.groups[2].number("memory", "memory.high").ok();
        Ok((high == Some(8 * MIB)).then_some(()))
    })?;
    drop(hog);
    // Its end lets the kernel come back, if it did not before.
    poll::until("no write is under way", PATIENCE, || {
        Ok((actuator.turn(now(), &()).writing == 0).then_some(()))
    })?;
    apply(&mut actuator, Plan::empty(Asker::CpuSuppress))?;
    scene.given_back()?;
    Ok(format!(
        "{} under way after the first turn",
        applied.writing
    ))
}

/// What the kernel refuses is told with file and value, and costs nothing but itself.
fn refusals(mounts: &Mounts) -> Result<String> {
    let scene = Scene::new(mounts)?;
    let mut actuator = actuator(&scene.journal)?;
    // This machine has two CPUs.
    let mut effects = vec![
        (POD, Knob::Cpuset, cpus(7)),
        (POD, Knob::CpuQuota, quota(50_000)),
        ("/tests/actuate/none", Knob::CpuQuota, quota(50_000)),
    ];
    if scene.v1() {
        // Its children have CPU 1.
        effects.push((TOP, Knob::Cpuset, cpus(0)));
    }
    let refused = if scene.v1() { 2 } else { 1 };
    actuator.submit(plan(&effects));
    let told = poll::until("the kernel's answers", PATIENCE, || {
        actuator.turn(now(), &());
        let told: Vec<_> = actuator
            .journal(0, 100)
            .into_iter()
            .filter(|line| line.outcome == Outcome::Refused)
            .map(|line| line.text)
            .collect();
        Ok((told.len() >= refused).then_some(told))
    })?;
    let einval = told.iter().any(|text| {
        text.contains("7\"")
            && text.contains("cpuset.cpus")
            // Kernels say it in different ways.
            && (text.contains("os error 22") || text.contains("os error 13") || text.contains("os error 34"))
    });
    let ebusy = told.iter().any(|text| text.contains("os error 16"));
    ensure!(einval && (ebusy || !scene.v1()), "told: {told:?}");
    ensure!(scene.bandwidth(1)?.0 == "50000", "the quota is not there");
    let applied = apply(&mut actuator, Plan::empty(Asker::CpuSuppress))?;
    ensure!(applied.refused == 0, "{applied:?}");
    scene.given_back()?;
    Ok(told.join("; "))
}

/// A process is killed while it writes as fast as it can; whatever it left is consistent, and the next one gives it back.
fn killed(mounts: &Mounts) -> Result<String> {
    let scene = Scene::new(mounts)?;
    let sleeper = Workload::start(&scene.groups[2], &["sleep"])?;
    let mut writes = 0;
    for kill in 0..KILLS {
        let mut worker = start_worker(&scene.journal)?;
        // Each at another point of its work, by what it has done and not by time.
        let goal = 10 + kill * 11;
        let told = poll::until("the worker works", PATIENCE, || {
            let lines = plimsoll_actuate::read_journal(&scene.journal, 0, 1)?;
            let last = lines.last().map_or(0, |line| line.seq);
            Ok((last >= writes + goal as u64).then_some(last))
        })?;
        worker.kill()?;
        worker.wait()?;
        writes = told;
        for level in 0..3 {
            let cpus = scene.cpus(level)?;
            let known = ["0", "1", "0-1", ""].contains(&cpus.as_str());
            let quota = scene.bandwidth(level)?.0;
            let sane = ["max", "-1"].contains(&quota.as_str()) || quota.parse::<u64>()? >= 1000;
            ensure!(known && sane, "level {level}: {cpus:?} {quota:?}");
        }
        let mut actuator = actuator(&scene.journal)?;
        poll::until("everything is given back", PATIENCE, || {
            let applied = actuator.restore(&Filter::All, now(), &());
            nothing_refused(&actuator, &applied)?;
            Ok((applied.writes == 0 && applied.writing == 0).then_some(()))
        })?;
        let after = scene.files()?;
        ensure!(
            after == scene.before,
            "kill {kill}: before: {:?}, after: {after:?}",
            scene.before
        );
    }
    drop(sleeper);
    scene.given_back()?;
    Ok(format!("{KILLS} times, {writes} lines"))
}

fn start_worker(journal: &Path) -> Result<Child> {
    janitor::command_in(None, "/proc/self/exe")
        .args(["workload", "actuate"])
        .arg(journal)
        .stdin(Stdio::piped())
        .spawn()
        .context("start a worker")
}

/// The worker: plan after plan, until it is killed.
pub fn work(journal: &str) -> Result<()> {
    let mut actuator = actuator(Path::new(journal))?;
    for round in 0u64.. {
        let paths = [TOP, POD, CONTAINER];
        let cpu = u32::try_from(round % 2)?;
        let sets = paths.map(|path| (path, Knob::Cpuset, cpus(cpu)));
        let limit = 10_000 + round % 7 * 5000;
        let quotas = paths.map(|path| (path, Knob::CpuQuota, quota(limit)));
        let bursts = paths.map(|path| {
            (
                path,
                Knob::CpuBurst,
                Value::Number(i64::try_from(limit * 2).unwrap_or(0)),
            )
        });
        let shares = paths.map(|path| (path, Knob::CpuShares, Value::Shares(2 + round % 100 * 30)));
        actuator.submit(plan(&[sets, quotas, bursts, shares].concat()));
        actuator.turn(now(), &());
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}
