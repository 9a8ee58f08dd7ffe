//! The cluster as it is, without the nodes that are emptied; and controllers of volumes, as far as pods wait for them.

use serde_json::{Value, json};

use super::{Question, WhatIfError, without_status};
use crate::sandbox::{ObjectKey, Sandbox, SandboxError};

const SELECTED_NODE: &str = "/metadata/annotations/volume.kubernetes.io~1selected-node";
const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";

pub(super) fn load(sandbox: &mut Sandbox, question: &Question) -> Result<(), WhatIfError> {
    for name in &question.drain {
        let known = question
            .objects
            .iter()
            .any(|object| object["kind"] == "Node" && object["metadata"]["name"] == **name);
        if !known {
            return Err(WhatIfError::NoSuchNode(name.clone()));
        }
    }
    let drained = |node: &Value| {
        let node = node.as_str().unwrap_or_default();
        question.drain.iter().any(|name| name == node)
    };
    // Pods come last, and among them those that have a node come first: what they refer to is there then.
    let (pods, others): (Vec<&Value>, Vec<&Value>) = question
        .objects
        .iter()
        .partition(|object| object["kind"] == "Pod");
    for object in others {
        let mut object = object.clone();
        if object["kind"] == "Node" && drained(&object["metadata"]["name"]) {
            object["spec"]["unschedulable"] = json!(true);
        }
        if ObjectKey::of(&object).is_some() {
            sandbox.put(object)?;
        }
    }
    let (placed, waiting): (Vec<&Value>, Vec<&Value>) = pods
        .into_iter()
        .partition(|pod| !pod["spec"]["nodeName"].is_null());
    let (moving, staying): (Vec<&Value>, Vec<&Value>) = placed
        .into_iter()
        .partition(|pod| drained(&pod["spec"]["nodeName"]) && is_moved(pod));
    for pod in staying {
        sandbox.put(pod.clone())?;
    }
    let moving = moving
        .into_iter()
        .filter(|pod| pod.pointer("/metadata/deletionTimestamp").is_none());
    for pod in moving {
        sandbox.put(without_status(pod))?;
    }
    for pod in waiting {
        sandbox.put(pod.clone())?;
    }
    Ok(())
}

/// Pods of daemon sets and of the kubelet itself stay where they are.
fn is_moved(pod: &Value) -> bool {
    let owners = pod
        .pointer("/metadata/ownerReferences")
        .and_then(Value::as_array);
    let of_daemon_set = owners
        .into_iter()
        .flatten()
        .any(|owner| owner["kind"] == "DaemonSet" && owner["controller"] == true);
    let is_mirror = pod
        .pointer("/metadata/annotations/kubernetes.io~1config.mirror")
        .is_some();
    !of_daemon_set && !is_mirror
}

/// Binds claims for which the scheduler has chosen a volume or a node. `false`: there was none.
pub(super) fn bind_claims(sandbox: &mut Sandbox) -> Result<bool, SandboxError> {
    let unbound: Vec<(ObjectKey, Value)> = sandbox
        .of_kind("PersistentVolumeClaim")
        .filter(|(_, claim)| claim["spec"]["volumeName"].is_null())
        .map(|(key, claim)| (key.clone(), claim.clone()))
        .collect();
    let mut bound = false;
    for (key, claim) in unbound {
        let chosen = sandbox
            .of_kind("PersistentVolume")
            .find(|(_, volume)| {
                volume["spec"]["claimRef"]["name"] == *key.name
                    && volume["spec"]["claimRef"]["namespace"] == *key.namespace
            })
            .map(|(volume, _)| volume.name.clone());
        let volume = match chosen {
            Some(name) => name,
            None if claim.pointer(SELECTED_NODE).is_some() => provision(sandbox, &key, &claim)?,
            None => continue,
        };
        let mut claim = claim;
        claim["spec"]["volumeName"] = json!(volume);
        claim["metadata"]["annotations"][BIND_COMPLETED] = json!("yes");
        claim["status"]["phase"] = json!("Bound");
        sandbox.put(claim)?;
        bound = true;
    }
    Ok(bound)
}

fn provision(
    sandbox: &mut Sandbox,
    key: &ObjectKey,
    claim: &Value,
) -> Result<String, SandboxError> {
    let name = format!("made-for-{}-{}", key.namespace, key.name);
    sandbox.put(json!({
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": claim["spec"]["resources"]["requests"],
            "accessModes": claim["spec"]["accessModes"],
            "storageClassName": claim["spec"]["storageClassName"],
            "claimRef": {"namespace": key.namespace, "name": key.name},
        },
        "status": {"phase": "Bound"},
    }))?;
    Ok(name)
}
