//! Limits and what happens at them: throttling, pressure, out-of-memory kills.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use plimsoll_test_support::cgroup::Group;
use plimsoll_test_support::http::Connection;
use plimsoll_test_support::poll;
use plimsoll_test_support::report::Runner;

use super::{FAR_TOO_SLOW, LOG, PATIENCE, Rig};
use crate::workload::Workload;

/// What the emulated machine needs; a real one needs a tenth of it.
const OOM_EVENT: Duration = Duration::from_secs(1);

pub fn cases(runner: &mut Runner<impl Write>, rig: &Rig) {
    runner.case("throttling", || throttling(rig));
    if !rig.is_v1() {
        runner.case("pressure", || pressure(rig));
    }
    runner.case("memory_limit", || memory_limit(rig));
}

/// The last one takes the agent with it.
pub fn oom_cases(runner: &mut Runner<impl Write>, rig: Rig, arguments: &[&str]) {
    runner.case("oom_event", || oom_event(&rig));
    runner.case("oom_count_survives_restart", || oom_restart(rig, arguments));
}

fn set_quota(rig: &Rig, group: &Group, micros: u32) -> Result<()> {
    if rig.is_v1() {
        return group.write("cpu", "cpu.cfs_quota_us", &micros.to_string());
    }
    group.write("cpu", "cpu.max", &format!("{micros} 100000"))
}

fn set_memory_limit(rig: &Rig, group: &Group, bytes: u64) -> Result<()> {
    let file = if rig.is_v1() {
        "memory.limit_in_bytes"
    } else {
        "memory.max"
    };
    group.write("memory", file, &bytes.to_string())
}

fn throttling(rig: &Rig) -> Result<String> {
    let group = rig.group("throttled")?;
    set_quota(rig, &group, 20_000)?;
    let _burn = Workload::start(&group, &["burn"])?;
    let labels = [("id", group.path())];
    // First let the kernel throttle for a while, by its own word.
    poll::until("the kernel throttles", PATIENCE, || {
        let throttled = group.keyed("cpu", "cpu.stat", "nr_throttled")?;
        Ok((throttled >= 5).then_some(()))
    })?;
    poll::until("the quota shows", PATIENCE, || {
        let page = rig.agent.metrics()?;
        let quota = page.value("container_spec_cpu_quota", &labels)?;
        let period = page.value("container_spec_cpu_period", &labels)?;
        Ok(((quota, period) == (20_000.0, 100_000.0)).then_some(()))
    })?;
    let (time_key, time_unit) = if rig.is_v1() {
        ("throttled_time", 1e9)
    } else {
        ("throttled_usec", 1e6)
    };
    let note = rig.between(
        group.path(),
        1e-3,
        || {
            let stat = |key| {
                group
                    .keyed("cpu", "cpu.stat", key)
                    .map(|value| value as f64)
            };
            Ok([
                stat("nr_periods")?,
                stat("nr_throttled")?,
                stat(time_key)? / time_unit,
            ])
        },
        |page| {
            Ok([
                (
                    "periods",
                    page.value("container_cpu_cfs_periods_total", &labels)?,
                ),
                (
                    "throttled",
                    page.value("container_cpu_cfs_throttled_periods_total", &labels)?,
                ),
                (
                    "seconds",
                    page.value("container_cpu_cfs_throttled_seconds_total", &labels)?,
                ),
            ])
        },
    )?;
    let info = rig
        .agent
        .json(&format!("/api/v1.3/containers{}", group.path()))?;
    ensure!(
        info["spec"]["cpu"]["quota"] == 20_000,
        "spec.cpu is {}",
        info["spec"]["cpu"]
    );
    Ok(note)
}

/// Two processes that want a cpu each and together get a tenth of one: they wait, and the kernel counts it.
fn pressure(rig: &Rig) -> Result<String> {
    let group = rig.group("pressure")?;
    set_quota(rig, &group, 10_000)?;
    let _burns = [
        Workload::start(&group, &["burn"])?,
        Workload::start(&group, &["burn"])?,
    ];
    let total = || -> Result<f64> {
        let text = group.read("cpu", "cpu.pressure")?;
        let some = text
            .lines()
            .find(|line| line.starts_with("some "))
            .context("no some line")?;
        let total = some.rsplit_once("total=").context("no total")?.1;
        Ok(total.trim().parse::<f64>()? / 1e6)
    };
    let mut last = 0.0;
    let mut note = String::new();
    for round in 0..2 {
        note = rig.between(
            group.path(),
            1e-3,
            || Ok([total()?]),
            |page| {
                let labels = [("id", group.path())];
                Ok([(
                    "waiting s",
                    page.value("container_pressure_cpu_waiting_seconds_total", &labels)?,
                )])
            },
        )?;
        let now = total()?;
        ensure!(
            now > last,
            "round {round}: the kernel's own figure did not grow from {last}"
        );
        last = now;
    }
    Ok(note)
}

