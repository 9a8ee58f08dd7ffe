//! The `NodeResourceTopology`: how the node's CPUs and memory lie, and which of the CPUs are whose.

mod kubelet;
mod node;
mod object;
mod pods;
mod zones;

use std::collections::BTreeMap;

use plimsoll_api::names;
use plimsoll_api::node_topology::Zone;
use plimsoll_host::machine::{NodeCpuInfo, NodeNumaInfo, Processor};
use serde::Serialize;

use crate::states::{ClusterState, CpuPools, Node};
use plimsoll_api::cpus::CpuSet;

use kubelet::{allocs, manager, policy};
use node::{reservation, system_qos};
use pods::{pinned, pools};
use zones::zones;

const STATIC: &str = "static";

/// What the machine says.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    pub cpus: &'a NodeCpuInfo,
    pub numa: &'a NodeNumaInfo,
    /// Report huge pages, and subtract them from memory.
    pub hugepages: bool,
    /// The kubelet's record of the CPUs that it has given to containers.
    pub cpu_manager_state: Option<&'a str>,
}

/// The content of the NodeResourceTopology object.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TopologyReport {
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
    pub policy: &'static str,
    pub zones: Vec<Zone>,
    pub pools: CpuPools,
}

/// Complaints are about annotations that make no sense; they count as absent.
pub fn build_topology(cluster: &ClusterState, facts: &Facts<'_>) -> (TopologyReport, Vec<String>) {
    let mut warnings = Vec::new();
    let nothing = Node::default();
    let node = cluster.node.as_deref().unwrap_or(&nothing);
    let processors = &facts.cpus.processors;
    let kubelet = cluster.kubelet.as_deref();
    let reservation = reservation(node, processors, &mut warnings);
    let system = system_qos(node, &mut warnings);
    let manager_policy = kubelet.map_or_else(String::new, |one| one.cpu_manager_policy.clone());
    let is_static = manager_policy == STATIC;
    let allocs = match facts.cpu_manager_state {
        Some(state) if is_static => allocs(cluster, state, &mut warnings),
        _ => Vec::new(),
    };
    let mut taken = CpuSet::default();
    for alloc in &allocs {
        taken.add(&parsed("cpu_manager_state", &alloc.cpuset, &mut warnings));
    }
    let mut out_of_pools = CpuSet::default();
    out_of_pools.add(&parsed(
        names::ANNOTATION_RESERVATION,
        &reservation.reserved_cpus,
        &mut warnings,
    ));
    if system.cpuset_exclusive != Some(false) {
        let cpus = parsed(names::ANNOTATION_SYSTEM_QOS, &system.cpuset, &mut warnings);
        out_of_pools.add(&cpus);
    }
    let (all_pods, lse) = pinned(cluster, &mut warnings);
    let pools = |owned: &CpuSet| {
        let gone: CpuSet = owned.0.iter().chain(&taken.0).copied().collect();
        pools(processors, &gone, &out_of_pools)
    };
    let shares = CpuPools {
        shared: pools(&all_pods),
        best_effort: pools(&lse),
        manager_policy,
    };
    let allocated = match allocs.is_empty() {
        true => "null".to_owned(),
        false => text(&allocs),
    };
    let texts = [
        (names::ANNOTATION_CPU_BASIC_INFO, text(&basic(facts.cpus))),
        (names::ANNOTATION_CPU_TOPOLOGY, text(&detail(processors))),
        (names::ANNOTATION_CPU_SHARED_POOLS, text(&shares.shared)),
        (
            names::ANNOTATION_BE_CPU_SHARED_POOLS,
            text(&shares.best_effort),
        ),
        (
            names::ANNOTATION_CPU_MANAGER_POLICY,
            text(&manager(kubelet, processors, &mut warnings)),
        ),
        (names::ANNOTATION_POD_CPU_ALLOCS, allocated),
        (names::ANNOTATION_RESERVATION, text(&reservation)),
        (names::ANNOTATION_SYSTEM_QOS, text(&system)),
    ];
    let numa_reservation = node.labels.get(names::LABEL_NUMA_RESERVATION);
    let labels = numa_reservation
        .filter(|value| !value.is_empty())
        .map(|value| (names::LABEL_NUMA_RESERVATION.to_owned(), value.to_string()));
    let report = TopologyReport {
        labels: labels.into_iter().collect(),
        annotations: texts.map(|(name, text)| (name.to_owned(), text)).into(),
        policy: kubelet.map_or("None", policy),
        zones: zones(node, facts),
        pools: shares,
    };
    (report, warnings)
}

/// As JSON, with fields in their own order.
fn text(value: &impl Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// The text of a list of CPUs; an empty list in place of one that is none.
fn parsed(of: &str, text: &str, warnings: &mut Vec<String>) -> CpuSet {
    text.parse().unwrap_or_else(|error| {
        warnings.push(format!("{of}: {error}"));
        CpuSet::default()
    })
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Basic<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    cpu_model: &'a str,
    #[serde(skip_serializing_if = "is_off")]
    hyper_thread_enabled: bool,
    #[serde(skip_serializing_if = "is_off")]
    turbo_enabled: bool,
    #[serde(rename = "catL3CbmMask", skip_serializing_if = "str::is_empty")]
    cat_l3_cbm_mask: &'a str,
    #[serde(rename = "vendorID", skip_serializing_if = "str::is_empty")]
    vendor_id: &'a str,
}

fn is_off(switch: &bool) -> bool {
    !switch
}

fn basic(cpus: &NodeCpuInfo) -> Basic<'_> {
    Basic {
        cpu_model: &cpus.model,
        hyper_thread_enabled: cpus.hyper_threads,
        turbo_enabled: cpus.turbo,
        cat_l3_cbm_mask: cpus.l3_mask.trim(),
        vendor_id: &cpus.vendor_id,
    }
}

#[derive(Debug, Serialize)]
struct Detail {
    detail: Vec<Place>,
}

#[derive(Debug, Serialize)]
struct Place {
    id: u32,
    core: u32,
    socket: u32,
    node: u32,
}

fn detail(processors: &[Processor]) -> Detail {
    let places = processors.iter().map(|one| Place {
        id: one.cpu,
        core: one.core,
        socket: one.socket,
        node: one.node,
    });
    Detail {
        detail: places.collect(),
    }
}

#[cfg(test)]
mod tests;
