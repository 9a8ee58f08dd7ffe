//! The kinds that scenarios are about: their short names, and where they are in the API.

use anyhow::{Context, Result};
use plimsoll_sched::sandbox::ObjectKey;

/// Short name, kind, group and version, plural, whether it is in a namespace.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    pub short: &'static str,
    pub kind: &'static str,
    pub group_version: &'static str,
    plural: &'static str,
    pub namespaced: bool,
}

const fn kind(
    short: &'static str,
    kind: &'static str,
    group_version: &'static str,
    plural: &'static str,
    namespaced: bool,
) -> Kind {
    Kind {
        short,
        kind,
        group_version,
        plural,
        namespaced,
    }
}

const STORAGE: &str = "storage.k8s.io/v1";
const RESOURCE: &str = "resource.k8s.io/v1";

const KINDS: &[Kind] = &[
    kind("pod", "Pod", "v1", "pods", true),
    kind("node", "Node", "v1", "nodes", false),
    kind("namespace", "Namespace", "v1", "namespaces", false),
    kind("service", "Service", "v1", "services", true),
    kind(
        "rc",
        "ReplicationController",
        "v1",
        "replicationcontrollers",
        true,
    ),
    kind("rs", "ReplicaSet", "apps/v1", "replicasets", true),
    kind("sts", "StatefulSet", "apps/v1", "statefulsets", true),
    kind(
        "pdb",
        "PodDisruptionBudget",
        "policy/v1",
        "poddisruptionbudgets",
        true,
    ),
    kind("pv", "PersistentVolume", "v1", "persistentvolumes", false),
    kind(
        "pvc",
        "PersistentVolumeClaim",
        "v1",
        "persistentvolumeclaims",
        true,
    ),
    kind("class", "StorageClass", STORAGE, "storageclasses", false),
    kind("csinode", "CSINode", STORAGE, "csinodes", false),
    kind("csidriver", "CSIDriver", STORAGE, "csidrivers", false),
    kind(
        "storagecapacity",
        "CSIStorageCapacity",
        STORAGE,
        "csistoragecapacities",
        true,
    ),
    kind(
        "attachment",
        "VolumeAttachment",
        STORAGE,
        "volumeattachments",
        false,
    ),
    kind("claim", "ResourceClaim", RESOURCE, "resourceclaims", true),
    kind("slice", "ResourceSlice", RESOURCE, "resourceslices", false),
    kind(
        "deviceclass",
        "DeviceClass",
        RESOURCE,
        "deviceclasses",
        false,
    ),
    kind(
        "taintrule",
        "DeviceTaintRule",
        "resource.k8s.io/v1beta2",
        "devicetaintrules",
        false,
    ),
    kind(
        "group",
        "PodGroup",
        "scheduling.k8s.io/v1alpha2",
        "podgroups",
        true,
    ),
    kind(
        "runtime",
        "RuntimeClass",
        "node.k8s.io/v1",
        "runtimeclasses",
        false,
    ),
    kind(
        "priority",
        "PriorityClass",
        "scheduling.k8s.io/v1",
        "priorityclasses",
        false,
    ),
];

impl Kind {
    pub fn by_short(short: &str) -> Option<&'static Self> {
        KINDS.iter().find(|kind| kind.short == short)
    }

    pub fn by_name(name: &str) -> Result<&'static Self> {
        let found = KINDS.iter().find(|kind| kind.kind == name);
        found.with_context(|| format!("unknown kind {name:?}"))
    }

    /// The path of all objects in a namespace, or of all if the namespace is empty.
    pub fn collection(&self, namespace: &str) -> String {
        let root = match self.group_version {
            "v1" => "/api/v1".to_owned(),
            other => format!("/apis/{other}"),
        };
        match self.namespaced && !namespace.is_empty() {
            true => format!("{root}/namespaces/{namespace}/{}", self.plural),
            false => format!("{root}/{}", self.plural),
        }
    }

    pub fn path(&self, key: &ObjectKey) -> String {
        format!("{}/{}", self.collection(&key.namespace), key.name)
    }
}

/// `pod/p`, `pod/NAMESPACE/p`.
pub fn parse_key(text: &str) -> Result<ObjectKey> {
    let (short, rest) = text
        .split_once('/')
        .with_context(|| format!("{text:?} is not KIND/NAME"))?;
    let kind = Kind::by_short(short).with_context(|| format!("unknown kind {short:?}"))?;
    let (namespace, name) = match rest.split_once('/') {
        Some((namespace, name)) => (namespace, name),
        None if kind.namespaced => ("default", rest),
        None => ("", rest),
    };
    Ok(ObjectKey::new(kind.kind, namespace, name))
}

/// The same the other way round.
pub fn short_key(key: &ObjectKey) -> String {
    let short = Kind::by_name(&key.kind).map_or(key.kind.as_str(), |kind| kind.short);
    match key.namespace.as_str() {
        "" | "default" => format!("{short}/{}", key.name),
        namespace => format!("{short}/{namespace}/{}", key.name),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_short_names() {
        for text in ["pod/p", "pod/other/p", "node/n", "pvc/c"] {
            assert_eq!(short_key(&parse_key(text).unwrap()), text);
        }
        assert!(parse_key("thing/x").is_err());
        let key = parse_key("claim/c").unwrap();
        let kind = Kind::by_name(&key.kind).unwrap();
        assert_eq!(
            kind.path(&key),
            "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/c"
        );
    }
}
