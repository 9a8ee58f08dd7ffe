//! `cargo xtask test`: the ladder, from the weakest test to the strongest, and one table at the end.
//!
//! Everything is built once. Then rungs that compute, guests, and rungs that wait run beside each other, and at last
//! what needs a quiet machine. A test that failed is run once more, alone, when nothing else runs.

mod build;
mod flaky;
pub mod follow;
mod load;
mod progress;
mod report;
mod retry;
mod rung;
mod times;
mod unit;

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, PoisonError};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result, bail};
use clap::Args;
pub use plimsoll_test_support::report::LeaveOut;
use plimsoll_test_support::report::{Filter, Outcome};

pub use self::build::Built;
use self::load::Load;
pub use self::progress::Progress;
use self::report::Whole;
use self::retry::Again;
use self::rung::{LADDER, Lane, Rung};
use self::times::LastTime;
use crate::{cluster, kernel, kube, packages, runtime, workspace};

/// Of property tests, so that a run does not fail on what another one would have found.
const SEED: u64 = 1;
const STATUS_INTERVAL: Duration = Duration::from_secs(20);

#[derive(Args, Debug)]
pub struct Options {
    /// Only the rungs whose name starts with this: fmt, clippy, unit, kernel (kernel-v2, kernel-v1), runtime
    /// (runtime-containerd, runtime-podman, runtime-docker), cluster (cluster, cluster-quiet).
    #[arg(long, value_name = "RUNG")]
    only: Option<String>,
    /// Only format, clippy and unit tests: nothing that needs root or an emulator.
    #[arg(long)]
    fast: bool,
    /// Only the tests whose name contains this, or is exactly what follows `=`. Several with commas between them.
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// Run the tests that --filter chooses this many times, property tests with a new seed each time, and count the
    /// failures of each.
    #[arg(long, value_name = "N", requires = "filter")]
    repeat: Option<u32>,
    /// Keep every core busy with something else meanwhile.
    #[arg(long)]
    under_load: bool,
    /// Run the slow cases too, which CI leaves out.
    #[arg(long)]
    long: bool,
}

/// What every rung of a run gets.
#[derive(Debug)]
struct Run {
    filter: Filter,
    seed: u64,
    /// These tests have failed before.
    is_again: bool,
}

/// Runs the wanted rungs; `false` when something failed.
pub fn run(options: &Options) -> Result<bool> {
    let known = flaky::load()?;
    let rungs = wanted(options)?;
    let _load = options.under_load.then(Load::start).transpose()?;
    if options.long {
        LONG.get_or_init(|| ());
    }
    let filter = Filter::new(options.filter.as_deref());
    if let Some(times) = options.repeat {
        return repeat(times, &rungs, &filter);
    }
    let started = Instant::now();
    let run = Run {
        filter,
        seed: SEED,
        is_again: false,
    };
    let (climbed, built, build_took) = climb_all(&rungs, &run);
    let (built, build_failed) = match built {
        Ok(built) => (built, None),
        Err(error) => (None, Some(format!("{error:#}"))),
    };
    if let Some(built) = &built {
        retry_all(&climbed, &run, built);
    }
    // A part of the tests says nothing about the time of all.
    if run.filter.is_all() && !options.under_load && build_failed.is_none() {
        times::save(&last_times(&climbed))?;
    }
    let nothing_ran = climbed.iter().all(|rung| rung.snapshot().nothing_ran());
    if nothing_ran && build_failed.is_none() {
        bail!("no test has such a name");
    }
    let whole = Whole {
        took: started.elapsed(),
        build: build_took,
        build_failed,
        build_cpu: built.map_or(Duration::ZERO, |built| built.cpu),
        cores: std::thread::available_parallelism()?.get(),
        in_ci: in_ci(),
    };
    Ok(report::conclude(&climbed, whole, &known))
}

static LONG: std::sync::OnceLock<()> = std::sync::OnceLock::new();

/// Whether the slow cases run too. Test programs are told by `PLIMSOLL_LONG`.
pub fn with_long(command: &mut Command) -> &mut Command {
    match LONG.get() {
        Some(()) => command.env("PLIMSOLL_LONG", "1"),
        None => command.env_remove("PLIMSOLL_LONG"),
    }
}

