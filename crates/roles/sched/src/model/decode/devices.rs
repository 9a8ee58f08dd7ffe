//! Resource claims, resource slices and device classes.

use std::collections::BTreeMap;

use plimsoll_api::quantity::Quantity;
use serde::Deserialize;

use super::meta::{Amount, Meta, Place};
use super::node::effect;
use super::selectors::{WireNodeSelector, node_terms};
use super::{Result, parse};
use crate::model::device_selector::DeviceSelector;
use crate::model::devices::{
    AllocatedDevice, Allocation, Alternative, Attribute, Capacity, CapacityPolicy, CounterSet,
    Device, DeviceClass, DeviceCondition, DeviceConstraint, DeviceId, DeviceRequest, DeviceTaint,
    DeviceToleration, NodeScope, Readiness, ResourceClaim, ResourceSlice, Share, TaintRule,
};
use crate::model::pod::Effect;
use crate::model::symbol::Names;
use crate::time::Time;

macro_rules! wire {
    ($($name:ident { $($field:ident: $type:ty $(= $wire:literal)?),* $(,)? })*) => {
        $(
            #[derive(Debug, Default, Deserialize)]
            #[serde(rename_all = "camelCase", default)]
            struct $name {
                $($(#[serde(rename = $wire)])? $field: $type,)*
            }
        )*
    };
}

wire! {
    WireSelector { cel: Option<WireCel> }
    WireCel { expression: String }
    WireTaint { key: String, value: String, effect: String }
    WireToleration { key: String, operator: String, value: String, effect: String, toleration_seconds: Option<i64> }

    WireClass { metadata: Meta, spec: WireClassSpec }
    WireClassSpec { selectors: Option<Vec<WireSelector>>, extended_resource_name: Option<String> }

    WireSlice { metadata: Meta, spec: WireSliceSpec }
    WireSliceSpec {
        driver: String,
        pool: WirePool,
        node_name: Option<String>,
        all_nodes: Option<bool>,
        node_selector: Option<WireNodeSelector>,
        per_device_node_selection: Option<bool>,
        devices: Option<Vec<WireDevice>>,
        shared_counters: Option<Vec<WireCounters>>,
    }
    WireCounters { name: String, counter_set: String, counters: BTreeMap<String, WireCapacity> }
    WireRule { metadata: Meta, spec: WireRuleSpec }
    WireRuleSpec { device_selector: WireDeviceSelector, taint: WireTaint }
    WireDeviceSelector { driver: Option<String>, pool: Option<String>, device: Option<String> }
    WirePool { name: String, generation: i64, resource_slice_count: usize }
    WireDevice {
        name: String,
        attributes: Option<BTreeMap<String, WireAttribute>>,
        capacity: Option<BTreeMap<String, WireCapacity>>,
        taints: Option<Vec<WireTaint>>,
        node_name: Option<String>,
        all_nodes: Option<bool>,
        node_selector: Option<WireNodeSelector>,
        allow_multiple_allocations: Option<bool>,
        consumes_counters: Option<Vec<WireCounters>>,
        binds_to_node: Option<bool>,
        binding_conditions: Option<Vec<String>>,
        binding_failure_conditions: Option<Vec<String>>,
    }
    WireAttribute {
        int_value: Option<i64> = "int",
        bool_value: Option<bool> = "bool",
        text: Option<String> = "string",
        version: Option<String>,
    }
    WireCapacity { value: Option<Amount>, request_policy: Option<WirePolicy> }
    WirePolicy { default: Option<Amount>, valid_values: Option<Vec<Amount>>, valid_range: Option<WireRange> }
    WireRange { min: Option<Amount>, max: Option<Amount>, step: Option<Amount> }
    WireCapacityAsk { requests: Option<BTreeMap<String, Amount>> }

    WireClaim { metadata: Meta, spec: WireClaimSpec, status: WireClaimStatus }
    WireClaimSpec { devices: WireAsk }
    WireAsk { requests: Option<Vec<WireRequest>>, constraints: Option<Vec<WireConstraint>> }
    WireRequest { name: String, exactly: Option<WireExact>, first_available: Option<Vec<WireExact>> }
    WireExact {
        name: String,
        device_class_name: String,
        selectors: Option<Vec<WireSelector>>,
        allocation_mode: String,
        count: Option<usize>,
        admin_access: Option<bool>,
        tolerations: Option<Vec<WireToleration>>,
        capacity: Option<WireCapacityAsk>,
    }
    WireConstraint {
        requests: Option<Vec<String>>,
        match_attribute: Option<String>,
        distinct_attribute: Option<String>,
    }
    WireClaimStatus {
        allocation: Option<WireAllocation>,
        reserved_for: Option<Vec<WireConsumer>>,
        devices: Option<Vec<WireDeviceStatus>>,
    }
    WireDeviceStatus { driver: String, pool: String, device: String, conditions: Option<Vec<WireCondition>> }
    WireCondition { kind: String = "type", status: String, reason: String, message: String }
    WireConsumer { uid: String }
    WireAllocation {
        devices: WireResults,
        node_selector: Option<WireNodeSelector>,
        allocation_timestamp: Option<String>,
    }
    WireResults { results: Option<Vec<WireResult>> }
    WireResult {
        request: String,
        driver: String,
        pool: String,
        device: String,
        admin_access: Option<bool>,
        share_id: Option<String> = "shareID",
        consumed_capacity: Option<BTreeMap<String, Amount>>,
        tolerations: Option<Vec<WireToleration>>,
        binding_conditions: Option<Vec<String>>,
        binding_failure_conditions: Option<Vec<String>>,
    }
}

const EXTENDED: &str = "resource.kubernetes.io/extended-resource-claim";

fn expressions(list: Option<&Vec<WireSelector>>) -> Box<[DeviceSelector]> {
    list.into_iter()
        .flatten()
        .filter_map(|selector| selector.cel.as_ref())
        .map(|cel| cel.expression.as_str().into())
        .collect()
}

pub fn device_class(json: &[u8]) -> Result<DeviceClass> {
    let wire: WireClass = parse("DeviceClass", json)?;
    Ok(DeviceClass {
        selectors: expressions(wire.spec.selectors.as_ref()),
        resource: wire.spec.extended_resource_name.map(Into::into),
        created: wire
            .metadata
            .creation_timestamp
            .as_deref()
            .and_then(Time::parse),
        name: wire.metadata.name.into(),
    })
}

fn scope(
    node: Option<&String>,
    all: Option<bool>,
    selector: Option<&WireNodeSelector>,
    place: Place<'_>,
    names: &mut Names,
) -> Result<Option<NodeScope>> {
    Ok(match (node, selector) {
        (Some(node), _) if !node.is_empty() => Some(NodeScope::Node(names.intern(node))),
        (_, Some(selector)) => Some(NodeScope::Selected(node_terms(selector, place, names)?)),
        _ if all == Some(true) => Some(NodeScope::All),
        _ => None,
    })
}

pub fn resource_slice(json: &[u8], names: &mut Names) -> Result<ResourceSlice> {
    let wire: WireSlice = parse("ResourceSlice", json)?;
    let place = Place {
        kind: "ResourceSlice",
        object: &wire.metadata.name,
    };
    let spec = &wire.spec;
    let nodes = scope(
        spec.node_name.as_ref(),
        spec.all_nodes,
        spec.node_selector.as_ref(),
        place,
        names,
    )?;
    let mut devices = Vec::new();
    for device in spec.devices.iter().flatten() {
        let mut capacity = BTreeMap::new();
        for (name, wire) in device.capacity.iter().flatten() {
            if let Some(amount) = &wire.value {
                let value = place.quantity(name, amount)?;
                let policy = policy(wire.request_policy.as_ref(), place)?;
                capacity.insert(name.as_str().into(), Capacity { value, policy });
            }
        }
        let taints = device.taints.iter().flatten().map(taint);
        devices.push(Device {
            name: device.name.as_str().into(),
            attributes: device
                .attributes
                .iter()
                .flatten()
                .filter_map(|(name, wire)| Some((name.as_str().into(), attribute(wire)?)))
                .collect(),
            capacity,
            taints: taints.collect(),
            nodes: scope(
                device.node_name.as_ref(),
                device.all_nodes,
                device.node_selector.as_ref(),
                place,
                names,
            )?,
            is_shared: device.allow_multiple_allocations == Some(true),
            consumes: counters(device.consumes_counters.as_ref(), place)?,
            binds_to_node: device.binds_to_node == Some(true),
            readiness: readiness(
                device.binding_conditions.as_ref(),
                device.binding_failure_conditions.as_ref(),
            ),
        });
    }
    Ok(ResourceSlice {
        counters: counters(spec.shared_counters.as_ref(), place)?,
        driver: spec.driver.as_str().into(),
        pool: spec.pool.name.as_str().into(),
        generation: spec.pool.generation,
        slices: spec.pool.resource_slice_count,
        nodes: nodes.unwrap_or(NodeScope::PerDevice),
        devices: devices.into(),
        name: wire.metadata.name.into(),
    })
}

fn taint(wire: &WireTaint) -> DeviceTaint {
    DeviceTaint {
        key: wire.key.as_str().into(),
        value: wire.value.as_str().into(),
        effect: effect(&wire.effect).unwrap_or(Effect::PreferNoSchedule),
    }
}

pub fn taint_rule(json: &[u8]) -> Result<TaintRule> {
    let wire: WireRule = parse("DeviceTaintRule", json)?;
    let selector = wire.spec.device_selector;
    let boxed = |text: Option<String>| text.map(Into::into);
    Ok(TaintRule {
        name: wire.metadata.name.into(),
        driver: boxed(selector.driver),
        pool: boxed(selector.pool),
        device: boxed(selector.device),
        taint: taint(&wire.spec.taint),
    })
}

/// A set that devices take from is named otherwise than the set itself.
fn counters(list: Option<&Vec<WireCounters>>, place: Place<'_>) -> Result<Box<[CounterSet]>> {
    list.into_iter()
        .flatten()
        .map(|wire| {
            let mut counters = BTreeMap::new();
            for (name, counter) in &wire.counters {
                if let Some(amount) = &counter.value {
                    let amount = place.quantity(name, amount)?.milli();
                    counters.insert(name.as_str().into(), amount);
                }
            }
            let name = if wire.name.is_empty() {
                &wire.counter_set
            } else {
                &wire.name
            };
            Ok(CounterSet {
                name: name.as_str().into(),
                counters,
            })
        })
        .collect()
}

fn readiness(wanted: Option<&Vec<String>>, fatal: Option<&Vec<String>>) -> Readiness {
    let boxed = |list: Option<&Vec<String>>| -> Box<[Box<str>]> {
        let list = list.into_iter().flatten();
        list.map(|text| text.as_str().into()).collect()
    };
    Readiness {
        wanted: boxed(wanted),
        fatal: boxed(fatal),
    }
}

fn policy(wire: Option<&WirePolicy>, place: Place<'_>) -> Result<CapacityPolicy> {
    let Some(wire) = wire else {
        return Ok(CapacityPolicy::default());
    };
    let one = |amount: Option<&Amount>| -> Result<Option<Quantity>> {
        amount
            .map(|amount| place.quantity("requestPolicy", amount))
            .transpose()
    };
    let range = wire.valid_range.as_ref();
    Ok(CapacityPolicy {
        default: one(wire.default.as_ref())?,
        min: one(range.and_then(|range| range.min.as_ref()))?,
        max: one(range.and_then(|range| range.max.as_ref()))?,
        step: one(range.and_then(|range| range.step.as_ref()))?,
        values: wire
            .valid_values
            .iter()
            .flatten()
            .map(|amount| place.quantity("requestPolicy", amount))
            .collect::<Result<_>>()?,
    })
}

fn amounts(
    list: Option<&BTreeMap<String, Amount>>,
    place: Place<'_>,
) -> Result<BTreeMap<Box<str>, Quantity>> {
    list.into_iter()
        .flatten()
        .map(|(name, amount)| Ok((name.as_str().into(), place.quantity(name, amount)?)))
        .collect()
}

fn attribute(wire: &WireAttribute) -> Option<Attribute> {
    let text = wire
        .text
        .as_deref()
        .map(|text| Attribute::Text(text.into()));
    let version = wire
        .version
        .as_deref()
        .map(|text| Attribute::Version(text.into()));
    wire.int_value
        .map(Attribute::Int)
        .or(wire.bool_value.map(Attribute::Bool))
        .or(text)
        .or(version)
}

fn tolerations(list: Option<&Vec<WireToleration>>) -> Box<[DeviceToleration]> {
    list.into_iter()
        .flatten()
        .map(|wire| DeviceToleration {
            key: (!wire.key.is_empty()).then(|| wire.key.as_str().into()),
            value: (wire.operator != "Exists").then(|| wire.value.as_str().into()),
            effect: effect(&wire.effect),
            seconds: wire.toleration_seconds,
        })
        .collect()
}

fn alternative(wire: &WireExact, place: Place<'_>) -> Result<Alternative> {
    let capacity = wire.capacity.as_ref();
    Ok(Alternative {
        name: wire.name.as_str().into(),
        class: wire.device_class_name.as_str().into(),
        selectors: expressions(wire.selectors.as_ref()),
        count: (wire.allocation_mode != "All").then(|| wire.count.unwrap_or(1)),
        admin_access: wire.admin_access == Some(true),
        tolerations: tolerations(wire.tolerations.as_ref()),
        capacity: amounts(capacity.and_then(|ask| ask.requests.as_ref()), place)?,
    })
}

pub fn resource_claim(json: &[u8], names: &mut Names) -> Result<ResourceClaim> {
    let wire: WireClaim = parse("ResourceClaim", json)?;
    let place = Place {
        kind: "ResourceClaim",
        object: &wire.metadata.name,
    };
    let ask = &wire.spec.devices;
    let requests = ask.requests.iter().flatten().map(|wire| {
        let alternatives = wire
            .exactly
            .iter()
            .chain(wire.first_available.iter().flatten());
        Ok(DeviceRequest {
            name: wire.name.as_str().into(),
            alternatives: alternatives
                .map(|wire| alternative(wire, place))
                .collect::<Result<_>>()?,
            has_subrequests: wire.exactly.is_none(),
        })
    });
    let constraints = ask.constraints.iter().flatten().filter_map(|wire| {
        Some(DeviceConstraint {
            requests: wire
                .requests
                .iter()
                .flatten()
                .map(|name| name.as_str().into())
                .collect(),
            attribute: wire
                .match_attribute
                .as_deref()
                .or(wire.distinct_attribute.as_deref())?
                .into(),
            distinct: wire.match_attribute.is_none(),
        })
    });
    let allocation = match &wire.status.allocation {
        None => None,
        Some(allocation) => Some(Allocation {
            devices: allocation
                .devices
                .results
                .iter()
                .flatten()
                .map(|result| allocated(result, place))
                .collect::<Result<_>>()?,
            nodes: match &allocation.node_selector {
                Some(selector) => Some(node_terms(selector, place, names)?),
                None => None,
            },
            since: allocation
                .allocation_timestamp
                .as_deref()
                .and_then(Time::parse),
        }),
    };
    let statuses = wire.status.devices.iter().flatten();
    let conditions = statuses.flat_map(|status| {
        let conditions = status.conditions.iter().flatten();
        conditions.map(|condition| DeviceCondition {
            id: id(&status.driver, &status.pool, &status.device),
            kind: condition.kind.as_str().into(),
            holds: condition.status == "True",
            reason: condition.reason.as_str().into(),
            message: condition.message.as_str().into(),
        })
    });
    Ok(ResourceClaim {
        conditions: conditions.collect(),
        is_extended: wire.metadata.annotation(EXTENDED) == Some("true"),
        requests: requests.collect::<Result<_>>()?,
        constraints: constraints.collect(),
        allocation,
        reserved_for: wire
            .status
            .reserved_for
            .iter()
            .flatten()
            .map(|consumer| consumer.uid.as_str().into())
            .collect(),
        namespace: names.intern(&wire.metadata.namespace),
        uid: wire.metadata.uid.as_str().into(),
        resource_version: wire.metadata.resource_version.as_str().into(),
        terminating: wire.metadata.deletion_timestamp.is_some(),
        owner: wire
            .metadata
            .controller()
            .map(|owner| owner.uid.as_str().into()),
        name: wire.metadata.name.into(),
    })
}

fn id(driver: &str, pool: &str, device: &str) -> DeviceId {
    DeviceId {
        driver: driver.into(),
        pool: pool.into(),
        device: device.into(),
    }
}

fn allocated(wire: &WireResult, place: Place<'_>) -> Result<AllocatedDevice> {
    let share = match &wire.share_id {
        None => None,
        Some(id) => Some(Share {
            id: id.as_str().into(),
            consumed: amounts(wire.consumed_capacity.as_ref(), place)?,
        }),
    };
    Ok(AllocatedDevice {
        request: wire.request.as_str().into(),
        id: id(&wire.driver, &wire.pool, &wire.device),
        admin_access: wire.admin_access == Some(true),
        share,
        tolerations: tolerations(wire.tolerations.as_ref()),
        readiness: readiness(
            wire.binding_conditions.as_ref(),
            wire.binding_failure_conditions.as_ref(),
        ),
    })
}
