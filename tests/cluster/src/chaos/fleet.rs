//! One of each role, on one cluster.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use plimsoll_test_support::{janitor, poll};
use serde_json::{Value, json};

use crate::admin;
use crate::client::Server;
use crate::kubectl::Kubectl;
use crate::plan::Plan;
use crate::process::{Process, Scratch, free_address};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const USER: &str = "fleet";
/// What lets all of them do anything.
pub const GRANT: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/fleet";
const NODE: &str = "fleet-node";
pub const SCHEDULER: &str = "scheduler";
pub const MANAGER: &str = "manager";
pub const METRICS_SERVER: &str = "metrics-server";
pub const AGENT: &str = "agent";
/// It is five seconds where nothing else runs.
const SAID_WITHIN: Duration = Duration::from_secs(60);
const WORKS_WITHIN: Duration = Duration::from_secs(120);
/// Each of a dozen things that a role follows may say that it waits and that it is over, a few times.
const LINES: usize = 150;

pub struct Fleet {
    roles: Vec<Role>,
    _scratch: Scratch,
}

struct Role {
    name: &'static str,
    program: PathBuf,
    arguments: Vec<String>,
    process: Process,
    log: PathBuf,
    /// How much of the log is of the time before.
    heard: usize,
    /// Since it was listened to. Its log has begun anew with it.
    was_started: bool,
    leads: bool,
}

