//! A stock HorizontalPodAutoscaler that goes by our figures.

use std::fs;
use std::path::Path;

use anyhow::Result;
use plimsoll_test_support::janitor;
use plimsoll_test_support::report::LeaveOut;
use serde_json::json;

use super::fixture;
use crate::client::Server;
use crate::process::{Process, Scratch};

/// One pod uses 250m of the 100m that it requests, and is to use half of it: five are wanted.
pub fn scales(api: &Server, kube_bin: Option<&Path>) -> Result<String> {
    let program = kube_bin.map(|folder| folder.join("kube-controller-manager"));
    let Some(program) = program.filter(|program| program.is_file()) else {
        return Err(LeaveOut("there is no kube-controller-manager".to_owned()).into());
    };
    let labels = json!({"app": "load"});
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    fixture::create(
        api,
        deployments,
        &json!({
            "metadata": {"name": "load"},
            "spec": {"replicas": 1, "selector": {"matchLabels": labels}, "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "c", "image": "x"}]}}},
        }),
    )?;
    // Nobody else tells how many there are.
    fixture::patch(
        api,
        &format!("{deployments}/load/status"),
        &json!({"status": {"replicas": 1, "readyReplicas": 1}}),
    )?;
    fixture::pod(api, "default/load", labels, &["c"])?;
    fixture::create(
        api,
        "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers",
        &json!({
            "metadata": {"name": "load"},
            "spec": {
                "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "load"},
                "minReplicas": 1, "maxReplicas": 9,
                "metrics": [{"type": "Resource", "resource": {"name": "cpu",
                    "target": {"type": "Utilization", "averageUtilization": 50}}}],
            },
        }),
    )?;
    let mut scratch = Scratch::make()?;
    let kubeconfig = scratch.path().join("kubeconfig");
    let config = api.kubeconfig(api.address, "default").to_string();
    fs::write(&kubeconfig, config)?;
    let mut command = janitor::command_in(None, &program);
    command.arg("--kubeconfig").arg(&kubeconfig).args([
        "--controllers=horizontal-pod-autoscaler-controller",
        "--leader-elect=false",
        "--horizontal-pod-autoscaler-sync-period=2s",
        "--horizontal-pod-autoscaler-cpu-initialization-period=0s",
        "--horizontal-pod-autoscaler-initial-readiness-delay=0s",
        "--secure-port=0",
    ]);
    let log = scratch.path().join("controller-manager.log");
    let mut process = Process::start("kube-controller-manager", command, &log)?;
    scratch.process(&process)?;
    let replicas = process.wait("the autoscaler has scaled", || {
        let found = fixture::get(api, &format!("{deployments}/load"))?;
        let replicas = found["spec"]["replicas"].as_u64();
        Ok(replicas.filter(|replicas| *replicas > 1))
    })?;
    // Four times as many at most in one go is what a stock autoscaler does.
    anyhow::ensure!(matches!(replicas, 4 | 5), "scaled to {replicas}");
    Ok(format!("from 1 to {replicas}"))
}
