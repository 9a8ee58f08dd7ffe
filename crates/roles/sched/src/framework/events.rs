//! What happens in a cluster, in the words in which plugins say what they wait for.

use crate::model::devices::{DeviceClass, ResourceClaim};
use crate::model::{
    CsiDriver, CsiNode, CsiStorageCapacity, Node, PersistentVolume, Pod, StorageClass,
    VolumeAttachment, VolumeClaim,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Resource {
    Node,
    /// Any pod; only in registrations.
    Pod,
    AssignedPod,
    UnscheduledPod,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    CsiNode,
    CsiDriver,
    CsiStorageCapacity,
    VolumeAttachment,
    ResourceClaim,
    ResourceSlice,
    DeviceClass,
    PodGroup,
    NodeMetric,
    /// Everything.
    Any,
}

impl Resource {
    fn label(self) -> &'static str {
        match self {
            Self::Node => "Node",
            Self::Pod => "Pod",
            Self::AssignedPod => "AssignedPod",
            Self::UnscheduledPod => "UnschedulablePod",
            Self::PersistentVolume => "PersistentVolume",
            Self::PersistentVolumeClaim => "PersistentVolumeClaim",
            Self::StorageClass => "storage.k8s.io/StorageClass",
            Self::CsiNode => "storage.k8s.io/CSINode",
            Self::CsiDriver => "storage.k8s.io/CSIDriver",
            Self::CsiStorageCapacity => "storage.k8s.io/CSIStorageCapacity",
            Self::VolumeAttachment => "storage.k8s.io/VolumeAttachment",
            Self::ResourceClaim => "resource.k8s.io/ResourceClaim",
            Self::ResourceSlice => "resource.k8s.io/ResourceSlice",
            Self::DeviceClass => "resource.k8s.io/DeviceClass",
            Self::PodGroup => "scheduling.k8s.io/PodGroup",
            Self::NodeMetric => "NodeMetric",
            Self::Any => "*",
        }
    }
}

/// Kinds of change, as a set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Action(u32);

