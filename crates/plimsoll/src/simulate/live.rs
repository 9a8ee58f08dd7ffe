//! Everything of a running cluster that scheduling looks at.

use std::path::Path;

use anyhow::{Context, Result};
use plimsoll_ground::clients;
use serde_json::Value;

use crate::runtime;

/// Path, kind, and whether a cluster may do without it.
const KINDS: &[(&str, &str, bool)] = &[
    ("/api/v1/nodes", "Node", false),
    ("/api/v1/pods", "Pod", false),
    ("/api/v1/namespaces", "Namespace", false),
    ("/api/v1/services", "Service", false),
    (
        "/api/v1/replicationcontrollers",
        "ReplicationController",
        false,
    ),
    ("/apis/apps/v1/replicasets", "ReplicaSet", false),
    ("/apis/apps/v1/statefulsets", "StatefulSet", false),
    (
        "/apis/policy/v1/poddisruptionbudgets",
        "PodDisruptionBudget",
        false,
    ),
    ("/api/v1/persistentvolumes", "PersistentVolume", false),
    (
        "/api/v1/persistentvolumeclaims",
        "PersistentVolumeClaim",
        false,
    ),
    (
        "/apis/storage.k8s.io/v1/storageclasses",
        "StorageClass",
        false,
    ),
    ("/apis/storage.k8s.io/v1/csinodes", "CSINode", true),
    ("/apis/storage.k8s.io/v1/csidrivers", "CSIDriver", true),
    (
        "/apis/storage.k8s.io/v1/csistoragecapacities",
        "CSIStorageCapacity",
        true,
    ),
    (
        "/apis/storage.k8s.io/v1/volumeattachments",
        "VolumeAttachment",
        true,
    ),
    (
        "/apis/resource.k8s.io/v1/resourceclaims",
        "ResourceClaim",
        true,
    ),
    (
        "/apis/resource.k8s.io/v1/resourceslices",
        "ResourceSlice",
        true,
    ),
    (
        "/apis/resource.k8s.io/v1/deviceclasses",
        "DeviceClass",
        true,
    ),
    (
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        "PriorityClass",
        false,
    ),
];

const PAGE: usize = 1000;

pub fn read(kubeconfig: &Path) -> Result<Vec<Value>> {
    let runtime = runtime(2)?;
    runtime.block_on(async {
        let clients = clients::Config::from_flag(Some(kubeconfig.to_owned()))
            .build()
            .await?;
        let client = clients.client();
        let mut objects = Vec::new();
        for (path, kind, optional) in KINDS {
            match list(&client, path, kind, &mut objects).await {
                Err(kube::Error::Api(status)) if *optional && status.code == 404 => {}
                other => other.with_context(|| format!("list {kind} objects"))?,
            }
        }
        Ok(objects)
    })
}

async fn list(
    client: &kube::Client,
    path: &str,
    kind: &str,
    objects: &mut Vec<Value>,
) -> Result<(), kube::Error> {
    let mut next = String::new();
    loop {
        let request = http::Request::get(format!("{path}?limit={PAGE}&continue={next}"))
            .body(Vec::new())
            .map_err(kube::Error::HttpError)?;
        let page: Value = client.request(request).await?;
        for item in page["items"].as_array().into_iter().flatten() {
            let mut item = item.clone();
            item["kind"] = Value::String(kind.to_owned());
            objects.push(item);
        }
        next = match page["metadata"]["continue"].as_str() {
            Some(token) if !token.is_empty() => token.to_owned(),
            _ => return Ok(()),
        };
    }
}
