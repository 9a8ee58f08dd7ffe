//! One sample as JSON: the parts that all API versions share. Key names, their order and what is left out when empty
//! are the contract.

mod io;
mod memory;
mod network;

use plimsoll_host::cgroup::{Pressure, Psi};
use serde::Serialize;

use super::json::is_zero;
use plimsoll_observe::sample::{
    Filesystem, Load, PerfCount, PerfUncoreCount, Processes, ResctrlDomain,
};
use plimsoll_observe::{Group, Sample};

pub use io::{DiskIo, disk_io};
pub use memory::{HugetlbMap, Memory, memory};
pub use network::{Network, network};

#[derive(Debug, Serialize)]
pub struct Cpu<'a> {
    usage: CpuUsage<'a>,
    cfs: Cfs,
    schedstat: Schedstat,
    load_average: u64,
    load_d_average: u64,
    psi: PsiPair,
}

#[derive(Debug, Serialize)]
struct CpuUsage<'a> {
    total: u64,
    #[serde(skip_serializing_if = "<[u64]>::is_empty")]
    per_cpu_usage: &'a [u64],
    user: u64,
    system: u64,
}

#[derive(Debug, Serialize)]
struct Cfs {
    periods: u64,
    throttled_periods: u64,
    throttled_time: u64,
    bursts_periods: u64,
    burst_time: u64,
}

#[derive(Debug, Serialize)]
struct Schedstat {
    run_time: u64,
    runqueue_time: u64,
    run_periods: u64,
}

