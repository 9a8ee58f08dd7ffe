//! What actions do to the objects.

use serde_json::{Value, json};

use super::{ObjectKey, Sandbox, SandboxError, text};
use crate::action::{ActionKind, NominatedNode, PodRef, ScheduledCondition};
use crate::model::devices::{AllocatedDevice, Allocation, DeviceRequest, DeviceToleration};
use crate::model::{Effect, NodeTerm, Operator, Requirement};
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
                victim, message, ..
            } => {
                let key = pod_key(&victim);
                self.change(&key, |object| {
                    let condition = json!({"type": "DisruptionTarget", "status": "True",
                        "reason": "PreemptionByScheduler", "message": message});
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
                    let consumer = json!({"resource": "pods", "name": pod.name, "uid": *pod.uid});
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
        let requests = requests.iter().filter_map(|request| {
            let only = request.alternatives.first()?;
            Some(
                json!({"name": request.name, "exactly": {"deviceClassName": only.class,
                "allocationMode": "ExactCount", "count": only.count}}),
            )
        });
        let requests: Vec<Value> = requests.collect();
        // A server would choose a suffix that nobody has.
        let name = format!("{}-extended-resources-made", pod.name);
        self.put(json!({
            "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": pod.namespace,
                "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
                "ownerReferences": [{"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": *pod.uid,
                    "controller": true}]},
            "spec": {"devices": {"requests": requests}},
            "status": {"allocation": self.written(allocation),
                "reservedFor": [{"resource": "pods", "name": pod.name, "uid": *pod.uid}]},
        }))?;
        let mappings = mappings.iter().map(|mapping| {
            json!({"containerName": mapping.container, "resourceName": mapping.resource,
                "requestName": mapping.request})
        });
        let mappings: Vec<Value> = mappings.collect();
        self.change(&pod_key(pod), |object| {
            object["status"]["extendedResourceClaimStatus"] =
                json!({"resourceClaimName": name, "requestMappings": mappings});
        })
    }

    fn written(&self, allocation: &Allocation) -> Value {
        let results: Vec<Value> = allocation.devices.iter().map(written_device).collect();
        let mut written = json!({"devices": {"results": results}});
        if let Some(terms) = &allocation.nodes {
            let terms: Vec<Value> = terms.iter().map(|term| self.written_term(term)).collect();
            written["nodeSelector"] = json!({"nodeSelectorTerms": terms});
        }
        written
    }

    fn written_term(&self, term: &NodeTerm) -> Value {
        let mut written = json!({});
        if !term.expressions.is_empty() {
            let list = term.expressions.iter();
            written["matchExpressions"] = list.map(|one| self.requirement(one)).collect();
        }
        if !term.fields.is_empty() {
            let list = term.fields.iter();
            written["matchFields"] = list
                .map(|one| {
                    let mut field = self.requirement(one);
                    field["key"] = json!("metadata.name");
                    field
                })
                .collect();
        }
        written
    }

    fn requirement(&self, requirement: &Requirement) -> Value {
        let names = &self.scheduler.cluster().names;
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
}

/// A device as it stands in the status of a claim.
fn written_device(device: &AllocatedDevice) -> Value {
    let mut result = json!({"request": device.request, "driver": *device.id.driver,
        "pool": *device.id.pool, "device": *device.id.device});
    if device.admin_access {
        result["adminAccess"] = json!(true);
    }
    if let Some(share) = &device.share {
        result["shareID"] = json!(share.id);
        let consumed = share.consumed.iter();
        let consumed = consumed.map(|(name, amount)| (name.to_string(), json!(amount.to_string())));
        result["consumedCapacity"] = Value::Object(consumed.collect());
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
        result["tolerations"] = device.tolerations.iter().map(written_toleration).collect();
    }
    result
}

fn written_toleration(toleration: &DeviceToleration) -> Value {
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
