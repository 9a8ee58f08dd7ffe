//! Extended resources that devices stand for: a claim that nobody wrote, made for the pod and for the node it goes to.

use crate::cluster::NodeId;
use crate::framework::state::Context;
use crate::model::devices::{Alternative, DeviceClass, DeviceRequest, ResourceClaim};
use crate::model::{ExtendedAsk, Key, ResourceId};

/// Which request of the claim serves which container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mapping {
    pub container: Box<str>,
    pub resource: Box<str>,
    pub request: Box<str>,
}

/// The class of devices that stand for a resource, if there is one.
pub fn class_of<'a>(context: &Context<'a>, resource: ResourceId) -> Option<&'a DeviceClass> {
    if !context.cluster.features.extended_resources {
        return None;
    }
    let name = context.cluster.names.resource_name(resource);
    context.cluster.devices.class_of_resource(name)
}

/// Whether a node has to give devices for a resource, because it has none of its own.
pub fn is_delegated(context: &Context<'_>, resource: ResourceId, node: NodeId) -> bool {
    resource > ResourceId::EPHEMERAL_STORAGE
        && context.cluster.nodes.allocatable(resource, node) == 0
        && class_of(context, resource).is_some()
}

/// Whether the pod asks for something that devices stand for.
pub fn concerns(context: &Context<'_>) -> bool {
    let mut asks = context.class.spec.extended.iter();
    asks.any(|ask| class_of(context, ask.resource).is_some())
}

/// Under which key the devices are kept until the claim has a name.
pub fn key(context: &Context<'_>) -> Key {
    let name = format!("<extended-resources>/{}", context.pod.uid);
    (context.pod.namespace(), name.into())
}

/// The claim that an earlier attempt has left behind.
pub fn left_behind<'a>(context: &Context<'a>) -> Option<&'a ResourceClaim> {
    let mut claims = context.cluster.devices.claims().values();
    claims.find(|claim| claim.is_extended && claim.owner.as_deref() == Some(&*context.pod.uid))
}

/// The claim that the pod needs on a node; `None` if the node has all of it itself.
pub fn claim(context: &Context<'_>, node: NodeId) -> Option<(ResourceClaim, Vec<Mapping>)> {
    let names = &context.cluster.names;
    let mut resources: Vec<ResourceId> = context
        .class
        .spec
        .extended
        .iter()
        .map(|ask| ask.resource)
        .filter(|resource| is_delegated(context, *resource, node))
        .collect();
    resources.sort_unstable_by_key(|resource| names.resource_name(*resource));
    resources.dedup();
    let mut requests = Vec::new();
    let mut mappings = Vec::new();
    for resource in resources {
        let Some(class) = class_of(context, resource) else {
            continue;
        };
        let asks = context.class.spec.extended.iter();
        let asks: Vec<&ExtendedAsk> = asks.filter(|ask| ask.resource == resource).collect();
        let (counted, mapped) = share_out(&asks, names.resource_name(resource));
        requests.extend(counted.into_iter().map(|(name, count)| {
            DeviceRequest {
                name: name.clone(),
                alternatives: [Alternative {
                    name,
                    class: class.name.clone(),
                    selectors: Box::default(),
                    count: Some(count as usize),
                    admin_access: false,
                    tolerations: Box::default(),
                    capacity: Default::default(),
                }]
                .into(),
                has_subrequests: false,
            }
        }));
        mappings.extend(mapped);
    }
    if requests.is_empty() {
        return None;
    }
    requests.sort_by(|one, other| one.name.cmp(&other.name));
    let (namespace, name) = key(context);
    let claim = ResourceClaim {
        namespace,
        uid: name.clone(),
        name,
        resource_version: Box::default(),
        terminating: false,
        owner: Some((&*context.pod.uid).into()),
        is_extended: true,
        requests: requests.into(),
        constraints: Box::default(),
        allocation: None,
        reserved_for: Box::default(),
        conditions: Box::default(),
    };
    Some((claim, mappings))
}

/// Containers that stay get devices of their own. Those that end before others start use theirs first, and share what
/// they need beyond that.
fn share_out(asks: &[&ExtendedAsk], resource: &str) -> (Vec<(Box<str>, i64)>, Vec<Mapping>) {
    let mapping = |ask: &ExtendedAsk, request: &str| Mapping {
        container: ask.container.clone(),
        resource: resource.into(),
        request: request.into(),
    };
    let name = |ask: &ExtendedAsk| -> Box<str> {
        format!("container-{}-request-{}", ask.index, ask.order).into()
    };
    let staying: Vec<_> = asks.iter().filter(|ask| !ask.ends_early).collect();
    let mut mappings: Vec<Mapping> = staying.iter().map(|ask| mapping(ask, &name(ask))).collect();
    let mut largest: Option<(Box<str>, i64)> = None;
    let mut short = Vec::new();
    for ask in asks.iter().filter(|ask| ask.ends_early) {
        let mut covered = 0_i64;
        for later in staying.iter().filter(|other| other.index >= ask.index) {
            if covered >= ask.amount {
                break;
            }
            covered = later.amount.saturating_add(covered);
            mappings.push(mapping(ask, &name(later)));
        }
        if covered < ask.amount {
            short.push(*ask);
            let left = ask.amount - covered;
            if largest.as_ref().is_none_or(|(_, most)| *most < left) {
                largest = Some((name(ask), left));
            }
        }
    }
    let mut requests: Vec<(Box<str>, i64)> = Vec::new();
    if let Some((request, count)) = largest {
        mappings.extend(short.into_iter().map(|ask| mapping(ask, &request)));
        requests.push((request, count));
    }
    requests.extend(staying.iter().map(|ask| (name(ask), ask.amount)));
    (requests, mappings)
}
