//! What the core decided about devices, as the API has it.

use serde_json::{Map, Value, json};

use super::devices::{AllocatedDevice, Allocation, DeviceRequest, DeviceToleration};
use super::{Effect, Names, NodeTerm, Operator, Requirement};
use crate::action::PodRef;
use crate::plugins::dynamic_resources::extended::Mapping;

/// `status.allocation` of a claim, but for what the claim itself says about its devices.
pub fn allocation(allocation: &Allocation, names: &Names) -> Value {
    let results: Vec<Value> = allocation.devices.iter().map(device).collect();
    let mut written = json!({"devices": {"results": results}});
    if let Some(terms) = &allocation.nodes {
        let terms: Vec<Value> = terms.iter().map(|one| term(one, names)).collect();
        written["nodeSelector"] = json!({"nodeSelectorTerms": terms});
    }
    if let Some(since) = allocation.since {
        written["allocationTimestamp"] = since.written().into();
    }
    written
}

/// An entry of `status.reservedFor`.
pub fn consumer(pod: &PodRef) -> Value {
    json!({"resource": "pods", "name": &*pod.name, "uid": &*pod.uid})
}

/// A claim for a pod's extended resources, without a name: a server chooses one that nobody has.
pub fn extended_claim(pod: &PodRef, requests: &[DeviceRequest]) -> Value {
    let requests = requests.iter().filter_map(|request| {
        let only = request.alternatives.first()?;
        Some(
            json!({"name": request.name, "exactly": {"deviceClassName": only.class,
            "allocationMode": "ExactCount", "count": only.count}}),
        )
    });
    let requests: Vec<Value> = requests.collect();
    json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "generateName": format!("{}-extended-resources-", pod.name),
            "namespace": pod.namespace,
            "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": *pod.uid,
                "controller": true}],
        },
        "spec": {"devices": {"requests": requests}},
    })
}

/// `status.extendedResourceClaimStatus` of a pod.
pub fn extended_claim_status(claim: &str, mappings: &[Mapping]) -> Value {
    let mappings = mappings.iter().map(|mapping| {
        json!({"containerName": mapping.container, "resourceName": mapping.resource,
            "requestName": mapping.request})
    });
    let mappings: Vec<Value> = mappings.collect();
    json!({"resourceClaimName": claim, "requestMappings": mappings})
}

fn device(device: &AllocatedDevice) -> Value {
    let mut result = json!({"request": device.request, "driver": *device.id.driver,
        "pool": *device.id.pool, "device": *device.id.device});
    if device.admin_access {
        result["adminAccess"] = json!(true);
    }
    if let Some(share) = &device.share {
        result["shareID"] = json!(share.id);
        let consumed = share.consumed.iter();
        let consumed = consumed.map(|(name, amount)| (name.to_string(), json!(amount.to_string())));
        let consumed: Map<String, Value> = consumed.collect();
        if !consumed.is_empty() {
            result["consumedCapacity"] = Value::Object(consumed);
        }
    }
    for (name, list) in [
        ("bindingConditions", &device.readiness.wanted),
        ("bindingFailureConditions", &device.readiness.fatal),
    ] {
        if !list.is_empty() {
            result[name] = json!(list);
        }
    }
    if !device.tolerations.is_empty() {
        result["tolerations"] = device.tolerations.iter().map(toleration).collect();
    }
    result
}

fn toleration(given: &DeviceToleration) -> Value {
    let mut written = json!({"operator": "Exists"});
    if let Some(key) = &given.key {
        written["key"] = json!(key);
    }
    if let Some(value) = &given.value {
        written["operator"] = json!("Equal");
        written["value"] = json!(value);
    }
    let effect = given.effect.map(|effect| match effect {
        Effect::NoSchedule => "NoSchedule",
        Effect::PreferNoSchedule => "PreferNoSchedule",
        Effect::NoExecute => "NoExecute",
    });
    if let Some(effect) = effect {
        written["effect"] = json!(effect);
    }
    if let Some(seconds) = given.seconds {
        written["tolerationSeconds"] = json!(seconds);
    }
    written
}

/// A node selector's term.
fn term(term: &NodeTerm, names: &Names) -> Value {
    let mut written = Map::new();
    for (key, list) in [
        ("matchExpressions", &term.expressions),
        ("matchFields", &term.fields),
    ] {
        if !list.is_empty() {
            let list: Vec<Value> = list.iter().map(|one| requirement(one, names)).collect();
            written.insert(key.to_owned(), list.into());
        }
    }
    // There is one field only.
    let fields = written.get_mut("matchFields").and_then(Value::as_array_mut);
    for field in fields.into_iter().flatten() {
        field["key"] = json!("metadata.name");
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
