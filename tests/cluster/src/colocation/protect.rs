//! A stock kubelet whose batch pods are held back by `plimsoll agent --protect=enforce`, through a restart of the kubelet,
//! until the policy is switched off.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use plimsoll_test_support::cgroup::{Group, Mode, Mounts};
use plimsoll_test_support::poll;
use serde_json::{Value, json};

use super::{Stage, node_path, slo_path};
use crate::admin;
use crate::client::Server;
use crate::kubectl::Kubectl;
use crate::kubelet::{RealNode, container};
use crate::process::{Process, Scratch};

const NODE: &str = "protected-node";
const NAMESPACE: &str = "protected";
/// Of the node, whatever else runs there.
const PERCENT: u64 = 10;
/// A kubelet that has just started looks at everything first.
const PATIENCE: Duration = Duration::from_secs(120);

pub fn holds_batch_back(stage: &Stage<'_>, api: &Server) -> Result<String> {
    let program = stage.kubectl()?;
    let kubectl = Kubectl::new(&program, api, NAMESPACE)?;
    stage.install(&kubectl)?;
    let mut scratch = Scratch::make()?;
    let mut node = RealNode::start(stage.kube_bin, api, NODE, &mut scratch)?;
    node.run_pods(api, NAMESPACE, pods())?;
    let mounts = Mounts::detect()?;
    let files = Files::new(&mounts, &node);
    let before = files.read()?;
    ensure!(before.len() > 20, "{before:?}");

    set_policy(api, &json!({}))?;
    let socket = scratch.path().join("protect.sock");
    let at = format!("--protect-socket={}", socket.display());
    let flags = ["--cpu-budget=0", "--protect=enforce", &at];
    let mut agent = stage.agent(&kubectl, api, NODE, &flags, &mut scratch)?;
    let asked = Asked {
        program: stage.program,
        socket,
        cgroup: node.cgroup().to_owned(),
    };
    set_policy(
        api,
        &json!({"resourceUsedThresholdWithBE": {
            "enable": true, "cpuSuppressThresholdPercent": 1, "cpuSuppressMinPercent": PERCENT,
            "cpuSuppressPolicy": "cfsQuota",
        }}),
    )?;
    let cpus = admin::get(api, &node_path(NODE))?["status"]["capacity"]["cpu"].clone();
    let cpus: u64 = cpus.as_str().context("no CPUs")?.parse()?;
    let wanted = (cpus * 100_000 * PERCENT / 100).to_string();
    wait(&mut agent, &asked, "batch is held back", || {
        let quota = files.quota()?;
        ensure!(quota == wanted, "its quota is {quota}");
        Ok(Some(()))
    })?;
    asked.touches_only_its_own()?;
    let restarted = restart(&mut node, api, &mut scratch)?;
    let quota = files.quota()?;
    ensure!(quota == wanted, "{quota} after the kubelet's restart");

    set_policy(api, &json!({}))?;
    wait(&mut agent, &asked, "everything is as before", || {
        let now = files.read()?;
        for (file, text) in &before {
            // A pod that has come since is none of these.
            let has = now.get(file);
            ensure!(has == Some(text), "{file} has {has:?}, it had {text:?}");
        }
        Ok(Some(()))
    })?;
    asked.touches_only_its_own()?;
    ensure!(node.kubelet.has_ended()?.is_none(), "the kubelet has ended");
    kubectl.text(&format!("delete node {NODE}"))?;
    Ok(format!(
        "{} files; {restarted}; the tier had {wanted} us",
        before.len()
    ))
}

/// The kubelet comes back and runs one more batch pod in the tier that is held back.
fn restart(node: &mut RealNode, api: &Server, scratch: &mut Scratch) -> Result<String> {
    ensure!(node.kubelet.has_ended()?.is_none(), "the kubelet has ended");
    node.restart_kubelet(scratch)?;
    let (_, late) = batch("late");
    node.run_pods_more(api, NAMESPACE, vec![("late", late)], 3)?;
    Ok("the kubelet was restarted and ran one more pod".to_owned())
}

fn set_policy(api: &Server, spec: &Value) -> Result<()> {
    let path = slo_path("nodeslos", NODE);
    let object = json!({
        "apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeSLO",
        "metadata": {"name": NODE}, "spec": spec,
    });
    let (folder, _) = path.rsplit_once('/').context("a path")?;
    admin::create(api, folder, &object)?;
    // All of it, so that what was said before does not stay.
    let (_, has) = admin::send(api, "GET", &path, "application/json", &Value::Null)?;
    let mut object = object;
    object["metadata"]["resourceVersion"] = has["metadata"]["resourceVersion"].clone();
    let (status, answer) = admin::send(api, "PUT", &path, "application/json", &object)?;
    ensure!(status == 200, "PUT {path}: {status} {answer}");
    Ok(())
}

