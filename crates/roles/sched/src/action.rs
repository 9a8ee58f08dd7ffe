//! What the core wants done, as data. Whoever executes it tells [`Scheduler::finished`](crate::Scheduler::finished).

use std::sync::Arc;

use crate::model::GroupCondition;
use crate::model::devices::{Allocation, DeviceRequest};
use crate::plugins::dynamic_resources::extended::Mapping;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ActionId(pub u64);

#[derive(Debug, Clone, PartialEq)]
pub struct Action {
    pub id: ActionId,
    pub kind: ActionKind,
}

#[derive(Debug, Clone, PartialEq)]
pub enum ActionKind {
    /// POST `pods/NAME/binding`.
    Bind {
        pod: PodRef,
        node: Box<str>,
    },
    /// PATCH `pods/NAME/status`.
    PatchStatus {
        pod: PodRef,
        condition: Option<ScheduledCondition>,
        nominated: NominatedNode,
    },
    /// PUT the volume with its claim.
    BindVolume {
        volume: Box<str>,
        resource_version: Box<str>,
        namespace: Box<str>,
        claim: Box<str>,
        claim_uid: Box<str>,
    },
    /// PUT the claim with the annotation `volume.kubernetes.io/selected-node`.
    SelectNode {
        namespace: Box<str>,
        claim: Box<str>,
        resource_version: Box<str>,
        node: Box<str>,
    },
    /// PUT the claim's status: its devices, if it gets them now, and the pod among those it is reserved for. With an
    /// allocation, the finalizer `resource.kubernetes.io/delete-protection` is added first.
    ReserveClaim {
        namespace: Box<str>,
        claim: Box<str>,
        uid: Box<str>,
        resource_version: Box<str>,
        allocation: Option<Allocation>,
        pod: PodRef,
    },
    /// POST a claim with the name `POD-extended-resources-` and something to it, owned by the pod, with the annotation
    /// `resource.kubernetes.io/extended-resource-claim: true`; then as with [`Self::ReserveClaim`]; then PATCH the pod's
    /// `status.extendedResourceClaimStatus`.
    CreateClaim {
        pod: PodRef,
        requests: Box<[DeviceRequest]>,
        allocation: Allocation,
        mappings: Vec<Mapping>,
    },
    /// DELETE a claim that was made for extended resources, its finalizer first.
    DeleteClaim {
        namespace: Box<str>,
        claim: Box<str>,
        uid: Box<str>,
    },
    /// PUT the claim's status without devices and without reservations.
    DeallocateClaim {
        namespace: Box<str>,
        claim: Box<str>,
        uid: Box<str>,
        resource_version: Box<str>,
    },
    /// PATCH `podgroups/NAME/status`: the condition `PodGroupScheduled`.
    PatchGroup {
        namespace: Box<str>,
        name: Box<str>,
        uid: Box<str>,
        observed_generation: i64,
        condition: GroupCondition,
    },
    Event(EventRecord),
    /// PATCH the victim's condition `DisruptionTarget`, then DELETE it.
    Evict {
        victim: PodRef,
        /// The victim's `metadata.generation`, which the condition repeats.
        observed_generation: i64,
        preemptor: PodRef,
        message: Box<str>,
    },
}

/// Enough to name a pod in a request or in an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodRef {
    pub namespace: Box<str>,
    pub name: Box<str>,
    pub uid: Arc<str>,
    pub resource_version: Box<str>,
}

/// `PodScheduled=False`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScheduledCondition {
    pub reason: &'static str,
    pub message: Box<str>,
    pub observed_generation: i64,
    /// It did not hold before, so that its time begins now.
    pub is_new: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NominatedNode {
    Keep,
    Clear,
    Set(Box<str>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventType {
    Normal,
    Warning,
}

#[derive(Debug, Clone, PartialEq)]
pub struct EventRecord {
    pub regarding: PodRef,
    pub related: Option<PodRef>,
    pub kind: EventType,
    pub reason: &'static str,
    pub action: &'static str,
    pub note: String,
    /// The profile's name.
    pub controller: Box<str>,
}

/// How an action ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ActionResult {
    Done,
    /// The object is not there any more.
    Gone,
    Failed(String),
}

const LONGEST_NOTE: usize = 1024;

/// Cuts a note to what the API server accepts.
pub fn shorten(mut note: String) -> String {
    if note.len() <= LONGEST_NOTE {
        return note;
    }
    let mut end = LONGEST_NOTE - 4;
    while !note.is_char_boundary(end) {
        end -= 1;
    }
    note.truncate(end);
    note.push_str(" ...");
    note
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_notes_are_cut() {
        assert_eq!(shorten("x".repeat(1024)).len(), 1024);
        let cut = shorten("x".repeat(1025));
        assert_eq!(cut.len(), 1024);
        assert!(cut.ends_with("x ..."));
    }
}
