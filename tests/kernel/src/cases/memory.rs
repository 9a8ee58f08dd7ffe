//! What the agent remembers of a node and its pods, against the test's own reading of the same files.

use std::io::Write;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use plimsoll_test_support::agent::Agent;
use plimsoll_test_support::cgroup::{Group, Mounts};
use plimsoll_test_support::poll;
use plimsoll_test_support::report::Runner;
use serde_json::Value;

use super::{LOG, NO_BUDGET, PROGRAM, Rig, SAMPLED, read};
use crate::init::DATA;
use crate::workload::Workload;

const UID: &str = "12345678-1234-1234-1234-123456789abc";
const THROTTLED: &str = "12345678-1234-1234-1234-123456789def";
const CACHING: &str = "12345678-1234-1234-1234-123456789cac";
const BEST_EFFORT: &str = "12345678-1234-1234-1234-123456789bec";
const ID: &str = "cccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccccc";
/// Independent readings agree within this share, or this much of a core.
pub const SLACK: f64 = 0.02;
pub const CORES: f64 = 0.03;
pub const MIB: f64 = (1 << 20) as f64;
/// Long enough that the edges of a window do not matter.
pub const LOOK: Duration = Duration::from_secs(10);

pub fn cases(runner: &mut Runner<impl Write>, rig: &Rig) {
    runner.case("memory_pod", || pod(rig));
    runner.case("memory_page_cache", || page_cache(rig));
    runner.case("memory_throttled", || throttled(rig));
    runner.case("memory_best_effort", || best_effort(rig));
    runner.case("memory_node", || node(rig));
    runner.case("memory_numa", || numa(rig));
    runner.case("memory_pressure_supported", || pressure(rig));
}