impl Action {
    pub const ADD: Self = Self(1);
    pub const DELETE: Self = Self(1 << 1);
    pub const NODE_ALLOCATABLE: Self = Self(1 << 2);
    pub const NODE_LABEL: Self = Self(1 << 3);
    pub const NODE_TAINT: Self = Self(1 << 4);
    pub const NODE_CONDITION: Self = Self(1 << 5);
    pub const NODE_ANNOTATION: Self = Self(1 << 6);
    pub const POD_LABEL: Self = Self(1 << 7);
    pub const POD_SCALE_DOWN: Self = Self(1 << 8);
    pub const POD_GATES_ELIMINATED: Self = Self(1 << 9);
    pub const POD_TOLERATION: Self = Self(1 << 10);
    pub const POD_CLAIM: Self = Self(1 << 11);
    pub const NODE_FEATURE: Self = Self(1 << 12);
    /// A change of no particular kind.
    pub const OTHER_UPDATE: Self = Self(1 << 13);
    pub const UPDATE: Self = Self((1 << 14) - 1 - 3);
    pub const ALL: Self = Self((1 << 14) - 1);

    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    fn label(self) -> &'static str {
        match self {
            Self::ADD => "Add",
            Self::DELETE => "Delete",
            Self::NODE_ALLOCATABLE => "UpdateNodeAllocatable",
            Self::NODE_LABEL => "UpdateNodeLabel",
            Self::NODE_TAINT => "UpdateNodeTaint",
            Self::NODE_CONDITION => "UpdateNodeCondition",
            Self::NODE_ANNOTATION => "UpdateNodeAnnotation",
            Self::NODE_FEATURE => "UpdateNodeDeclaredFeature",
            Self::POD_LABEL => "UpdatePodLabel",
            Self::POD_SCALE_DOWN => "UpdatePodScaleDown",
            Self::POD_GATES_ELIMINATED => "UpdatePodSchedulingGatesEliminated",
            Self::POD_TOLERATION => "UpdatePodToleration",
            Self::POD_CLAIM => "UpdatePodGeneratedResourceClaim",
            Self::UPDATE | Self::OTHER_UPDATE => "Update",
            _ => "*",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClusterEvent {
    pub resource: Resource,
    pub action: Action,
}

impl ClusterEvent {
    pub const fn new(resource: Resource, action: Action) -> Self {
        Self { resource, action }
    }

    /// Whatever it was that somebody waited for, it may have happened.
    pub const ANYTHING: Self = Self::new(Resource::Any, Action::ALL);
    pub const ASSIGNED_POD_ADD: Self = Self::new(Resource::AssignedPod, Action::ADD);
    pub const ASSIGNED_POD_DELETE: Self = Self::new(Resource::AssignedPod, Action::DELETE);

    pub fn is_anything(self) -> bool {
        self.resource == Resource::Any
    }

    /// The name in metrics: `NodeAdd`.
    pub fn label(self) -> String {
        format!("{}{}", self.resource.label(), self.action.label())
    }

    /// Whether somebody who registered for `self` is to be told of `happened`.
    pub fn covers(self, happened: Self) -> bool {
        let resource = self.resource == Resource::Any
            || self.resource == happened.resource
            || (self.resource == Resource::Pod
                && matches!(
                    happened.resource,
                    Resource::AssignedPod | Resource::UnscheduledPod
                ));
        // A change of several kinds is only for those who wait for all of them.
        resource && happened.action.0 & self.action.0 == happened.action.0
    }
}

/// The object before and after.
#[derive(Debug, Clone, Copy)]
pub enum Change<'a> {
    Node(Option<&'a Node>, Option<&'a Node>),
    Pod(Option<&'a Pod>, Option<&'a Pod>),
    Volume(Option<&'a PersistentVolume>, Option<&'a PersistentVolume>),
    Claim(Option<&'a VolumeClaim>, Option<&'a VolumeClaim>),
    StorageClass(Option<&'a StorageClass>, Option<&'a StorageClass>),
    CsiNode(Option<&'a CsiNode>, Option<&'a CsiNode>),
    CsiDriver(Option<&'a CsiDriver>, Option<&'a CsiDriver>),
    CsiCapacity(
        Option<&'a CsiStorageCapacity>,
        Option<&'a CsiStorageCapacity>,
    ),
    Attachment(Option<&'a VolumeAttachment>, Option<&'a VolumeAttachment>),
    ResourceClaim(Option<&'a ResourceClaim>, Option<&'a ResourceClaim>),
    DeviceClass(Option<&'a DeviceClass>, Option<&'a DeviceClass>),
    /// Nothing to look at: whoever waits for it is woken.
    Unknown,
}

/// What a changed node changed, an event for each aspect.
pub fn node_changes(old: &Node, new: &Node) -> Vec<ClusterEvent> {
    let mut conditions = [old, new].map(|node| node.conditions.clone());
    for conditions in &mut conditions {
        conditions.sort_unstable();
    }
    let aspects = [
        (Action::NODE_TAINT, old.unschedulable && !new.unschedulable),
        (
            Action::NODE_ALLOCATABLE,
            old.allocatable != new.allocatable || old.pods != new.pods,
        ),
        (Action::NODE_LABEL, old.labels != new.labels),
        (Action::NODE_TAINT, old.taints != new.taints),
        (Action::NODE_CONDITION, conditions[0] != conditions[1]),
        (Action::NODE_ANNOTATION, old.annotations != new.annotations),
        (Action::NODE_FEATURE, old.features != new.features),
    ];
    aspects
        .into_iter()
        .filter(|(_, changed)| *changed)
        .map(|(action, _)| ClusterEvent::new(Resource::Node, action))
        .collect()
}

/// What a changed pod changed.
pub fn pod_changes(old: &Pod, new: &Pod) -> Vec<ClusterEvent> {
    let resource = if new.node.is_some() {
        Resource::AssignedPod
    } else {
        Resource::UnscheduledPod
    };
    let (before, after) = (&old.charge().requests, &new.charge().requests);
    let scaled_down = before
        .iter()
        .any(|(id, amount)| after.find(id).is_none_or(|now| now < amount));
    let aspects = [
        (Action::POD_LABEL, old.spec.labels != new.spec.labels),
        (Action::POD_SCALE_DOWN, scaled_down),
        (
            Action::POD_GATES_ELIMINATED,
            new.gates.is_empty() && !old.gates.is_empty(),
        ),
        (
            Action::POD_TOLERATION,
            old.spec.local.tolerations.len() != new.spec.local.tolerations.len(),
        ),
        (Action::POD_CLAIM, old.claim_statuses != new.claim_statuses),
    ];
    let mut events: Vec<_> = aspects
        .into_iter()
        .filter(|(_, changed)| *changed)
        .map(|(action, _)| ClusterEvent::new(resource, action))
        .collect();
    if events.is_empty() {
        events.push(ClusterEvent::new(resource, Action::UPDATE));
    }
    events
}
