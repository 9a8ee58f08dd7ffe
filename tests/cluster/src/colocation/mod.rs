//! `plimsoll manager` and `plimsoll agent` in a cluster: installed by their manifests and allowed no more than those say.

pub mod held;
mod lending;
mod paused;
mod protect;
mod readings;
mod real_pods;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Result, bail};
use plimsoll_test_support::janitor;
use plimsoll_test_support::report::LeaveOut;
use serde_json::{Value, json};

use crate::admin;
use crate::client::Server;
use crate::kubectl::Kubectl;
use crate::plan::Tests;
use crate::process::{Process, Scratch};

const PATIENCE: Duration = Duration::from_secs(90);
const SPACE: &str = "koordinator-system";

/// What a test has to work with.
#[derive(Debug, Clone, Copy)]
pub struct Stage<'a> {
    /// `deploy`
    pub manifests: &'a Path,
    /// The plimsoll binary.
    pub program: &'a Path,
    pub kube_bin: Option<&'a Path>,
}

/// Shows that reports become capacity. Runs on every server.
pub const REPORT_AND_LEND: &str = "colocation/report-and-lend";
/// Shows that who has lost the lease writes nothing. Runs on every server.
pub const PAUSED: &str = "colocation/paused-manager";
/// Compares figures of real pods. Wants a real server and a quiet machine.
pub const REAL_PODS: &str = "colocation/real-pods";
/// Holds batch pods of a real kubelet back, and gives everything back. Wants a real server.
pub const PROTECT: &str = "colocation/protect";

pub fn report_and_lend(stage: &Stage<'_>, api: &Server, tests: &Tests<'_>) {
    tests.case(REPORT_AND_LEND, || lending::report_and_lend(stage, api));
}

pub fn paused(stage: &Stage<'_>, api: &Server, tests: &Tests<'_>) {
    tests.case(PAUSED, || paused::writes_nothing(stage, api));
}

pub fn real_pods(stage: &Stage<'_>, api: &Server, tests: &Tests<'_>) {
    tests.case(REAL_PODS, || real_pods::figures_are_true(stage, api));
}

pub fn protect(stage: &Stage<'_>, api: &Server, tests: &Tests<'_>) {
    tests.case(PROTECT, || protect::holds_batch_back(stage, api));
}

impl Stage<'_> {
    pub fn kubectl(&self) -> Result<PathBuf> {
        let program = self.kube_bin.map(|folder| folder.join("kubectl"));
        let program = program.filter(|program| program.is_file());
        program.ok_or_else(|| LeaveOut("there is no kubectl".to_owned()).into())
    }

    /// Everything that the manifests have, but for processes in the place of pods.
    pub fn install(&self, kubectl: &Kubectl<'_>) -> Result<()> {
        let apply = |file: &str| {
            let path = self.manifests.join(file);
            kubectl.text(&format!("apply -f {}", path.display()))
        };
        apply("manager/crds.yaml")?;
        apply("manager/rbac.yaml")?;
        apply("agent/rbac.yaml")?;
        apply("agent/own-node.yaml")?;
        // Nobody here could run them, but the API server has to take them, from one that lets nobody be privileged.
        apply("manager/deployment.yaml")?;
        apply("manager/network-policy.yaml")?;
        apply("agent/daemonset.yaml")?;
        apply("agent/protect/rbac.yaml --dry-run=server")?;
        let patch = self.manifests.join("agent/protect/daemonset.patch");
        kubectl.text(&format!(
            "-n koordinator-system patch daemonset koordlet --dry-run=server --patch-file {}",
            patch.display()
        ))?;
        Ok(())
    }

    fn manager(
        &self,
        kubectl: &Kubectl<'_>,
        api: &Server,
        scratch: &mut Scratch,
    ) -> Result<Process> {
        let config = kubeconfig(kubectl, api, "plimsoll-manager", "", scratch.path())?;
        let mut command = janitor::command_in(None, self.program);
        command.arg("manager").arg("--kubeconfig").arg(config);
        let log = scratch.path().join("manager.log");
        let process = Process::start("plimsoll manager", command, &log)?;
        scratch.process(&process)?;
        Ok(process)
    }

    fn agent(
        &self,
        kubectl: &Kubectl<'_>,
        api: &Server,
        node: &str,
        more: &[&str],
        scratch: &mut Scratch,
    ) -> Result<Process> {
        let config = agent_kubeconfig(kubectl, api, node, scratch.path())?;
        let mut command = janitor::command_in(None, self.program);
        command
            .args(["agent", "--listen", "127.0.0.1:0", "--node-name", node])
            .args(more)
            .arg("--kubeconfig")
            .arg(config)
            .arg("--data-dir")
            .arg(scratch.path().join("agent"));
        let log = scratch.path().join("agent.log");
        let process = Process::start("plimsoll agent", command, &log)?;
        scratch.process(&process)?;
        Ok(process)
    }
}

/// An agent's token names its node, as those of its pods do.
fn agent_kubeconfig(
    kubectl: &Kubectl<'_>,
    api: &Server,
    node: &str,
    folder: &Path,
) -> Result<PathBuf> {
    let bound = format!("--bound-object-kind=Node --bound-object-name={node}");
    kubeconfig(kubectl, api, "koordlet", &bound, folder)
}

/// One that shows a service account's token and nothing else.
fn kubeconfig(
    kubectl: &Kubectl<'_>,
    api: &Server,
    account: &str,
    bound: &str,
    folder: &Path,
) -> Result<PathBuf> {
    let token = kubectl.text(&format!("create token {account} -n {SPACE} {bound}"))?;
    let mut config = api.kubeconfig(api.address, SPACE);
    config["users"][0]["user"] = json!({"token": token.trim()});
    let path = folder.join(format!("{account}.kubeconfig"));
    fs::write(&path, config.to_string())?;
    Ok(path)
}

/// `None`: it is not there (yet).
fn object(api: &Server, path: &str) -> Result<Option<Value>> {
    let (status, answer) = admin::send(api, "GET", path, "application/json", &Value::Null)?;
    match status {
        200 => Ok(Some(answer)),
        404 => Ok(None),
        _ => bail!("GET {path}: {status} {answer}"),
    }
}

fn node_path(name: &str) -> String {
    format!("/api/v1/nodes/{name}")
}

/// Of what the manager and the agent write about a node.
fn slo_path(kind: &str, name: &str) -> String {
    format!("/apis/slo.koordinator.sh/v1alpha1/{kind}/{name}")
}
