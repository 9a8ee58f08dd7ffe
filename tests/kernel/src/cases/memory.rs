//! What the agent remembers of a node and its pods, against the test's own reading of the same files.

use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use plimsoll_test_support::agent::Agent;
use plimsoll_test_support::cgroup::{Group, Mounts};
use plimsoll_test_support::poll;
use plimsoll_test_support::report::Runner;
use serde_json::Value;

use super::scene::{
    BEST_EFFORT_TIER, CACHING, Look, POD, QUOTA_MILLI, Scene, THROTTLED, container_id, pod_group,
    pod_path,
};
use super::{LOG, NO_BUDGET, PATIENCE, PROGRAM, Rig, read};
use crate::init::DATA;

/// Independent readings agree within this share, or this much of a core.
pub const SLACK: f64 = 0.02;
pub const CORES: f64 = 0.03;
pub const MIB: f64 = (1 << 20) as f64;

/// The series of a metric during the last seconds.
fn remembered(agent: &Agent, metric: &str, of: &str, seconds: u64) -> Result<Value> {
    let page = agent.json(&format!("/debug/history?metric={metric}&window={seconds}s"))?;
    let key = match of {
        "" => metric.to_owned(),
        of => format!("{metric}{{{of}}}"),
    };
    page.get(&key)
        .cloned()
        .with_context(|| format!("no {key} in {page}"))
}

pub fn figure(agent: &Agent, metric: &str, of: &str, seconds: u64, name: &str) -> Result<f64> {
    let found = remembered(agent, metric, of, seconds)?;
    found[name]
        .as_f64()
        .with_context(|| format!("{metric}: {found}"))
}

pub fn cpu_seconds(rig: &Rig, group: &Group) -> Result<f64> {
    if rig.is_v1() {
        return Ok(group.number("cpuacct", "cpuacct.usage")? as f64 / 1e9);
    }
    Ok(group.keyed("cpu", "cpu.stat", "usage_usec")? as f64 / 1e6)
}

/// By the rule: what is on the anonymous lists, and what cannot be evicted.
pub fn memory_bytes(rig: &Rig, group: &Group) -> Result<f64> {
    let prefix = if rig.is_v1() { "total_" } else { "" };
    let mut sum = 0;
    for list in ["inactive_anon", "active_anon", "unevictable"] {
        sum += group.keyed("memory", "memory.stat", &format!("{prefix}{list}"))?;
    }
    Ok(sum as f64)
}

/// Waits until a series has this many samples, however slow the emulator is.
pub fn wait_noted(agent: &Agent, metric: &str, of: &str, samples: u64) -> Result<()> {
    poll::until(&format!("{metric} is noted"), PATIENCE, || {
        let found = remembered(agent, metric, of, PATIENCE.as_secs())?;
        let count = found["count"].as_u64().unwrap_or(0);
        ensure!(count >= samples, "{count} of {samples} samples: {found}");
        Ok(Some(()))
    })
}

/// What is remembered agrees with what the kernel counted.
pub fn same_cores(whose: &str, found: f64, expected: f64) -> Result<()> {
    ensure!(
        (found - expected).abs() <= expected * SLACK + CORES,
        "{whose} used {expected} cores, {found} are remembered"
    );
    Ok(())
}

pub fn same_bytes(whose: &str, found: f64, expected: f64) -> Result<()> {
    ensure!(
        (found - expected).abs() <= expected * SLACK + MIB,
        "{whose} holds {expected} bytes, {found} are remembered"
    );
    Ok(())
}

pub fn pod(look: &Look) -> Result<String> {
    let (uid, id) = (
        format!("pod_uid={POD}"),
        format!("container_id={}", container_id(POD)),
    );
    let kernel = look.kernel(&pod_path(POD))?;
    let found = look.figure("pod_cpu_usage", &uid, "avg")?;
    same_cores("the pod", found, kernel.cores)?;
    let of_container = look.figure("container_cpu_usage", &id, "avg")?;
    same_cores("the container", of_container, kernel.cores)?;
    let bytes = look.figure("pod_memory_usage", &uid, "last")?;
    same_bytes("the pod", bytes, kernel.bytes)?;
    ensure!(
        kernel.bytes > 60.0 * MIB,
        "the workload holds {} bytes only",
        kernel.bytes
    );
    Ok(format!("{found:.3} cores, {:.1} MiB", bytes / MIB))
}