/// In CI nothing may be left out.
pub fn in_ci() -> bool {
    std::env::var("CI").is_ok_and(|value| value == "true")
}

fn wanted(options: &Options) -> Result<Vec<Rung>> {
    let is_named = |rung: &Rung| {
        let only = options.only.as_ref();
        only.is_none_or(|name| rung.to_string().starts_with(name.as_str()))
    };
    let rungs: Vec<Rung> = LADDER
        .iter()
        .copied()
        .filter(|rung| is_named(rung) && (rung.is_fast() || !options.fast))
        // These have no tests to choose from.
        .filter(|rung| options.filter.is_none() || rung.needs_build())
        .collect();
    if rungs.is_empty() {
        let names: Vec<String> = LADDER.iter().map(Rung::to_string).collect();
        bail!("no such rung; there are {}", names.join(", "));
    }
    Ok(rungs)
}

/// Everything once. Gives what the rungs have shown, what was built, and how long that took.
fn climb_all(rungs: &[Rung], run: &Run) -> (Vec<Progress>, Result<Option<Built>>, Duration) {
    let last = times::load();
    let climbed: Vec<Progress> = rungs
        .iter()
        .map(|rung| Progress::new(*rung, last.get(&rung.to_string()).copied()))
        .collect();
    let of_lane = |lane| climbed.iter().filter(move |rung| rung.rung.lane() == lane);
    let started = Instant::now();
    let (end, ended) = mpsc::channel::<()>();
    let (built, took) = std::thread::scope(|scope| {
        let shown = &climbed;
        scope.spawn(move || show_status(shown, &ended, started));
        // Dropped on every way out of here, which ends the status lines.
        let _end = end;
        of_lane(Lane::First).for_each(|progress| climb(progress, run, None, None));
        let supplies = Supplies {
            packages: Mutex::new(Some(scope.spawn(|| obtain_packages(rungs)))),
            kubernetes: Mutex::new(Some(scope.spawn(|| obtain_kubernetes(rungs)))),
        };
        let building = Instant::now();
        let built = match rungs.iter().any(|rung| rung.needs_build()) {
            true => {
                println!("=== build begins");
                build::build().map(Some)
            }
            false => Ok(None),
        };
        let took = building.elapsed();
        let built = match built {
            Ok(built) => built,
            Err(error) => return (Err(error), took),
        };
        std::thread::scope(|lanes| {
            for lane in [Lane::Compute, Lane::Guests, Lane::Waiting] {
                let (built, supplies) = (&built, &supplies);
                lanes.spawn(move || {
                    of_lane(lane)
                        .for_each(|progress| climb(progress, run, built.as_ref(), Some(supplies)));
                });
            }
        });
        of_lane(Lane::Quiet).for_each(|progress| climb(progress, run, built.as_ref(), None));
        (Ok(built), took)
    });
    (climbed, built, took)
}

/// What comes from outside, obtained while the workspace is built. A rung that then lacks something says so itself.
struct Supplies<'scope> {
    packages: Mutex<Option<ScopedJoinHandle<'scope, ()>>>,
    kubernetes: Mutex<Option<ScopedJoinHandle<'scope, ()>>>,
}

impl Supplies<'_> {
    fn wait_for(&self, rung: Rung) {
        match rung {
            Rung::Format | Rung::Clippy | Rung::Unit => {}
            Rung::Kernel(_) | Rung::Runtime(_) => join(&self.packages),
            Rung::Cluster | Rung::ClusterQuiet => {
                join(&self.packages);
                join(&self.kubernetes);
            }
        }
    }
}

/// Whoever comes second waits for the lock, and so for the thread as well.
fn join(thread: &Mutex<Option<ScopedJoinHandle<'_, ()>>>) {
    let mut thread = thread.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(thread) = thread.take() {
        let _ = thread.join();
    }
}

fn obtain_packages(rungs: &[Rung]) {
    let mut needs: Vec<packages::Need> = Vec::new();
    for rung in rungs {
        needs.extend(match rung {
            Rung::Kernel(_) => kernel::NEEDS,
            Rung::Runtime(runtime) => runtime.needs(),
            Rung::Cluster | Rung::ClusterQuiet => cluster::NODE,
            _ => &[],
        });
    }
    if let Err(error) = packages::ensure(&needs) {
        println!("packages: {error:#}");
    }
}

