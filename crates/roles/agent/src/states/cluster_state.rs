//! The cluster's objects, reduced to what the agent uses.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use plimsoll_api::node_metric::CollectPolicy;
use plimsoll_api::pod::{Classes, Resources};
use plimsoll_api::priority::{PriorityClass, QosClass};
use plimsoll_api::quantity::Quantity;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Namespace and name of a volume claim.
pub type Claim = (Box<str>, Box<str>);

/// What the agent knows of the cluster at one moment. Cloning it clones a few pointers.
#[derive(Debug, Clone, Default)]
pub struct ClusterState {
    /// `None`: no list was received yet. The last list stays while its source is away.
    pub pods: Option<Arc<[Pod]>>,
    pub node: Option<Arc<Node>>,
    /// The operator's policy over the built-in one; the built-in one alone where there is no `NodeSLO`.
    pub node_slo: Arc<NodeSlo>,
    /// From the `NodeMetric` object; `None`: there is no such object.
    pub collect_policy: Option<Arc<CollectPolicy>>,
    /// `None`: the kubelet is not queried, or has not answered yet.
    pub kubelet: Option<Arc<KubeletConfiguration>>,
    /// Volumes by the claims that pods here mount.
    pub volumes: Arc<BTreeMap<Claim, Box<str>>>,
    /// The node's CPU pools, as last reported.
    pub cpu_pools: Option<Arc<CpuPools>>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Pod {
    pub uid: Arc<str>,
    pub namespace: Box<str>,
    pub name: Box<str>,
    pub classes: Classes,
    pub priority: Option<i32>,
    pub phase: Phase,
    pub created: Timestamp,
    /// Is being deleted.
    pub terminating: bool,
    /// Summed up as the scheduler does it: init containers, sidecars and overhead included.
    pub requests: BTreeMap<Box<str>, Quantity>,
    pub limits: BTreeMap<Box<str>, Quantity>,
    pub containers: Box<[Container]>,
    /// Names of the volume claims that it mounts, in its namespace.
    pub claims: Box<[Box<str>]>,
    pub labels: BTreeMap<Box<str>, Box<str>>,
    pub annotations: BTreeMap<Box<str>, Box<str>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Pending,
    Running,
    Succeeded,
    Failed,
    Unknown,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Container {
    pub name: Box<str>,
    /// Without `RUNTIME://`; `None`: it has not been started.
    pub id: Option<Arc<str>>,
    /// With it, as others know it.
    pub full_id: Option<Box<str>>,
    /// An init container that goes on running.
    pub sidecar: bool,
    pub running: bool,
    /// What the kubelet has told the runtime, where it says so.
    pub actual: Option<Resources>,
    pub requests: BTreeMap<Box<str>, Quantity>,
    pub limits: BTreeMap<Box<str>, Quantity>,
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Node {
    pub uid: Box<str>,
    pub labels: BTreeMap<Box<str>, Box<str>>,
    pub annotations: BTreeMap<Box<str>, Box<str>>,
    pub capacity: BTreeMap<Box<str>, Quantity>,
    pub allocatable: BTreeMap<Box<str>, Quantity>,
    pub kubelet_port: Option<u16>,
    /// By their type, `InternalIP` and the like.
    pub addresses: Vec<(Box<str>, Box<str>)>,
}

impl Node {
    /// The first address of a type.
    pub fn address(&self, kind: &str) -> Option<&str> {
        let mut all = self.addresses.iter();
        all.find(|(of, _)| **of == *kind)
            .map(|(_, address)| &**address)
    }
}

/// The fields of the kubelet's configuration that are used.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct KubeletConfiguration {
    pub cgroup_driver: String,
    /// The cgroup that has `kubepods`; empty for the root of the tree.
    pub cgroup_root: String,
    pub cpu_manager_policy: String,
    pub cpu_manager_policy_options: BTreeMap<String, String>,
    pub topology_manager_policy: String,
    pub topology_manager_scope: String,
    /// A list of CPUs.
    #[serde(rename = "reservedSystemCPUs")]
    pub reserved_system_cpus: String,
    pub system_reserved: BTreeMap<String, String>,
    pub kube_reserved: BTreeMap<String, String>,
}

/// The node's CPU pools, as last reported.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CpuPools {
    /// Of latency-sensitive pods that have none of their own, by NUMA node.
    pub shared: Vec<CpuPool>,
    /// Of best-effort pods.
    pub best_effort: Vec<CpuPool>,
    /// `none`, `static` or empty, where it is not known.
    pub manager_policy: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CpuPool {
    pub socket: i64,
    pub node: i64,
    pub cpuset: String,
}

#[derive(Debug, Clone, PartialEq)]
pub struct NodeSlo {
    pub host_applications: Vec<HostApplication>,
    /// All sections, as JSON, with nothing left to be defaulted.
    pub sections: Value,
}

/// A program that runs on the node outside of pods and is looked at like one.
#[derive(Debug, Clone, PartialEq)]
pub struct HostApplication {
    pub name: Box<str>,
    pub priority: PriorityClass,
    pub qos: QosClass,
    /// Below the cgroup root, without a leading slash. One as each of the kubelet's drivers would name it: which of them
    /// is at work shows when the kubelet has made its own.
    pub cgroups: Vec<Box<str>>,
}

impl Pod {
    /// Succeeded or failed.
    pub fn has_ended(&self) -> bool {
        matches!(self.phase, Phase::Succeeded | Phase::Failed)
    }
}
