//! Two programs in one run: the same work in turns, many times. What is told is the ratio of what they cost, and how
//! sure that is. Machines are not equally fast all the time, so figures of two runs cannot be compared this closely.

use std::path::Path;

use anyhow::{Result, ensure};
use http::Method;
use http_body_util::BodyExt;
use plimsoll_test_support::ratio::Table;
use serde_json::json;

use crate::Options;
use crate::create::{PODS, SERVER_ALONE, create, until_all_run};
use crate::subject::Subject;

const PODS_MADE: u32 = 800;
const READ: u32 = 1_500;
const CHANGED: u32 = 800;
const LISTED: u32 = 30;
const WATCHERS: usize = 10;
const PODS_RUN: u32 = 400;
/// `old` is the other program. Fails where the new one is worse.
pub async fn compare(options: &Options, old: &Path) -> Result<()> {
    ensure!(options.rounds >= 2, "one round says nothing about chance");
    let mut table = Table::default();
    for round in 0..options.rounds {
        // Who is first warms what both need.
        let mut turns = [(true, options.program.as_path()), (false, old)];
        if round % 2 == 1 {
            turns.reverse();
        }
        for (is_new, program) in turns {
            for (name, cost) in turn(program).await? {
                table.add(name, is_new, cost);
            }
        }
        eprintln!("round {} of {}", round + 1, options.rounds);
    }
    let worse = table.judge();
    ensure!(
        worse.is_empty(),
        "worse than the other program: {}",
        worse.join(", ")
    );
    Ok(())
}

type Cost = (&'static str, f64);

/// All kinds of work once.
async fn turn(program: &Path) -> Result<Vec<Cost>> {
    let mut costs = server_alone(program).await?;
    costs.extend(every_role(program).await?);
    Ok(costs)
}

async fn server_alone(program: &Path) -> Result<Vec<Cost>> {
    let temp = tempfile::tempdir()?;
    let subject = Subject::start(program, temp.path(), &SERVER_ALONE)?;
    let started = subject.cpu_so_far()? * 1e3;
    let made = create(&subject, PODS_MADE, |_| None).await?;
    let mut connection = subject.target()?.connect().await?;
    let meter = Meter::begin(&subject)?;
    for number in 0..READ {
        connection.get(&path(number)).await?;
    }
    let read = meter.each(READ)?;
    let meter = Meter::begin(&subject)?;
    for number in 0..CHANGED {
        let change = json!({"metadata": {"annotations": {"mark": number.to_string()}}});
        connection.merge(&path(number), change.to_string()).await?;
    }
    let changed = meter.each(CHANGED)?;
    let meter = Meter::begin(&subject)?;
    for _ in 0..LISTED {
        connection.get(PODS).await?;
    }
    let listed = meter.each(LISTED)?;
    let mut watches = Vec::new();
    for _ in 0..WATCHERS {
        let mut watcher = subject.target()?.connect().await?;
        let watch = format!("{PODS}?watch=true&resourceVersion=0");
        let answer = watcher.send(Method::GET, &watch, "", bytes::Bytes::new());
        let mut events = answer.await?.into_body();
        watches.push(tokio::spawn(async move {
            while let Some(Ok(_)) = events.frame().await {}
        }));
    }
    let meter = Meter::begin(&subject)?;
    for number in 0..CHANGED {
        let change = json!({"metadata": {"annotations": {"mark": format!("w{number}")}}});
        connection.merge(&path(number), change.to_string()).await?;
    }
    let watched = meter.each(CHANGED)?;
    watches.iter().for_each(tokio::task::JoinHandle::abort);
    let rss = subject.rss_mib()?;
    subject.stop()?;
    Ok(vec![
        ("up: start, CPU, ms", started),
        ("up: create a pod, CPU, µs", made.micros),
        ("up: read a pod, CPU, µs", read),
        ("up: patch a pod, CPU, µs", changed),
        ("up: list 800 pods, CPU, µs", listed),
        ("up: patch a pod before 10 watchers, CPU, µs", watched),
        ("up: memory after that, MiB", rss),
    ])
}

/// Pods are placed, run, and are looked at by everybody.
async fn every_role(program: &Path) -> Result<Vec<Cost>> {
    let temp = tempfile::tempdir()?;
    let subject = Subject::start(
        program,
        temp.path(),
        &["--no-agent", "--simulate-nodes", "20"],
    )?;
    let meter = Meter::begin(&subject)?;
    create(&subject, PODS_RUN, |_| None).await?;
    until_all_run(&subject).await?;
    let run = meter.each(PODS_RUN)?;
    let rss = subject.rss_mib()?;
    subject.stop()?;
    Ok(vec![
        ("all roles: a pod until it runs, CPU, µs", run),
        ("all roles: memory after that, MiB", rss),
    ])
}

fn path(number: u32) -> String {
    format!("{PODS}/load-{:05}", number % PODS_MADE)
}

/// CPU time of the server from here on.
struct Meter<'a> {
    subject: &'a Subject,
    before: f64,
}

impl<'a> Meter<'a> {
    fn begin(subject: &'a Subject) -> Result<Self> {
        let before = subject.cpu_so_far()?;
        Ok(Self { subject, before })
    }

    /// In microseconds.
    fn each(self, count: u32) -> Result<f64> {
        let used = self.subject.cpu_so_far()? - self.before;
        Ok(used * 1e6 / f64::from(count))
    }
}