fn pods() -> Vec<(&'static str, Value)> {
    let service = container(
        "c",
        "while :; do sleep 1; done",
        json!({"requests": {"cpu": "100m"}, "limits": {"cpu": "300m"}}),
    );
    vec![
        ("service", json!({"containers": [service]})),
        batch("batch"),
    ]
}

fn batch(name: &'static str) -> (&'static str, Value) {
    let batch = container("c", "while :; do :; done", json!({}));
    let labels = json!({
        "koordinator.sh/qosClass": "BE", "koordinator.sh/priority-class": "koord-batch",
    });
    (name, json!({"containers": [batch], "labels": labels}))
}

fn wait(
    agent: &mut Process,
    asked: &Asked<'_>,
    what: &str,
    probe: impl FnMut() -> Result<Option<()>>,
) -> Result<()> {
    let waited = poll::until(what, PATIENCE, probe);
    waited.with_context(|| {
        let status = asked.status();
        let status = status.map_or_else(|error| format!("{error:#}"), |status| status.to_string());
        format!("the agent: {}; its status: {status}", agent.last_words())
    })
}

/// The agent, by `plimsoll qos`.
struct Asked<'a> {
    program: &'a Path,
    socket: PathBuf,
    cgroup: String,
}

impl Asked<'_> {
    fn status(&self) -> Result<Value> {
        let output = Command::new(self.program)
            .args(["qos", "status", "-o", "json", "--socket"])
            .arg(&self.socket)
            .output()?;
        if !output.status.success() {
            bail!("{}", String::from_utf8_lossy(&output.stderr));
        }
        Ok(serde_json::from_slice(&output.stdout)?)
    }

    /// Another kubelet's cgroups on this machine, and everybody else's, are left alone.
    fn touches_only_its_own(&self) -> Result<()> {
        let status = self.status()?;
        let targets = status["targets"].as_array().context("no targets")?;
        let below = format!("{}/kubepods", self.cgroup);
        for target in targets {
            let file = target["file"].as_str().unwrap_or_default();
            ensure!(file.is_empty() || file.contains(&below), "{target}");
        }
        Ok(())
    }
}

/// What the kubelet's cgroups have.
struct Files<'a> {
    mounts: &'a Mounts,
    top: String,
}

impl<'a> Files<'a> {
    fn new(mounts: &'a Mounts, node: &RealNode) -> Self {
        let top = format!("{}/kubepods", node.cgroup());
        Self { mounts, top }
    }

    fn quota(&self) -> Result<String> {
        let group = Group::existing(self.mounts, &format!("{}/besteffort", self.top));
        let file = match self.mounts.mode {
            Mode::V1 => "cpu.cfs_quota_us",
            Mode::V2 => "cpu.max",
        };
        let text = group.read("cpu", file)?;
        let quota = text.split_ascii_whitespace().next().unwrap_or_default();
        Ok(quota.to_owned())
    }

    /// Weights are left out: the kubelet changes those of tiers whenever it counts their pods.
    fn read(&self) -> Result<BTreeMap<String, String>> {
        let names: &[(&str, &str)] = match self.mounts.mode {
            Mode::V1 => &[
                ("cpu", "cpu.cfs_quota_us"),
                ("cpu", "cpu.cfs_period_us"),
                ("cpu", "cpu.cfs_burst_us"),
                ("cpuset", "cpuset.cpus"),
                ("memory", "memory.limit_in_bytes"),
            ],
            Mode::V2 => &[
                ("cpu", "cpu.max"),
                ("cpu", "cpu.max.burst"),
                // A set of CPUs that was empty cannot be emptied while there are tasks.
                ("cpuset", "cpuset.cpus.effective"),
                ("memory", "memory.min"),
                ("memory", "memory.low"),
                ("memory", "memory.high"),
                ("memory", "memory.max"),
            ],
        };
        let mut files = BTreeMap::new();
        let tree = self.mounts.tree()?;
        for path in tree.iter().filter(|path| path.starts_with(&self.top)) {
            let group = Group::existing(self.mounts, path);
            for (controller, name) in names {
                // Not every kernel has every file, and not every cgroup is in every hierarchy.
                if let Ok(text) = group.read(controller, name) {
                    files.insert(format!("{path}/{name}"), text.trim().to_owned());
                }
            }
        }
        Ok(files)
    }
}
