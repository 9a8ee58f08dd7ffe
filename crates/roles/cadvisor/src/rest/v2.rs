//! Version 2: stats of containers (2.0 and 2.1), of the machine, and derived figures.

use std::io::{self, Write};

use plimsoll_host::cgroup;
use serde::ser::SerializeSeq;
use serde::{Serialize, Serializer};

use super::json::{self, Time, is_zero};
use super::snapshot::{RenderContext, Snapshot};
use super::spec::{self, SpecV2};
use super::stats::{
    Cpu, CpuInst, DiskIo, Fs, HugetlbMap, Memory, Network, Perf, PerfUncore, ProcessCounts,
    Resctrl, Tasks, cpu, cpu_inst, disk_io, filesystems, memory, network, perf, perf_uncore,
    resctrl,
};
use plimsoll_observe::sample::Processes;
use plimsoll_observe::{Group, Sample};

/// 2.0: every key is there whether or not it means anything, with a flag beside it.
#[derive(Debug, Serialize)]
struct Stats20<'a> {
    timestamp: Time,
    has_cpu: bool,
    cpu: Cpu<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_inst: Option<CpuInst>,
    has_diskio: bool,
    diskio: DiskIo<'a>,
    has_memory: bool,
    memory: Memory<'a>,
    has_hugetlb: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    hugetlb: Option<HugetlbMap<'a>>,
    has_network: bool,
    network: Network<'a>,
    has_processes: bool,
    processes: ProcessCounts,
    has_filesystem: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    filesystem: Vec<Fs>,
    has_load: bool,
    load_stats: Tasks,
    has_custom_metrics: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    perf_stats: Vec<Perf>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    perf_uncore_stats: Vec<PerfUncore>,
    #[serde(skip_serializing_if = "is_zero")]
    referenced_memory: u64,
    resctrl: Resctrl,
}

/// 2.1: what does not apply is left out.
#[derive(Debug, Serialize)]
struct Stats21<'a> {
    timestamp: Time,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu: Option<Cpu<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_inst: Option<CpuInst>,
    #[serde(skip_serializing_if = "Option::is_none")]
    diskio: Option<DiskIo<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<Memory<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hugetlb: Option<HugetlbMap<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    network: Option<Network<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    processes: Option<ProcessCounts>,
    #[serde(skip_serializing_if = "Option::is_none")]
    filesystem: Option<FsSummary>,
    #[serde(skip_serializing_if = "Option::is_none")]
    load_stats: Option<Tasks>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    perf_stats: Vec<Perf>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    perf_uncore_stats: Vec<PerfUncore>,
    #[serde(skip_serializing_if = "is_zero")]
    referenced_memory: u64,
    resctrl: Resctrl,
}

#[derive(Debug, Serialize)]
struct FsSummary {
    #[serde(rename = "totalUsageBytes")]
    total: u64,
    #[serde(rename = "baseUsageBytes")]
    base: u64,
    /// Spelt so in the contract.
    #[serde(rename = "containter_inode_usage")]
    inodes: u64,
}

#[derive(Debug, Serialize)]
struct MachineStats<'a> {
    timestamp: Time,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu: Option<Cpu<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu_inst: Option<CpuInst>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<Memory<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    network: Option<Network<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    filesystem: Vec<MachineFs>,
    #[serde(skip_serializing_if = "Option::is_none")]
    load_stats: Option<Tasks>,
}

#[derive(Debug, Serialize)]
struct MachineFs {
    device: &'static str,
    r#type: &'static str,
    capacity: u64,
    usage: u64,
    available: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    inodes_free: Option<u64>,
    /// A literal key in the contract.
    inline: DiskStats,
}

/// Durations in nanoseconds.
#[derive(Debug, Serialize)]
struct DiskStats {
    reads_completed: u64,
    reads_merged: u64,
    sectors_read: u64,
    read_duration: u64,
    writes_completed: u64,
    writes_merged: u64,
    sectors_written: u64,
    write_duration: u64,
    io_in_progress: u64,
    io_duration: u64,
    weighted_io_duration: u64,
}

