//! Cgroups that come and go under the watcher.

use std::collections::BTreeSet;
use std::io::Write;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use plimsoll_test_support::cgroup::{Group, Mounts};
use plimsoll_test_support::http::Connection;
use plimsoll_test_support::poll;
use plimsoll_test_support::report::Runner;

use super::{FAR_TOO_SLOW, LOG, PATIENCE, Rig};

const CHURN: usize = 1000;
/// What the emulated machine needs; a real one needs a tenth of it.
const FIRST_SAMPLE: Duration = Duration::from_secs(1);

/// These run on an agent with its defaults, which the first of them starts.
pub fn cases(runner: &mut Runner<impl Write>, mounts: &Mounts) {
    let mut running = None;
    runner.case("agent_starts_with_defaults", || {
        started(&mut running, mounts)?;
        Ok(String::new())
    });
    runner.case("first_sample", || {
        first_sample(started(&mut running, mounts)?)
    });
    runner.case("thousand_cgroups", || {
        thousand_cgroups(started(&mut running, mounts)?)
    });
    runner.case("agent_stops", || {
        started(&mut running, mounts)?;
        let rig = running.take().context("no agent")?;
        rig.agent.stop()?;
        Ok(String::new())
    });
}

fn started<'a>(running: &'a mut Option<Rig>, mounts: &Mounts) -> Result<&'a Rig> {
    match running {
        Some(rig) => Ok(rig),
        None => Ok(running.insert(Rig::start(mounts, &[], LOG)?)),
    }
}

/// From mkdir to the cgroup's first figure in a scrape.
fn time_to_first_sample(rig: &Rig, name: &str) -> Result<Duration> {
    let mut connection = Connection::open(rig.agent.address)?;
    let mut page = Vec::new();
    let started = Instant::now();
    let group = rig.group(name)?;
    let id = format!("id=\"{}\"", group.path());
    poll::until("the first sample", PATIENCE, || {
        connection.get_into("/metrics", &mut page)?;
        let text = std::str::from_utf8(&page)?;
        let mut rows = text
            .lines()
            .filter(|line| line.starts_with("container_memory_usage_bytes{"));
        Ok(rows.any(|row| row.contains(&id)).then_some(()))
    })?;
    let took = started.elapsed();
    group.remove()?;
    Ok(took)
}

fn first_sample(rig: &Rig) -> Result<String> {
    let mut took = Vec::new();
    for index in 0..10 {
        took.push(time_to_first_sample(rig, &format!("first-{index}"))?);
    }
    took.sort();
    let (median, worst) = (took[took.len() / 2], took[took.len() - 1]);
    ensure!(
        median <= FIRST_SAMPLE * FAR_TOO_SLOW,
        "median {} ms",
        median.as_millis()
    );
    Ok(format!(
        "median {} ms, worst {} ms",
        median.as_millis(),
        worst.as_millis()
    ))
}

fn thousand_cgroups(rig: &Rig) -> Result<String> {
    let started = Instant::now();
    let mut standing = Vec::new();
    let mut first_sample = Duration::ZERO;
    for index in 0..CHURN {
        if index == CHURN / 2 {
            first_sample = time_to_first_sample(rig, "churn/first")?;
        }
        let group = rig.group(&format!("churn/{}/{index}", index % 7))?;
        // Some live for an instant, some until later, some stay: the watcher sees every order of events.
        match index % 4 {
            0 => group.remove()?,
            1 => {
                let same_name = group.clone();
                group.remove()?;
                standing.push(Group::create(&rig.mounts, same_name.path())?);
            }
            _ => standing.push(group),
        }
        if standing.len() > 300 {
            for group in standing.drain(..200) {
                group.remove()?;
            }
        }
    }
    let churned = started.elapsed();
    let settled = same_as_tree(rig)?;
    let left = standing.len();
    for group in standing {
        group.remove()?;
    }
    let emptied = same_as_tree(rig)?;
    Ok(format!(
        "{CHURN} made in {:.1} s, a first sample meanwhile {} ms, list of {left} right after {} ms, empty after {} ms",
        churned.as_secs_f64(),
        first_sample.as_millis(),
        settled.as_millis(),
        emptied.as_millis()
    ))
}

/// Waits until the agent's lists equal the directory tree; gives how long that took.
fn same_as_tree(rig: &Rig) -> Result<Duration> {
    let started = Instant::now();
    let tree = rig.mounts.tree()?;
    let compare = |what: &str, listed: BTreeSet<String>| -> Result<()> {
        let missing: Vec<&String> = tree.difference(&listed).take(3).collect();
        let stale: Vec<&String> = listed.difference(&tree).take(3).collect();
        ensure!(
            missing.is_empty() && stale.is_empty(),
            "{what} has {} cgroups, the tree {}; missing {missing:?}, stale {stale:?}",
            listed.len(),
            tree.len()
        );
        Ok(())
    };
    poll::until("the agent's list equals the tree", PATIENCE * 2, || {
        let specs = rig.agent.json("/api/v2.0/spec/?recursive=true")?;
        let specs = specs.as_object().context("spec is no object")?;
        compare("/api/v2.0/spec", specs.keys().cloned().collect())?;
        let page = rig.agent.metrics()?;
        let seen = page
            .all("container_last_seen", &[])
            .map(|sample| sample.label("id").to_owned());
        compare("/metrics", seen.collect())?;
        Ok(Some(started.elapsed()))
    })
}
