//! The plugins, a file each: what they refuse and in which words, how they score, what they wait for.

pub mod balanced_allocation;
pub mod dynamic_resources;
pub mod gang_scheduling;
pub mod image_locality;
pub mod inter_pod_affinity;
pub mod load_aware;
pub mod node_affinity;
pub mod node_declared_features;
pub mod node_name;
pub mod node_ports;
pub mod node_resources_fit;
pub mod node_unschedulable;
pub mod node_volume_limits;
pub mod plans;
pub mod pod_topology_spread;
pub mod priority_sort;
pub mod scheduling_gates;
pub mod taint_toleration;
pub mod volume_binding;
pub mod volume_restrictions;
pub mod volume_zone;

use self::plans::Plans;
use crate::cluster::{ClassId, NodeId};
use crate::framework::events::{Action, Change, ClusterEvent, Resource};
use crate::framework::plugin::Plugin;
use crate::framework::state::{Context, CycleState, PreFilter};
use crate::framework::status::{Refusal, Verdict};
use crate::model::Volume;

/// Whether a plugin has anything to do before nodes are looked at.
pub fn has_pre_filter(plugin: Plugin) -> bool {
    !matches!(
        plugin,
        Plugin::NodeName | Plugin::NodeUnschedulable | Plugin::TaintToleration
    )
}

/// Before any node is looked at.
pub fn pre_filter(
    plugin: Plugin,
    context: &Context<'_>,
    plans: &Plans,
    class: ClassId,
    profile: usize,
    state: &mut CycleState,
) -> PreFilter {
    match plugin {
        Plugin::NodeAffinity => node_affinity::pre_filter(context),
        Plugin::NodePorts => skip_if(context.class.spec.local.ports.is_empty()),
        Plugin::NodeDeclaredFeatures => skip_if(context.class.spec.local.features.is_empty()),
        Plugin::PodTopologySpread => {
            state.spread = plans
                .spread(class, profile)
                .map(|plan| pod_topology_spread::SpreadState::new(plan, context.cluster));
            skip_if(state.spread.as_ref().is_none_or(|spread| !spread.filters()))
        }
        Plugin::InterPodAffinity => {
            state.affinity = plans
                .affinity(class)
                .map(|plan| inter_pod_affinity::AffinityState::new(plan, context));
            skip_if(
                state
                    .affinity
                    .as_ref()
                    .is_none_or(|affinity| !affinity.filters()),
            )
        }
        Plugin::VolumeRestrictions => volume_restrictions::pre_filter(context, state),
        Plugin::NodeVolumeLimits => skip_if(!node_volume_limits::mounts_claims(context.pod)),
        Plugin::VolumeBinding => volume_binding::pre_filter(context, state),
        Plugin::VolumeZone => volume_zone::pre_filter(context, state),
        Plugin::DynamicResources => dynamic_resources::pre_filter(context, state),
        _ => PreFilter::Pass,
    }
}

fn skip_if(skip: bool) -> PreFilter {
    if skip {
        PreFilter::Skip
    } else {
        PreFilter::Pass
    }
}

/// What a plugin says about a node.
pub fn filter(plugin: Plugin, context: &Context<'_>, state: &CycleState, node: NodeId) -> Verdict {
    match plugin {
        Plugin::NodeName => node_name::filter(context, node),
        Plugin::NodeUnschedulable => node_unschedulable::filter(context, node),
        Plugin::TaintToleration => taint_toleration::filter(context, node),
        Plugin::NodeAffinity => node_affinity::filter(context, node),
        Plugin::NodePorts => node_ports::filter(context, node),
        Plugin::NodeResourcesFit => node_resources_fit::filter(context, node),
        Plugin::NodeDeclaredFeatures => node_declared_features::filter(context, node),
        Plugin::VolumeRestrictions => volume_restrictions::filter(context, state, node),
        Plugin::NodeVolumeLimits => node_volume_limits::filter(context, node),
        Plugin::VolumeBinding => volume_binding::filter(context, state, node),
        Plugin::VolumeZone => volume_zone::filter(context, state, node),
        Plugin::PodTopologySpread => pod_topology_spread::filter(context, state, node),
        Plugin::InterPodAffinity => inter_pod_affinity::filter(context, state, node),
        Plugin::DynamicResources => dynamic_resources::filter(context, state, node),
        Plugin::LoadAwareScheduling => load_aware::filter(context, node),
        _ => Ok(()),
    }
}

/// Before a pod is queued: `Err` holds it back.
pub fn pre_enqueue(plugin: Plugin, context: &Context<'_>) -> Result<(), Refusal> {
    match plugin {
        Plugin::SchedulingGates => scheduling_gates::pre_enqueue(context.pod),
        Plugin::DynamicResources => dynamic_resources::pre_enqueue(context),
        Plugin::GangScheduling => gang_scheduling::pre_enqueue(context),
        _ => Ok(()),
    }
}