/// The samples of a container one after the other, each with the one before it (for rates).
struct Series<'a, F> {
    snapshot: &'a Snapshot,
    /// Writes one sample as an element.
    shape: F,
}

impl<'a, F, T> Serialize for Series<'a, F>
where
    F: Fn(Option<&'a Sample>, &'a Sample) -> T,
    T: Serialize,
{
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let samples = &self.snapshot.samples;
        let mut list = serializer.serialize_seq(Some(samples.len()))?;
        let mut last = None;
        for sample in samples {
            list.serialize_element(&(self.shape)(last, sample))?;
            last = Some(sample);
        }
        list.end()
    }
}

/// `/api/v2.0/stats`: the list of one container.
pub fn write_stats_20(
    snapshot: &Snapshot,
    context: &RenderContext,
    out: impl Write,
) -> io::Result<()> {
    let limits = snapshot.limits(context);
    let shape = |last, sample| stats_20(snapshot, &limits, last, sample, context);
    json::write(&Series { snapshot, shape }, out)
}

/// `/api/v2.1/stats`: description and list of one container.
pub fn write_stats_21(
    snapshot: &Snapshot,
    context: &RenderContext,
    out: impl Write,
) -> io::Result<()> {
    #[derive(Serialize)]
    struct Info<'a, S> {
        spec: SpecV2<'a>,
        #[serde(skip_serializing_if = "Option::is_none")]
        stats: Option<S>,
    }
    let limits = snapshot.limits(context);
    let shape = |last, sample| stats_21(snapshot, &limits, last, sample, context);
    let info = Info {
        spec: spec::v2(snapshot, &limits),
        stats: (!snapshot.samples.is_empty()).then_some(Series { snapshot, shape }),
    };
    json::write(&info, out)
}

/// `/api/v2.1/machinestats`, of the root; `null` where there is no sample.
pub fn write_machine_stats(
    snapshot: &Snapshot,
    context: &RenderContext,
    out: impl Write,
) -> io::Result<()> {
    if snapshot.samples.is_empty() {
        return json::write(&(), out);
    }
    let limits = snapshot.limits(context);
    let shape = |last, sample| machine_stats(snapshot, &limits, last, sample, context);
    json::write(&Series { snapshot, shape }, out)
}

fn has_cpu_and_memory(
    limits: &cgroup::Spec,
    sample: &Sample,
    context: &RenderContext,
) -> (bool, bool) {
    let is_read = |group| !context.is_unread(sample, group);
    (
        limits.has_cpu && is_read(Group::Cpu),
        limits.has_memory && is_read(Group::Memory),
    )
}

fn stats_20<'a>(
    snapshot: &Snapshot,
    limits: &cgroup::Spec,
    last: Option<&Sample>,
    sample: &'a Sample,
    context: &'a RenderContext,
) -> Stats20<'a> {
    let (has_cpu, has_memory) = has_cpu_and_memory(limits, sample, context);
    let has_processes = sample.has(Group::Process);
    Stats20 {
        timestamp: sample.at.into(),
        has_cpu,
        cpu: cpu(sample),
        cpu_inst: has_cpu.then(|| cpu_inst(last, sample)).flatten(),
        has_diskio: limits.has_diskio,
        diskio: disk_io(sample, &context.devices),
        has_memory,
        memory: memory(sample),
        has_hugetlb: limits.has_hugetlb,
        hugetlb: (!sample.hugetlb.is_empty()).then_some(HugetlbMap(&sample.hugetlb)),
        has_network: snapshot.owns_network,
        network: network(sample, false),
        has_processes,
        processes: match has_processes {
            true => ProcessCounts::from(&sample.processes),
            false => ProcessCounts::from(&Processes::default()),
        },
        has_filesystem: snapshot.has_filesystem,
        filesystem: filesystems(sample),
        has_load: sample.load != Default::default(),
        load_stats: Tasks::from(&sample.load),
        has_custom_metrics: false,
        perf_stats: perf(&sample.perf),
        perf_uncore_stats: perf_uncore(&sample.perf_uncore),
        referenced_memory: sample.referenced_bytes,
        resctrl: resctrl(&sample.resctrl),
    }
}

