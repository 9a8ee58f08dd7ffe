//! Version 1: a container with its description and samples.

use std::io::{self, Write};

use plimsoll_host::cgroup;
use serde::ser::SerializeSeq;
use serde::{Serialize, Serializer};

use super::json::{self, Time, is_zero};
use super::snapshot::{RenderContext, Snapshot};
use super::spec::{self, Names, SpecV1};
use super::stats::{
    Cpu, DiskIo, Fs, HugetlbMap, Memory, Network, Perf, PerfUncore, ProcessCounts, Resctrl, Tasks,
    cpu, disk_io, filesystems, memory, network, perf, perf_uncore, resctrl,
};
use plimsoll_observe::{Group, Sample};

#[derive(Debug, Serialize)]
struct Reference<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    id: &'a str,
    name: &'a str,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    aliases: &'a [String],
    #[serde(skip_serializing_if = "str::is_empty")]
    namespace: &'a str,
}

#[derive(Debug, Serialize)]
pub struct ContainerInfo<'a> {
    #[serde(flatten)]
    reference: Reference<'a>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    subcontainers: Vec<Reference<'a>>,
    spec: SpecV1<'a>,
    #[serde(skip_serializing_if = "Samples::is_empty")]
    stats: Samples<'a>,
}

/// `children`: the paths of the containers directly below.
pub fn container_info<'a>(
    snapshot: &'a Snapshot,
    limits: &'a cgroup::Spec,
    children: &'a [impl AsRef<str>],
    context: &'a RenderContext,
) -> ContainerInfo<'a> {
    let names = Names::of(snapshot);
    let below = |path: &'a str| Reference {
        id: "",
        name: path,
        aliases: &[],
        namespace: "",
    };
    ContainerInfo {
        reference: Reference {
            id: names.id,
            name: &snapshot.path,
            aliases: names.aliases,
            namespace: names.namespace,
        },
        subcontainers: children.iter().map(|path| below(path.as_ref())).collect(),
        spec: spec::v1(snapshot, limits),
        stats: Samples { snapshot, context },
    }
}

pub fn write(
    snapshot: &Snapshot,
    children: &[impl AsRef<str>],
    context: &RenderContext,
    out: impl Write,
) -> io::Result<()> {
    let limits = snapshot.limits(context);
    json::write(&container_info(snapshot, &limits, children, context), out)
}

#[derive(Debug)]
struct Samples<'a> {
    snapshot: &'a Snapshot,
    context: &'a RenderContext,
}

impl Samples<'_> {
    fn is_empty(&self) -> bool {
        self.snapshot.samples.is_empty()
    }
}

impl Serialize for Samples<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let samples = &self.snapshot.samples;
        let mut list = serializer.serialize_seq(Some(samples.len()))?;
        for sample in samples {
            list.serialize_element(&stats(self.snapshot, sample, self.context))?;
        }
        list.end()
    }
}

#[derive(Debug, Serialize)]
struct Stats<'a> {
    timestamp: Time,
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu: Option<Cpu<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    diskio: Option<DiskIo<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    memory: Option<Memory<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hugetlb: Option<HugetlbMap<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    network: Option<Network<'a>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    filesystem: Vec<Fs>,
    task_stats: Tasks,
    #[serde(skip_serializing_if = "Option::is_none")]
    processes: Option<ProcessCounts>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    perf_stats: Vec<Perf>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    perf_uncore_stats: Vec<PerfUncore>,
    #[serde(skip_serializing_if = "is_zero")]
    referenced_memory: u64,
    resctrl: Resctrl,
    cpuset: Cpuset,
    /// Of now, on every sample: kills are counted, not sampled.
    #[serde(skip_serializing_if = "is_zero")]
    oom_events: u64,
    health: Health<'a>,
}

#[derive(Debug, Serialize)]
struct Cpuset {
    memory_migrate: u64,
}

#[derive(Debug, Serialize)]
struct Health<'a> {
    status: &'a str,
}

fn stats<'a>(snapshot: &'a Snapshot, sample: &'a Sample, context: &'a RenderContext) -> Stats<'a> {
    let health = snapshot.identity.as_deref().map(|i| i.health.0.as_str());
    Stats {
        timestamp: sample.at.into(),
        cpu: (!context.is_unread(sample, Group::Cpu)).then(|| cpu(sample)),
        diskio: sample
            .has(Group::DiskIo)
            .then(|| disk_io(sample, &context.devices)),
        memory: (!context.is_unread(sample, Group::Memory)).then(|| memory(sample)),
        hugetlb: (!sample.hugetlb.is_empty()).then_some(HugetlbMap(&sample.hugetlb)),
        network: snapshot
            .shows_network(sample)
            .then(|| network(sample, true)),
        filesystem: filesystems(sample),
        task_stats: Tasks::from(&sample.load),
        processes: sample
            .has(Group::Process)
            .then(|| ProcessCounts::from(&sample.processes)),
        perf_stats: perf(&sample.perf),
        perf_uncore_stats: perf_uncore(&sample.perf_uncore),
        referenced_memory: sample.referenced_bytes,
        resctrl: resctrl(&sample.resctrl),
        cpuset: Cpuset {
            memory_migrate: sample.memory_migrate,
        },
        oom_events: snapshot.oom_events,
        health: Health {
            status: health.unwrap_or(""),
        },
    }
}
