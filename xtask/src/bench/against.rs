//! `cargo xtask bench --against OLD`: this checkout's program and another one do the same work in turns, in one run.
//!
//! Fails where it is sure that this one costs more: the confidence interval of the ratio lies above 1.03.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use plimsoll_test_support::proc::{self, CpuTime};
use plimsoll_test_support::ratio::Table;
use plimsoll_test_support::{http, janitor};
use rustix::process::Signal;

use super::crowd::Crowd;
use super::subject::Subject;
use crate::workspace;

const ROUNDS: u32 = 12;
const CONTAINERS: usize = 200;
/// Under our own name everything is read every ten seconds: a turn has one such round.
const TURN: Duration = Duration::from_secs(10);
const SCRAPES: u32 = 10;
const WARM_UP: Duration = Duration::from_secs(12);

pub fn run(old: &Path) -> Result<()> {
    ensure!(old.is_file(), "there is no program at {}", old.display());
    let mut cargo = workspace::cargo()?;
    cargo.args(["build", "--quiet", "--release"]);
    cargo.args(["--package", "plimsoll", "--package", "plimsoll-load"]);
    workspace::run(&mut cargo).context("build in release")?;
    let release = workspace::target()?.join("release");
    let new = release.join("plimsoll");
    let mut load = Command::new(release.join("plimsoll-load"));
    load.arg("--program").arg(&new).arg("--against").arg(old);
    load.args(["--rounds", &ROUNDS.to_string()]);
    let served = workspace::run(&mut load);
    agents(&new, old)?;
    served
}

/// Both agents run all the time; one of them is stopped.
fn agents(new: &Path, old: &Path) -> Result<()> {
    ensure!(
        rustix::process::geteuid().is_root(),
        "making cgroups needs root"
    );
    janitor::raise_file_limit();
    let mut crowd = Crowd::new()?;
    crowd.grow(CONTAINERS)?;
    let compared = take_turns(new, old, &crowd);
    crowd.end()?;
    let table = compared?;
    let worse = table.judge();
    ensure!(
        worse.is_empty(),
        "worse than the other program: {}",
        worse.join(", ")
    );
    Ok(())
}

fn take_turns(new: &Path, old: &Path, crowd: &Crowd) -> Result<Table> {
    let target = workspace::target()?;
    let both = [
        (true, Subject::ours(new, &target.join("bench-new.log"))?),
        (false, Subject::ours(old, &target.join("bench-old.log"))?),
    ];
    for (_, agent) in &both {
        agent.wait_listed(crowd)?;
    }
    std::thread::sleep(WARM_UP);
    for (_, agent) in &both {
        proc::signal(agent.pid(), Signal::STOP);
    }
    let mut table = Table::default();
    for round in 0..ROUNDS {
        let mut turns: Vec<_> = both.iter().collect();
        if round % 2 == 1 {
            turns.reverse();
        }
        for (is_new, agent) in turns {
            proc::signal(agent.pid(), Signal::CONT);
            let turn = turn(agent);
            proc::signal(agent.pid(), Signal::STOP);
            for (name, cost) in turn? {
                table.add(name, *is_new, cost);
            }
        }
    }
    for (_, agent) in both {
        proc::signal(agent.pid(), Signal::CONT);
        agent.stop()?;
    }
    Ok(table)
}

fn turn(agent: &Subject) -> Result<Vec<(&'static str, f64)>> {
    let used = || -> Result<f64> {
        Ok(CpuTime::of(agent.pid())?
            .since(&CpuTime::default())
            .as_secs_f64())
    };
    let before = used()?;
    std::thread::sleep(TURN);
    let sampling = (used()? - before) / TURN.as_secs_f64();
    let before = used()?;
    for _ in 0..SCRAPES {
        http::get_ok(agent.address, "/metrics")?;
    }
    let scraping = (used()? - before) / f64::from(SCRAPES);
    Ok(vec![
        ("agent: 200 containers, % of a core", sampling * 100.0),
        ("agent: a scrape of them, CPU ms", scraping * 1e3),
        ("agent: memory, MiB", agent.rss_mib()?),
    ])
}