/// A preemptor is looked at again when a pod has gone; whether that helps, the plugins that refused it say.
const PREEMPTION_EVENTS: &[ClusterEvent] = &[ClusterEvent::new(Resource::Pod, Action::DELETE)];

/// What a plugin waits for after it has refused a pod. `None`: for anything.
pub fn events(plugin: Plugin) -> Option<&'static [ClusterEvent]> {
    Some(match plugin {
        Plugin::SchedulingGates => scheduling_gates::EVENTS,
        Plugin::NodeName => node_name::EVENTS,
        Plugin::NodeUnschedulable => node_unschedulable::EVENTS,
        Plugin::TaintToleration => taint_toleration::EVENTS,
        Plugin::NodeAffinity => node_affinity::EVENTS,
        Plugin::NodePorts => node_ports::EVENTS,
        Plugin::NodeResourcesFit => node_resources_fit::EVENTS,
        Plugin::NodeDeclaredFeatures => node_declared_features::EVENTS,
        Plugin::VolumeRestrictions => volume_restrictions::EVENTS,
        Plugin::NodeVolumeLimits => node_volume_limits::EVENTS,
        Plugin::VolumeBinding => volume_binding::EVENTS,
        Plugin::VolumeZone => volume_zone::EVENTS,
        Plugin::PodTopologySpread => pod_topology_spread::EVENTS,
        Plugin::InterPodAffinity => inter_pod_affinity::EVENTS,
        Plugin::DynamicResources => dynamic_resources::EVENTS,
        Plugin::GangScheduling => gang_scheduling::EVENTS,
        Plugin::LoadAwareScheduling => load_aware::EVENTS,
        Plugin::DefaultPreemption => PREEMPTION_EVENTS,
        _ => return None,
    })
}

/// Whether a plugin wants to know of an event after it has refused a pod.
pub fn waits_for(plugin: Plugin, happened: ClusterEvent) -> bool {
    let Some(events) = events(plugin) else {
        return true;
    };
    events.iter().any(|event| event.covers(happened)) || is_told_of_taints(events, happened)
}

/// Whoever waits for new nodes without looking at taints is woken by every change of those: the original once left out
/// new nodes that were not ready yet.
fn is_told_of_taints(events: &[ClusterEvent], happened: ClusterEvent) -> bool {
    let taints = ClusterEvent::new(Resource::Node, Action::NODE_TAINT);
    let nodes = ClusterEvent::new(Resource::Node, Action::ADD);
    happened == taints
        && events.iter().any(|event| event.covers(nodes))
        && !events.iter().any(|event| event.covers(taints))
}

/// Whether what has happened could turn a plugin's refusal of a pod.
pub fn may_help(
    plugin: Plugin,
    context: &Context<'_>,
    happened: ClusterEvent,
    change: Change<'_>,
) -> bool {
    if !waits_for(plugin, happened) {
        return false;
    }
    if events(plugin).is_some_and(|events| is_told_of_taints(events, happened)) {
        return true;
    }
    match plugin {
        Plugin::SchedulingGates => scheduling_gates::may_help(context, change),
        Plugin::NodeName => node_name::may_help(context, change),
        Plugin::NodeUnschedulable => node_unschedulable::may_help(context, change),
        Plugin::TaintToleration => taint_toleration::may_help(context, change),
        Plugin::NodeAffinity => node_affinity::may_help(context, change),
        Plugin::NodePorts => node_ports::may_help(context, change),
        Plugin::NodeResourcesFit => node_resources_fit::may_help(context, change),
        Plugin::NodeDeclaredFeatures => node_declared_features::may_help(context, change),
        Plugin::VolumeRestrictions => volume_restrictions::may_help(context, change),
        Plugin::NodeVolumeLimits => node_volume_limits::may_help(context, change),
        Plugin::VolumeBinding => volume_binding::may_help(context, change),
        Plugin::VolumeZone => volume_zone::may_help(context, change),
        Plugin::PodTopologySpread => pod_topology_spread::may_help(context, change),
        Plugin::InterPodAffinity => inter_pod_affinity::may_help(context, change),
        Plugin::DynamicResources => dynamic_resources::may_help(context, change),
        Plugin::GangScheduling => gang_scheduling::may_help(context, change),
        Plugin::DefaultPreemption => false,
        Plugin::LoadAwareScheduling => load_aware::may_help(context, change),
        _ => true,
    }
}

/// Whether a claim is one of the pod's.
fn uses_claim(context: &Context<'_>, claim: &crate::model::VolumeClaim) -> bool {
    claim.namespace == context.pod.namespace()
        && crate::cluster::storage::claim_names(context.pod).any(|name| name == claim.name)
}

/// The same without claims that are made for pods.
fn names_claim(context: &Context<'_>, claim: &crate::model::VolumeClaim) -> bool {
    let mut volumes = context.pod.spec.volumes.iter();
    claim.namespace == context.pod.namespace()
        && volumes.any(|volume| matches!(volume, Volume::Claim { name } if *name == claim.name))
}

#[cfg(test)]
pub mod testing;
