//! The nodes and pods that the fake kubelet has figures of, and some that it has none of.

use std::net::SocketAddr;

use anyhow::Result;
use serde_json::{Value, json};

use super::kubelet::MANY;
pub use crate::admin::{create, get, patch, send};
use crate::client::Server;

/// Everything; `nobody` is an address where nobody listens.
pub fn lay_out(server: &Server, kubelet: SocketAddr, nobody: SocketAddr) -> Result<()> {
    node(
        server,
        "node-a",
        json!({"kubernetes.io/hostname": "node-a", "zone": "1", "n": "5"}),
        kubelet,
    )?;
    node(server, "node-b", json!({"zone": "2"}), nobody)?;
    let labels = json!({"zone": "2", "kubernetes.io/hostname": "node-c"});
    node(server, "node-c", labels, kubelet)?;
    let annotation = "metrics.k8s.io/resource-metrics-path";
    patch(
        server,
        "/api/v1/nodes/node-c",
        &json!({"metadata": {"annotations": {annotation: "/c/metrics/resource"}}}),
    )?;
    for namespace in ["other", "many"] {
        let object = json!({"metadata": {"name": namespace}});
        create(server, "/api/v1/namespaces", &object)?;
    }
    pod(
        server,
        "default/one",
        json!({"app": "web", "tier": "1"}),
        &["c"],
    )?;
    let labels = json!({"app": "trio", "yes": "no", "e": ""});
    pod(server, "default/trio", labels, &["alpha", "mid", "zeta"])?;
    pod(server, "default/silent", json!({"app": "web"}), &["c"])?;
    pod(
        server,
        "other/one",
        json!({"app": "web", "tier": "2"}),
        &["c"],
    )?;
    pod(server, "kube-system/bare", Value::Null, &["c"])?;
    pod(server, "other/young", json!({"app": "young"}), &["c"])?;
    pod(server, "other/zero", json!({"app": "zero"}), &["c", "d"])?;
    pending(server, "default/pending", json!({"app": "web"}), &["c"])?;
    for index in 0..MANY {
        let mut labels = json!({"index": index.to_string()});
        for key in 0..12 {
            let long = format!("v{key}-{}{index}", "x".repeat(55));
            labels[format!("label-{key}")] = long.into();
        }
        pod(server, &format!("many/pod-{index:03}"), labels, &["c"])?;
    }
    reader(server)
}

fn node(server: &Server, name: &str, labels: Value, kubelet: SocketAddr) -> Result<()> {
    let object = json!({"metadata": {"name": name, "labels": labels}});
    create(server, "/api/v1/nodes", &object)?;
    patch(
        server,
        &format!("/api/v1/nodes/{name}/status"),
        &json!({"status": {
            "addresses": [{"type": "InternalIP", "address": kubelet.ip()}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet.port()}},
            "conditions": [{"type": "Ready", "status": "True"}],
        }}),
    )
}

pub fn pod(server: &Server, whose: &str, labels: Value, containers: &[&str]) -> Result<()> {
    pending(server, whose, labels, containers)?;
    let (namespace, name) = whose.split_once('/').unwrap_or_default();
    patch(
        server,
        &format!("/api/v1/namespaces/{namespace}/pods/{name}/status"),
        &json!({"status": {
            "phase": "Running",
            "startTime": "2026-01-01T00:00:00Z",
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}],
        }}),
    )
}

fn pending(server: &Server, whose: &str, labels: Value, containers: &[&str]) -> Result<()> {
    let (namespace, name) = whose.split_once('/').unwrap_or_default();
    let containers: Vec<Value> = containers
        .iter()
        .map(|name| json!({"name": name, "image": "x", "resources": {"requests": {"cpu": "100m"}}}))
        .collect();
    let object = json!({
        "metadata": {"name": name, "labels": labels},
        "spec": {"nodeName": "node-a", "containers": containers},
    });
    create(
        server,
        &format!("/api/v1/namespaces/{namespace}/pods"),
        &object,
    )
}

/// Somebody who may see pods of one namespace.
fn reader(server: &Server) -> Result<()> {
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    create(
        server,
        &format!("{rbac}/clusterroles"),
        &json!({"metadata": {"name": "metrics-reader"}, "rules": [
            {"apiGroups": ["metrics.k8s.io"], "resources": ["pods"], "verbs": ["get", "list"]}]}),
    )?;
    let group = "rbac.authorization.k8s.io";
    create(
        server,
        &format!("{rbac}/namespaces/default/rolebindings"),
        &json!({
            "metadata": {"name": "metrics-reader"},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "metrics-reader"},
            "subjects": [{"apiGroup": group, "kind": "User", "name": "reader"}],
        }),
    )
}
