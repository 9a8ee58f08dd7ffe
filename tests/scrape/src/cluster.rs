//! The cluster that the kubelets belong to: an API server with their nodes and pods.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use plimsoll_apiserver::embed::{Config, Running};
use plimsoll_apiserver::served;
use plimsoll_apiserver::store::Expect;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::kubelets::{Kubelets, PORT, address, node_name, pod_name};

pub struct Cluster {
    running: Running,
    dir: TempDir,
}

impl Cluster {
    pub async fn start(kubelets: &Kubelets) -> Result<Self> {
        let config = Config {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            data_dir: None,
        };
        let running = config.build().await?.spawn_without_controllers();
        let dir = tempfile::tempdir()?;
        std::fs::write(dir.path().join("kubeconfig"), running.kubeconfig())?;
        let cluster = Self { running, dir };
        for index in 0..kubelets.nodes {
            cluster.put("nodes", &node_name(index), node(index)).await?;
            for pod in 0..kubelets.pods {
                let (namespace, name) = pod_name(index, pod);
                let key = format!("{namespace}/{name}");
                let object = pod_object(index, pod, &namespace, &name);
                cluster.put("pods", &key, object).await?;
            }
        }
        Ok(cluster)
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    pub fn kubeconfig(&self) -> PathBuf {
        self.dir.path().join("kubeconfig")
    }

    pub fn token(&self) -> &str {
        &self.running.credentials().admin_token
    }

    /// Straight into the store: as many as this would take minutes through the front door.
    async fn put(&self, shelf: &str, key: &str, mut object: Value) -> Result<()> {
        let attributes = served::attributes(shelf, &object);
        let store = self.running.server().store();
        store
            .put(shelf, key, Expect::Absent, &mut object, attributes)
            .await
            .map_err(|_| anyhow!("{key} is there already"))
            .with_context(|| format!("put {shelf}"))?;
        Ok(())
    }
}

fn meta(uid: String) -> Value {
    json!({"uid": uid, "creationTimestamp": "2026-01-01T00:00:00Z"})
}

fn node(index: usize) -> Value {
    let name = node_name(index);
    let mut metadata = meta(format!("00000000-0000-4000-8000-{index:012}"));
    metadata["name"] = json!(name);
    metadata["labels"] = json!({
        "kubernetes.io/arch": "amd64", "kubernetes.io/hostname": name, "kubernetes.io/os": "linux",
        "topology.kubernetes.io/zone": format!("zone-{}", index % 3),
    });
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": metadata, "spec": {},
        "status": {
            "addresses": [
                {"type": "InternalIP", "address": address(index).to_string()},
                {"type": "Hostname", "address": name},
            ],
            "conditions": [{"type": "Ready", "status": "True"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": PORT}},
        },
    })
}

fn pod_object(node: usize, pod: usize, namespace: &str, name: &str) -> Value {
    let mut metadata = meta(format!("00000000-0000-4000-9000-{node:06}{pod:06}"));
    let app = format!("workload-{pod:02}");
    metadata["name"] = json!(name);
    metadata["namespace"] = json!(namespace);
    metadata["labels"] = json!({
        "app.kubernetes.io/name": app, "app.kubernetes.io/instance": app,
        "pod-template-hash": "5f7c9d8b6", "tier": "backend",
    });
    metadata["ownerReferences"] = json!([{
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("{app}-5f7c9d8b6"),
        "uid": format!("00000000-0000-4000-a000-{pod:012}"), "controller": true,
    }]);
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": metadata,
        "spec": {"nodeName": node_name(node), "containers": [{"name": "main", "image": "registry/image"}]},
        "status": {"phase": "Running"},
    })
}
