//! What actions do to the objects.

use serde_json::{Value, json};

use super::{ObjectKey, Sandbox, SandboxError, text};
use crate::action::{ActionKind, NominatedNode, PodRef, ScheduledCondition};
use crate::model::devices::{Allocation, DeviceRequest};
use crate::model::encode;
use crate::plugins::dynamic_resources::extended::Mapping;

const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
const BOUND_BY: &str = "pv.kubernetes.io/bound-by-controller";

impl Sandbox {
    pub(super) fn carry_out(&mut self, kind: ActionKind) -> Result<(), SandboxError> {
        match kind {
            ActionKind::Event(event) => {
                self.events.push(event);
                Ok(())
            }
            ActionKind::Bind { pod, node } => self.change(&pod_key(&pod), |object| {
                object["spec"]["nodeName"] = json!(node);
                set_condition(object, json!({"type": "PodScheduled", "status": "True"}));
                nominate(object, None);
            }),
            ActionKind::PatchStatus {
                pod,
                condition,
                nominated,
            } => self.change(&pod_key(&pod), |object| {
                if let Some(condition) = &condition {
                    set_condition(object, unscheduled(condition));
                }
                match nominated {
                    NominatedNode::Keep => {}
                    NominatedNode::Clear => nominate(object, None),
                    NominatedNode::Set(node) => nominate(object, Some(&node)),
                }
            }),
            ActionKind::Evict {
                victim,
                observed_generation,
                message,
                ..
            } => {
                let key = pod_key(&victim);
                self.change(&key, |object| {
                    let condition = json!({"type": "DisruptionTarget", "status": "True",
                        "reason": "PreemptionByScheduler", "message": message,
                        "observedGeneration": observed_generation});
                    set_condition(object, condition);
                })?;
                self.delete_pod(&key, None)
            }
            ActionKind::BindVolume {
                volume,
                namespace,
                claim,
                claim_uid,
                ..
            } => self.change(&ObjectKey::new("PersistentVolume", "", &volume), |object| {
                object["spec"]["claimRef"] = json!({"kind": "PersistentVolumeClaim", "apiVersion": "v1",
                    "namespace": namespace, "name": claim, "uid": claim_uid});
                object["metadata"]["annotations"][BOUND_BY] = json!("yes");
            }),
            ActionKind::SelectNode {
                namespace,
                claim,
                node,
                ..
            } => {
                let key = ObjectKey::new("PersistentVolumeClaim", &namespace, &claim);
                self.change(&key, |object| {
                    object["metadata"]["annotations"][SELECTED_NODE] = json!(node);
                })
            }
            ActionKind::ReserveClaim {
                namespace,
                claim,
                allocation,
                pod,
                ..
            } => {
                let key = ObjectKey::new("ResourceClaim", &namespace, &claim);
                let allocation = allocation.map(|allocation| self.written(&allocation));
                self.change(&key, |object| {
                    if let Some(allocation) = allocation {
                        object["status"]["allocation"] = allocation;
                    }
                    let consumer = encode::consumer(&pod);
                    match &mut object["status"]["reservedFor"] {
                        Value::Array(consumers) => consumers.push(consumer),
                        other => *other = json!([consumer]),
                    }
                })
            }
            ActionKind::CreateClaim {
                pod,
                requests,
                allocation,
                mappings,
            } => self.create_claim(&pod, &requests, &allocation, &mappings),
            ActionKind::PatchGroup {
                namespace,
                name,
                condition,
                ..
            } => {
                let key = ObjectKey::new("PodGroup", &namespace, &name);
                self.change(&key, |object| {
                    let status = if condition.holds { "True" } else { "False" };
                    let condition = json!({"type": "PodGroupScheduled", "status": status,
                        "reason": condition.reason, "message": condition.message});
                    set_condition(object, condition);
                })
            }
            ActionKind::DeleteClaim {
                namespace, claim, ..
            } => {
                self.remove(&ObjectKey::new("ResourceClaim", &namespace, &claim));
                Ok(())
            }
            ActionKind::DeallocateClaim {
                namespace, claim, ..
            } => {
                let key = ObjectKey::new("ResourceClaim", &namespace, &claim);
                self.change(&key, |object| object["status"] = json!({}))
            }
        }
    }

    /// An object that is gone is left alone.
    fn change(
        &mut self,
        key: &ObjectKey,
        change: impl FnOnce(&mut Value),
    ) -> Result<(), SandboxError> {
        let Some(mut object) = self.objects.get(key).cloned() else {
            return Ok(());
        };
        change(&mut object);
        self.put(object)
    }

    fn create_claim(
        &mut self,
        pod: &PodRef,
        requests: &[DeviceRequest],
        allocation: &Allocation,
        mappings: &[Mapping],
    ) -> Result<(), SandboxError> {
        let name = format!("{}-extended-resources-made", pod.name);
        let mut claim = encode::extended_claim(pod, requests);
        claim["metadata"]["name"] = json!(name);
        claim["status"] = json!({
            "allocation": self.written(allocation),
            "reservedFor": [encode::consumer(pod)],
        });
        self.put(claim)?;
        self.change(&pod_key(pod), |object| {
            object["status"]["extendedResourceClaimStatus"] =
                encode::extended_claim_status(&name, mappings);
        })
    }

    fn written(&self, allocation: &Allocation) -> Value {
        encode::allocation(allocation, &self.scheduler.cluster().names)
    }
}

fn pod_key(pod: &PodRef) -> ObjectKey {
    ObjectKey::new("Pod", &pod.namespace, &pod.name)
}

fn unscheduled(condition: &ScheduledCondition) -> Value {
    json!({"type": "PodScheduled", "status": "False", "reason": condition.reason,
        "message": condition.message, "observedGeneration": condition.observed_generation})
}

/// Replaces the condition of the same type, or adds it.
fn set_condition(object: &mut Value, condition: Value) {
    let list = &mut object["status"]["conditions"];
    let Value::Array(conditions) = list else {
        *list = json!([condition]);
        return;
    };
    let kind = text(&condition, "/type").to_owned();
    match conditions
        .iter_mut()
        .find(|known| text(known, "/type") == kind)
    {
        Some(known) => *known = condition,
        None => conditions.push(condition),
    }
}

fn nominate(object: &mut Value, node: Option<&str>) {
    match node {
        Some(node) => object["status"]["nominatedNodeName"] = json!(node),
        None => {
            if let Some(status) = object["status"].as_object_mut() {
                status.remove("nominatedNodeName");
            }
        }
    }
}
