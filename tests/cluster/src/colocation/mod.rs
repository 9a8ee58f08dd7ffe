//! `plimsoll manager` and `plimsoll agent` in a cluster: installed by their manifests and allowed no more than those say.

mod lending;
mod readings;
mod real_pods;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use plimsoll_test_support::janitor;
use plimsoll_test_support::report::LeaveOut;
use serde_json::{Value, json};

use crate::client::Server;
use crate::kubectl::Kubectl;
use crate::process::{Process, Scratch};

const PATIENCE: Duration = Duration::from_secs(90);
const SPACE: &str = "koordinator-system";

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
    /// The API server is the real one.
    pub real: bool,
}

pub type Outcomes = Vec<(String, Result<String>)>;

pub fn run(stage: &Stage<'_>, api: &Server, filter: Option<&str>) -> Outcomes {
    type Test = fn(&Stage<'_>, &Server) -> Result<String>;
    let tests: [(&str, bool, Test); 2] = [
        ("report-and-lend", true, lending::report_and_lend),
        ("real-pods", stage.real, real_pods::figures_are_true),
    ];
    let mut outcomes = Outcomes::new();
    for (name, has_server, test) in tests {
        let name = format!("{NAME}/{name}");
        if has_server && filter.is_none_or(|filter| name.contains(filter)) {
            outcomes.push((name, test(stage, api)));
        }
    }
    outcomes
}

impl Stage<'_> {
    fn kubectl(&self) -> Result<PathBuf> {
        let program = self.kube_bin.map(|folder| folder.join("kubectl"));
        let program = program.filter(|program| program.is_file());
        program.ok_or_else(|| LeaveOut("there is no kubectl".to_owned()).into())
    }

    /// Everything that the manifests have, but for processes in the place of pods.
    fn install(&self, kubectl: &Kubectl<'_>) -> Result<()> {
        let apply = |file: &str| {
            let path = self.manifests.join(file);
            kubectl.text(&format!("apply -f {}", path.display()))
        };
        apply("manager/crds.yaml")?;
        apply("manager/rbac.yaml")?;
        apply("agent/rbac.yaml")?;
        // Nobody here could run them, but the API server has to take them.
        apply("manager/deployment.yaml")?;
        // These servers let nobody be privileged, as clusters with agents on their nodes have to.
        let agents = fs::read_to_string(self.manifests.join("agent/daemonset.yaml"))?;
        let agents = agents.replace("privileged: true", "privileged: false");
        let applied = kubectl.run("apply -f -", Some(agents.as_bytes()))?;
        ensure!(applied["exit"] == 0, "{applied}");
        Ok(())
    }

    fn manager(
        &self,
        kubectl: &Kubectl<'_>,
        api: &Server,
        scratch: &mut Scratch,
    ) -> Result<Process> {
        let config = kubeconfig(kubectl, api, "plimsoll-manager", scratch.path())?;
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
        let config = kubeconfig(kubectl, api, "koordlet", scratch.path())?;
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
        text => Ok(Some(
            serde_json::from_str(text).with_context(|| line.to_owned())?,
        )),
    }
}
