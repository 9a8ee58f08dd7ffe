//! From the slim types back to the wire's JSON, for what a scheduler writes.

use serde_json::{Map, Value, json};

use super::devices::{AllocatedDevice, Allocation, DeviceRequest, DeviceToleration};
use super::pod::Effect;
use super::selector::{NodeTerm, Operator, Requirement};
use super::symbol::Names;
use crate::plugins::dynamic_resources::extended::Mapping;

/// `status.allocation` of a claim, but for what the claim and its classes say to drivers.
pub fn allocation(allocation: &Allocation, names: &Names) -> Value {
    let results: Vec<Value> = allocation.devices.iter().map(device).collect();
    let mut written = json!({"devices": {"results": results}});
    if let Some(terms) = &allocation.nodes {
        let terms: Vec<Value> = terms.iter().map(|one| node_term(one, names)).collect();
        written["nodeSelector"] = json!({"nodeSelectorTerms": terms});
    }
    written
}

fn device(device: &AllocatedDevice) -> Value {
    let mut written = json!({
        "request": device.request,
        "driver": &*device.id.driver,
        "pool": &*device.id.pool,
        "device": &*device.id.device,
    });
    if device.admin_access {
        written["adminAccess"] = true.into();
    }
    if let Some(share) = &device.share {
        written["shareID"] = json!(share.id);
        let consumed = share.consumed.iter();
        let consumed = consumed.map(|(name, amount)| (name.to_string(), json!(amount.to_string())));
        written["consumedCapacity"] = Value::Object(consumed.collect());
    }
    for (name, list) in [
        ("bindingConditions", &device.readiness.wanted),
        ("bindingFailureConditions", &device.readiness.fatal),
    ] {
        if !list.is_empty() {
            written[name] = json!(list);
        }
    }
    if !device.tolerations.is_empty() {
        written["tolerations"] = device.tolerations.iter().map(toleration).collect();
    }
    written
}

fn toleration(toleration: &DeviceToleration) -> Value {
    let mut written = json!({"operator": "Exists"});
    if let Some(key) = &toleration.key {
        written["key"] = json!(key);
    }
    if let Some(value) = &toleration.value {
        written["operator"] = json!("Equal");
        written["value"] = json!(value);
    }
    let effect = toleration.effect.map(|effect| match effect {
        Effect::NoSchedule => "NoSchedule",
        Effect::PreferNoSchedule => "PreferNoSchedule",
        Effect::NoExecute => "NoExecute",
    });
    if let Some(effect) = effect {
        written["effect"] = json!(effect);
    }
    written
}

/// A node selector's term.
fn node_term(term: &NodeTerm, names: &Names) -> Value {
    let mut written = Map::new();
    for (key, list) in [
        ("matchExpressions", &term.expressions),
        ("matchFields", &term.fields),
    ] {
        if !list.is_empty() {
            let list = list.iter().map(|one| requirement(one, names)).collect();
            written.insert(key.to_owned(), list);
        }
    }
    Value::Object(written)
}

fn requirement(requirement: &Requirement, names: &Names) -> Value {
    let operator = match requirement.operator {
        Operator::In => "In",
        Operator::NotIn => "NotIn",
        Operator::Exists => "Exists",
        Operator::DoesNotExist => "DoesNotExist",
        Operator::Gt => "Gt",
        Operator::Lt => "Lt",
    };
    let mut written = json!({"key": names.text(requirement.key), "operator": operator});
    if !requirement.values.is_empty() {
        let values = requirement.values.iter();
        written["values"] = values.map(|value| json!(names.text(*value))).collect();
    }
    written
}

/// `spec.devices.requests` of a claim for extended resources.
pub fn requests(requests: &[DeviceRequest]) -> Value {
    let written = requests.iter().filter_map(|request| {
        let only = request.alternatives.first()?;
        Some(
            json!({"name": request.name, "exactly": {"deviceClassName": only.class,
            "allocationMode": "ExactCount", "count": only.count}}),
        )
    });
    written.collect()
}

/// `status.extendedResourceClaimStatus` of a pod.
pub fn extended_status(claim: &str, mappings: &[Mapping]) -> Value {
    let mappings = mappings.iter().map(|mapping| {
        json!({"containerName": mapping.container, "resourceName": mapping.resource,
            "requestName": mapping.request})
    });
    let mappings: Vec<Value> = mappings.collect();
    json!({"resourceClaimName": claim, "requestMappings": mappings})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::decode;

    #[test]
    fn an_allocation_comes_back_as_it_was() {
        let status = json!({
            "devices": {"results": [
                {"request": "r", "driver": "d", "pool": "p", "device": "x", "adminAccess": true},
                {"request": "s/t", "driver": "d", "pool": "p", "device": "y", "shareID": "u",
                    "consumedCapacity": {"memory": "4Gi"}, "bindingConditions": ["a"],
                    "bindingFailureConditions": ["b"],
                    "tolerations": [{"operator": "Exists"},
                        {"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"}]},
            ]},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields":
                [{"key": "metadata.name", "operator": "In", "values": ["n"]}],
                "matchExpressions": [{"key": "rack", "operator": "Exists"}]}]},
        });
        let claim =
            json!({"metadata": {"name": "c", "namespace": "d"}, "status": {"allocation": status}});
        let mut names = Names::default();
        let read = decode::resource_claim(claim.to_string().as_bytes(), &mut names).unwrap();
        let mut written = allocation(&read.allocation.unwrap(), &names);
        // The only field there is has its own name in here.
        written["nodeSelector"]["nodeSelectorTerms"][0]["matchFields"][0]["key"] =
            "metadata.name".into();
        assert_eq!(written, status);
    }
}