/// The series of a metric during the last seconds.
fn remembered(agent: &Agent, metric: &str, of: &str, seconds: u64) -> Result<Value> {
    let page = agent.json(&format!("/debug/memory?metric={metric}&window={seconds}s"))?;
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

fn pod_group(rig: &Rig, name: &str, uid: &str) -> Result<(Group, Group)> {
    let pod = rig.group(&format!("{name}/kubepods/burstable/pod{uid}"))?;
    let container = rig.group(&format!("{name}/kubepods/burstable/pod{uid}/{ID}"))?;
    Ok((pod, container))
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

/// Waits until a series has a full window of samples.
pub fn wait_noted(rig: &Rig, metric: &str, of: &str, seconds: u64) -> Result<()> {
    poll::until(&format!("{metric} is noted"), SAMPLED + LOOK, || {
        let found = remembered(&rig.agent, metric, of, seconds)?;
        let count = found["count"].as_u64().unwrap_or(0);
        Ok((count + 2 >= seconds).then_some(()))
    })
}

fn pod(rig: &Rig) -> Result<String> {
    let (pod, container) = pod_group(rig, "remember", UID)?;
    let _burn = Workload::start(&container, &["burn"])?;
    let _hold = Workload::start(&container, &["alloc", "67108864"])?;
    let uid = format!("pod_uid={UID}");
    let id = format!("container_id={ID}");
    wait_noted(rig, "pod_cpu_usage", &uid, 3)?;
    let (begin, before) = (Instant::now(), cpu_seconds(rig, &pod)?);
    std::thread::sleep(LOOK);
    let (elapsed, after) = (begin.elapsed(), cpu_seconds(rig, &pod)?);
    let expected = (after - before) / elapsed.as_secs_f64();
    let window = LOOK.as_secs();
    let found = figure(&rig.agent, "pod_cpu_usage", &uid, window, "avg")?;
    ensure!(
        (found - expected).abs() <= expected * SLACK + CORES,
        "the pod used {expected} cores, {found} are remembered"
    );
    let of_container = figure(&rig.agent, "container_cpu_usage", &id, window, "avg")?;
    ensure!(
        (of_container - expected).abs() <= expected * SLACK + CORES,
        "the container used {expected} cores, {of_container} are remembered"
    );
    let expected = memory_bytes(rig, &pod)?;
    let bytes = figure(&rig.agent, "pod_memory_usage", &uid, window, "last")?;
    ensure!(
        (bytes - expected).abs() <= expected * SLACK + MIB,
        "the pod holds {expected} bytes, {bytes} are remembered"
    );
    ensure!(
        expected > 60.0 * MIB,
        "the workload holds {expected} bytes only"
    );
    Ok(format!("{found:.3} cores, {:.1} MiB", bytes / MIB))
}

/// Memory by the rule, and what of files is in memory besides.
fn page_cache(rig: &Rig) -> Result<String> {
    const CACHED: &str = "25165824";
    let (pod, container) = pod_group(rig, "cache", CACHING)?;
    let file = format!("{DATA}/remembered");
    let _cached = Workload::start(&container, &["cache", &file, CACHED])?;
    let prefix = if rig.is_v1() { "total_" } else { "" };
    let mut files = 0.0;
    for list in ["inactive_file", "active_file"] {
        files += pod.keyed("memory", "memory.stat", &format!("{prefix}{list}"))? as f64;
    }
    ensure!(files >= 24.0 * MIB, "{files} bytes of files only");
    let expected = memory_bytes(rig, &pod)? + files;
    let uid = format!("pod_uid={CACHING}");
    let metric = "pod_memory_usage_with_page_cache";
    let bytes = poll::until("the page cache is noted", SAMPLED + LOOK, || {
        let found = figure(&rig.agent, metric, &uid, 5, "last")?;
        let agrees = (found - expected).abs() <= expected * SLACK + MIB;
        Ok(agrees.then_some(found))
    })?;
    Ok(format!("{:.1} MiB", bytes / MIB))
}

/// What best-effort pods may use together is the quota here, which is less than all CPUs.
fn best_effort(rig: &Rig) -> Result<String> {
    const QUOTA_US: &str = "50000";
    let whole = rig.group("batch/kubepods/besteffort")?;
    let container = rig.group(&format!("batch/kubepods/besteffort/pod{BEST_EFFORT}/{ID}"))?;
    match rig.is_v1() {
        true => whole.write("cpu", "cpu.cfs_quota_us", QUOTA_US)?,
        false => whole.write("cpu", "cpu.max", &format!("{QUOTA_US} 100000"))?,
    }
    let _burn = Workload::start(&container, &["burn"])?;
    let of = |allocation| format!("be_resource=cpu,be_allocation={allocation}");
    wait_noted(rig, "node_be", &of("usage"), 3)?;
    let (begin, before) = (Instant::now(), cpu_seconds(rig, &whole)?);
    std::thread::sleep(LOOK);
    let (elapsed, after) = (begin.elapsed(), cpu_seconds(rig, &whole)?);
    let expected = (after - before) / elapsed.as_secs_f64();
    let window = LOOK.as_secs();
    let found = figure(&rig.agent, "node_be", &of("usage"), window, "avg")? / 1000.0;
    ensure!(
        (found - expected).abs() <= expected * SLACK + CORES,
        "best-effort pods used {expected} cores, {found} are remembered"
    );
    let limit = figure(&rig.agent, "node_be", &of("real-limit"), window, "last")?;
    ensure!(limit == 500.0, "a limit of {limit} thousandths of a core");
    Ok(format!("{found:.3} cores of {:.1}", limit / 1000.0))
}

fn throttled(rig: &Rig) -> Result<String> {
    let (pod, container) = pod_group(rig, "throttle", THROTTLED)?;
    match rig.is_v1() {
        true => pod.write("cpu", "cpu.cfs_quota_us", "20000")?,
        false => pod.write("cpu", "cpu.max", "20000 100000")?,
    }
    let _burn = Workload::start(&container, &["burn"])?;
    let uid = format!("pod_uid={THROTTLED}");
    let ratio = poll::until("the pod is throttled", SAMPLED + LOOK, || {
        let found = figure(&rig.agent, "pod_cpu_throttled", &uid, 5, "avg")?;
        Ok((found > 0.8).then_some(found))
    })?;
    ensure!(ratio <= 1.0, "a ratio of {ratio}");
    Ok(format!("{ratio:.2} of the periods"))
}

/// Cores by `/proc/stat`, without waiting and stolen time.
fn busy_seconds() -> Result<f64> {
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

fn meminfo(key: &str) -> Result<f64> {
    let text = read("/proc/meminfo")?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    let words = line.and_then(|line| line.split_whitespace().next());
    let kib: f64 = words.with_context(|| format!("no {key}"))?.parse()?;
    Ok(kib * 1024.0)
}

fn node(rig: &Rig) -> Result<String> {
    let group = rig.group("node-burn")?;
    let _burn = Workload::start(&group, &["burn"])?;
    let (begin, before) = (Instant::now(), busy_seconds()?);
    std::thread::sleep(LOOK);
    let (elapsed, after) = (begin.elapsed(), busy_seconds()?);
    let expected = (after - before) / elapsed.as_secs_f64();
    let window = LOOK.as_secs();
    let found = figure(&rig.agent, "node_cpu_usage", "", window, "avg")?;
    ensure!(
        (found - expected).abs() <= expected * 0.05 + 2.0 * CORES,
        "the node used {expected} cores, {found} are remembered"
    );
    let expected = meminfo("MemTotal")? - meminfo("MemAvailable")?;
    let bytes = figure(&rig.agent, "node_memory_usage", "", window, "last")?;
    ensure!(
        (bytes - expected).abs() <= expected * SLACK + 4.0 * MIB,
        "the node holds {expected} bytes, {bytes} are remembered"
    );
    let system = figure(&rig.agent, "sys_cpu_usage", "", window, "avg")?;
    ensure!(
        system <= found + CORES,
        "the system used {system} of {found} cores"
    );
    Ok(format!("{found:.3} cores, {:.1} MiB", bytes / MIB))
}

/// The shares of all NUMA nodes make up what the node used.
fn numa(rig: &Rig) -> Result<String> {
    let nodes = std::fs::read_dir("/sys/devices/system/node");
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
        let page = rig
            .agent
            .json(&format!("/debug/memory?metric={metric}&window=10s"))?;
        let series = page.as_object().context("no object")?;
        Ok(series
            .values()
            .filter_map(|of| of["avg"].as_f64())
            .collect())
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
    let whole = figure(&rig.agent, "node_cpu_usage", "", 10, "avg")?;
    let sum: f64 = cpu.iter().sum();
    ensure!(
        (sum - whole).abs() <= whole * 0.05 + 2.0 * CORES,
        "NUMA nodes used {sum} cores, the node {whole}"
    );
    ensure!(memory.iter().all(|bytes| *bytes > 0.0), "{memory:?}");
    Ok(format!("{nodes} nodes, {sum:.3} cores"))
}

/// Only the unified hierarchy has pressure; there it must be noted, and elsewhere not be made up.
fn pressure(rig: &Rig) -> Result<String> {
    let page = rig
        .agent
        .json("/debug/memory?metric=pod_psi_cpu_full_supported&window=5m")?;
    let series = page.as_object().context("no object")?;
    let supported = series.values().any(|of| of["last"].as_f64() == Some(1.0));
    let has_files = !rig.is_v1() && Path::new("/proc/pressure/cpu").exists();
    ensure!(
        supported == has_files,
        "pressure is remembered: {supported}, the kernel has it: {has_files}"
    );
    Ok(format!("supported: {supported}"))
}

/// Kills the agent again and again: it always comes back, with all but the last seconds.
pub fn killed(runner: &mut Runner<impl Write>, mounts: &Mounts) {
    runner.case("memory_survives_kills", || survives_kills(mounts));
}

fn survives_kills(mounts: &Mounts) -> Result<String> {
    const KILLS: usize = 3;
    let data = format!("--data-dir={DATA}/killed");
    let arguments = [NO_BUDGET, &data, "--prediction-training-interval=2s"];
    let mut noted = 0;
    for kill in 0..KILLS {
        let agent = Agent::start(Path::new(PROGRAM), &arguments, None, Path::new(LOG))?;
        let count = || -> Result<u64> {
            let found = remembered(&agent, "node_cpu_usage", "", 3600)?;
            found["count"].as_u64().with_context(|| format!("{found}"))
        };
        let begin = poll::until("samples of before are there", SAMPLED, || count().map(Some))?;
        // The journal is written every five seconds, and what came after it may be lost.
        ensure!(
            begin + 8 >= noted,
            "{begin} samples after kill {kill}, {noted} before it"
        );
        noted = poll::until("more samples are noted", SAMPLED + LOOK, || {
            let now = count()?;
            Ok((now >= begin + 9).then_some(now))
        })?;
        agent.kill()?;
    }
    let mode = mounts.mode;
    Ok(format!("{noted} samples after {KILLS} kills on {mode:?}"))
}
