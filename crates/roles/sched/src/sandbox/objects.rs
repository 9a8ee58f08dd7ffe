//! Objects of any kind, as they are written in files and on the wire.

use serde_json::Value;

use crate::model::decode::{self, DecodeError};
use crate::model::{ControllerKind, Names};
use crate::scheduler::Observation;

/// What tells an object from all others.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    pub kind: String,
    /// Empty for objects that belong to none.
    pub namespace: String,
    pub name: String,
}

impl ObjectKey {
    pub fn new(kind: &str, namespace: &str, name: &str) -> Self {
        Self {
            kind: kind.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    /// An object without kind or name has none.
    pub fn of(object: &Value) -> Option<Self> {
        let kind = object.get("kind")?.as_str()?;
        let name = object.pointer("/metadata/name")?.as_str()?;
        let namespace = object.pointer("/metadata/namespace");
        let namespace = namespace.and_then(Value::as_str).unwrap_or_default();
        Some(Self::new(kind, namespace, name))
    }
}

/// The kinds that scheduling reads.
pub const KINDS: &[&str] = &[
    "Pod",
    "Node",
    "Namespace",
    "Service",
    "ReplicationController",
    "ReplicaSet",
    "StatefulSet",
    "PodDisruptionBudget",
    "PodGroup",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "StorageClass",
    "CSINode",
    "CSIDriver",
    "CSIStorageCapacity",
    "VolumeAttachment",
    "ResourceClaim",
    "ResourceSlice",
    "DeviceClass",
    "DeviceTaintRule",
    "NodeMetric",
];

const CONTROLLERS: &[(&str, ControllerKind)] = &[
    (
        "ReplicationController",
        ControllerKind::ReplicationController,
    ),
    ("ReplicaSet", ControllerKind::ReplicaSet),
    ("StatefulSet", ControllerKind::StatefulSet),
];

fn controller(kind: &str) -> Option<ControllerKind> {
    let found = CONTROLLERS.iter().find(|(name, _)| *name == kind);
    found.map(|(_, controller)| *controller)
}

/// What the scheduler is told about an object. `None`: scheduling does not read that kind.
pub fn observed(object: &Value, names: &mut Names) -> Result<Option<Observation>, DecodeError> {
    let kind = object["kind"].as_str().unwrap_or_default();
    let json = object.to_string();
    let json = json.as_bytes();
    Ok(Some(match kind {
        "Pod" => Observation::Pod(Box::new(decode::pod(json, names)?)),
        "Node" => Observation::Node(Box::new(decode::node(json, names)?)),
        "Namespace" => Observation::Namespace(decode::namespace(json, names)?),
        "Service" => Observation::Service(decode::service(json, names)?),
        "PodDisruptionBudget" => Observation::Budget(decode::disruption_budget(json, names)?),
        "PodGroup" => Observation::Group(decode::pod_group(json, names)?),
        "PersistentVolume" => {
            Observation::Volume(Box::new(decode::persistent_volume(json, names)?))
        }
        "PersistentVolumeClaim" => Observation::Claim(Box::new(decode::volume_claim(json, names)?)),
        "StorageClass" => Observation::StorageClass(decode::storage_class(json, names)?),
        "CSINode" => Observation::CsiNode(decode::csi_node(json, names)?),
        "CSIDriver" => Observation::CsiDriver(decode::csi_driver(json)?),
        "CSIStorageCapacity" => {
            Observation::CsiCapacity(decode::csi_storage_capacity(json, names)?)
        }
        "VolumeAttachment" => Observation::Attachment(decode::volume_attachment(json, names)?),
        "ResourceClaim" => {
            Observation::ResourceClaim(Box::new(decode::resource_claim(json, names)?))
        }
        "ResourceSlice" => {
            Observation::ResourceSlice(Box::new(decode::resource_slice(json, names)?))
        }
        "DeviceClass" => Observation::DeviceClass(decode::device_class(json)?),
        "DeviceTaintRule" => Observation::TaintRule(Box::new(decode::taint_rule(json)?)),
        "NodeMetric" => Observation::NodeMetric(Box::new(decode::node_metric(json, names)?)),
        other => match controller(other) {
            Some(kind) => Observation::Workload(decode::workload(kind, json, names)?),
            None => return Ok(None),
        },
    }))
}

/// What the scheduler is told when an object is not there any more. `uid` counts for pods only.
pub fn gone(key: &ObjectKey, uid: &str, names: &mut Names) -> Option<Observation> {
    let name: Box<str> = key.name.as_str().into();
    let namespace = names.intern(&key.namespace);
    Some(match key.kind.as_str() {
        "Pod" => Observation::PodGone(uid.into()),
        "Node" => Observation::NodeGone(names.intern(&name)),
        "Namespace" => Observation::NamespaceGone(names.intern(&name)),
        "Service" => Observation::ServiceGone((namespace, name)),
        "PodDisruptionBudget" => Observation::BudgetGone((namespace, name)),
        "PodGroup" => Observation::GroupGone((namespace, name)),
        "PersistentVolume" => Observation::VolumeGone(name),
        "PersistentVolumeClaim" => Observation::ClaimGone((namespace, name)),
        "StorageClass" => Observation::StorageClassGone(name),
        "CSINode" => Observation::CsiNodeGone(names.intern(&name)),
        "CSIDriver" => Observation::CsiDriverGone(name),
        "CSIStorageCapacity" => Observation::CsiCapacityGone((namespace, name)),
        "VolumeAttachment" => Observation::AttachmentGone(name),
        "ResourceClaim" => Observation::ResourceClaimGone((namespace, name)),
        "ResourceSlice" => Observation::ResourceSliceGone(name),
        "DeviceClass" => Observation::DeviceClassGone(name),
        "DeviceTaintRule" => Observation::TaintRuleGone(name),
        "NodeMetric" => Observation::NodeMetricGone(names.intern(&name)),
        other => Observation::WorkloadGone(controller(other)?, namespace, names.intern(&name)),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_kind_that_can_come_can_go() {
        let mut names = Names::default();
        for kind in KINDS {
            let object =
                json!({"kind": kind, "metadata": {"name": "x", "namespace": "n", "uid": "u"}});
            let observed = observed(&object, &mut names).unwrap();
            assert!(observed.is_some(), "{kind}");
            let key = ObjectKey::of(&object).unwrap();
            assert!(gone(&key, "u", &mut names).is_some(), "{kind}");
        }
        let other = json!({"kind": "Secret", "metadata": {"name": "x"}});
        assert!(observed(&other, &mut names).unwrap().is_none());
    }
}
