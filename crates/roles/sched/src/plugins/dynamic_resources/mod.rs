//! `DynamicResources`: devices for claims, with structured parameters.

pub mod allocate;
mod capacity;
pub mod extended;
pub use self::allocate::Solution;
use crate::cluster::NodeId;
use crate::framework::events::{Action, Change, ClusterEvent, Resource};
use crate::framework::score;
use crate::framework::state::{Context, CycleState, PreFilter};
use crate::framework::status::{Code, Refusal, Verdict};
use crate::model::Key;
use crate::model::devices::{Allocation, DeviceRequest, ResourceClaim};

pub const EVENTS: &[ClusterEvent] = &[
    ClusterEvent::new(
        Resource::Node,
        Action::ADD
            .or(Action::NODE_LABEL)
            .or(Action::NODE_ALLOCATABLE),
    ),
    ClusterEvent::new(Resource::ResourceClaim, Action::ADD.or(Action::UPDATE)),
    ClusterEvent::new(Resource::Pod, Action::POD_CLAIM),
    ClusterEvent::new(Resource::DeviceClass, Action::ADD.or(Action::UPDATE)),
    ClusterEvent::new(Resource::ResourceSlice, Action::ADD.or(Action::UPDATE)),
];

/// No claim is shared by more.
const MOST_CONSUMERS: usize = 256;

/// The pod's claims.
#[derive(Debug, Clone, Default)]
pub struct ClaimState {
    pub keys: Vec<Key>,
    /// Devices may have to stand for extended resources.
    pub extended: bool,
    /// What is left of an earlier attempt to do so.
    pub left_behind: Option<Key>,
}

impl ClaimState {
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && !self.extended
    }
}

/// Resolves the names in the pod's spec. `Err`: one is not there, or not as it should be.
fn claims<'a>(context: &Context<'a>) -> Result<Vec<&'a ResourceClaim>, String> {
    let pod = context.pod;
    let mut found = Vec::new();
    for entry in &pod.spec.claims {
        let (name, made_for_it) = match &entry.claim {
            Some(name) => (name.clone(), false),
            None => {
                let status = pod
                    .claim_statuses
                    .iter()
                    .find(|(name, _)| *name == entry.name);
                match status {
                    None => {
                        let namespace = context.cluster.names.text(pod.namespace());
                        return Err(format!(
                            "pod \"{namespace}/{}\": ResourceClaim not created yet",
                            pod.name
                        ));
                    }
                    Some((_, None)) => continue,
                    Some((_, Some(name))) => (name.clone(), true),
                }
            }
        };
        let Some(claim) = context
            .cluster
            .devices
            .claims()
            .get(&(pod.namespace(), name.clone()))
        else {
            return Err(format!("resourceclaim.resource.k8s.io {name:?} not found"));
        };
        if claim.terminating {
            return Err(format!("resourceclaim {name:?} is being deleted"));
        }
        if made_for_it && claim.owner.as_deref() != Some(&*pod.uid) {
            let namespace = context.cluster.names.text(pod.namespace());
            return Err(format!(
                "ResourceClaim {namespace}/{name} was not created for pod {namespace}/{} (pod is not owner)",
                pod.name
            ));
        }
        found.push(claim);
    }
    Ok(found)
}

pub fn pre_enqueue(context: &Context<'_>) -> Result<(), Refusal> {
    if context.pod.spec.claims.is_empty() {
        return Ok(());
    }
    claims(context)
        .map(|_| ())
        .map_err(|text| Refusal::worded(Code::Unresolvable, text))
}

pub fn pre_filter(context: &Context<'_>, state: &mut CycleState) -> PreFilter {
    state.claims_were_asked = true;
    let extended = extended::concerns(context);
    if context.pod.spec.claims.is_empty() && !extended {
        return PreFilter::Skip;
    }
    match checked(context) {
        Ok(keys) => {
            let left_behind = extended::left_behind(context).filter(|_| extended);
            state.claims = Some(ClaimState {
                keys,
                extended,
                left_behind: left_behind.map(|claim| (claim.namespace, claim.name.clone())),
            });
            PreFilter::Pass
        }
        Err(text) => PreFilter::Reject(Refusal::worded(Code::Unresolvable, text)),
    }
}

