//! `cargo xtask bench agent`: the whole agent beside the same agent without a usage history.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use plimsoll_test_support::agent::Agent;
use plimsoll_test_support::proc::{self, CpuTime};
use plimsoll_test_support::{janitor, poll};
use rustix::process::Signal;

use super::crowd::{Crowd, Pods};
use crate::workspace;

/// Files are open and series exist: the steady state.
const WARM_UP: Duration = Duration::from_secs(15);
/// The two agents take turns: whatever else the machine does meanwhile slows down both alike.
const TURN: Duration = Duration::from_secs(10);
const LISTED: Duration = Duration::from_secs(60);
/// The usage history is off, and nothing else is.
const OBSERVER_ONLY: &str = "--collect-res-used-interval=0s";
/// Neither may slow down to stay within a budget.
const NO_BUDGET: &str = "--cpu-budget=0";

#[derive(Args, Debug)]
pub struct Options {
    /// [default: 110]
    #[arg(long)]
    pods: Option<usize>,
    /// [default: 250]
    #[arg(long)]
    containers: Option<usize>,
    /// How much history the agent starts with
    #[arg(long, default_value_t = 12)]
    hours: u32,
    /// How long each of the two agents is measured
    #[arg(long, default_value_t = 120)]
    pub seconds: u64,
    /// Pods that really run: containerd, overlays, networks, volumes. Then --pods is 98 and --containers as many, unless
    /// they are given
    #[arg(long)]
    pub real: bool,
}

impl Options {
    pub fn pods(&self) -> usize {
        self.pods.unwrap_or(if self.real { 98 } else { 110 })
    }

    /// In all.
    fn containers(&self) -> usize {
        self.containers.unwrap_or(250)
    }

    /// Each pod has as many, and at least one.
    pub fn of_each_pod(&self) -> usize {
        let all = self.containers.unwrap_or(self.pods());
        (all / self.pods().max(1)).max(1)
    }
}

pub fn run(options: &Options) -> Result<()> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "making cgroups needs root"
    );
    let programs = build()?;
    janitor::raise_file_limit();
    let mut crowd = Crowd::new()?;
    let outcome = crowd
        .pods(options.pods(), options.containers())
        .and_then(|pods| measure(options, &programs, &pods));
    crowd.end()?;
    println!("{}", outcome?);
    Ok(())
}

struct Programs {
    plimsoll: PathBuf,
    history: PathBuf,
}

fn build() -> Result<Programs> {
    let target = workspace::target()?;
    for what in [
        &["--package", "plimsoll"][..],
        &["--package", "plimsoll-history", "--example", "history"],
    ] {
        let mut cargo = workspace::cargo()?;
        cargo
            .args(["build", "--quiet", "--release", "--target-dir"])
            .arg(&target)
            .args(what);
        workspace::run(&mut cargo)?;
    }
    Ok(Programs {
        plimsoll: target.join("release/plimsoll"),
        history: target.join("release/examples/history"),
    })
}

fn measure(options: &Options, programs: &Programs, pods: &Pods) -> Result<String> {
    let target = workspace::target()?;
    let data = target.join("bench-agent-data");
    if data.exists() {
        std::fs::remove_dir_all(&data)?;
    }
    println!("writing {} h of history", options.hours);
    write_history(
        &programs.history,
        &data.join("metric-data"),
        options.hours,
        pods,
    )?;

    let floor_log = target.join("bench-agent-floor.log");
    let arguments = [OBSERVER_ONLY, NO_BUDGET];
    let floor = Agent::start(&programs.plimsoll, &arguments, None, &floor_log)?;
    let log = target.join("bench-agent.log");
    let data_dir = format!("--data-dir={}", data.display());
    let begin = Instant::now();
    let agent = Agent::start(&programs.plimsoll, &[NO_BUDGET, &data_dir], None, &log)?;
    let recover = begin.elapsed();
    let series = wait_noted(&agent, pods)?;
    println!("{series} series; started in {} ms", recover.as_millis());
    std::thread::sleep(WARM_UP);

    let (mut ours, mut bare) = (Share::default(), Share::default());
    while ours.wall < Duration::from_secs(options.seconds) {
        for (one, other, share) in [(&agent, &floor, &mut ours), (&floor, &agent, &mut bare)] {
            // The other holds still: two readers of one file would pay for each other's flushes.
            proc::signal(other.pid(), Signal::STOP);
            share.add(one.pid())?;
            proc::signal(other.pid(), Signal::CONT);
        }
    }
    let rss = proc::rss_kib(agent.pid())? as f64 / 1024.0;
    let floor_rss = proc::rss_kib(floor.pid())? as f64 / 1024.0;
    let disk = bytes_below(&data)? as f64 / 1_048_576.0;
    agent.stop()?;
    floor.stop()?;
    std::fs::remove_dir_all(&data)?;
    let (cpu_share, floor_share) = (ours.share(), bare.share());
    println!(
        "{} pods, {} containers, {} h of history: {:.2} % of a core over the floor; the floor's RSS is {floor_rss:.1} MiB",
        options.pods(),
        options.containers(),
        options.hours,
        (cpu_share - floor_share) * 100.0,
    );
    Ok(format!(
        "{{\"cpu_share\":{cpu_share:.4},\"floor_share\":{floor_share:.4},\"rss_mib\":{rss:.1},\"disk_mib\":{disk:.1}}}"
    ))
}

fn write_history(program: &Path, folder: &Path, hours: u32, pods: &Pods) -> Result<()> {
    let mut child = janitor::command_in(None, program)
        .arg(folder)
        .arg(hours.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .spawn()
        .context("start the writer of history")?;
    let mut input = child.stdin.take().context("no input")?;
    for (pod, containers) in pods {
        writeln!(input, "{pod} {}", containers.join(" "))?;
    }
    drop(input);
    ensure!(child.wait()?.success(), "history was not written");
    Ok(())
}

/// Waits until every pod and container has been noted; gives how many series there are.
fn wait_noted(agent: &Agent, pods: &Pods) -> Result<u64> {
    let count = |metric: &str| -> Result<usize> {
        let found = agent.json(&format!("/debug/history?metric={metric}&window=3s"))?;
        Ok(found.as_object().map_or(0, |series| series.len()))
    };
    let containers = pods.iter().map(|(_, containers)| containers.len()).sum();
    poll::until("all pods and containers are noted", LISTED, || {
        let found = (count("pod_cpu_usage")?, count("container_cpu_usage")?);
        ensure!(
            found.0 >= pods.len() && found.1 >= containers,
            "{found:?} are noted"
        );
        Ok(Some(()))
    })?;
    let own = agent.exposition("/metrics/self")?;
    Ok(own.sum("plimsoll_history_series", &[])? as u64)
}

#[derive(Debug, Default)]
struct Share {
    cpu: Duration,
    wall: Duration,
}

impl Share {
    fn add(&mut self, pid: u32) -> Result<()> {
        let (begin, before) = (Instant::now(), CpuTime::of(pid)?);
        std::thread::sleep(TURN);
        self.cpu += CpuTime::of(pid)?.since(&before);
        self.wall += begin.elapsed();
        Ok(())
    }

    /// Of one core.
    fn share(&self) -> f64 {
        self.cpu.as_secs_f64() / self.wall.as_secs_f64()
    }
}

fn bytes_below(folder: &Path) -> Result<u64> {
    let mut sum = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let found = entry.metadata()?;
        sum += match found.is_dir() {
            true => bytes_below(&entry.path())?,
            false => found.len(),
        };
    }
    Ok(sum)
}