pub fn cpu(sample: &Sample) -> Cpu<'_> {
    let cpu = &sample.cpu;
    Cpu {
        usage: CpuUsage {
            total: cpu.total_ns,
            per_cpu_usage: &cpu.per_cpu_ns,
            user: cpu.user_ns,
            system: cpu.system_ns,
        },
        cfs: Cfs {
            periods: cpu.cfs.periods,
            throttled_periods: cpu.cfs.throttled_periods,
            throttled_time: cpu.cfs.throttled_ns,
            bursts_periods: cpu.cfs.burst_periods,
            burst_time: cpu.cfs.burst_ns,
        },
        schedstat: Schedstat {
            run_time: sample.schedstat.run_ns,
            runqueue_time: sample.schedstat.wait_ns,
            run_periods: sample.schedstat.slices,
        },
        load_average: sample.load.average,
        load_d_average: sample.load.average_uninterruptible,
        psi: psi(&sample.cpu_psi),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PsiPair {
    full: PsiLine,
    some: PsiLine,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct PsiLine {
    total: u64,
    avg10: f64,
    avg60: f64,
    avg300: f64,
}

pub fn psi(psi: &Psi) -> PsiPair {
    let line = |p: &Pressure| PsiLine {
        total: p.total_us,
        avg10: p.avg10_centi as f64 / 100.0,
        avg60: p.avg60_centi as f64 / 100.0,
        avg300: p.avg300_centi as f64 / 100.0,
    };
    PsiPair {
        full: line(&psi.full),
        some: line(&psi.some),
    }
}

/// Nanocores between two samples.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct CpuInst {
    pub usage: CpuInstUsage,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub struct CpuInstUsage {
    pub total: u64,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub per_cpu_usage: Vec<u64>,
    pub user: u64,
    pub system: u64,
}

/// `None` for the first sample, after a restarted counter, where the number of CPUs changed, and where one of the two
/// could not be read.
pub fn cpu_inst(last: Option<&Sample>, current: &Sample) -> Option<CpuInst> {
    let last = last?;
    if last.has(Group::Cpu) != current.has(Group::Cpu) {
        return None;
    }
    let elapsed = current.at.nanos().checked_sub(last.at.nanos())?;
    if elapsed <= 0 || last.cpu.per_cpu_ns.len() != current.cpu.per_cpu_ns.len() {
        return None;
    }
    // In floating point, as the original reckons: the last digits are visible.
    let rate = |from: u64, to: u64| -> Option<u64> {
        Some((to.checked_sub(from)? as f64 / elapsed as f64 * 1e9) as u64)
    };
    let per_cpu = last.cpu.per_cpu_ns.iter().zip(&current.cpu.per_cpu_ns);
    Some(CpuInst {
        usage: CpuInstUsage {
            total: rate(last.cpu.total_ns, current.cpu.total_ns)?,
            per_cpu_usage: per_cpu
                .map(|(from, to)| rate(*from, *to))
                .collect::<Option<_>>()?,
            user: rate(last.cpu.user_ns, current.cpu.user_ns)?,
            system: rate(last.cpu.system_ns, current.cpu.system_ns)?,
        },
    })
}

#[derive(Debug, Serialize)]
pub struct Fs {
    #[serde(skip_serializing_if = "str::is_empty")]
    device: &'static str,
    r#type: &'static str,
    capacity: u64,
    usage: u64,
    base_usage: u64,
    available: u64,
    has_inodes: bool,
    inodes: u64,
    inodes_free: u64,
    reads_completed: u64,
    reads_merged: u64,
    sectors_read: u64,
    read_time: u64,
    writes_completed: u64,
    writes_merged: u64,
    sectors_written: u64,
    write_time: u64,
    io_in_progress: u64,
    io_time: u64,
    weighted_io_time: u64,
}

impl From<&Filesystem> for Fs {
    fn from(fs: &Filesystem) -> Self {
        Self {
            device: fs.device.as_str(),
            r#type: fs.kind.as_str(),
            capacity: fs.capacity,
            usage: fs.usage,
            base_usage: fs.base_usage,
            available: fs.available,
            has_inodes: fs.has_inodes != 0,
            inodes: fs.inodes,
            inodes_free: fs.inodes_free,
            reads_completed: fs.disk.reads_completed,
            reads_merged: fs.disk.reads_merged,
            sectors_read: fs.disk.sectors_read,
            read_time: fs.disk.read_ms,
            writes_completed: fs.disk.writes_completed,
            writes_merged: fs.disk.writes_merged,
            sectors_written: fs.disk.sectors_written,
            write_time: fs.disk.write_ms,
            io_in_progress: fs.disk.io_in_progress,
            io_time: fs.disk.io_ms,
            weighted_io_time: fs.disk.weighted_io_ms,
        }
    }
}

pub fn filesystems(sample: &Sample) -> Vec<Fs> {
    sample.filesystems.iter().map(Fs::from).collect()
}

#[derive(Debug, Serialize)]
pub struct Tasks {
    nr_sleeping: u64,
    nr_running: u64,
    nr_stopped: u64,
    nr_uninterruptible: u64,
    nr_io_wait: u64,
}

impl From<&Load> for Tasks {
    fn from(load: &Load) -> Self {
        Self {
            nr_sleeping: load.sleeping,
            nr_running: load.running,
            nr_stopped: load.stopped,
            nr_uninterruptible: load.uninterruptible,
            nr_io_wait: load.io_wait,
        }
    }
}

#[derive(Debug, Serialize)]
pub struct ProcessCounts {
    process_count: u64,
    fd_count: u64,
    socket_count: u64,
    #[serde(skip_serializing_if = "is_zero")]
    threads_current: u64,
    #[serde(skip_serializing_if = "is_zero")]
    threads_max: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    ulimits: Option<[Ulimit; 1]>,
}

#[derive(Debug, Serialize)]
struct Ulimit {
    name: &'static str,
    soft_limit: i64,
    hard_limit: i64,
}

impl From<&Processes> for ProcessCounts {
    fn from(p: &Processes) -> Self {
        // "Unlimited" is the largest number inside and −1 on the wire.
        let limit = |value: u64| i64::try_from(value).unwrap_or(-1);
        Self {
            process_count: p.count,
            fd_count: p.fds,
            socket_count: p.sockets,
            threads_current: p.threads,
            threads_max: p.threads_max,
            ulimits: p.max_open_files.map(|(soft, hard)| {
                [Ulimit {
                    name: "max_open_files",
                    soft_limit: limit(soft),
                    hard_limit: limit(hard),
                }]
            }),
        }
    }
}

#[derive(Debug, Serialize)]
pub struct Perf {
    scaling_ratio: f64,
    value: u64,
    name: &'static str,
    cpu: u64,
}

#[derive(Debug, Serialize)]
pub struct PerfUncore {
    scaling_ratio: f64,
    value: u64,
    name: &'static str,
    socket: u64,
    pmu: &'static str,
}

pub fn perf(counts: &[PerfCount]) -> Vec<Perf> {
    counts
        .iter()
        .map(|c| Perf {
            scaling_ratio: c.scaling_ratio,
            value: c.value,
            name: c.event.as_str(),
            cpu: c.cpu,
        })
        .collect()
}

pub fn perf_uncore(counts: &[PerfUncoreCount]) -> Vec<PerfUncore> {
    counts
        .iter()
        .map(|c| PerfUncore {
            scaling_ratio: c.scaling_ratio,
            value: c.value,
            name: c.event.as_str(),
            socket: c.socket,
            pmu: c.pmu.as_str(),
        })
        .collect()
}

#[derive(Debug, Serialize)]
pub struct Resctrl {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    memory_bandwidth: Vec<Bandwidth>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    cache: Vec<CacheUse>,
}

#[derive(Debug, Serialize)]
struct Bandwidth {
    #[serde(skip_serializing_if = "is_zero")]
    mbm_total_bytes: u64,
    #[serde(skip_serializing_if = "is_zero")]
    mbm_local_bytes: u64,
}

#[derive(Debug, Serialize)]
struct CacheUse {
    #[serde(skip_serializing_if = "is_zero")]
    llc_occupancy: u64,
}

pub fn resctrl(domains: &[ResctrlDomain]) -> Resctrl {
    Resctrl {
        memory_bandwidth: domains
            .iter()
            .map(|d| Bandwidth {
                mbm_total_bytes: d.mbm_total_bytes,
                mbm_local_bytes: d.mbm_local_bytes,
            })
            .collect(),
        cache: domains
            .iter()
            .map(|d| CacheUse {
                llc_occupancy: d.llc_occupancy,
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_host::Timestamp;

    #[test]
    fn rates_between_samples() {
        let mut first = Sample {
            at: Timestamp::from_secs(10),
            ..Sample::default()
        };
        first.cpu.total_ns = 1_000;
        first.cpu.per_cpu_ns = vec![400, 600];
        let mut second = first.clone();
        second.at = Timestamp::from_secs(12);
        second.cpu.total_ns = 2_000_001_000;
        second.cpu.per_cpu_ns = vec![400, 2_000_000_600];
        let rate = cpu_inst(Some(&first), &second).unwrap();
        assert_eq!(rate.usage.total, 1_000_000_000);
        assert_eq!(rate.usage.per_cpu_usage, [0, 1_000_000_000]);
        assert_eq!(cpu_inst(None, &second), None);
        assert_eq!(cpu_inst(Some(&second), &first), None, "time goes back");
        second.cpu.total_ns = 0;
        assert_eq!(
            cpu_inst(Some(&first), &second),
            None,
            "the counter restarted"
        );
    }
}
