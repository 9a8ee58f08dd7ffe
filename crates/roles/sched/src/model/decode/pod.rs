//! Pods.

use std::collections::HashMap;
use std::sync::Arc;

use serde::Deserialize;

use super::meta::{Meta, Place, ResourceList, Strings, labels};
use super::node::effect;
use super::selectors::{
    WireNodeSelector, WireNodeTerm, WireSelector, node_term, node_terms, selector, value_problems,
};
use super::{Result, parse};
use crate::model::amounts::{Amounts, Ask};
use crate::model::pod::{
    AffinityTerm, ClaimRef, Condition, Controller, ControllerKind, ExtendedAsk, HostPort,
    LocalSpec, Pod, PodAffinity, PodMatcher, PodSpec, SpreadConstraint, Toleration, Volume,
};
use crate::model::selector::{Labels, NodeSelector, NodeTerm, Requirement};
use crate::model::sizing::{Container, Sizing};
use crate::model::symbol::{Names, ResourceId, Symbol, may_be_devices};
use crate::time::Time;

mod wire;
use wire::*;

const KIND: &str = "Pod";

pub fn pod(json: &[u8], names: &mut Names) -> Result<Pod> {
    let wire: WirePod = parse(KIND, json)?;
    let place = Place {
        kind: KIND,
        object: &wire.metadata.name,
    };
    let namespace = names.intern(&wire.metadata.namespace);
    let labels = labels(wire.metadata.labels.as_ref(), names);
    let sizing = sizing(&wire, place, names)?;
    let whole: Vec<bool> = (0..names.resource_count())
        .map(|index| {
            let id = ResourceId(index as u16);
            let name = names.resource_name(id);
            let supported = matches!(name, "cpu" | "memory") || name.starts_with("hugepages-");
            supported && names.knows_whole_pods
        })
        .collect();
    let supported = |id: ResourceId| whole.get(id.index()).copied().unwrap_or(false);
    let spec_charge = sizing.spec_charge(&supported);
    let charge = sizing.charge(&supported);
    let affinity = wire.spec.affinity.as_ref();
    let local = LocalSpec {
        requests: sizing.requests(&supported),
        limits: sizing.limits(&supported),
        scored: sizing.scored(),
        nodes: node_selector(&wire.spec, place, names)?,
        preferred_nodes: preferred_nodes(affinity, place, names)?,
        preference_problem: affinity
            .and_then(|affinity| affinity.node_affinity.as_ref())
            .and_then(preference_problem),
        tolerations: tolerations(&wire.spec, names),
        ports: ports(&wire.spec, names),
        images: images(&wire.spec, names),
        containers: (wire.spec.containers.len()
            + wire.spec.init_containers.iter().flatten().count()) as u16,
        features: features(&wire.spec, names),
    };
    let spec = PodSpec {
        namespace,
        scheduler_name: names.intern(
            wire.spec
                .scheduler_name
                .as_deref()
                .unwrap_or("default-scheduler"),
        ),
        local: Arc::new(local),
        spread: spread(&wire.spec, &labels, place, names)?,
        affinity: pod_affinity(affinity, namespace, place, names)?,
        volumes: volumes(&wire.spec),
        claims: wire
            .spec
            .resource_claims
            .iter()
            .flatten()
            .map(|claim| ClaimRef {
                name: claim.name.as_str().into(),
                claim: claim.resource_claim_name.as_deref().map(Into::into),
            })
            .collect(),
        extended: extended(&wire.spec, place, names)?,
        controller: controller(&wire.metadata, names),
        group: wire
            .spec
            .scheduling_group
            .as_ref()
            .and_then(|group| group.pod_group_name.as_deref())
            .map(Into::into),
        labels,
        charge: spec_charge,
    };
    let resized = (charge != spec.charge).then(|| Box::new(charge));
    let conditions = || wire.status.conditions.iter().flatten();
    let non_empty = |text: Option<&str>| text.filter(|text| !text.is_empty()).map(str::to_owned);
    Ok(Pod {
        uid: wire.metadata.uid.as_str().into(),
        name: wire.metadata.name.as_str().into(),
        resource_version: wire.metadata.resource_version.as_str().into(),
        generation: wire.metadata.generation,
        spec: Arc::new(spec),
        resized,
        node: non_empty(wire.spec.node_name.as_deref()).map(|node| names.intern(&node)),
        nominated: non_empty(wire.status.nominated_node_name.as_deref())
            .map(|node| names.intern(&node)),
        priority: wire.spec.priority.unwrap_or(0),
        never_preempts: wire.spec.preemption_policy.as_deref() == Some("Never"),
        terminating: wire.metadata.deletion_timestamp.is_some(),
        preempted: conditions().any(|condition| {
            condition.r#type == "DisruptionTarget"
                && condition.status == "True"
                && condition.reason == "PreemptionByScheduler"
        }),
        gates: wire
            .spec
            .scheduling_gates
            .iter()
            .flatten()
            .map(|gate| gate.name.as_str().into())
            .collect(),
        started: wire.status.start_time.as_deref().and_then(Time::parse),
        unscheduled: conditions()
            .find(|condition| condition.r#type == "PodScheduled" && condition.status != "True")
            .map(|condition| {
                Box::new(Condition {
                    reason: condition.reason.as_str().into(),
                    message: condition.message.as_str().into(),
                    observed_generation: condition.observed_generation,
                })
            }),
        claim_statuses: wire
            .status
            .resource_claim_statuses
            .iter()
            .flatten()
            .map(|status| {
                let claim = status.resource_claim_name.as_deref().map(Into::into);
                (status.name.as_str().into(), claim)
            })
            .collect(),
    })
}

fn sizing(wire: &WirePod, place: Place<'_>, names: &mut Names) -> Result<Sizing> {
    let statuses: HashMap<&str, &WireContainerStatus> = wire
        .status
        .container_statuses
        .iter()
        .chain(&wire.status.init_container_statuses)
        .flatten()
        .map(|status| (status.name.as_str(), status))
        .collect();
    let mut containers = |list: &[WireContainer]| -> Result<Vec<Container>> {
        list.iter()
            .map(|container| {
                let status = statuses.get(container.name.as_str());
                let actual = status.and_then(|status| status.resources.as_ref());
                let mut known = |list: Option<&ResourceList>| -> Result<Option<Amounts>> {
                    list.map(|list| place.amounts(Some(list), names))
                        .transpose()
                };
                Ok(Container {
                    allocated: known(
                        status.and_then(|status| status.allocated_resources.as_ref()),
                    )?,
                    actual: match actual {
                        Some(actual) => Some(known(actual.requests.as_ref())?.unwrap_or_default()),
                        None => None,
                    },
                    ask: ask(container.resources.as_ref(), place, names)?,
                    restartable: container.restart_policy.as_deref() == Some("Always"),
                })
            })
            .collect()
    };
    let init_containers = containers(wire.spec.init_containers.as_deref().unwrap_or_default())?;
    let containers = containers(&wire.spec.containers)?;
    let optional = |list: Option<&ResourceList>, names: &mut Names| -> Result<Option<Amounts>> {
        list.map(|list| place.amounts(Some(list), names))
            .transpose()
    };
    let whole_actual = match &wire.status.resources {
        Some(resources) => Some(optional(resources.requests.as_ref(), names)?.unwrap_or_default()),
        None => None,
    };
    Ok(Sizing {
        containers,
        init_containers,
        overhead: place.amounts(wire.spec.overhead.as_ref(), names)?,
        whole: ask(wire.spec.resources.as_ref(), place, names)?,
        whole_allocated: optional(wire.status.allocated_resources.as_ref(), names)?,
        whole_actual,
        resize_infeasible: wire
            .status
            .conditions
            .iter()
            .flatten()
            .find(|condition| condition.r#type == "PodResizePending")
            .is_some_and(|condition| condition.reason == "Infeasible"),
    })
}

fn ask(wire: Option<&WireResources>, place: Place<'_>, names: &mut Names) -> Result<Ask> {
    Ok(Ask {
        requests: place.amounts(wire.and_then(|wire| wire.requests.as_ref()), names)?,
        limits: place.amounts(wire.and_then(|wire| wire.limits.as_ref()), names)?,
    })
}

fn extended(spec: &WireSpec, place: Place<'_>, names: &mut Names) -> Result<Box<[ExtendedAsk]>> {
    let mut asks = Vec::new();
    let inits = spec.init_containers.iter().flatten().map(|init| {
        let stays = init.restart_policy.as_deref() == Some("Always");
        (init, !stays)
    });
    let others = spec.containers.iter().map(|container| (container, false));
    for (index, (container, ends_early)) in inits.chain(others).enumerate() {
        let requests = container.resources.as_ref();
        let requests = requests.and_then(|wire| wire.requests.as_ref());
        for (order, (name, amount)) in requests.into_iter().flatten().enumerate() {
            if !may_be_devices(name) {
                continue;
            }
            let amount = place.quantity(name, amount)?.value();
            if amount > 0 {
                asks.push(ExtendedAsk {
                    container: container.name.as_str().into(),
                    index: index as u16,
                    order: order as u16,
                    ends_early,
                    resource: names.resource(name),
                    amount,
                });
            }
        }
    }
    Ok(asks.into())
}

fn node_selector(spec: &WireSpec, place: Place<'_>, names: &mut Names) -> Result<NodeSelector> {
    let required = spec
        .affinity
        .as_ref()
        .and_then(|affinity| affinity.node_affinity.as_ref())
        .and_then(|affinity| affinity.required.as_ref());
    let mut pairs: Vec<_> = spec
        .node_selector
        .iter()
        .flatten()
        .map(|(key, value)| (names.intern(key), names.intern(value)))
        .collect();
    pairs.sort_unstable();
    Ok(NodeSelector {
        labels: pairs.into(),
        terms: required
            .map(|terms| node_terms(terms, place, names))
            .transpose()?,
    })
}

/// A node affinity by itself, as a profile adds it to every pod's.
pub fn node_affinity(
    json: &[u8],
    names: &mut Names,
) -> Result<(Option<NodeSelector>, PreferredNodes)> {
    let wire: WireNodeAffinity = parse("NodeAffinity", json)?;
    let place = Place {
        kind: "NodeAffinity",
        object: "addedAffinity",
    };
    let required = wire
        .required
        .as_ref()
        .map(|terms| node_terms(terms, place, names))
        .transpose()?
        .map(|terms| NodeSelector {
            labels: Box::default(),
            terms: Some(terms),
        });
    let affinity = WireAffinity {
        node_affinity: Some(wire),
        ..WireAffinity::default()
    };
    let preferred = preferred_nodes(Some(&affinity), place, names)?;
    Ok((required, preferred))
}

/// With their weights.
pub type PreferredNodes = Box<[(i32, NodeTerm)]>;

/// Of preferences that count, values that no label can have, in the original's words.
fn preference_problem(affinity: &WireNodeAffinity) -> Option<Box<str>> {
    let mut problems: Vec<String> = Vec::new();
    let terms = affinity.preferred.iter().flatten().enumerate();
    for (index, term) in terms.filter(|(_, term)| term.weight != 0) {
        let expressions = term.preference.match_expressions.iter().flatten();
        for (at, wire) in expressions.enumerate() {
            let path = format!("[{index}].matchExpressions[{at}].values");
            problems.extend(value_problems(wire, &path));
        }
    }
    match problems.as_slice() {
        [] => None,
        [only] => Some(only.as_str().into()),
        several => Some(format!("[{}]", several.join(", ")).into()),
    }
}

fn preferred_nodes(
    affinity: Option<&WireAffinity>,
    place: Place<'_>,
    names: &mut Names,
) -> Result<PreferredNodes> {
    affinity
        .and_then(|affinity| affinity.node_affinity.as_ref())
        .and_then(|affinity| affinity.preferred.as_ref())
        .into_iter()
        .flatten()
        .map(|term| Ok((term.weight, node_term(&term.preference, place, names)?)))
        .collect()
}

fn tolerations(spec: &WireSpec, names: &mut Names) -> Box<[Toleration]> {
    spec.tolerations
        .iter()
        .flatten()
        .map(|wire| Toleration {
            key: (!wire.key.is_empty()).then(|| names.intern(&wire.key)),
            value: (wire.operator != "Exists").then(|| names.intern(&wire.value)),
            effect: effect(&wire.effect),
        })
        .collect()
}

fn ports(spec: &WireSpec, names: &mut Names) -> Box<[HostPort]> {
    let staying =
        |container: &&WireContainer| container.restart_policy.as_deref() == Some("Always");
    let mut ports: Vec<_> = spec
        .init_containers
        .iter()
        .flatten()
        .filter(staying)
        .chain(&spec.containers)
        .flat_map(|container| container.ports.iter().flatten())
        .filter(|port| port.host_port > 0)
        .map(|port| HostPort {
            address: match port.host_ip.as_str() {
                "" | "0.0.0.0" => None,
                address => Some(names.intern(address)),
            },
            protocol: names.intern(if port.protocol.is_empty() {
                "TCP"
            } else {
                &port.protocol
            }),
            port: port.host_port,
        })
        .collect();
    ports.sort_unstable();
    ports.into()
}

/// An image without a tag is its latest one.
fn images(spec: &WireSpec, names: &mut Names) -> Box<[Symbol]> {
    let containers = spec
        .init_containers
        .iter()
        .flatten()
        .chain(&spec.containers);
    let volumes = spec
        .volumes
        .iter()
        .flatten()
        .filter_map(|volume| volume.image.as_ref().map(|image| image.reference.as_str()));
    containers
        .map(|container| container.image.as_str())
        .chain(volumes)
        .map(|name| {
            if name.rfind(':') <= name.rfind('/') {
                names.intern(&format!("{name}:latest"))
            } else {
                names.intern(name)
            }
        })
        .collect()
}

/// What a node must have declared to be able to run it.
fn features(spec: &WireSpec, names: &mut Names) -> Box<[Symbol]> {
    let mut features = Vec::new();
    let restarts_all = |container: &WireContainer| {
        container
            .restart_policy_rules
            .iter()
            .flatten()
            .any(|rule| rule.action == "RestartAllContainers")
    };
    let mut containers = spec
        .init_containers
        .iter()
        .flatten()
        .chain(&spec.containers);
    if containers.any(restarts_all) {
        features.push(names.intern("RestartAllContainersOnContainerExits"));
    }
    if spec.host_network && spec.host_users == Some(false) {
        features.push(names.intern("UserNamespacesHostNetworkSupport"));
    }
    features.into()
}

fn spread(
    spec: &WireSpec,
    labels: &Labels,
    place: Place<'_>,
    names: &mut Names,
) -> Result<Box<[SpreadConstraint]>> {
    spec.topology_spread_constraints
        .iter()
        .flatten()
        .map(|wire| {
            let mut keys = Vec::new();
            for key in wire.match_label_keys.iter().flatten() {
                let key = names.intern(key);
                if let Some(value) = labels.get(key) {
                    keys.push(Requirement::equals(key, value));
                }
            }
            keys.sort_unstable_by_key(|requirement| requirement.key);
            Ok(SpreadConstraint {
                max_skew: wire.max_skew,
                key: names.intern(&wire.topology_key),
                required: wire.when_unsatisfiable == "DoNotSchedule",
                selector: selector(wire.label_selector.as_ref(), place, names)?.and(keys),
                min_domains: wire.min_domains.unwrap_or(1),
                honor_affinity: wire.node_affinity_policy.as_deref() != Some("Ignore"),
                honor_taints: wire.node_taints_policy.as_deref() == Some("Honor"),
            })
        })
        .collect()
}

fn pod_affinity(
    affinity: Option<&WireAffinity>,
    namespace: Symbol,
    place: Place<'_>,
    names: &mut Names,
) -> Result<PodAffinity> {
    let mut term = |wire: &WireTerm| affinity_term(wire, namespace, place, names);
    let friends = affinity.and_then(|affinity| affinity.pod_affinity.as_ref());
    let foes = affinity.and_then(|affinity| affinity.pod_anti_affinity.as_ref());
    let mut required = |side: Option<&WireTerms>| -> Result<Box<[AffinityTerm]>> {
        side.and_then(|side| side.required.as_ref())
            .into_iter()
            .flatten()
            .map(&mut term)
            .collect()
    };
    let (required, required_anti) = (required(friends)?, required(foes)?);
    let mut preferred = Vec::new();
    for (side, sign) in [(friends, 1), (foes, -1)] {
        for weighted in side
            .and_then(|side| side.preferred.as_ref())
            .into_iter()
            .flatten()
        {
            preferred.push((sign * weighted.weight, term(&weighted.pod_affinity_term)?));
        }
    }
    Ok(PodAffinity {
        required,
        required_anti,
        preferred: preferred.into(),
    })
}

fn affinity_term(
    wire: &WireTerm,
    namespace: Symbol,
    place: Place<'_>,
    names: &mut Names,
) -> Result<AffinityTerm> {
    let listed = wire.namespaces.as_deref().unwrap_or_default();
    let mut namespaces: Vec<_> = listed.iter().map(|name| names.intern(name)).collect();
    if namespaces.is_empty() && wire.namespace_selector.is_none() {
        namespaces.push(namespace);
    }
    namespaces.sort_unstable();
    namespaces.dedup();
    Ok(AffinityTerm {
        key: names.intern(&wire.topology_key),
        pods: PodMatcher {
            namespaces: namespaces.into(),
            namespace_selector: selector(wire.namespace_selector.as_ref(), place, names)?,
            selector: selector(wire.label_selector.as_ref(), place, names)?,
        },
    })
}

fn volumes(spec: &WireSpec) -> Box<[Volume]> {
    spec.volumes
        .iter()
        .flatten()
        .filter_map(|wire| {
            if let Some(claim) = &wire.persistent_volume_claim {
                return Some(Volume::Claim {
                    name: claim.claim_name.as_str().into(),
                });
            }
            if wire.ephemeral.is_some() {
                return Some(Volume::Ephemeral {
                    volume: wire.name.as_str().into(),
                });
            }
            if let Some(disk) = &wire.gce_persistent_disk {
                return Some(Volume::GcePd {
                    name: disk.pd_name.as_str().into(),
                    read_only: disk.read_only,
                });
            }
            if let Some(disk) = &wire.aws_elastic_block_store {
                return Some(Volume::Ebs {
                    id: disk.volume_id.as_str().into(),
                });
            }
            if let Some(volume) = &wire.csi {
                return Some(Volume::Csi {
                    driver: volume.driver.as_str().into(),
                });
            }
            if let Some(disk) = &wire.iscsi {
                return Some(Volume::Iscsi {
                    iqn: disk.iqn.as_str().into(),
                    read_only: disk.read_only,
                });
            }
            let disk = wire.rbd.as_ref()?;
            Some(Volume::Rbd {
                monitors: disk
                    .monitors
                    .iter()
                    .map(|monitor| monitor.as_str().into())
                    .collect(),
                pool: disk.pool.as_str().into(),
                image: disk.image.as_str().into(),
                read_only: disk.read_only,
            })
        })
        .collect()
}

fn controller(meta: &Meta, names: &mut Names) -> Option<Controller> {
    let owner = meta.controller()?;
    let kind = match (owner.api_version.as_str(), owner.kind.as_str()) {
        ("v1", "ReplicationController") => ControllerKind::ReplicationController,
        ("apps/v1", "ReplicaSet") => ControllerKind::ReplicaSet,
        ("apps/v1", "StatefulSet") => ControllerKind::StatefulSet,
        ("apps/v1", "DaemonSet") => ControllerKind::DaemonSet,
        _ => ControllerKind::Other,
    };
    Some(Controller {
        kind,
        name: names.intern(&owner.name),
    })
}

#[cfg(test)]
mod tests;
