//! `VolumeBinding`: claims find their volumes where the pod goes, or the pod goes where they are.

use crate::cluster::NodeId;
use crate::cluster::storage::claim_names;
use crate::framework::events::{Action, Change, ClusterEvent, Resource};
use crate::framework::state::{Context, CycleState, PreFilter};
use crate::framework::status::{Code, Reason, Refusal, Verdict};
use crate::model::migration;
use crate::model::{Node, PersistentVolume, StorageClass, Volume, VolumeClaim};

pub const EVENTS: &[ClusterEvent] = &[
    ClusterEvent::new(Resource::StorageClass, Action::ADD.or(Action::UPDATE)),
    ClusterEvent::new(
        Resource::PersistentVolumeClaim,
        Action::ADD.or(Action::UPDATE),
    ),
    ClusterEvent::new(Resource::PersistentVolume, Action::ADD.or(Action::UPDATE)),
    ClusterEvent::new(Resource::Node, Action::ADD.or(Action::NODE_LABEL)),
    ClusterEvent::new(Resource::CsiNode, Action::ADD.or(Action::UPDATE)),
    ClusterEvent::new(Resource::CsiDriver, Action::UPDATE),
    ClusterEvent::new(Resource::CsiStorageCapacity, Action::ADD.or(Action::UPDATE)),
];

const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

/// A pod's claims, by what is to be done about them.
#[derive(Debug, Default, Clone)]
pub struct VolumeState {
    pub bound: Vec<VolumeClaim>,
    /// Without a volume, waiting for a pod that says where. The smallest first.
    pub delayed: Vec<VolumeClaim>,
}

/// What is to be written for a pod to have its volumes on a node.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct VolumePlan {
    /// Volume and claim.
    pub bindings: Vec<(Box<str>, VolumeClaim)>,
    /// Claims to be provided for at the node.
    pub provisions: Vec<VolumeClaim>,
}

pub fn pre_filter(context: &Context<'_>, state: &mut CycleState) -> PreFilter {
    if !super::node_volume_limits::mounts_claims(context.pod) {
        return PreFilter::Skip;
    }
    match sort_claims(context) {
        Ok(volumes) => {
            state.volumes = Some(volumes);
            PreFilter::Pass
        }
        Err(text) => PreFilter::Reject(Refusal::worded(Code::Unresolvable, text)),
    }
}

fn sort_claims(context: &Context<'_>) -> Result<VolumeState, String> {
    let storage = &context.cluster.storage;
    let pod = context.pod;
    let mut claims = Vec::new();
    let ephemeral = pod.spec.volumes.iter().filter_map(|volume| match volume {
        Volume::Claim { .. } => Some(false),
        Volume::Ephemeral { .. } => Some(true),
        _ => None,
    });
    for (name, ephemeral) in claim_names(pod).zip(ephemeral) {
        let Some(claim) = storage.claim(pod.namespace(), &name) else {
            return Err(if ephemeral {
                format!(
                    "waiting for ephemeral volume controller to create the persistentvolumeclaim {name:?}"
                )
            } else {
                format!("persistentvolumeclaim {name:?} not found")
            });
        };
        if claim.lost {
            return Err(format!(
                "persistentvolumeclaim {name:?} bound to non-existent persistentvolume {:?}",
                claim.volume
            ));
        }
        if claim.terminating {
            return Err(format!("persistentvolumeclaim {name:?} is being deleted"));
        }
        if ephemeral && claim.owner.as_deref() != Some(&*pod.uid) {
            let namespace = context.cluster.names.text(pod.namespace());
            return Err(format!(
                "PVC {namespace}/{name} was not created for pod {namespace}/{} (pod is not owner)",
                pod.name
            ));
        }
        claims.push(claim);
    }
    let mut state = VolumeState::default();
    for claim in claims {
        if !claim.volume.is_empty() && claim.bind_completed {
            state.bound.push(claim.clone());
            continue;
        }
        let class = claim
            .class
            .as_ref()
            .and_then(|class| storage.classes.get(class));
        let delayed = class.is_some_and(|class| class.wait_for_consumer == Some(true));
        if !delayed || !claim.volume.is_empty() {
            return Err("pod has unbound immediate PersistentVolumeClaims".to_owned());
        }
        let mut claim = claim.clone();
        if let Some(node) = storage.selected_node(&claim) {
            claim.selected_node = Some(node);
        }
        state.delayed.push(claim);
    }
    state.delayed.sort_by_key(|claim| claim.request);
    Ok(state)
}

pub fn filter(context: &Context<'_>, state: &CycleState, node: NodeId) -> Verdict {
    let (Some(state), Some(node)) = (&state.volumes, context.cluster.nodes.object(node)) else {
        return Ok(());
    };
    plan(context, state, node).map(|_| ())
}

/// How the pod would get its volumes on a node.
pub fn plan(
    context: &Context<'_>,
    state: &VolumeState,
    node: &Node,
) -> Result<VolumePlan, Refusal> {
    let storage = &context.cluster.storage;
    let mut reasons = Vec::new();
    let mut missing = false;
    for claim in &state.bound {
        match storage.volumes.get(&claim.volume) {
            None => {
                missing = true;
                break;
            }
            Some(volume) if !is_at_hand(context, volume, node) => {
                reasons.push(Reason::Text(
                    "node(s) didn't match PersistentVolume's node affinity",
                ));
                break;
            }
            Some(_) => {}
        }
    }
    let mut plan = VolumePlan::default();
    match delayed(context, &state.delayed, node, &mut plan) {
        Ok(()) => {}
        Err(text) => reasons.push(Reason::Text(text)),
    }
    if missing {
        reasons.push(Reason::Text(
            "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
        ));
    }
    if reasons.is_empty() {
        return Ok(plan);
    }
    Err(Refusal {
        code: Code::Unresolvable,
        reasons: reasons.into(),
    })
}

