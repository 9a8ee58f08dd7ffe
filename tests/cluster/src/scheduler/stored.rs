//! What a server makes of an object that it is given: the difference, as a merge patch.

use serde_json::{Map, Value, json};

/// JSON merge patch (RFC 7386).
pub fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let Some(fields) = target.as_object_mut() else {
        return;
    };
    for (name, value) in changes {
        if value.is_null() {
            fields.remove(name);
        } else {
            merge(fields.entry(name.clone()).or_insert(Value::Null), value);
        }
    }
}

/// The merge patch that makes `after` of `before`; `None` if there is nothing to do.
pub fn difference(before: &Value, after: &Value) -> Option<Value> {
    let (Value::Object(old), Value::Object(new)) = (before, after) else {
        return (before != after).then(|| after.clone());
    };
    let mut patch = Map::new();
    for name in old.keys().filter(|name| !new.contains_key(*name)) {
        patch.insert(name.clone(), Value::Null);
    }
    for (name, value) in new {
        match old.get(name) {
            None => {
                patch.insert(name.clone(), value.clone());
            }
            Some(known) => {
                if let Some(change) = difference(known, value) {
                    patch.insert(name.clone(), change);
                }
            }
        }
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

/// Whether an object comes into the world in two steps: the server takes its status only by a request of its own.
pub fn has_status_of_its_own(object: &Value) -> bool {
    let status = &object["status"];
    let silent = status.is_null() || *status == json!({}) || *status == json!({"phase": "Pending"});
    !silent && object["kind"] != "Node"
}

/// What the server fills in where a pod says nothing.
fn pod_defaults() -> [(&'static str, Value); 7] {
    [
        ("restartPolicy", json!("Always")),
        ("dnsPolicy", json!("ClusterFirst")),
        ("schedulerName", json!("default-scheduler")),
        ("securityContext", json!({})),
        ("enableServiceLinks", json!(true)),
        ("preemptionPolicy", json!("PreemptLowerPriority")),
        ("priority", json!(0)),
    ]
}

const CONTAINER_DEFAULTS: &[&str] = &[
    "terminationMessagePath",
    "terminationMessagePolicy",
    "imagePullPolicy",
];

/// Without what differs from run to run, and without defaults that no scheduler reads.
pub fn clean(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(metadata) = object["metadata"].as_object_mut() {
        for name in [
            "uid",
            "resourceVersion",
            "creationTimestamp",
            "managedFields",
            "selfLink",
        ] {
            metadata.remove(name);
        }
        if metadata.get("generation") == Some(&json!(1)) {
            metadata.remove("generation");
        }
        if metadata.contains_key("deletionTimestamp") {
            metadata.insert(
                "deletionTimestamp".to_owned(),
                json!("2030-01-01T00:00:00Z"),
            );
        }
    }
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    match kind.as_str() {
        "Pod" => clean_pod(&mut object),
        "Node" => {
            if let Some(status) = object["status"].as_object_mut() {
                status.remove("daemonEndpoints");
                status.remove("nodeInfo");
            }
        }
        // What they select is all that is read of them.
        "Service" | "ReplicaSet" | "StatefulSet" | "ReplicationController" => {
            let selector = object["spec"]["selector"].clone();
            object["spec"] = json!({"selector": selector});
            if let Some(fields) = object.as_object_mut() {
                fields.remove("status");
            }
        }
        _ => {}
    }
    drop_empty(&mut object);
    object
}

fn clean_pod(object: &mut Value) {
    if let Some(spec) = object["spec"].as_object_mut() {
        for (name, default) in pod_defaults() {
            if spec.get(name) == Some(&default) {
                spec.remove(name);
            }
        }
        for list in ["containers", "initContainers"] {
            let containers = spec.get_mut(list).and_then(Value::as_array_mut);
            for container in containers.into_iter().flatten() {
                if let Some(fields) = container.as_object_mut() {
                    fields.retain(|name, _| !CONTAINER_DEFAULTS.contains(&name.as_str()));
                }
                drop_empty(container);
            }
        }
    }
    if let Some(status) = object["status"].as_object_mut() {
        for name in ["qosClass", "phase"] {
            status.remove(name);
        }
        let conditions = status.get_mut("conditions").and_then(Value::as_array_mut);
        for condition in conditions.into_iter().flatten() {
            if let Some(fields) = condition.as_object_mut() {
                fields.retain(|name, _| {
                    !matches!(name.as_str(), "lastTransitionTime" | "lastProbeTime")
                });
            }
        }
    }
}

/// Nulls and empty parts say nothing. (An empty selector does, so not all that is empty goes.)
fn drop_empty(value: &mut Value) {
    if let Value::Object(fields) = value {
        fields.retain(|name, inner| {
            let part = matches!(name.as_str(), "resources" | "status" | "spec");
            !(inner.is_null() || part && *inner == json!({}))
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_leads_from_one_to_the_other() {
        let before = json!({"a": 1, "b": {"c": 2, "d": 3}, "l": [1]});
        let after = json!({"b": {"c": 2, "e": 4}, "l": [1, 2], "n": {"x": 1}});
        let patch = difference(&before, &after).unwrap();
        assert_eq!(
            patch,
            json!({"a": null, "b": {"d": null, "e": 4}, "l": [1, 2], "n": {"x": 1}})
        );
        let mut patched = before.clone();
        merge(&mut patched, &patch);
        assert_eq!(patched, after);
        assert_eq!(difference(&after, &after), None);
    }
}
