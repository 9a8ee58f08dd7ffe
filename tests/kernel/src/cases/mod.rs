//! The tests. Each compares what the agent answers with what the test itself reads from the kernel.

pub mod actuate;
mod devices;
mod host_applications;
mod limits;
mod memory;
mod protect;
mod scene;
mod usage;
mod watcher;

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, ensure};
use plimsoll_test_support::agent::Agent;
use plimsoll_test_support::cgroup::{Group, Mode, Mounts};
use plimsoll_test_support::exposition::Exposition;
use plimsoll_test_support::poll;
use plimsoll_test_support::report::{Filter, Runner};

use crate::init;

const PROGRAM: &str = "/bin/plimsoll";
const LOG: &str = "/tmp/agent.log";
/// Groups that stay off; every other one is on, the ones that are off by default, too.
const MOST_GROUPS: &str = "--disable_metrics=referenced_memory,resctrl,cpu_topology";
/// Pressure and the page cache are noted only where that is asked for.
const PRESSURE: &str = "--feature-gates=PSICollector=true";
const PRESSURE_EVERY: &str = "--psi-collector-interval=2s";
const PAGE_CACHE: &str = "--enable-pagecache-collector=true";
/// An emulated machine is so slow that the default budget would stretch the intervals.
const NO_BUDGET: &str = "--cpu-budget=0";
/// A flag of cAdvisor would ask for its pace, too. Pages have figures read whenever they are old.
const OWN_PACE: [&str; 2] = ["--housekeeping_interval=10s", "--page-max-age=1s"];
/// How long anything may take that is waited for: an emulated machine beside other work is slow, and it costs nothing
/// to wait for what comes.
const PATIENCE: Duration = Duration::from_secs(120);
/// Bars on speed belong to benches. Here a figure is shown, and fails at this many times what the emulator needs.
const FAR_TOO_SLOW: u32 = 10;

pub fn run() -> Result<()> {
    let filter = init::parameter("plimsoll.filter")?;
    let mut runner = Runner::new(std::io::stdout(), Filter::new(filter.as_deref()));
    let mounts = Mounts::detect()?;
    let data = format!("--data-dir={}/agent", init::DATA);
    let arguments = [
        MOST_GROUPS,
        OWN_PACE[0],
        OWN_PACE[1],
        NO_BUDGET,
        PRESSURE,
        PRESSURE_EVERY,
        PAGE_CACHE,
        &data,
    ];
    let mut rig = None;
    runner.setup("agent_starts", || {
        rig = Some(Rig::start(&mounts, &arguments, LOG)?);
        Ok(format!("cgroup {:?}", mounts.mode))
    });
    if let Some(rig) = rig {
        usage::cases(&mut runner, &rig);
        limits::cases(&mut runner, &rig);
        devices::cases(&mut runner, &rig);
        scene::cases(&mut runner, &rig);
        limits::oom_cases(&mut runner, rig, &arguments);
        watcher::cases(&mut runner, &mounts);
        memory::killed(&mut runner, &mounts);
    }
    actuate::cases(&mut runner, &mounts);
    protect::cases(&mut runner, &mounts);
    runner.finish();
    Ok(())
}

/// A running agent and the hierarchies it watches.
#[derive(Debug)]
pub struct Rig {
    mounts: Mounts,
    agent: Agent,
}

impl Rig {
    fn start(mounts: &Mounts, arguments: &[&str], log: &str) -> Result<Self> {
        let agent = Agent::start(Path::new(PROGRAM), arguments, None, Path::new(log))?;
        Ok(Self {
            mounts: mounts.clone(),
            agent,
        })
    }

    fn is_v1(&self) -> bool {
        self.mounts.mode == Mode::V1
    }

    fn group(&self, name: &str) -> Result<Group> {
        Group::create(&self.mounts, &format!("/tests/{name}"))
    }

    /// Takes a page whose samples of this cgroup are all younger than now.
    fn fresh_metrics(&self, id: &str) -> Result<Exposition> {
        let asked = now_ms()?;
        poll::until(&format!("a new sample of {id}"), PATIENCE, || {
            let page = self.agent.metrics()?;
            let sample = page.first("container_memory_usage_bytes", &[("id", id)]);
            let taken = sample.and_then(|sample| sample.timestamp);
            Ok(taken.is_some_and(|taken| taken > asked).then_some(page))
        })
        .map_err(|error| anyhow!("{error:#}; agent's log: {}", self.agent.log_tail()))
    }

    /// Reads the kernel before and after a sample was taken: the agent's figure must lie between.
    ///
    /// Counters and whatever else only grows need no slack that way; `slack` is for figures that the kernel batches.
    fn between<const N: usize>(
        &self,
        id: &str,
        slack: f64,
        kernel: impl Fn() -> Result<[f64; N]>,
        agent: impl Fn(&Exposition) -> Result<[(&'static str, f64); N]>,
    ) -> Result<String> {
        let before = kernel()?;
        let page = self.fresh_metrics(id)?;
        let after = kernel()?;
        let mut note = Vec::new();
        for (index, (name, found)) in agent(&page)?.into_iter().enumerate() {
            let low = before[index].min(after[index]) - slack;
            let high = before[index].max(after[index]) + slack;
            ensure!(
                (low..=high).contains(&found),
                "{name} of {id} is {found}, the kernel had {} before and {} after",
                before[index],
                after[index]
            );
            note.push(format!("{name} {found:.3}"));
        }
        Ok(note.join(", "))
    }
}

fn now_ms() -> Result<i64> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH)?;
    Ok(i64::try_from(since.as_millis())?)
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("read {path}"))
}
