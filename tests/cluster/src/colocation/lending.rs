//! `plimsoll manager` and `plimsoll agent` in a cluster: installed by their manifests and allowed no more than those say,
//! they make a node report and lend.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use plimsoll_test_support::report::LeaveOut;
use plimsoll_test_support::{janitor, poll};
use serde_json::{Value, json};

use crate::client::Server;
use crate::kubectl::Kubectl;
use crate::process::{Process, Scratch};

const PATIENCE: Duration = Duration::from_secs(90);
const SPACE: &str = "koordinator-system";
const NODE: &str = "colocation-node";

/// Tests begin with this.
pub const NAME: &str = "colocation";

/// What a test has to work with.
#[derive(Debug, Clone, Copy)]
pub struct Stage<'a> {
    /// `deploy`
    pub manifests: &'a Path,
    /// The plimsoll binary.
    pub program: &'a Path,
    pub kube_bin: Option<&'a Path>,
}

pub type Outcomes = Vec<(String, Result<String>)>;

pub fn run(stage: &Stage<'_>, api: &Server, filter: Option<&str>) -> Outcomes {
    let mut outcomes = Outcomes::new();
    let name = format!("{NAME}/report-and-lend");
    if filter.is_none_or(|filter| name.contains(filter)) {
        outcomes.push((name, report_and_lend(stage, api)));
    }
    outcomes
}

fn report_and_lend(stage: &Stage<'_>, api: &Server) -> Result<String> {
    let program = stage.kube_bin.map(|folder| folder.join("kubectl"));
    let program: PathBuf = program
        .filter(|program| program.is_file())
        .ok_or_else(|| LeaveOut("there is no kubectl".to_owned()))?;
    let kubectl = Kubectl::new(&program, api, "default")?;
    let apply = |file: &str| {
        let path = stage.manifests.join(file);
        kubectl.text(&format!("apply -f {}", path.display()))
    };
    apply("manager/crds.yaml")?;
    apply("manager/rbac.yaml")?;
    apply("agent/rbac.yaml")?;
    // Nobody here could run them, but the API server has to take them.
    apply("manager/deployment.yaml")?;
    // These servers let nobody be privileged, as clusters with agents on their nodes have to.
    let agents = fs::read_to_string(stage.manifests.join("agent/daemonset.yaml"))?;
    let agents = agents.replace("privileged: true", "privileged: false");
    let applied = kubectl.run("apply -f -", Some(agents.as_bytes()))?;
    ensure!(applied["exit"] == 0, "{applied}");
    add_node(&kubectl)?;
    let mut scratch = Scratch::make()?;
    let manager = kubeconfig(&kubectl, api, "plimsoll-manager", scratch.path())?;
    let agent = kubeconfig(&kubectl, api, "koordlet", scratch.path())?;
    let mut command = janitor::command_in(None, stage.program);
    command.arg("manager").arg("--kubeconfig").arg(manager);
    let log = scratch.path().join("manager.log");
    let _manager = Process::start("plimsoll manager", command, &log)?;
    scratch.process(&_manager)?;
    let mut command = janitor::command_in(None, stage.program);
    command
        .args(["agent", "--listen", "127.0.0.1:0", "--node-name", NODE])
        .args(["--pods-from", "apiserver", "--kubeconfig"])
        .arg(agent)
        .arg("--data-dir")
        .arg(scratch.path().join("agent"));
    let log = scratch.path().join("agent.log");
    let mut agent = Process::start("plimsoll agent", command, &log)?;
    scratch.process(&agent)?;
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

/// One that shows a service account's token and nothing else.
fn kubeconfig(
    kubectl: &Kubectl<'_>,
    api: &Server,
    account: &str,
    folder: &Path,
) -> Result<PathBuf> {
    let token = kubectl.text(&format!("create token {account} -n {SPACE}"))?;
    let mut config = api.kubeconfig(api.address, SPACE);
    config["users"][0]["user"] = json!({"token": token.trim()});
    let path = folder.join(format!("{account}.kubeconfig"));
    fs::write(&path, config.to_string())?;
    Ok(path)
}

/// `None`: it is not there (yet).
fn object(kubectl: &Kubectl<'_>, line: &str) -> Result<Option<Value>> {
    let text = kubectl.text(&format!("{line} -o json --ignore-not-found"))?;
    match text.trim() {
        "" => Ok(None),
        text => Ok(Some(serde_json::from_str(text)?)),
    }
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