/// What best-effort pods may use together is the quota here, which is less than all CPUs.
pub fn best_effort(look: &Look) -> Result<String> {
    let of = |allocation| format!("be_resource=cpu,be_allocation={allocation}");
    let found = look.figure("node_be", &of("usage"), "avg")? / 1000.0;
    same_cores(
        "best-effort pods",
        found,
        look.kernel(BEST_EFFORT_TIER)?.cores,
    )?;
    let limit = look.figure("node_be", &of("real-limit"), "last")?;
    ensure!(
        limit == QUOTA_MILLI,
        "a limit of {limit} thousandths of a core"
    );
    Ok(format!("{found:.3} cores of {:.1}", limit / 1000.0))
}

pub fn node(look: &Look) -> Result<String> {
    let found = look.figure("node_cpu_usage", "", "avg")?;
    ensure!(
        (found - look.node.cores).abs() <= look.node.cores * 0.05 + 2.0 * CORES,
        "the node used {} cores, {found} are remembered",
        look.node.cores
    );
    let bytes = look.figure("node_memory_usage", "", "last")?;
    ensure!(
        (bytes - look.node.bytes).abs() <= look.node.bytes * SLACK + 4.0 * MIB,
        "the node holds {} bytes, {bytes} are remembered",
        look.node.bytes
    );
    let system = look.figure("sys_cpu_usage", "", "avg")?;
    ensure!(
        system <= found + CORES,
        "the system used {system} of {found} cores"
    );
    Ok(format!("{found:.3} cores, {:.1} MiB", bytes / MIB))
}

/// The shares of all NUMA nodes make up what the node used.
pub fn numa(look: &Look) -> Result<String> {
    let nodes = fs::read_dir("/sys/devices/system/node");
    let nodes = nodes.map_or(0, |entries| {
        let names = entries.flatten().map(|entry| entry.file_name());
        names
            .filter(|name| {
                let digits = name.to_str().and_then(|name| name.strip_prefix("node"));
                digits.is_some_and(|digits| digits.parse::<u32>().is_ok())
            })
            .count()
    });
    let shares = |metric: &str| -> Result<Vec<f64>> {
        let series = look.page(metric)?.as_object().context("no object")?;
        let averages = series.values().filter_map(|of| of["avg"].as_f64());
        Ok(averages.collect())
    };
    let cpu = shares("node_numa_cpu_usage")?;
    let memory = shares("node_numa_memory_usage")?;
    ensure!(
        cpu.len() == nodes && memory.len() == nodes,
        "{} and {} of {nodes} nodes are remembered",
        cpu.len(),
        memory.len()
    );
    if nodes == 0 {
        return Ok("a kernel without NUMA".to_owned());
    }
    let whole = look.figure("node_cpu_usage", "", "avg")?;
    let sum: f64 = cpu.iter().sum();
    ensure!(
        (sum - whole).abs() <= whole * 0.05 + 2.0 * CORES,
        "NUMA nodes used {sum} cores, the node {whole}"
    );
    ensure!(memory.iter().all(|bytes| *bytes > 0.0), "{memory:?}");
    Ok(format!("{nodes} nodes, {sum:.3} cores"))
}

/// Memory by the rule, and what of files is in memory besides.
pub fn page_cache(rig: &Rig, _: &Scene) -> Result<String> {
    let (pod, _) = pod_group(rig, CACHING)?;
    let prefix = if rig.is_v1() { "total_" } else { "" };
    let mut files = 0.0;
    for list in ["inactive_file", "active_file"] {
        files += pod.keyed("memory", "memory.stat", &format!("{prefix}{list}"))? as f64;
    }
    ensure!(files >= 24.0 * MIB, "{files} bytes of files only");
    let expected = memory_bytes(rig, &pod)? + files;
    let uid = format!("pod_uid={CACHING}");
    let metric = "pod_memory_usage_with_page_cache";
    let bytes = poll::until("the page cache is noted", PATIENCE, || {
        let found = figure(&rig.agent, metric, &uid, 5, "last")?;
        same_bytes("the pod with its files", found, expected)?;
        Ok(Some(found))
    })?;
    Ok(format!("{:.1} MiB", bytes / MIB))
}

/// The mean of the seconds' ratios is not quite the ratio of the sums.
const RATIO: f64 = 0.15;