fn checked(context: &Context<'_>) -> Result<Vec<Key>, String> {
    let devices = &context.cluster.devices;
    let mut keys = Vec::new();
    for claim in claims(context)? {
        let key = (claim.namespace, claim.name.clone());
        if claim.allocation.is_some() {
            let is_ours = claim
                .reserved_for
                .iter()
                .any(|uid| **uid == *context.pod.uid);
            if claim.reserved_for.len() >= MOST_CONSUMERS && !is_ours {
                return Err("resourceclaim in use".to_owned());
            }
        } else if devices.is_pending(&key) {
            let namespace = context.cluster.names.text(claim.namespace);
            return Err(format!(
                "resource claim {namespace}/{} is in the process of being allocated",
                claim.name
            ));
        } else {
            for request in &claim.requests {
                if request.has_subrequests && !context.cluster.features.prioritized_list {
                    let namespace = context.cluster.names.text(claim.namespace);
                    return Err(format!(
                        "resource claim {namespace}/{}, request {}: has subrequests, but the DRAPrioritizedList feature is disabled",
                        claim.name, request.name
                    ));
                }
                for alternative in &request.alternatives {
                    if !devices.classes.contains_key(&alternative.class) {
                        let name = if request.has_subrequests {
                            format!("{}/{}", request.name, alternative.name)
                        } else {
                            request.name.to_string()
                        };
                        return Err(format!(
                            "request {name}: device class {} does not exist",
                            alternative.class
                        ));
                    }
                }
            }
        }
        keys.push(key);
    }
    Ok(keys)
}

/// Claims that still need devices.
fn unallocated<'a>(context: &Context<'a>, state: &ClaimState) -> Vec<&'a ResourceClaim> {
    let claims = context.cluster.devices.claims();
    let found = state.keys.iter().filter_map(|key| claims.get(key));
    found.filter(|claim| claim.allocation.is_none()).collect()
}

/// Whether the devices of an allocated claim can be used from a node.
fn is_usable(context: &Context<'_>, claim: &ResourceClaim, node: NodeId) -> bool {
    let (Some(allocation), Some(node)) = (&claim.allocation, context.cluster.nodes.object(node))
    else {
        return true;
    };
    let reached = allocation.nodes.as_ref().is_none_or(|terms| {
        terms
            .iter()
            .any(|term| term.matches(node.name, &node.labels, &context.cluster.names))
    });
    let timeout = context.profile.args.devices.binding_timeout;
    reached && claim.is_ready().is_ok() && !claim.is_late(timeout, context.now)
}

pub fn filter(context: &Context<'_>, state: &CycleState, node: NodeId) -> Verdict {
    let Some(state) = &state.claims else {
        return Ok(());
    };
    if state.left_behind.is_some() {
        return Err(Refusal::unschedulable(
            "cannot schedule extended resource claim",
        ));
    }
    if solve(context, state, node)?.is_none() {
        return Err(Refusal::unresolvable("cannot allocate all claims"));
    }
    let claims = context.cluster.devices.claims();
    let mut known = state.keys.iter().filter_map(|key| claims.get(key));
    if known.all(|claim| is_usable(context, claim, node)) {
        return Ok(());
    }
    Err(Refusal::unresolvable(
        "resourceclaim not available on the node",
    ))
}

/// Devices on a node for the claims that have none yet.
pub fn solve(
    context: &Context<'_>,
    state: &ClaimState,
    node: NodeId,
) -> Result<Option<Solution>, Refusal> {
    let mut open = unallocated(context, state);
    let made = state
        .extended
        .then(|| extended::claim(context, node))
        .flatten();
    open.extend(made.as_ref().map(|(claim, _)| claim));
    let Some(object) = context
        .cluster
        .nodes
        .object(node)
        .filter(|_| !open.is_empty())
    else {
        return Ok(Some(Solution::default()));
    };
    let timeout = context.profile.args.devices.filter_timeout;
    allocate::allocate(context.cluster, &open, object, timeout)
        .map_err(|text| Refusal::worded(Code::Error, text))
}

