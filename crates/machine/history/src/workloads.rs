//! What the history has to know of the cluster, as plain data. Its owner makes it from the cluster's objects.

use std::sync::Arc;

use jiff::Timestamp;
use plimsoll_api::priority::{PriorityClass, QosClass};
use plimsoll_predict::Amount;

/// The node's pods and host applications at one moment. Cloning it clones two pointers.
///
/// The lists are compared by pointer: whoever makes a new `Workloads` of unchanged lists shares the old ones.
#[derive(Debug, Clone, Default)]
pub struct Workloads {
    /// `None`: no pod list was received yet.
    pub pods: Option<Arc<[Pod]>>,
    pub host_applications: Arc<[HostApplication]>,
    /// What pods of the node can be given, before any overcommitment. `None`: not known.
    pub allocatable: Option<Amount>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Pod {
    pub uid: Arc<str>,
    /// The hash of a static pod's manifest. Its cgroup goes by the hash, its mirror in the cluster by a UID of its own.
    pub config_hash: Option<Box<str>>,
    pub priority: PriorityClass,
    pub qos: QosClass,
    pub created: Timestamp,
    pub terminating: bool,
    /// Succeeded or failed.
    pub ended: bool,
    /// CPU in cores, memory in bytes.
    pub request: Amount,
    /// Requested `batch-cpu`, in thousandths of a core.
    pub batch_cpu: i64,
    /// IDs of the containers that were started.
    pub containers: Box<[Arc<str>]>,
}

/// A program outside of pods whose usage is recorded like a pod's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostApplication {
    pub name: Box<str>,
    /// Candidates below the cgroup root, without a leading slash; the first that exists counts.
    pub cgroups: Vec<Box<str>>,
}