fn memory_limit(rig: &Rig) -> Result<String> {
    const LIMIT: u64 = 64 << 20;
    let group = rig.group("limited")?;
    set_memory_limit(rig, &group, LIMIT)?;
    let _alloc = Workload::start(&group, &["alloc", "1048576"])?;
    let labels = [("id", group.path())];
    poll::until("the limit shows", PATIENCE, || {
        let found = rig
            .agent
            .metrics()?
            .value("container_spec_memory_limit_bytes", &labels)?;
        Ok((found == LIMIT as f64).then_some(()))
    })?;
    let info = rig
        .agent
        .json(&format!("/api/v1.3/containers{}", group.path()))?;
    ensure!(
        info["spec"]["memory"]["limit"] == LIMIT,
        "spec.memory is {}",
        info["spec"]["memory"]
    );
    Ok(String::new())
}

/// Lines of the events stream, each with the moment it arrived.
fn listen(rig: &Rig, query: &str) -> Result<Receiver<(Instant, serde_json::Value)>> {
    let mut lines =
        Connection::open(rig.agent.address)?.stream(&format!("/api/v1.3/events/?{query}"))?;
    let (sender, receiver) = mpsc::channel();
    // Ends when the agent closes the stream.
    std::thread::spawn(move || {
        while let Ok(Some(line)) = lines.next_line() {
            let arrived = Instant::now();
            let Ok(event) = serde_json::from_str(&line) else {
                return;
            };
            if sender.send((arrived, event)).is_err() {
                return;
            }
        }
    });
    Ok(receiver)
}

/// Has the kernel kill a process; gives the pid, and when it was dead.
fn provoke_oom(rig: &Rig, group: &Group) -> Result<(u32, Instant)> {
    set_memory_limit(rig, group, 16 << 20)?;
    let mut victim = Workload::spawn(group, &["alloc", "67108864"])?;
    let status = victim.wait()?;
    let died = Instant::now();
    ensure!(!status.success(), "the kernel let it live: {status}");
    Ok((victim.pid(), died))
}

fn oom_event(rig: &Rig) -> Result<String> {
    let group = rig.group("oom")?;
    rig.fresh_metrics(group.path())?;
    let events = listen(rig, "stream=true&oom_kill_events=true&subcontainers=true")?;
    let (pid, died) = provoke_oom(rig, &group)?;
    let Ok((arrived, event)) = events.recv_timeout(PATIENCE) else {
        bail!("no event; agent's log: {}", rig.agent.log_tail());
    };
    let took = arrived.saturating_duration_since(died);
    ensure!(event["event_type"] == "oomKill", "event is {event}");
    ensure!(event["container_name"] == group.path(), "event is {event}");
    ensure!(
        event["event_data"]["oom"]["pid"] == pid,
        "event is {event}, pid was {pid}"
    );
    ensure!(
        took <= OOM_EVENT * FAR_TOO_SLOW,
        "the event came {} ms after the kill",
        took.as_millis()
    );
    let labels = [("id", group.path())];
    poll::until("the kill is counted", PATIENCE, || {
        let count = rig
            .agent
            .metrics()?
            .value("container_oom_events_total", &labels)?;
        Ok((count == 1.0).then_some(()))
    })?;
    Ok(format!("kill to event {:.1} ms", took.as_secs_f64() * 1e3))
}

fn oom_restart(rig: Rig, arguments: &[&str]) -> Result<String> {
    let group = rig.group("oom-restart")?;
    let count = |rig: &Rig| {
        let page = rig.fresh_metrics(group.path())?;
        page.value("container_oom_events_total", &[("id", group.path())])
    };
    let restart = |rig: Rig| {
        let Rig { mounts, agent } = rig;
        agent.stop()?;
        Rig::start(&mounts, arguments, LOG)
    };
    rig.fresh_metrics(group.path())?;
    provoke_oom(&rig, &group)?;
    let before = poll::until("the first kill is counted", PATIENCE, || {
        let now = count(&rig)?;
        Ok((now > 0.0).then_some(now))
    })?;
    let rig = restart(rig)?;
    // The kernel's log still holds the old kill: it must not be counted again.
    let after = count(&rig)?;
    ensure!(
        before == after,
        "{before} kills before the restart, {after} after"
    );

    // A flood overruns the agent's place in the log. The next kill counts all the same, once.
    flood_kernel_log()?;
    provoke_oom(&rig, &group)?;
    let next = poll::until("the next kill is counted", PATIENCE, || {
        let now = count(&rig)?;
        Ok((now > after).then_some(now))
    })?;
    ensure!(
        next == after + 1.0,
        "one more kill made {after} into {next}"
    );

    // Now the log has forgotten every kill, and only the agent's own memory can know.
    flood_kernel_log()?;
    let rig = restart(rig)?;
    let last = count(&rig)?;
    ensure!(
        last == next,
        "{next} kills before the second restart, {last} after"
    );
    rig.agent.stop()?;
    Ok(format!("{before} before, {after} after, {last} at last"))
}

/// Writes more than the kernel's log can hold.
fn flood_kernel_log() -> Result<()> {
    // Without this the kernel drops most of what programs write. It insists on the end of the line.
    fs::write("/proc/sys/kernel/printk_devkmsg", "on\n")
        .context("let programs write to the log")?;
    let mut log = OpenOptions::new().write(true).open("/dev/kmsg")?;
    let line = [b'x'; 900];
    for _ in 0..2000 {
        // One write is one record. Level 7 stays off the console.
        log.write_all(&[b"<7>", line.as_slice()].concat())?;
    }
    Ok(())
}