pub fn grant(server: &Server) -> Result<()> {
    let all = json!({"metadata": {"name": USER},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": USER}]});
    admin::create(server, &format!("{RBAC}/clusterrolebindings"), &all)
}

impl Fleet {
    pub fn start(plan: &Plan<'_>, server: &Server) -> Result<Self> {
        let kubectl = plan.kube_bin.map(|folder| folder.join("kubectl"));
        let kubectl = kubectl.context("there is no kubectl")?;
        let kubectl = Kubectl::new(&kubectl, server, "default")?;
        let definitions = plan.manifests().join("manager/crds.yaml");
        kubectl.text(&format!("apply -f {}", definitions.display()))?;
        grant(server)?;
        admin::create(
            server,
            "/api/v1/nodes",
            &json!({"metadata": {"name": NODE}}),
        )?;
        let room = json!({"status": {"allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"},
            "capacity": {"cpu": "4", "memory": "8Gi", "pods": "110"}}});
        admin::patch(server, &format!("/api/v1/nodes/{NODE}/status"), &room)?;
        let often = json!({"enable": true, "metricReportIntervalSeconds": 2}).to_string();
        let map = json!({"metadata": {"name": "slo-controller-config"}, "data": {"colocation-config": often}});
        admin::create(server, "/api/v1/namespaces/default/configmaps", &map)?;
        let mut scratch = Scratch::make()?;
        let folder = scratch.path().to_owned();
        let mut config = server.kubeconfig(server.address, "default");
        config["users"][0]["user"]["as"] = USER.into();
        let kubeconfig = folder.join("kubeconfig");
        fs::write(&kubeconfig, config.to_string())?;
        let mut roles = Vec::new();
        for (name, leads, arguments) in command_lines(&folder.display().to_string())? {
            let mut arguments: Vec<String> = arguments;
            arguments.extend(["--kubeconfig".to_owned(), kubeconfig.display().to_string()]);
            let log = folder.join(format!("{name}.log"));
            let process = run(name, &plan.program.to_owned(), &arguments, &log)?;
            scratch.process(&process)?;
            roles.push(Role {
                name,
                program: plan.program.to_owned(),
                arguments,
                process,
                log,
                heard: 0,
                was_started: false,
                leads,
            });
        }
        let mut fleet = Self {
            roles,
            _scratch: scratch,
        };
        fleet.work(server).context("before anything fails")?;
        Ok(fleet)
    }

    /// What is said from now on counts.
    pub fn listen(&mut self) {
        for role in &mut self.roles {
            role.heard = role.text().len();
            role.was_started = false;
        }
    }

    /// Waits until each of them has said one of these. How long the last took.
    pub fn say(&mut self, who: &[&str], any: &[&str]) -> Result<String> {
        let began = Instant::now();
        let mut last = "";
        for role in self
            .roles
            .iter_mut()
            .filter(|role| who.contains(&role.name))
        {
            let what = format!("the {} says one of {any:?}", role.name);
            let said = poll::until(&what, SAID_WITHIN, || {
                role.start_if_it_ended()?;
                let text = role.since();
                Ok(any.iter().any(|words| text.contains(words)).then_some(()))
            });
            said.with_context(|| format!("its log:\n{}", role.since()))?;
            last = role.name;
        }
        Ok(format!(
            "the {last} was the last to say so, after {:.1} s",
            began.elapsed().as_secs_f64()
        ))
    }

    pub fn say_that_it_is_over(&self, who: &[&str]) -> Result<()> {
        for role in self.roles.iter().filter(|role| who.contains(&role.name)) {
            // One that was started again knows of nothing.
            if role.was_started {
                continue;
            }
            let what = format!("the {} says that it is over", role.name);
            let said = poll::until(&what, WORKS_WITHIN, || {
                let text = role.since();
                let is_over = ["again", "no longer waiting"]
                    .iter()
                    .any(|words| text.contains(words));
                Ok(is_over.then_some(()))
            });
            said.with_context(|| format!("its log:\n{}", role.since()))?;
        }
        Ok(())
    }

    /// The most that any of them said.
    pub fn are_not_noisy(&self) -> Result<usize> {
        let mut most = 0;
        for role in &self.roles {
            let text = role.since();
            let lines = text.lines().count();
            ensure!(
                lines <= LINES,
                "the {} said {lines} lines:\n{text}",
                role.name
            );
            most = most.max(lines);
        }
        Ok(most)
    }

    /// Each does what it is for: a pod is placed, a node has its policy, the agent reports, figures can be asked for.
    pub fn work(&mut self, server: &Server) -> Result<()> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("fleet-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        let pods = "/api/v1/namespaces/default/pods";
        let pod = json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        poll::until("a pod is made", WORKS_WITHIN, || {
            admin::create(server, pods, &pod).map(Some)
        })?;
        let node = json!({"metadata": {"name": name}, "spec": {"unschedulable": true}});
        poll::until("a node is made", WORKS_WITHIN, || {
            admin::create(server, "/api/v1/nodes", &node).map(Some)
        })?;
        let slo = "/apis/slo.koordinator.sh/v1alpha1";
        let reported = report(server)?;
        self.until(
            server,
            "the scheduler places a pod",
            &format!("{pods}/{name}"),
            |pod| pod["spec"]["nodeName"].is_string(),
        )?;
        self.until(
            server,
            "the manager knows a new node",
            &format!("{slo}/nodeslos/{name}"),
            |slo| slo["metadata"]["uid"].is_string(),
        )?;
        // A node that nobody answers for has no figures; that it is known shows that nodes are followed.
        let metrics = format!("{slo}/nodemetrics/{NODE}");
        self.until(server, "the agent reports", &metrics, |metric| {
            metric["status"]["updateTime"]
                .as_str()
                .is_some_and(|now| now != reported)
        })
    }

    fn until(
        &mut self,
        server: &Server,
        what: &str,
        path: &str,
        holds: impl Fn(&Value) -> bool,
    ) -> Result<()> {
        let found = poll::until(what, WORKS_WITHIN, || {
            for role in &mut self.roles {
                role.start_if_it_ended()?;
            }
            let (_, object) = admin::send(server, "GET", path, "", &Value::Null)?;
            Ok(holds(&object).then_some(()))
        });
        found.with_context(|| {
            let logs = self
                .roles
                .iter()
                .map(|role| format!("{}: {}", role.name, role.process.last_words()));
            logs.collect::<Vec<_>>().join("\n")
        })
    }
}

fn report(server: &Server) -> Result<String> {
    let path = format!("/apis/slo.koordinator.sh/v1alpha1/nodemetrics/{NODE}");
    let (_, metric) = admin::send(server, "GET", &path, "", &Value::Null)?;
    Ok(metric["status"]["updateTime"]
        .as_str()
        .unwrap_or_default()
        .to_owned())
}

/// Name, whether it leads, and its command line.
fn command_lines(folder: &str) -> Result<Vec<(&'static str, bool, Vec<String>)>> {
    let address = || free_address().map(|address| address.to_string());
    let port = || free_address().map(|address| address.port().to_string());
    let words = |line: String| line.split(' ').map(str::to_owned).collect();
    Ok(vec![
        (
            SCHEDULER,
            true,
            words(format!(
                "scheduler --bind-address 127.0.0.1 --secure-port {} --cert-dir {folder}/scheduler",
                port()?
            )),
        ),
        (
            MANAGER,
            true,
            words(format!(
                "manager --config-namespace default --health-probe-bind-address {}",
                address()?
            )),
        ),
        (
            METRICS_SERVER,
            false,
            words(format!(
                "metrics-server --bind-address 127.0.0.1 --secure-port {} --cert-dir {folder}/metrics-server",
                port()?
            )),
        ),
        (
            AGENT,
            false,
            words(format!(
                "agent --listen {} --node-name {NODE} --pods-from apiserver --containerd= --docker= --podman= --cri= --data-dir {folder}/agent",
                address()?
            )),
        ),
    ])
}

fn run(
    name: &'static str,
    program: &PathBuf,
    arguments: &[String],
    log: &std::path::Path,
) -> Result<Process> {
    let mut command: Command = janitor::command_in(None, program);
    command.args(arguments);
    Process::start(name, command, log)
}

impl Role {
    fn text(&self) -> String {
        self.process.log().unwrap_or_default()
    }

    /// What it has said since it was listened to.
    fn since(&self) -> String {
        let text = self.text();
        text.get(self.heard..).unwrap_or(&text).to_owned()
    }

    fn start_if_it_ended(&mut self) -> Result<()> {
        let Some(status) = self.process.has_ended()? else {
            return Ok(());
        };
        let ended = self.leads && status.code() == Some(1);
        let text = self.since();
        if !ended {
            return Err(poll::fatal(anyhow::anyhow!(
                "the {} ended with {status}:\n{text}",
                self.name
            )));
        }
        self.process = run(self.name, &self.program, &self.arguments, &self.log)?;
        (self.heard, self.was_started) = (0, true);
        Ok(())
    }
}
