//! A node reports and lends: what the original's users find in the objects.

use anyhow::{Result, ensure};
use plimsoll_test_support::poll;
use serde_json::{Value, json};

use super::{PATIENCE, SPACE, Stage, node_path, object, slo_path};
use crate::admin;
use crate::client::Server;
use crate::kubectl::Kubectl;
use crate::process::Scratch;

const NODE: &str = "colocation-node";
const TOPOLOGIES: &str = "/apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies";

pub fn report_and_lend(stage: &Stage<'_>, api: &Server) -> Result<String> {
    let program = stage.kubectl()?;
    let kubectl = Kubectl::new(&program, api, "default")?;
    stage.install(&kubectl)?;
    add_node(&kubectl)?;
    let mut scratch = Scratch::make()?;
    let _manager = stage.manager(&kubectl, api, &mut scratch)?;
    let optional = stage.manifests.join("agent/rbac-optional.yaml");
    kubectl.text(&format!("apply -f {}", optional.display()))?;
    let from = ["--pods-from", "apiserver"];
    let mut agent = stage.agent(&kubectl, api, NODE, &from, &mut scratch)?;
    let metric = agent.wait("the node reports", || {
        let metric = object(api, &slo_path("nodemetrics", NODE))?;
        Ok(metric.filter(|metric| metric["status"]["updateTime"].is_string()))
    })?;
    as_the_original(&metric)?;
    let node = agent.wait("the node lends", || {
        let node = object(api, &node_path(NODE))?;
        let lends = |node: &Value| {
            let allocatable = &node["status"]["allocatable"];
            allocatable["kubernetes.io/batch-cpu"].is_string()
        };
        Ok(node.filter(lends))
    })?;
    let batch = &node["status"]["allocatable"]["kubernetes.io/batch-memory"];
    let zones = agent.wait("its NUMA node lends", || {
        let topology = object(api, &format!("{TOPOLOGIES}/{NODE}"))?;
        let zones = topology.map(|topology| topology["zones"].clone());
        Ok(zones.filter(|zones| zones.to_string().contains("kubernetes.io/batch-cpu")))
    })?;
    ensure!(
        zones[0]["name"] == "node-0" && zones[0]["type"] == "Node",
        "{zones}"
    );
    agent.wait("its policy is there", || {
        let slo = object(api, &slo_path("nodeslos", NODE))?;
        let burst = slo.map(|slo| slo["spec"]["cpuBurstStrategy"]["cfsQuotaBurstPercent"].clone());
        Ok((burst == Some(json!(300))).then_some(()))
    })?;
    // What uses the right to patch NodeMetrics.
    let data = json!({"data": {"colocation-config": json!({"enable": true, "metricReportIntervalSeconds": 61}).to_string()}});
    let map = format!("/api/v1/namespaces/{SPACE}/configmaps/slo-controller-config");
    admin::patch(api, &map, &data)?;
    agent.wait("agents are asked to report more often", || {
        let metric = object(api, &slo_path("nodemetrics", NODE))?;
        let asked = metric
            .map(|metric| metric["spec"]["metricCollectPolicy"]["reportIntervalSeconds"].clone());
        Ok((asked == Some(json!(61))).then_some(()))
    })?;
    // As people look at them.
    let shown = kubectl.text(&format!("get nodemetric,nodeslo {NODE} -o name"))?;
    ensure!(shown.lines().count() == 2, "{shown}");
    kubectl.text(&format!("delete node {NODE}"))?;
    poll::until("its objects go with it", PATIENCE, || {
        let mut left = Vec::new();
        for kind in ["nodemetrics", "nodeslos"] {
            left.extend(object(api, &slo_path(kind, NODE))?);
        }
        Ok(left.is_empty().then_some(()))
    })?;
    Ok(format!("lends {batch} bytes"))
}

fn add_node(kubectl: &Kubectl<'_>) -> Result<()> {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}).to_string();
    let made = kubectl.run("create -f -", Some(node.as_bytes()))?;
    ensure!(made["exit"] == 0, "{made}");
    let resources = json!({"cpu": "64", "memory": "256Gi", "pods": "110"});
    let status = json!({"status": {"capacity": resources, "allocatable": resources}});
    kubectl.text(&format!(
        "patch node {NODE} --subresource=status --type=merge -p '{status}'"
    ))?;
    Ok(())
}

/// Fields that Koordinator's agent and manager wrote for a node without pods, and what they are.
fn as_the_original(metric: &Value) -> Result<()> {
    let written = [
        "/spec/metricCollectPolicy/aggregateDurationSeconds",
        "/spec/metricCollectPolicy/nodeAggregatePolicy/durations/2",
        "/spec/metricCollectPolicy/nodeMemoryCollectPolicy",
        "/spec/metricCollectPolicy/reportIntervalSeconds",
        "/status/nodeMetric/aggregatedNodeUsages/0/duration",
        "/status/nodeMetric/aggregatedNodeUsages/2/usage/p99",
        "/status/nodeMetric/aggregatedSystemUsages/2/usage/avg",
        "/status/nodeMetric/nodeUsage/resources/cpu",
        "/status/nodeMetric/nodeUsage/resources/memory",
        "/status/nodeMetric/numaUsages/0/nodeUsage/resources/cpu",
        "/status/nodeMetric/numaUsages/0/numaNodeID",
        "/status/nodeMetric/numaUsages/0/systemUsage/resources/memory",
        "/status/nodeMetric/systemUsage/resources/cpu",
        "/status/prodPeakMetric/resource/resources/cpu",
        "/status/prodReclaimableMetric/resource/resources/memory",
        "/status/updateTime",
    ];
    for pointer in written {
        ensure!(
            metric.pointer(pointer).is_some(),
            "{pointer} is missing in {metric:#}"
        );
    }
    Ok(())
}
