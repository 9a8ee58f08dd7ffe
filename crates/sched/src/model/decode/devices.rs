//! Resource claims, resource slices and device classes.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::meta::{Amount, Meta, Place};
use super::node::effect;
use super::selectors::{WireNodeSelector, node_terms};
use super::{Result, parse};
use crate::model::devices::{
    AllocatedDevice, Allocation, Alternative, Attribute, Device, DeviceClass, DeviceConstraint,
    DeviceId, DeviceRequest, DeviceTaint, DeviceToleration, NodeScope, ResourceClaim,
    ResourceSlice,
};
use crate::model::pod::Effect;
use crate::model::symbol::Names;

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
    WireToleration { key: String, operator: String, value: String, effect: String }

    WireClass { metadata: Meta, spec: WireClassSpec }
    WireClassSpec { selectors: Option<Vec<WireSelector>> }

    WireSlice { metadata: Meta, spec: WireSliceSpec }
    WireSliceSpec {
        driver: String,
        pool: WirePool,
        node_name: Option<String>,
        all_nodes: Option<bool>,
        node_selector: Option<WireNodeSelector>,
        per_device_node_selection: Option<bool>,
        devices: Option<Vec<WireDevice>>,
    }
    WirePool { name: String, generation: i64, resource_slice_count: usize }
    WireDevice {
        name: String,
        attributes: Option<BTreeMap<String, WireAttribute>>,
        capacity: Option<BTreeMap<String, WireCapacity>>,
        taints: Option<Vec<WireTaint>>,
        node_name: Option<String>,
        all_nodes: Option<bool>,
        node_selector: Option<WireNodeSelector>,
    }
    WireAttribute {
        int_value: Option<i64> = "int",
        bool_value: Option<bool> = "bool",
        text: Option<String> = "string",
        version: Option<String>,
    }
    WireCapacity { value: Option<Amount> }

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
    }
    WireConstraint {
        requests: Option<Vec<String>>,
        match_attribute: Option<String>,
        distinct_attribute: Option<String>,
    }
    WireClaimStatus { allocation: Option<WireAllocation>, reserved_for: Option<Vec<WireConsumer>> }
    WireConsumer { uid: String }
    WireAllocation { devices: WireResults, node_selector: Option<WireNodeSelector> }
    WireResults { results: Option<Vec<WireResult>> }
    WireResult { request: String, driver: String, pool: String, device: String, admin_access: Option<bool> }
}

fn expressions(list: Option<&Vec<WireSelector>>) -> Box<[Box<str>]> {
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
                capacity.insert(name.as_str().into(), place.quantity(name, amount)?.milli());
            }
        }
        let taints = device.taints.iter().flatten().map(|taint| DeviceTaint {
            key: taint.key.as_str().into(),
            value: taint.value.as_str().into(),
            effect: effect(&taint.effect).unwrap_or(Effect::PreferNoSchedule),
        });
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
        });
    }
    Ok(ResourceSlice {
        driver: spec.driver.as_str().into(),
        pool: spec.pool.name.as_str().into(),
        generation: spec.pool.generation,
        slices: spec.pool.resource_slice_count,
        nodes: nodes.unwrap_or(NodeScope::PerDevice),
        devices: devices.into(),
        name: wire.metadata.name.into(),
    })
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

fn alternative(wire: &WireExact) -> Alternative {
    let tolerations = wire
        .tolerations
        .iter()
        .flatten()
        .map(|wire| DeviceToleration {
            key: (!wire.key.is_empty()).then(|| wire.key.as_str().into()),
            value: (wire.operator != "Exists").then(|| wire.value.as_str().into()),
            effect: effect(&wire.effect),
        });
    Alternative {
        name: wire.name.as_str().into(),
        class: wire.device_class_name.as_str().into(),
        selectors: expressions(wire.selectors.as_ref()),
        count: (wire.allocation_mode != "All").then(|| wire.count.unwrap_or(1)),
        admin_access: wire.admin_access == Some(true),
        tolerations: tolerations.collect(),
    }
}

pub fn resource_claim(json: &[u8], names: &mut Names) -> Result<ResourceClaim> {
    let wire: WireClaim = parse("ResourceClaim", json)?;
    let place = Place {
        kind: "ResourceClaim",
        object: &wire.metadata.name,
    };
    let ask = &wire.spec.devices;
    let requests = ask.requests.iter().flatten().map(|wire| DeviceRequest {
        name: wire.name.as_str().into(),
        alternatives: wire
            .exactly
            .iter()
            .chain(wire.first_available.iter().flatten())
            .map(alternative)
            .collect(),
        has_subrequests: wire.exactly.is_none(),
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
                .map(|result| AllocatedDevice {
                    request: result.request.as_str().into(),
                    id: DeviceId {
                        driver: result.driver.as_str().into(),
                        pool: result.pool.as_str().into(),
                        device: result.device.as_str().into(),
                    },
                    admin_access: result.admin_access == Some(true),
                })
                .collect(),
            nodes: match &allocation.node_selector {
                Some(selector) => Some(node_terms(selector, place, names)?),
                None => None,
            },
        }),
    };
    Ok(ResourceClaim {
        requests: requests.collect(),
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
