//! A container's limits and names as JSON.

use std::collections::BTreeMap;

use plimsoll_host::cgroup;
use serde::Serialize;

use super::json::{Time, is_zero};
use super::snapshot::{RenderContext, Snapshot};

#[derive(Debug, Serialize)]
pub struct CpuSpec<'a> {
    limit: u64,
    max_limit: u64,
    #[serde(skip_serializing_if = "str::is_empty")]
    mask: &'a str,
    #[serde(skip_serializing_if = "is_zero")]
    quota: u64,
    #[serde(skip_serializing_if = "is_zero")]
    period: u64,
}

#[derive(Debug, Serialize)]
pub struct MemorySpec {
    #[serde(skip_serializing_if = "is_zero")]
    limit: u64,
    #[serde(skip_serializing_if = "is_zero")]
    reservation: u64,
    #[serde(skip_serializing_if = "is_zero")]
    swap_limit: u64,
}

#[derive(Debug, Serialize)]
pub struct ProcessSpec {
    #[serde(skip_serializing_if = "is_zero")]
    limit: u64,
}

fn cpu(spec: &cgroup::Spec) -> CpuSpec<'_> {
    CpuSpec {
        limit: spec.cpu_shares,
        max_limit: 0,
        mask: spec.cpu_mask.as_deref().unwrap_or(""),
        quota: spec.cpu_quota_us,
        period: spec.cpu_period_us,
    }
}

fn memory(spec: &cgroup::Spec) -> MemorySpec {
    MemorySpec {
        limit: spec.memory_limit,
        reservation: spec.memory_reservation,
        swap_limit: spec.memory_swap_limit,
    }
}

type Strings = BTreeMap<String, String>;

/// `labels`, `envs`, `aliases`, `namespace`, `image`, empty where no runtime knows the container.
#[derive(Debug, Clone, Copy)]
pub struct Names<'a> {
    pub id: &'a str,
    pub aliases: &'a [String],
    pub namespace: &'a str,
    pub image: &'a str,
    pub labels: Option<&'a Strings>,
    pub envs: Option<&'a Strings>,
}

impl<'a> Names<'a> {
    pub fn of(snapshot: &'a Snapshot) -> Self {
        let Some(identity) = snapshot.identity.as_deref() else {
            return Self {
                id: "",
                aliases: &[],
                namespace: "",
                image: "",
                labels: None,
                envs: None,
            };
        };
        Self {
            id: &identity.id,
            aliases: &identity.aliases,
            namespace: identity.namespace.as_str(),
            image: &identity.image,
            labels: Some(&identity.labels).filter(|labels| !labels.is_empty()),
            envs: Some(&identity.envs).filter(|envs| !envs.is_empty()),
        }
    }
}

#[derive(Debug, Serialize)]
pub struct SpecV1<'a> {
    creation_time: Time,
    start_time: Time,
    #[serde(skip_serializing_if = "Option::is_none")]
    labels: Option<&'a Strings>,
    #[serde(skip_serializing_if = "Option::is_none")]
    envs: Option<&'a Strings>,
    has_cpu: bool,
    cpu: CpuSpec<'a>,
    has_memory: bool,
    memory: MemorySpec,
    has_hugetlb: bool,
    has_network: bool,
    has_processes: bool,
    processes: ProcessSpec,
    has_filesystem: bool,
    has_diskio: bool,
    has_custom_metrics: bool,
    #[serde(skip_serializing_if = "str::is_empty")]
    image: &'a str,
}

/// `limits` are those of [`Snapshot::limits`].
pub fn v1<'a>(snapshot: &'a Snapshot, limits: &'a cgroup::Spec) -> SpecV1<'a> {
    let names = Names::of(snapshot);
    SpecV1 {
        creation_time: snapshot.created.into(),
        start_time: Time(snapshot.started),
        labels: names.labels,
        envs: names.envs,
        has_cpu: limits.has_cpu,
        cpu: cpu(limits),
        has_memory: limits.has_memory,
        memory: memory(limits),
        has_hugetlb: limits.has_hugetlb,
        has_network: snapshot.owns_network,
        has_processes: limits.has_processes,
        processes: ProcessSpec {
            limit: limits.pids_limit,
        },
        has_filesystem: snapshot.has_filesystem,
        has_diskio: limits.has_diskio,
        has_custom_metrics: false,
        image: names.image,
    }
}

#[derive(Debug, Serialize)]
pub struct SpecV2<'a> {
    creation_time: Time,
    start_time: Time,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    aliases: &'a [String],
    #[serde(skip_serializing_if = "str::is_empty")]
    namespace: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    labels: Option<&'a Strings>,
    #[serde(skip_serializing_if = "Option::is_none")]
    envs: Option<&'a Strings>,
    has_cpu: bool,
    /// With quota and period, which the original has keys for but forgets to fill.
    cpu: CpuSpec<'a>,
    has_memory: bool,
    memory: MemorySpec,
    has_hugetlb: bool,
    has_custom_metrics: bool,
    has_processes: bool,
    /// With the limit, likewise.
    processes: ProcessSpec,
    has_network: bool,
    has_filesystem: bool,
    has_diskio: bool,
    #[serde(skip_serializing_if = "str::is_empty")]
    image: &'a str,
}

pub fn v2<'a>(snapshot: &'a Snapshot, limits: &'a cgroup::Spec) -> SpecV2<'a> {
    let names = Names::of(snapshot);
    SpecV2 {
        creation_time: snapshot.created.into(),
        start_time: Time(snapshot.started),
        aliases: names.aliases,
        namespace: names.namespace,
        labels: names.labels,
        envs: names.envs,
        has_cpu: limits.has_cpu,
        cpu: cpu(limits),
        has_memory: limits.has_memory,
        memory: memory(limits),
        has_hugetlb: limits.has_hugetlb,
        has_custom_metrics: false,
        has_processes: limits.has_processes,
        processes: ProcessSpec {
            limit: limits.pids_limit,
        },
        has_network: snapshot.owns_network,
        has_filesystem: snapshot.has_filesystem,
        has_diskio: limits.has_diskio,
        image: names.image,
    }
}

/// Writes the description of version 2 by itself, for `/api/v2.x/spec`.
pub fn write_v2(
    snapshot: &Snapshot,
    context: &RenderContext,
    out: impl std::io::Write,
) -> std::io::Result<()> {
    super::json::write(&v2(snapshot, &snapshot.limits(context)), out)
}