fn obtain_kubernetes(rungs: &[Rung]) {
    let is_cluster = |rung: &Rung| matches!(rung, Rung::Cluster | Rung::ClusterQuiet);
    if rungs.iter().any(is_cluster)
        && let Err(error) = kube::programs()
    {
        println!("Kubernetes: {error:#}");
    }
}

fn climb(progress: &Progress, run: &Run, built: Option<&Built>, supplies: Option<&Supplies<'_>>) {
    if let Some(supplies) = supplies {
        supplies.wait_for(progress.rung);
    }
    progress.begin();
    if let Err(error) = run_rung(progress, run, built) {
        match error.downcast_ref::<LeaveOut>() {
            Some(LeaveOut(reason)) => {
                println!("!!! {} LEFT OUT: {reason}", progress.rung);
                progress.change(|seen| seen.absent = Some(reason.clone()));
            }
            None => {
                progress.outcome("rung", &Outcome::Failed(format!("{error:#}")));
                progress.change(|seen| seen.lost = true);
            }
        }
    }
    progress.end();
}

fn run_rung(progress: &Progress, run: &Run, built: Option<&Built>) -> Result<()> {
    let filter = &run.filter;
    let built = || built.context("nothing was built");
    match progress.rung {
        Rung::Format => {
            component("rustfmt", "fmt")?;
            let mut cargo = workspace::cargo()?;
            whole(progress, cargo.args(["fmt", "--all", "--check"]));
            Ok(())
        }
        Rung::Clippy => {
            component("clippy", "clippy")?;
            let mut cargo = workspace::cargo()?;
            cargo.args(["clippy", "--quiet", "--workspace", "--all-targets"]);
            whole(progress, cargo.args(["--", "-D", "warnings"]));
            Ok(())
        }
        Rung::Unit => unit::test(built()?, filter, run.seed, run.is_again, progress),
        Rung::Kernel(cgroups) => kernel::test(cgroups, built()?, filter, progress),
        Rung::Runtime(runtime) => runtime::test(runtime, built()?, filter, progress),
        Rung::Cluster => cluster::test("busy", built()?, filter, progress),
        Rung::ClusterQuiet => cluster::test("quiet", built()?, filter, progress),
    }
}

/// A rung that is one command: it counts as one test.
fn whole(progress: &Progress, command: &mut Command) {
    let outcome = match workspace::measured(command) {
        Ok(cpu) => {
            progress.add_cpu(cpu);
            Outcome::Passed("no findings".to_owned())
        }
        Err(error) => Outcome::Failed(format!("{error:#}")),
    };
    progress.outcome("all", &outcome);
}

/// A toolchain without rustfmt or clippy gets them from rustup, or the advice to.
fn component(name: &str, subcommand: &str) -> Result<()> {
    let works = || -> Result<bool> {
        let output = workspace::cargo()?
            .args([subcommand, "--version"])
            .output()?;
        Ok(output.status.success())
    };
    if works()? {
        return Ok(());
    }
    let advice = format!("{name} is missing: run `rustup component add {name}`");
    if !workspace::has_program("rustup") {
        return Err(LeaveOut(advice).into());
    }
    let added = workspace::run(Command::new("rustup").args(["component", "add", name]));
    if added.is_err() || !works()? {
        return Err(LeaveOut(advice).into());
    }
    Ok(())
}

/// A line now and then, until the sender is gone.
fn show_status(rungs: &[Progress], ended: &mpsc::Receiver<()>, started: Instant) {
    while ended.recv_timeout(STATUS_INTERVAL) == Err(RecvTimeoutError::Timeout) {
        let status: Vec<String> = rungs.iter().filter_map(Progress::status).collect();
        let seconds = started.elapsed().as_secs();
        if !status.is_empty() {
            println!("--- {seconds} s: {}", status.join("; "));
        }
    }
}

