//! What the kubelet does with CPUs.

use std::collections::BTreeMap;

use plimsoll_api::priority::QosClass;
use plimsoll_api::quantity::Quantity;
use plimsoll_host::machine::Processor;
use serde::{Deserialize, Serialize};

use super::pods::cpuset;
use super::{STATIC, parsed};
use crate::states::{ClusterState, KubeletConfiguration};
use plimsoll_api::cpus::CpuSet;

#[derive(Debug, Default, Serialize)]
pub struct Manager<'a> {
    #[serde(skip_serializing_if = "str::is_empty")]
    policy: &'a str,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    options: BTreeMap<String, String>,
    #[serde(rename = "reservedCPUs", skip_serializing_if = "String::is_empty")]
    reserved_cpus: String,
}

pub fn manager<'a>(
    kubelet: Option<&'a KubeletConfiguration>,
    processors: &[Processor],
    warnings: &mut Vec<String>,
) -> Manager<'a> {
    let Some(kubelet) = kubelet else {
        return Manager::default();
    };
    let reserved = match kubelet.cpu_manager_policy == STATIC {
        true => kubelet_reserved(kubelet, processors, warnings),
        false => CpuSet::default(),
    };
    Manager {
        policy: &kubelet.cpu_manager_policy,
        options: kubelet.cpu_manager_policy_options.clone(),
        reserved_cpus: reserved.to_string(),
    }
}

/// Those it names, or as many whole ones as it keeps for itself and the system.
fn kubelet_reserved(
    kubelet: &KubeletConfiguration,
    processors: &[Processor],
    warnings: &mut Vec<String>,
) -> CpuSet {
    if !kubelet.reserved_system_cpus.is_empty() {
        return parsed(
            "reservedSystemCPUs",
            &kubelet.reserved_system_cpus,
            warnings,
        );
    }
    let milli: i64 = [&kubelet.system_reserved, &kubelet.kube_reserved]
        .iter()
        .filter_map(|list| list.get("cpu")?.parse::<Quantity>().ok())
        .map(|cpu| cpu.milli())
        .fold(0, i64::saturating_add);
    let count = usize::try_from(milli.max(0) as u64)
        .unwrap_or(0)
        .div_ceil(1000);
    by_topology(processors, count)
}

/// The order in which a kubelet takes CPUs of an idle machine: whole sockets, whole cores, then single threads.
pub fn by_topology(processors: &[Processor], count: usize) -> CpuSet {
    let mut sockets: BTreeMap<u32, BTreeMap<u32, Vec<u32>>> = BTreeMap::new();
    for one in processors {
        let cores = sockets.entry(one.socket).or_default();
        cores.entry(one.core).or_default().push(one.cpu);
    }
    let mut found = CpuSet::default();
    let left = |found: &CpuSet| count.saturating_sub(found.0.len());
    sockets.retain(|_, cores| {
        let size: usize = cores.values().map(Vec::len).sum();
        let whole = size <= left(&found);
        if whole {
            found.0.extend(cores.values().flatten());
        }
        !whole
    });
    for cpus in sockets.values_mut().flat_map(BTreeMap::values_mut) {
        if cpus.len() <= left(&found) {
            found.0.extend(cpus.drain(..));
        }
    }
    let single = sockets.values().flat_map(BTreeMap::values).flatten();
    let missing = left(&found);
    found.0.extend(single.take(missing));
    found
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Alloc {
    #[serde(skip_serializing_if = "String::is_empty")]
    namespace: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    name: String,
    uid: String,
    pub cpuset: String,
    managed_by_kubelet: bool,
}

/// CPUs that the kubelet has given to pods which are not ours to place.
pub fn allocs(cluster: &ClusterState, state: &str, warnings: &mut Vec<String>) -> Vec<Alloc> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct State {
        entries: BTreeMap<String, BTreeMap<String, String>>,
    }
    let state: State = match serde_json::from_str(state) {
        Ok(state) => state,
        Err(error) => {
            warnings.push(format!("cpu_manager_state: {error}"));
            return Vec::new();
        }
    };
    let pods = cluster.pods.as_deref().unwrap_or_default();
    let mut allocs = Vec::new();
    for (uid, containers) in state.entries {
        let pod = pods.iter().find(|pod| *pod.uid == *uid);
        let ours = pod.is_some_and(|pod| {
            matches!(pod.classes.qos, QosClass::Ls | QosClass::Be)
                || cpuset(&pod.annotations, &mut Vec::new()).is_some()
        });
        if ours {
            continue;
        }
        let mut cpus = CpuSet::default();
        for text in containers.values() {
            cpus.add(&parsed("cpu_manager_state", text, warnings));
        }
        if !cpus.is_empty() {
            allocs.push(Alloc {
                namespace: pod.map(|pod| pod.namespace.to_string()).unwrap_or_default(),
                name: pod.map(|pod| pod.name.to_string()).unwrap_or_default(),
                uid,
                cpuset: cpus.to_string(),
                managed_by_kubelet: true,
            });
        }
    }
    allocs
}

/// The topology manager's policy in the words of the object.
pub fn policy(kubelet: &KubeletConfiguration) -> &'static str {
    let policy = kubelet.topology_manager_policy.as_str();
    match (policy, kubelet.topology_manager_scope.as_str()) {
        ("single-numa-node", "container") => "SingleNUMANodeContainerLevel",
        ("single-numa-node", "pod") => "SingleNUMANodePodLevel",
        ("restricted", "container") => "RestrictedContainerLevel",
        ("restricted", "pod") => "RestrictedPodLevel",
        ("best-effort", "container") => "BestEffortContainerLevel",
        ("best-effort", "pod") => "BestEffortPodLevel",
        _ => "None",
    }
}
