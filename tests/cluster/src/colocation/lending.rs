//! A node reports and lends: what the original's users find in the objects.

use anyhow::{Context, Result, ensure};
use plimsoll_test_support::poll;
use serde_json::{Value, json};

use super::{PATIENCE, Stage, object};
use crate::client::Server;
use crate::kubectl::Kubectl;
use crate::process::Scratch;

const NODE: &str = "colocation-node";

pub fn report_and_lend(stage: &Stage<'_>, api: &Server) -> Result<String> {
    let program = stage.kubectl()?;
    let kubectl = Kubectl::new(&program, api, "default")?;
    stage.install(&kubectl)?;
    add_node(&kubectl)?;
    let mut scratch = Scratch::make()?;
    let _manager = stage.manager(&kubectl, api, &mut scratch)?;
    let from = ["--pods-from", "apiserver"];
    let mut agent = stage.agent(&kubectl, api, NODE, &from, &mut scratch)?;
    let metric = agent.wait("the node reports", || {
        let metric = object(&kubectl, &format!("get nodemetric {NODE}"))?;
        Ok(metric.filter(|metric| metric["status"]["updateTime"].is_string()))
    })?;
    as_the_original(&metric)?;
    let node = agent.wait("the node lends", || {
        let node = object(&kubectl, &format!("get node {NODE}"))?;
        let lends = |node: &Value| {
            let allocatable = &node["status"]["allocatable"];
            allocatable["kubernetes.io/batch-cpu"].is_string()
        };
        Ok(node.filter(lends))
    })?;
    let batch = &node["status"]["allocatable"]["kubernetes.io/batch-memory"];
    let zones = agent.wait("its NUMA node lends", || {
        let topology = object(&kubectl, &format!("get noderesourcetopology {NODE}"))?;
        let zones = topology.map(|topology| topology["zones"].clone());
        Ok(zones.filter(|zones| zones.to_string().contains("kubernetes.io/batch-cpu")))
    })?;
    ensure!(
        zones[0]["name"] == "node-0" && zones[0]["type"] == "Node",
        "{zones}"
    );
    let slo = object(&kubectl, &format!("get nodeslo {NODE}"))?.context("there is no NodeSLO")?;
    ensure!(
        slo["spec"]["cpuBurstStrategy"]["cfsQuotaBurstPercent"] == 300,
        "{slo}"
    );
    kubectl.text(&format!("delete node {NODE}"))?;
    poll::until("its objects go with it", PATIENCE, || {
        let left = kubectl.text("get nodemetrics,nodeslos -o name")?;
        Ok((!left.contains(NODE)).then_some(()))
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