const NONE_TO_BIND: &str = "node(s) didn't find available persistent volumes to bind";

fn delayed(
    context: &Context<'_>,
    claims: &[VolumeClaim],
    node: &Node,
    plan: &mut VolumePlan,
) -> Result<(), &'static str> {
    let mut to_provide = Vec::new();
    for claim in claims {
        match claim.selected_node {
            Some(selected) if selected != node.name => return Err(NONE_TO_BIND),
            Some(_) => to_provide.push(claim),
            None => match find_volume(context, claim, node, plan) {
                Some(volume) => plan.bindings.push((volume.name.clone(), claim.clone())),
                None => to_provide.push(claim),
            },
        }
    }
    let storage = &context.cluster.storage;
    for claim in to_provide {
        let class = claim
            .class
            .as_ref()
            .and_then(|class| storage.classes.get(class));
        let Some(class) = class else {
            return Err(NONE_TO_BIND);
        };
        let provides = !class.provisioner.is_empty() && &*class.provisioner != NO_PROVISIONER;
        let allowed = class.allowed_topologies.is_empty()
            || class
                .allowed_topologies
                .iter()
                .any(|term| term.matches(node.name, &node.labels, &context.cluster.names));
        if !provides || !allowed {
            return Err(NONE_TO_BIND);
        }
        if !has_capacity(context, claim, class, node) {
            return Err("node(s) did not have enough free storage");
        }
        plan.provisions.push(claim.clone());
    }
    Ok(())
}

fn has_capacity(
    context: &Context<'_>,
    claim: &VolumeClaim,
    class: &StorageClass,
    node: &Node,
) -> bool {
    let storage = &context.cluster.storage;
    let tracked = storage
        .drivers
        .get(&class.provisioner)
        .is_some_and(|driver| driver.storage_capacity);
    if !tracked || claim.request == 0 {
        return true;
    }
    storage.capacities.values().any(|capacity| {
        let limit = capacity.largest_volume();
        capacity.class == class.name
            && limit.is_some_and(|limit| limit >= claim.request)
            && capacity
                .nodes
                .as_ref()
                .is_some_and(|nodes| nodes.matches(&node.labels, &context.cluster.names))
    })
}

/// A volume of an old kind is where the driver that has taken over says it is.
fn is_at_hand(context: &Context<'_>, volume: &PersistentVolume, node: &Node) -> bool {
    let cluster = context.cluster;
    match &volume.in_tree {
        Some(old) if migration::is_migrated(cluster.storage.nodes.get(&node.name), old.kind) => {
            old.nodes.matches(node.name, &node.labels, &cluster.names)
        }
        _ => reaches(context, volume, node),
    }
}

fn reaches(context: &Context<'_>, volume: &PersistentVolume, node: &Node) -> bool {
    volume
        .nodes
        .matches(node.name, &node.labels, &context.cluster.names)
}

/// A volume kept for the claim; else the smallest that will do.
fn find_volume<'a>(
    context: &Context<'a>,
    claim: &VolumeClaim,
    node: &Node,
    plan: &VolumePlan,
) -> Option<&'a PersistentVolume> {
    let storage = &context.cluster.storage;
    let class = claim.class.as_deref().unwrap_or_default();
    let mut smallest: Option<&PersistentVolume> = None;
    for volume in storage.volumes.values() {
        let chosen = plan.bindings.iter().any(|(name, _)| *name == volume.name);
        if chosen || &*volume.class != class {
            continue;
        }
        let bound_to = storage.bound_to(volume);
        let kept = bound_to.is_some_and(|binding| {
            binding.namespace == claim.namespace
                && binding.name == claim.name
                && (binding.uid.is_empty() || binding.uid == claim.uid)
        });
        let unsuitable = volume.capacity < claim.request
            || volume.block != claim.block
            || volume.attributes_class != claim.attributes_class
            || volume.terminating;
        if (bound_to.is_some() && !kept) || unsuitable {
            continue;
        }
        if kept {
            return reaches(context, volume, node).then_some(volume);
        }
        let suits = volume.available
            && claim
                .selector
                .as_ref()
                .is_none_or(|selector| selector.matches(&volume.labels, &context.cluster.names))
            && reaches(context, volume, node)
            && claim
                .access_modes
                .iter()
                .all(|mode| volume.access_modes.contains(mode));
        if suits && smallest.is_none_or(|other| volume.capacity < other.capacity) {
            smallest = Some(volume);
        }
    }
    smallest
}

pub fn may_help(context: &Context<'_>, change: Change<'_>) -> bool {
    match change {
        Change::Claim(_, Some(claim)) => super::uses_claim(context, claim),
        Change::StorageClass(Some(old), Some(new)) => {
            old.allowed_topologies != new.allowed_topologies
        }
        Change::CsiNode(Some(old), Some(new)) => old.migrated != new.migrated,
        // The original looks at volumes that stand in the pod itself, not at claims.
        Change::CsiDriver(Some(old), Some(new)) => {
            let mut volumes = context.pod.spec.volumes.iter();
            let is_used = volumes
                .any(|volume| matches!(volume, Volume::Csi { driver } if *driver == new.name));
            is_used && old.storage_capacity && !new.storage_capacity
        }
        Change::CsiCapacity(Some(old), Some(new)) => new.largest_volume() > old.largest_volume(),
        _ => true,
    }
}

#[cfg(test)]
mod tests;
