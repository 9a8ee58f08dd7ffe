//! The smaller kinds.

use super::migration::InTree;
use super::selector::{Labels, NodeSelector, NodeTerm, Selector};
use super::symbol::Symbol;
use crate::time::Time;
use plimsoll_golang::GoDuration;

/// Namespace and name.
pub type Key = (Symbol, Box<str>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namespace {
    pub name: Symbol,
    pub labels: Labels,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    pub namespace: Symbol,
    pub name: Box<str>,
    /// `None`: it selects no pods.
    pub selector: Option<Labels>,
}

/// A ReplicationController, ReplicaSet or StatefulSet: who they select is all we ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Workload {
    pub kind: super::pod::ControllerKind,
    pub namespace: Symbol,
    pub name: Symbol,
    pub selector: Selector,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DisruptionBudget {
    pub namespace: Symbol,
    pub name: Box<str>,
    pub selector: Selector,
    pub disruptions_allowed: i32,
    /// Pods whose eviction is already accounted for.
    pub disrupted: Box<[Box<str>]>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorageClass {
    pub name: Box<str>,
    pub provisioner: Box<str>,
    /// `None`: the field is not set, which only an old object can have.
    pub wait_for_consumer: Option<bool>,
    pub allowed_topologies: Box<[NodeTerm]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AccessMode {
    ReadWriteOnce,
    ReadOnlyMany,
    ReadWriteMany,
    ReadWriteOncePod,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PersistentVolume {
    pub name: Box<str>,
    pub resource_version: Box<str>,
    pub labels: Labels,
    pub class: Box<str>,
    pub capacity: i64,
    pub access_modes: Box<[AccessMode]>,
    pub block: bool,
    pub attributes_class: Box<str>,
    pub available: bool,
    pub terminating: bool,
    /// Where it can be reached from; empty means everywhere.
    pub nodes: NodeSelector,
    pub claim: Option<ClaimBinding>,
    /// Driver and handle, where it is a CSI volume.
    pub csi: Option<(Box<str>, Box<str>)>,
    pub in_tree: Option<Box<InTreeVolume>>,
}

/// A volume of a kind that was once built in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InTreeVolume {
    pub kind: &'static InTree,
    pub handle: Box<str>,
    /// Where it can be reached from, in the words of the driver that has taken over.
    pub nodes: NodeSelector,
}

/// The claim that a volume is bound to or kept for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClaimBinding {
    pub namespace: Symbol,
    pub name: Box<str>,
    /// Empty while the volume is only kept for a claim of that name.
    pub uid: Box<str>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeClaim {
    pub namespace: Symbol,
    pub name: Box<str>,
    pub uid: Box<str>,
    pub resource_version: Box<str>,
    pub volume: Box<str>,
    /// `None`: no class given.
    pub class: Option<Box<str>>,
    pub attributes_class: Box<str>,
    pub request: i64,
    pub access_modes: Box<[AccessMode]>,
    pub block: bool,
    pub selector: Option<Selector>,
    pub bind_completed: bool,
    pub lost: bool,
    pub terminating: bool,
    /// Annotation: where provisioning was asked for.
    pub selected_node: Option<Symbol>,
    /// With whatever annotation.
    pub is_annotated: bool,
    /// The UID of the controlling owner, for claims made for a pod.
    pub owner: Option<Box<str>>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CsiNode {
    pub name: Symbol,
    /// Drivers and how many volumes each can attach, where that is limited.
    pub drivers: Box<[(Box<str>, Option<i64>)]>,
    pub migrated: Box<str>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CsiDriver {
    pub name: Box<str>,
    pub storage_capacity: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CsiStorageCapacity {
    pub namespace: Symbol,
    pub name: Box<str>,
    pub class: Box<str>,
    pub nodes: Option<Selector>,
    pub capacity: Option<i64>,
    pub maximum_volume_size: Option<i64>,
}

impl CsiStorageCapacity {
    pub fn largest_volume(&self) -> Option<i64> {
        self.maximum_volume_size.or(self.capacity)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeAttachment {
    pub name: Box<str>,
    pub attacher: Box<str>,
    pub node: Symbol,
    pub volume: Box<str>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodGroup {
    pub namespace: Symbol,
    pub name: Box<str>,
    pub uid: Box<str>,
    /// `None`: its pods are scheduled one by one.
    pub min_count: Option<u32>,
    pub priority: i32,
    pub generation: i64,
    /// `PodGroupScheduled`, once somebody has said so.
    pub scheduled: Option<GroupCondition>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupCondition {
    pub holds: bool,
    pub reason: Box<str>,
    pub message: Box<str>,
}

/// What a node and its pods really use, as the node agent reports it.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeMetric {
    pub node: Symbol,
    pub updated: Option<Time>,
    pub report_interval: i64,
    /// cpu in thousandths, memory in bytes.
    pub usage: [i64; 2],
    pub system: [i64; 2],
    pub aggregates: Box<[UsageAggregate]>,
    pub pods: Box<[PodUsage]>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageAggregate {
    pub window: GoDuration,
    /// `avg`, `p50`, `p90`, `p95`, `p99`.
    pub usage: Box<[(Box<str>, [i64; 2])]>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodUsage {
    pub namespace: Symbol,
    pub name: Box<str>,
    pub prod: bool,
    pub usage: [i64; 2],
}
