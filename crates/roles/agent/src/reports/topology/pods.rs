//! CPUs that pods have, and those that are left for the others.

use std::collections::BTreeMap;

use plimsoll_api::names;
use plimsoll_api::priority::QosClass;
use plimsoll_host::machine::Processor;
use serde::Deserialize;

use super::parsed;
use crate::states::{ClusterState, CpuPool};
use plimsoll_api::cpus::CpuSet;

/// Shared CPU pools by NUMA node: all CPUs minus `exclusive`. A node without CPUs has no pool. Reserved CPUs are removed
/// last, so a pool may become empty.
pub fn pools(processors: &[Processor], exclusive: &CpuSet, reserved: &CpuSet) -> Vec<CpuPool> {
    let mut by_node: BTreeMap<(u32, u32), CpuSet> = BTreeMap::new();
    for one in processors
        .iter()
        .filter(|one| !exclusive.0.contains(&one.cpu))
    {
        let pool = by_node.entry((one.socket, one.node)).or_default();
        pool.0.insert(one.cpu);
    }
    let pools = by_node.into_iter().map(|((socket, node), cpus)| CpuPool {
        socket: socket.into(),
        node: node.into(),
        cpuset: cpus.without(reserved).to_string(),
    });
    pools.collect()
}

/// CPUs that the scheduler has assigned to pods: all, and those of LSE pods.
pub fn pinned(cluster: &ClusterState, warnings: &mut Vec<String>) -> (CpuSet, CpuSet) {
    let (mut all, mut lse) = (CpuSet::default(), CpuSet::default());
    let pods = cluster.pods.as_deref().unwrap_or_default();
    for pod in pods.iter().filter(|pod| !pod.has_ended()) {
        let Some(cpus) = cpuset(&pod.annotations, warnings) else {
            continue;
        };
        all.add(&cpus);
        if pod.classes.qos == QosClass::Lse {
            lse.add(&cpus);
        }
    }
    (all, lse)
}

/// `None`: the scheduler has given it none.
pub fn cpuset(
    annotations: &BTreeMap<Box<str>, Box<str>>,
    warnings: &mut Vec<String>,
) -> Option<CpuSet> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Status {
        cpuset: String,
    }
    let text = annotations.get(names::ANNOTATION_RESOURCE_STATUS)?;
    let cpus = match serde_json::from_str::<Status>(text) {
        Ok(status) => parsed(names::ANNOTATION_RESOURCE_STATUS, &status.cpuset, warnings),
        Err(error) => {
            warnings.push(format!("{}: {error}", names::ANNOTATION_RESOURCE_STATUS));
            return None;
        }
    };
    (!cpus.is_empty()).then_some(cpus)
}
