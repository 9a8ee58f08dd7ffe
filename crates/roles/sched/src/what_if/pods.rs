//! Pods that are added: as files have them, with what the API server would fill in.

use serde_json::{Map, Value, json};

use super::WhatIfError;

/// Pods out of pods, lists of them, and what makes pods, as many as it wants. Priorities come from the cluster's classes.
pub fn expand(added: &[Value], cluster: &[Value]) -> Result<Vec<Value>, WhatIfError> {
    let mut pods = Vec::new();
    for object in added {
        let mut made = templated(object)?;
        for pod in &mut made {
            fill_in(pod, cluster);
        }
        pods.extend(made);
    }
    Ok(pods)
}

fn templated(object: &Value) -> Result<Vec<Value>, WhatIfError> {
    let kind = object["kind"].as_str().unwrap_or_default();
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let (template, count) = match kind {
        "Pod" => return Ok(vec![object.clone()]),
        "Deployment" | "ReplicaSet" | "StatefulSet" | "ReplicationController" => (
            &object["spec"]["template"],
            object["spec"]["replicas"].as_u64(),
        ),
        "Job" => (
            &object["spec"]["template"],
            object["spec"]["parallelism"].as_u64(),
        ),
        _ => {
            return Err(WhatIfError::NotAPod {
                kind: kind.to_owned(),
                name: name.to_owned(),
            });
        }
    };
    let made = (0..count.unwrap_or(1)).map(|index| {
        let mut metadata = template["metadata"]
            .as_object()
            .cloned()
            .unwrap_or_default();
        metadata.insert("name".to_owned(), json!(format!("{name}-{index}")));
        if let Some(namespace) = object["metadata"].get("namespace") {
            metadata.insert("namespace".to_owned(), namespace.clone());
        }
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})
    });
    Ok(made.collect())
}

/// Defaults that scheduling depends on.
fn fill_in(pod: &mut Value, cluster: &[Value]) {
    let metadata = &mut pod["metadata"];
    if metadata["namespace"].is_null() {
        metadata["namespace"] = json!("default");
    }
    if pod["spec"]["priority"].is_null() {
        pod["spec"]["priority"] = json!(priority(&pod["spec"], cluster));
    }
    for list in ["containers", "initContainers"] {
        let containers = pod["spec"].get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            let limits = container
                .pointer("/resources/limits")
                .and_then(Value::as_object);
            let Some(limits) = limits.cloned() else {
                continue;
            };
            let requests = &mut container["resources"]["requests"];
            if !requests.is_object() {
                *requests = Value::Object(Map::new());
            }
            for (name, amount) in limits {
                if requests[&name].is_null() {
                    requests[&name] = amount;
                }
            }
        }
    }
}

fn priority(spec: &Value, cluster: &[Value]) -> i64 {
    let mut classes = cluster
        .iter()
        .filter(|object| object["kind"] == "PriorityClass");
    let class = match spec["priorityClassName"].as_str() {
        Some("system-cluster-critical") => return 2_000_000_000,
        Some("system-node-critical") => return 2_000_001_000,
        Some(name) => classes.find(|class| class["metadata"]["name"] == *name),
        None => classes.find(|class| class["globalDefault"] == true),
    };
    class.and_then(|class| class["value"].as_i64()).unwrap_or(0)
}