/// Runs each failed test once more, alone.
fn retry_all(climbed: &[Progress], run: &Run, built: &Built) {
    for progress in climbed.iter().filter(|rung| rung.rung.needs_build()) {
        retry::retry(progress, |again| {
            let filter = match again {
                Again::Rung => {
                    println!("=== {} once more, because tests were lost", progress.rung);
                    run.filter.clone()
                }
                Again::Test(name) => {
                    println!("=== {}::{name} once more, alone", progress.rung);
                    Filter::exactly(&[name])
                }
            };
            let again = Progress::new(progress.rung, None);
            let run = Run {
                filter,
                seed: SEED,
                is_again: true,
            };
            climb(&again, &run, Some(built), None);
            again.snapshot()
        });
    }
}

/// The chosen tests again and again; `false` when one of them failed.
fn repeat(times: u32, rungs: &[Rung], filter: &Filter) -> Result<bool> {
    let mut runs: BTreeMap<String, (u32, Vec<String>)> = BTreeMap::new();
    let mut left_out_in: BTreeSet<String> = BTreeSet::new();
    for round in 1..=times {
        let seed = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?;
        let seed = u64::try_from(seed.as_nanos() % u128::from(u64::MAX))?;
        println!("\n=== round {round} of {times}, PROPTEST_RNG_SEED={seed}");
        let run = Run {
            filter: filter.clone(),
            seed,
            is_again: false,
        };
        let (climbed, built, _) = climb_all(rungs, &run);
        built?;
        for rung in &climbed {
            let seen = rung.snapshot();
            for (name, _) in &seen.passed {
                runs.entry(format!("{}::{name}", rung.rung)).or_default().0 += 1;
            }
            let absent = seen.absent.iter().map(|reason| ("rung", reason));
            let left_out = seen
                .left_out
                .iter()
                .map(|it| (it.name.as_str(), &it.reason));
            for (name, reason) in left_out.chain(absent) {
                left_out_in.insert(format!("{}::{name}: {reason}", rung.rung));
            }
            for failed in &seen.failed {
                let entry = runs.entry(format!("{}::{}", rung.rung, failed.name));
                let reason = format!("round {round}, seed {seed}: {}", failed.reason);
                entry.or_default().1.push(reason);
            }
        }
    }
    let passed: u32 = runs.values().map(|(passed, _)| passed).sum();
    let mut failed = 0;
    println!();
    for (name, (passed, failures)) in &runs {
        let count = failures.len();
        failed += count;
        println!("{name}: {passed} passed, {count} failed");
        for failure in failures {
            println!("    {failure}");
        }
    }
    for line in &left_out_in {
        println!("!!! LEFT OUT, NOT TESTED: {line}");
    }
    if in_ci() {
        failed += left_out_in.len();
    }
    if runs.is_empty() && left_out_in.is_empty() {
        bail!("no test has such a name");
    }
    println!("\n{passed} passed, {failed} failed");
    Ok(failed == 0)
}

fn last_times(climbed: &[Progress]) -> BTreeMap<String, LastTime> {
    let time = |rung: &Progress| {
        let seen = rung.snapshot();
        let time = LastTime {
            tests: seen.done(),
            seconds: seen.took?.as_secs_f64(),
            cpu_seconds: seen.cpu.as_secs_f64(),
        };
        seen.absent.is_none().then(|| (rung.rung.to_string(), time))
    };
    climbed.iter().filter_map(time).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rungs_by_name() {
        let wanted = |only: Option<&str>, fast, filter: Option<&str>| {
            let options = Options {
                only: only.map(str::to_owned),
                fast,
                filter: filter.map(str::to_owned),
                repeat: None,
                under_load: false,
                long: false,
            };
            let rungs = wanted(&options).unwrap_or_default();
            let names: Vec<String> = rungs.iter().map(Rung::to_string).collect();
            names.join(" ")
        };
        assert_eq!(wanted(Some("kernel"), false, None), "kernel-v2 kernel-v1");
        assert_eq!(wanted(Some("kernel-v1"), false, None), "kernel-v1");
        assert_eq!(wanted(None, true, None), "fmt clippy unit");
        assert_eq!(wanted(None, true, Some("oom")), "unit");
        assert_eq!(wanted(Some("moon"), false, None), "");
    }
}
