//! Nodes and pods to play with.

use serde_json::{Value, json};

/// Ready from the start: nobody else would say so.
pub fn node(name: &str, cpu: &str, mut labels: Value) -> Value {
    labels["kubernetes.io/hostname"] = name.into();
    let resources = json!({"cpu": cpu, "memory": "32Gi", "pods": "110"});
    json!({
        "metadata": {"name": name, "labels": labels},
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready"}],
        },
    })
}

pub fn pod(name: &str, cpu: &str) -> Value {
    json!({
        "metadata": {"name": name, "labels": {"app": "x"}},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "automountServiceAccountToken": false,
            "containers": [{"name": "c", "image": "pause", "resources": {"requests": {"cpu": cpu, "memory": "500Mi"}}}],
        },
    })
}