/// What has to be written for the pod to use its claims on a node.
#[derive(Debug, Default)]
pub struct ClaimPlan {
    /// With devices for those that have none yet.
    pub claims: Vec<(Key, Option<Allocation>)>,
    /// A claim to be made.
    pub extended: Option<ExtendedClaim>,
}

/// A claim for extended resources of a pod, with its devices.
#[derive(Debug, Clone, PartialEq)]
pub struct ExtendedClaim {
    pub key: Key,
    pub requests: Box<[DeviceRequest]>,
    pub mappings: Vec<extended::Mapping>,
    pub allocation: Allocation,
}

pub fn reserve(context: &Context<'_>, state: &ClaimState, node: NodeId) -> ClaimPlan {
    let claims = context.cluster.devices.claims();
    let mut given = match solve(context, state, node) {
        Ok(Some(solution)) => solution.claims.into_iter(),
        _ => Vec::new().into_iter(),
    };
    let mut plan = ClaimPlan::default();
    for key in &state.keys {
        let Some(claim) = claims.get(key) else {
            continue;
        };
        if claim.allocation.is_none() {
            let devices = given.next().unwrap_or_default();
            let nodes = context
                .cluster
                .devices
                .nodes_of(&devices, context.cluster.nodes.name(node));
            let given = Allocation::new(devices, nodes, context.now);
            plan.claims.push((key.clone(), Some(given)));
        } else if !claim
            .reserved_for
            .iter()
            .any(|uid| **uid == *context.pod.uid)
        {
            plan.claims.push((key.clone(), None));
        }
    }
    if let Some((claim, mappings)) = state
        .extended
        .then(|| extended::claim(context, node))
        .flatten()
    {
        let devices = given.next().unwrap_or_default();
        let name = context.cluster.nodes.name(node);
        let nodes = context.cluster.devices.nodes_of(&devices, name);
        plan.extended = Some(ExtendedClaim {
            key: extended::key(context),
            requests: claim.requests,
            mappings,
            allocation: Allocation::new(devices, nodes, context.now),
        });
    }
    plan
}

/// Earlier alternatives are liked better.
pub fn score(
    context: &Context<'_>,
    state: &CycleState,
    nodes: &[NodeId],
    out: &mut Vec<i64>,
) -> bool {
    let Some(state) = &state.claims else {
        return false;
    };
    let choosy = unallocated(context, state)
        .iter()
        .any(|claim| claim.requests.iter().any(|request| request.has_subrequests));
    if !choosy {
        return false;
    }
    out.extend(nodes.iter().map(|node| match solve(context, state, *node) {
        Ok(Some(solution)) => solution.score,
        _ => 0,
    }));
    score::normalize(out, false);
    true
}

/// A claim whose devices are where the pod cannot go, and that nobody else uses.
pub fn to_deallocate(context: &Context<'_>, state: &ClaimState) -> Option<Key> {
    let cluster = context.cluster;
    let nodes = cluster.nodes.current_order();
    state
        .keys
        .iter()
        .find(|key| {
            cluster.devices.claims().get(*key).is_some_and(|claim| {
                let alone = claim
                    .reserved_for
                    .iter()
                    .all(|uid| **uid == *context.pod.uid);
                let elsewhere = nodes.iter().any(|node| !is_usable(context, claim, *node));
                claim.allocation.is_some() && alone && elsewhere
            })
        })
        .cloned()
}

pub fn may_help(context: &Context<'_>, change: Change<'_>) -> bool {
    match change {
        Change::Pod(_, Some(new)) => new.uid == context.pod.uid && claims(context).is_ok(),
        Change::ResourceClaim(old, Some(new)) => claim_may_help(context, old, new),
        _ => true,
    }
}

/// As long as one of the pod's claims is missing, no other helps. Devices that are given back may help anybody.
fn claim_may_help(context: &Context<'_>, old: Option<&ResourceClaim>, new: &ResourceClaim) -> bool {
    let Ok(own) = claims(context) else {
        return false;
    };
    if old.is_some_and(|old| old.allocation.is_some()) && new.allocation.is_none() {
        return true;
    }
    let is_own = own.iter().any(|claim| claim.uid == new.uid);
    is_own && old.is_none_or(|old| !old.has_status_of(new))
}

#[cfg(test)]
mod tests;
