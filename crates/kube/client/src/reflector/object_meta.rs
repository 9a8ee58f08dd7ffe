//! Object types with only the fields that are read. Most of a full copy of a cluster would be fields that nobody
//! reads.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde::{Deserialize, Deserializer};

/// Metadata without the record of who wrote which field, which is the largest part of most objects.
pub fn metadata<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Few {
        name: Option<String>,
        namespace: Option<String>,
        uid: Option<String>,
        resource_version: Option<String>,
        creation_timestamp: Option<Time>,
        deletion_timestamp: Option<Time>,
        labels: Option<BTreeMap<String, String>>,
        annotations: Option<BTreeMap<String, String>>,
    }
    let few = Few::deserialize(deserializer)?;
    Ok(ObjectMeta {
        name: few.name,
        namespace: few.namespace,
        uid: few.uid,
        resource_version: few.resource_version,
        creation_timestamp: few.creation_timestamp,
        deletion_timestamp: few.deletion_timestamp,
        labels: few.labels,
        annotations: few.annotations,
        ..ObjectMeta::default()
    })
}

/// Tells kube where a kind of object is found: `impl_resource!(Type, group, version, "group/version", kind, plural, Scope)`,
/// for a type with a field `metadata`.
#[macro_export]
macro_rules! impl_resource {
    ($type:ty, $group:expr, $version:expr, $api_version:expr, $kind:expr, $plural:expr, $scope:ty) => {
        impl k8s_openapi::Resource for $type {
            const API_VERSION: &'static str = $api_version;
            const GROUP: &'static str = $group;
            const KIND: &'static str = $kind;
            const VERSION: &'static str = $version;
            const URL_PATH_SEGMENT: &'static str = $plural;
            type Scope = $scope;
        }

        impl k8s_openapi::Metadata for $type {
            type Ty = k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

            fn metadata(&self) -> &Self::Ty {
                &self.metadata
            }

            fn metadata_mut(&mut self) -> &mut Self::Ty {
                &mut self.metadata
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[derive(Deserialize)]
    struct Object {
        #[serde(deserialize_with = "metadata")]
        metadata: ObjectMeta,
    }

    #[test]
    fn who_wrote_what_is_left_out() {
        let object = json!({"metadata": {
            "name": "a", "namespace": "b", "uid": "u", "resourceVersion": "7",
            "creationTimestamp": "2026-01-01T00:00:00Z",
            "labels": {"l": "1"}, "annotations": {"n": "2"},
            "managedFields": [{"manager": "kubectl", "operation": "Update"}],
        }});
        let Object { metadata } = serde_json::from_value(object).unwrap();
        assert_eq!(metadata.managed_fields, None);
        assert_eq!(metadata.resource_version.as_deref(), Some("7"));
        assert_eq!(metadata.labels.unwrap()["l"], "1");
        assert_eq!(metadata.annotations.unwrap()["n"], "2");
        assert!(metadata.creation_timestamp.is_some());
    }
}