pub fn throttled(look: &Look) -> Result<String> {
    let expected = look.kernel(&pod_path(THROTTLED))?.throttled;
    ensure!(
        expected > 0.5,
        "throttled in {expected} of the periods only"
    );
    let uid = format!("pod_uid={THROTTLED}");
    let found = look.figure("pod_cpu_throttled", &uid, "avg")?;
    ensure!(
        (found - expected).abs() <= RATIO && found <= 1.0,
        "throttled in {expected} of the periods, {found} are remembered"
    );
    Ok(format!("{found:.2} of the periods"))
}

/// Cores by `/proc/stat`, without waiting and stolen time.
pub fn busy_seconds() -> Result<f64> {
    let text = read("/proc/stat")?;
    let line = text.lines().next().context("no first line")?;
    let ticks: Vec<f64> = line
        .split_whitespace()
        .skip(1)
        .map(|word| Ok(word.parse()?))
        .collect::<Result<_>>()?;
    let [user, nice, system, _, _, irq, softirq, ..] = ticks[..] else {
        anyhow::bail!("a line of {} figures", ticks.len());
    };
    Ok((user + nice + system + irq + softirq) / 100.0)
}

/// Bytes that are not available.
pub fn used_bytes() -> Result<f64> {
    let text = read("/proc/meminfo")?;
    let bytes = |key: &str| -> Result<f64> {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
        let words = line.and_then(|line| line.split_whitespace().next());
        let kib: f64 = words.with_context(|| format!("no {key}"))?.parse()?;
        Ok(kib * 1024.0)
    };
    Ok(bytes("MemTotal")? - bytes("MemAvailable")?)
}

/// Only the unified hierarchy has pressure; there it must be noted, and elsewhere not be made up.
pub fn pressure(rig: &Rig, _: &Scene) -> Result<String> {
    let supported = || -> Result<bool> {
        let page = rig
            .agent
            .json("/debug/history?metric=pod_psi_cpu_full_supported&window=5m")?;
        let series = page.as_object().context("no object")?;
        Ok(series.values().any(|of| of["last"].as_f64() == Some(1.0)))
    };
    // Pods have been noted for seconds by now, and pressure is looked at as often.
    if rig.is_v1() || !Path::new("/proc/pressure/cpu").exists() {
        ensure!(
            !supported()?,
            "pressure is remembered, and the kernel has none"
        );
        return Ok("not supported".to_owned());
    }
    poll::until("pressure is noted", PATIENCE, || {
        Ok(supported()?.then_some(()))
    })?;
    Ok("supported".to_owned())
}

/// Kills the agent again and again: it always comes back, with all that its journal had.
pub fn killed(runner: &mut Runner<impl Write>, mounts: &Mounts) {
    runner.case("memory_survives_kills", || survives_kills(mounts));
}

fn survives_kills(mounts: &Mounts) -> Result<String> {
    const KILLS: usize = 3;
    let folder = format!("{DATA}/killed");
    let data = format!("--data-dir={folder}");
    let arguments = [NO_BUDGET, &data, "--prediction-training-interval=2s"];
    let mut noted = 0;
    for kill in 0..KILLS {
        let agent = Agent::start(Path::new(PROGRAM), &arguments, None, Path::new(LOG))?;
        let count = || -> Result<u64> {
            let found = remembered(&agent, "node_cpu_usage", "", 3600)?;
            found["count"].as_u64().with_context(|| format!("{found}"))
        };
        let begin = poll::until("samples of before are there", PATIENCE, || {
            count().map(Some)
        })?;
        // A sample may be noted while the journal is being written, and is not in it then.
        ensure!(
            begin + 1 >= noted,
            "{begin} samples after kill {kill}, {noted} before it"
        );
        noted = poll::until("more samples are noted", PATIENCE, || {
            let now = count()?;
            Ok((now >= begin + 2).then_some(now))
        })?;
        let before = bytes_below(Path::new(&folder))?;
        poll::until("the journal is written", PATIENCE, || {
            Ok((bytes_below(Path::new(&folder))? != before).then_some(()))
        })?;
        agent.kill()?;
    }
    let mode = mounts.mode;
    Ok(format!("{noted} samples after {KILLS} kills on {mode:?}"))
}

/// What all files of a folder hold.
fn bytes_below(folder: &Path) -> Result<u64> {
    let mut sum = 0;
    for entry in fs::read_dir(folder)?.flatten() {
        // What goes away meanwhile holds nothing.
        let Ok(data) = entry.metadata() else { continue };
        sum += match data.is_dir() {
            true => bytes_below(&entry.path())?,
            false => data.len(),
        };
    }
    Ok(sum)
}