fn stats_21<'a>(
    snapshot: &Snapshot,
    limits: &cgroup::Spec,
    last: Option<&Sample>,
    sample: &'a Sample,
    context: &'a RenderContext,
) -> Stats21<'a> {
    let (has_cpu, has_memory) = has_cpu_and_memory(limits, sample, context);
    let diskio = limits.has_diskio && sample.has(Group::DiskIo);
    Stats21 {
        timestamp: sample.at.into(),
        cpu: has_cpu.then(|| cpu(sample)),
        cpu_inst: has_cpu.then(|| cpu_inst(last, sample)).flatten(),
        diskio: diskio.then(|| disk_io(sample, &context.devices)),
        memory: has_memory.then(|| memory(sample)),
        hugetlb: limits.has_hugetlb.then_some(HugetlbMap(&sample.hugetlb)),
        network: snapshot.owns_network.then(|| network(sample, false)),
        processes: (limits.has_processes && sample.has(Group::Process))
            .then(|| ProcessCounts::from(&sample.processes)),
        filesystem: fs_summary(snapshot, sample),
        load_stats: load_stats(sample),
        perf_stats: perf(&sample.perf),
        perf_uncore_stats: perf_uncore(&sample.perf_uncore),
        referenced_memory: sample.referenced_bytes,
        resctrl: resctrl(&sample.resctrl),
    }
}

/// Only where there is exactly one: the sum over several devices would mean nothing.
fn fs_summary(snapshot: &Snapshot, sample: &Sample) -> Option<FsSummary> {
    match sample.filesystems.as_slice() {
        [fs] if snapshot.has_filesystem => Some(FsSummary {
            total: fs.usage,
            base: fs.base_usage,
            inodes: fs.inodes,
        }),
        _ => None,
    }
}

/// Task states are all zero unless somebody counts them.
fn load_stats(sample: &Sample) -> Option<Tasks> {
    (sample.load != Default::default()).then(|| Tasks::from(&sample.load))
}

fn machine_stats<'a>(
    snapshot: &Snapshot,
    limits: &cgroup::Spec,
    last: Option<&Sample>,
    sample: &'a Sample,
    context: &RenderContext,
) -> MachineStats<'a> {
    let (has_cpu, has_memory) = has_cpu_and_memory(limits, sample, context);
    const MILLI: u64 = 1_000_000;
    let filesystem = sample.filesystems.iter().map(|fs| MachineFs {
        device: fs.device.as_str(),
        r#type: fs.kind.as_str(),
        capacity: fs.capacity,
        usage: fs.usage,
        available: fs.available,
        inodes_free: (fs.has_inodes != 0).then_some(fs.inodes_free),
        inline: DiskStats {
            reads_completed: fs.disk.reads_completed,
            reads_merged: fs.disk.reads_merged,
            sectors_read: fs.disk.sectors_read,
            read_duration: fs.disk.read_ms.saturating_mul(MILLI),
            writes_completed: fs.disk.writes_completed,
            writes_merged: fs.disk.writes_merged,
            sectors_written: fs.disk.sectors_written,
            write_duration: fs.disk.write_ms.saturating_mul(MILLI),
            io_in_progress: fs.disk.io_in_progress,
            io_duration: fs.disk.io_ms.saturating_mul(MILLI),
            weighted_io_duration: fs.disk.weighted_io_ms.saturating_mul(MILLI),
        },
    });
    MachineStats {
        timestamp: sample.at.into(),
        cpu: has_cpu.then(|| cpu(sample)),
        cpu_inst: has_cpu.then(|| cpu_inst(last, sample)).flatten(),
        memory: has_memory.then(|| memory(sample)),
        network: snapshot.owns_network.then(|| network(sample, false)),
        filesystem: filesystem.collect(),
        load_stats: load_stats(sample),
    }
}
