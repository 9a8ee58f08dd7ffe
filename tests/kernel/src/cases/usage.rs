//! What running processes use: cpu, memory, processes.

use std::io::Write;

use anyhow::{Context, Result, ensure};
use plimsoll_test_support::cgroup::Group;
use plimsoll_test_support::exposition::Exposition;
use plimsoll_test_support::report::Runner;

use super::{Rig, read};
use crate::init::DATA;
use crate::workload::Workload;

const MIB: f64 = (1 << 20) as f64;
/// The kernel charges memory in per-cpu batches, and sums them up when it is asked.
const MEMORY_SLACK: f64 = 2.0 * MIB;

pub fn cases(runner: &mut Runner<impl Write>, rig: &Rig) {
    runner.case("cpu_usage", || cpu_usage(rig));
    runner.case("cpu_usage_rest", || cpu_usage_rest(rig));
    runner.case("schedstat", || schedstat(rig));
    runner.case("memory_usage", || memory_usage(rig));
    runner.case("processes", || processes(rig));
}

/// Total, user and system seconds by the kernel's files.
fn cpu_seconds(rig: &Rig, group: &Group) -> Result<[f64; 3]> {
    if rig.is_v1() {
        let total = group.number("cpuacct", "cpuacct.usage")?;
        let user = group.keyed("cpuacct", "cpuacct.stat", "user")?;
        let system = group.keyed("cpuacct", "cpuacct.stat", "system")?;
        return Ok([
            total as f64 / 1e9,
            user as f64 / 100.0,
            system as f64 / 100.0,
        ]);
    }
    let micros = |key| {
        group
            .keyed("cpu", "cpu.stat", key)
            .map(|value| value as f64 / 1e6)
    };
    Ok([
        micros("usage_usec")?,
        micros("user_usec")?,
        micros("system_usec")?,
    ])
}

fn cpu_usage(rig: &Rig) -> Result<String> {
    let group = rig.group("burn")?;
    let _burn = Workload::start(&group, &["burn"])?;
    // Two rounds: the second shows that the figures go on growing.
    let mut notes = String::new();
    for _ in 0..2 {
        notes = rig.between(
            group.path(),
            1e-3,
            || cpu_seconds(rig, &group),
            |page| {
                let labels = &[("id", group.path())];
                Ok([
                    // One series `total` on v2, one a cpu on v1.
                    (
                        "total",
                        page.sum("container_cpu_usage_seconds_total", labels)?,
                    ),
                    (
                        "user",
                        page.value("container_cpu_user_seconds_total", labels)?,
                    ),
                    (
                        "system",
                        page.value("container_cpu_system_seconds_total", labels)?,
                    ),
                ])
            },
        )?;
    }
    Ok(notes)
}

/// The same figures through the REST interface, whose samples have their own time.
fn cpu_usage_rest(rig: &Rig) -> Result<String> {
    let group = rig.group("burn-rest")?;
    let _burn = Workload::start(&group, &["burn"])?;
    let before = cpu_seconds(rig, &group)?[0];
    rig.fresh_metrics(group.path())?;
    let info = rig
        .agent
        .json(&format!("/api/v1.3/containers{}", group.path()))?;
    let after = cpu_seconds(rig, &group)?[0];
    ensure!(info["name"] == group.path(), "name is {}", info["name"]);
    let last = info["stats"]
        .as_array()
        .and_then(|stats| stats.last())
        .context("no stats")?;
    let total = last["cpu"]["usage"]["total"]
        .as_f64()
        .context("no cpu.usage.total")?
        / 1e9;
    ensure!(
        (before - 1e-3..=after + 1e-3).contains(&total),
        "cpu.usage.total is {total} s, the kernel had {before} before and {after} after"
    );
    Ok(format!("total {total:.3}"))
}

fn schedstat(rig: &Rig) -> Result<String> {
    let group = rig.group("schedstat")?;
    let burn = Workload::start(&group, &["burn"])?;
    let path = format!("/proc/{}/schedstat", burn.pid());
    rig.between(
        group.path(),
        1e-3,
        || {
            let text = read(&path)?;
            let mut fields = text.split_ascii_whitespace().map(str::parse::<f64>);
            let mut next = || {
                fields
                    .next()
                    .context("schedstat is short")?
                    .context("schedstat")
            };
            Ok([next()? / 1e9, next()? / 1e9, next()?])
        },
        |page| {
            let labels = &[("id", group.path())];
            Ok([
                (
                    "run",
                    page.value("container_cpu_schedstat_run_seconds_total", labels)?,
                ),
                (
                    "wait",
                    page.value("container_cpu_schedstat_runqueue_seconds_total", labels)?,
                ),
                (
                    "slices",
                    page.value("container_cpu_schedstat_run_periods_total", labels)?,
                ),
            ])
        },
    )
}

fn memory_usage(rig: &Rig) -> Result<String> {
    let group = rig.group("memory")?;
    let _anonymous = Workload::start(&group, &["alloc", "50331648"])?;
    let _cached = Workload::start(&group, &["cache", &format!("{DATA}/cached"), "25165824"])?;
    let kernel = || {
        let stat = |v1, v2| {
            let key = if rig.is_v1() { v1 } else { v2 };
            group
                .keyed("memory", "memory.stat", key)
                .map(|value| value as f64)
        };
        let file = if rig.is_v1() {
            "memory.usage_in_bytes"
        } else {
            "memory.current"
        };
        let usage = group.number("memory", file)? as f64;
        let inactive = stat("total_inactive_file", "inactive_file")?;
        Ok([
            usage,
            stat("total_rss", "anon")?,
            stat("total_cache", "file")?,
            usage - inactive,
        ])
    };
    let [_, rss, cache, _] = kernel()?;
    ensure!(
        rss >= 48.0 * MIB && cache >= 24.0 * MIB,
        "the workload itself is too small: {rss} {cache}"
    );
    rig.between(group.path(), MEMORY_SLACK, kernel, |page| {
        let labels = &[("id", group.path())];
        Ok([
            ("usage", page.value("container_memory_usage_bytes", labels)?),
            ("rss", page.value("container_memory_rss", labels)?),
            ("cache", page.value("container_memory_cache", labels)?),
            (
                "working set",
                page.value("container_memory_working_set_bytes", labels)?,
            ),
        ])
    })
}

fn processes(rig: &Rig) -> Result<String> {
    let group = rig.group("processes")?;
    group.write("pids", "pids.max", "100")?;
    let _forks = Workload::start(&group, &["fork", "5"])?;
    let labels = [("id", group.path())];
    let note = rig.between(
        group.path(),
        0.0,
        || {
            let procs = group.read("cpu", "cgroup.procs")?;
            let current = group.number("pids", "pids.current")? as f64;
            Ok([
                procs.lines().count() as f64,
                current,
                100.0,
                open_files(&procs)? as f64,
            ])
        },
        |page: &Exposition| {
            Ok([
                ("processes", page.value("container_processes", &labels)?),
                ("threads", page.value("container_threads", &labels)?),
                ("threads max", page.value("container_threads_max", &labels)?),
                ("files", page.value("container_file_descriptors", &labels)?),
            ])
        },
    )?;
    ensure!(
        note.starts_with("processes 6.000"),
        "six processes were started: {note}"
    );
    Ok(note)
}

fn open_files(procs: &str) -> Result<usize> {
    let mut count = 0;
    for pid in procs.lines() {
        count += std::fs::read_dir(format!("/proc/{pid}/fd"))?.count();
    }
    Ok(count)
}
