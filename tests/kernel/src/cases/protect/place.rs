//! A node of two pods, with its API server and its agent.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use plimsoll_test_support::agent::Agent;
use plimsoll_test_support::cgroup::{self, Group, Mode, Mounts};
use plimsoll_test_support::poll;
use serde_json::{Value, json};

use super::steps;
use super::writes;
use crate::api_server::ApiServer;
use crate::cases::scene::container_id;
use crate::cases::{NO_BUDGET, PATIENCE, PROGRAM};
use crate::workload::Workload;

pub const BATCH_TIER: &str = "/kubepods/besteffort";
const SERVICE_TIER: &str = "/kubepods/burstable";
const SERVICE: &str = "77777777-1234-1234-1234-123456789abc";
const BATCH: &str = "88888888-1234-1234-1234-123456789abc";
const NODE: &str = "protected";
const LOG: &str = "/tmp/protect.log";
const KUBECONFIG: &str = "/tmp/protect.kubeconfig";
const SOCKET: &str = "/run/protect.sock";
const JOURNAL: &str = "/tmp/protect-journal";
/// Of the service, a tenth of a CPU.
pub const LIMIT_US: u64 = 10_000;
/// Batch work leaves the agent a CPU.
const BATCH_US: u64 = 30_000;

pub struct Pod {
    pub pod: String,
    pub container: String,
}

impl Pod {
    fn new(tier: &str, uid: &str) -> Self {
        let pod = format!("{tier}/pod{uid}");
        let container = format!("{pod}/{}", container_id(uid));
        Self { pod, container }
    }
}

/// Dropped, all of it goes.
pub struct Place {
    mounts: Mounts,
    server: ApiServer,
    agent: Option<Agent>,
    pub service: Pod,
    batch: Pod,
    before: BTreeMap<String, String>,
    workloads: Vec<Workload>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.agent = None;
        self.workloads.clear();
        cgroup::remove_below(&self.mounts, "/kubepods");
    }
}

impl Place {
    pub fn set(mounts: &Mounts) -> Result<Self> {
        let _ = std::fs::remove_dir_all(JOURNAL);
        let server = ApiServer::start()?;
        server.put("nodes", node());
        server.put("pods", service());
        server.put("pods", batch());
        let mut place = Self {
            mounts: mounts.clone(),
            server,
            agent: None,
            service: Pod::new(SERVICE_TIER, SERVICE),
            batch: Pod::new(BATCH_TIER, BATCH),
            before: BTreeMap::new(),
            workloads: Vec::new(),
        };
        place.policy(&json!({}));
        for path in [&place.service.container, &place.batch.container] {
            let group = Group::create(mounts, path)?;
            place.workloads.push(Workload::start(&group, &["burn"])?);
        }
        for (path, quota) in [
            (&place.service.pod, LIMIT_US),
            (&place.service.container, LIMIT_US),
            (&place.batch.pod, BATCH_US),
        ] {
            place.set_quota(path, quota)?;
        }
        place.before = place.files()?;
        Ok(place)
    }

    fn group(&self, path: &str) -> Group {
        Group::existing(&self.mounts, path)
    }

    fn v1(&self) -> bool {
        self.mounts.mode == Mode::V1
    }

    /// The NodeSLO of the node.
    pub fn policy(&self, spec: &Value) {
        let object = json!({"metadata": {"name": NODE}, "spec": spec});
        self.server.put("nodeslos", object);
    }

    /// One that knows the node and its policy, and refuses to tell of pods.
    pub fn server_without_pods(&self, policy: &Value) -> Result<ApiServer> {
        let server = ApiServer::start()?;
        server.put("nodes", node());
        let object = json!({"metadata": {"name": NODE}, "spec": policy});
        server.put("nodeslos", object);
        Ok(server)
    }

    /// Starts the agent if none runs.
    pub fn running(&mut self) -> Result<()> {
        if self.agent.is_some() {
            return Ok(());
        }
        let server = self.server.clone();
        self.start_at(&server)
    }

    pub fn start_at(&mut self, server: &ApiServer) -> Result<()> {
        std::fs::write(KUBECONFIG, server.kubeconfig().to_string())?;
        let (socket, journal) = (
            format!("--protect-socket={SOCKET}"),
            format!("--protect-journal={JOURNAL}"),
        );
        let arguments = [
            NO_BUDGET,
            "--kubeconfig",
            KUBECONFIG,
            // Its stand-in of a cluster lets nobody in.
            "--open-to-all=everything",
            "--node-name",
            NODE,
            "--pods-from=apiserver",
            "--enable-node-metric-report=false",
            "--feature-gates=CgroupReconcile=true",
            "--protect=enforce",
            &socket,
            &journal,
        ];
        let agent = Agent::start(Path::new(PROGRAM), &arguments, None, Path::new(LOG))?;
        self.agent = Some(agent);
        Ok(())
    }

    pub fn stop(&mut self) -> Result<()> {
        self.agent.take().map_or(Ok(()), Agent::stop)
    }

    pub fn kill(&mut self) -> Result<()> {
        let agent = self.agent.take().context("no agent runs")?;
        agent.kill()?;
        Ok(())
    }

    pub fn log(&self) -> String {
        let agent = self.agent.as_ref();
        agent.map_or_else(|| "no agent runs".to_owned(), Agent::log_tail)
    }

    /// `plimsoll qos` with these words.
    pub fn qos(&self, words: &[&str]) -> Result<String> {
        let common = ["qos", "--socket", SOCKET, "--journal-dir", JOURNAL];
        program(&[&common, words].concat())
    }

    pub fn status(&self) -> Result<Value> {
        Ok(serde_json::from_str(&self.qos(&["status", "-o", "json"])?)?)
    }

    pub fn journal(&self) -> Result<Vec<Value>> {
        let text = self.qos(&["journal", "--most", "10000", "-o", "json"])?;
        Ok(serde_json::from_str(&text)?)
    }

    /// The first status of this kind.
    pub fn wait_status(&self, what: &str, is_it: impl Fn(&Value) -> Option<()>) -> Result<Value> {
        poll::until(what, PATIENCE, || {
            let status = self.status()?;
            match is_it(&status) {
                Some(()) => Ok(Some(status)),
                None => bail!("the status is {status}"),
            }
        })
    }

    pub fn wait(
        &self,
        what: &str,
        mut probe: impl FnMut(&Self) -> Result<Option<()>>,
    ) -> Result<()> {
        poll::until(what, PATIENCE, || probe(self)).with_context(|| {
            let status = self.qos(&["status"]);
            status.unwrap_or_else(|error| format!("{error:#}"))
        })
    }

    /// Waits until the agent has made so many steps more.
    pub fn steps(&self, more: u64) -> Result<()> {
        let from = steps(&self.status()?);
        self.wait_status("some steps", |status| {
            (steps(status) >= from + more).then_some(())
        })?;
        Ok(())
    }

    /// Nothing is written while nothing changes. Answers with how much was written before.
    pub fn steady(&self) -> Result<u64> {
        // What follows the last change is written within a step or two.
        self.steps(2)?;
        let before = self.status()?;
        self.steps(super::STEADY)?;
        let after = self.status()?;
        let (from, to) = (writes(&before), writes(&after));
        if from != to {
            let journal = self.journal()?;
            let last: Vec<_> = journal
                .iter()
                .rev()
                .take(5)
                .map(|line| told(&line["text"]))
                .collect();
            bail!("{} writes without need: {last:?}", to - from);
        }
        Ok(from)
    }

    pub fn unlimited(&self) -> &'static str {
        if self.v1() { "-1" } else { "max" }
    }

    pub fn quota(&self, path: &str) -> Result<String> {
        let file = if self.v1() {
            "cpu.cfs_quota_us"
        } else {
            "cpu.max"
        };
        let text = self.group(path).read("cpu", file)?;
        Ok(text
            .split_ascii_whitespace()
            .next()
            .unwrap_or("")
            .to_owned())
    }

    pub fn set_quota(&self, path: &str, micros: u64) -> Result<()> {
        let group = self.group(path);
        match self.v1() {
            true => group.write("cpu", "cpu.cfs_quota_us", &micros.to_string()),
            false => group.write("cpu", "cpu.max", &format!("{micros} 100000")),
        }
    }

    pub fn wait_quota(&self, path: &str, wanted: &str) -> Result<()> {
        self.wait(&format!("the quota of {path} is {wanted}"), |place| {
            let quota = place.quota(path)?;
            ensure!(quota == wanted, "it is {quota}");
            Ok(Some(()))
        })
    }

    pub fn burst(&self, path: &str) -> Result<u64> {
        let file = if self.v1() {
            "cpu.cfs_burst_us"
        } else {
            "cpu.max.burst"
        };
        self.group(path).number("cpu", file)
    }

    pub fn cpus(&self, path: &str) -> Result<String> {
        let text = self.group(path).read("cpuset", "cpuset.cpus")?;
        Ok(text.trim().to_owned())
    }

    /// Of v2.
    pub fn memory(&self, path: &str, file: &str) -> Result<String> {
        Ok(self.group(path).read("memory", file)?.trim().to_owned())
    }

    /// All that protection may change.
    fn files(&self) -> Result<BTreeMap<String, String>> {
        let mut files = BTreeMap::new();
        let paths = [
            "/kubepods",
            SERVICE_TIER,
            &self.service.pod,
            &self.service.container,
            BATCH_TIER,
            &self.batch.pod,
            &self.batch.container,
        ];
        for path in paths {
            let group = self.group(path);
            let wanted: &[(&str, &str)] = match self.v1() {
                true => &[
                    ("cpu", "cpu.cfs_quota_us"),
                    ("cpu", "cpu.cfs_period_us"),
                    ("cpu", "cpu.cfs_burst_us"),
                    ("cpu", "cpu.shares"),
                    ("cpuset", "cpuset.cpus"),
                    ("memory", "memory.limit_in_bytes"),
                ],
                // A set of CPUs that was empty cannot be emptied while there are tasks; what counts is what they may use.
                false => &[
                    ("cpu", "cpu.max"),
                    ("cpu", "cpu.max.burst"),
                    ("cpu", "cpu.weight"),
                    ("cpu", "cpu.idle"),
                    ("cpuset", "cpuset.cpus.effective"),
                    ("memory", "memory.min"),
                    ("memory", "memory.low"),
                    ("memory", "memory.high"),
                    ("memory", "memory.max"),
                    ("memory", "memory.oom.group"),
                ],
            };
            for (controller, file) in wanted {
                let text = group.read(controller, file)?;
                files.insert(format!("{path}/{file}"), text.trim().to_owned());
            }
        }
        Ok(files)
    }

    /// The files have what they had before there was an agent.
    pub fn as_before(&self) -> Result<()> {
        let now = self.files()?;
        let other = |(file, text): (&String, &String)| {
            let before = &self.before[file];
            (before != text).then(|| format!("{file} has {text:?}, it had {before:?}"))
        };
        let changed: Vec<_> = now.iter().filter_map(other).collect();
        ensure!(changed.is_empty(), "{}", changed.join(", "));
        Ok(())
    }

    pub fn wait_before(&self) -> Result<()> {
        self.wait("everything is as before", |place| {
            place.as_before().map(Some)
        })
    }
}

fn node() -> Value {
    let amounts = json!({"cpu": "2", "memory": "700Mi", "pods": "110"});
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE, "uid": "node"},
        "status": {"capacity": amounts, "allocatable": amounts},
    })
}

fn service() -> Value {
    let resources = json!({
        "requests": {"cpu": "50m", "memory": "32Mi"}, "limits": {"cpu": "100m", "memory": "64Mi"},
    });
    pod("service", SERVICE, "LS", "Burstable", resources)
}

fn batch() -> Value {
    pod("batch", BATCH, "BE", "BestEffort", json!({}))
}

fn pod(name: &str, uid: &str, class: &str, kube: &str, resources: Value) -> Value {
    let id = format!("containerd://{}", container_id(uid));
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "default", "uid": uid, "labels": {"koordinator.sh/qosClass": class},
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"nodeName": NODE, "containers": [{"name": "c", "image": "none", "resources": resources}]},
        "status": {
            "phase": "Running", "qosClass": kube,
            "containerStatuses": [{
                "name": "c", "containerID": id, "image": "none", "imageID": "", "ready": true, "restartCount": 0,
                "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
            }],
        },
    })
}

/// Runs the program; it must end well. Answers with what it printed.
pub fn program(words: &[&str]) -> Result<String> {
    let output = Command::new(PROGRAM).args(words).output()?;
    let said = String::from_utf8_lossy(&output.stderr);
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(
        output.status.success(),
        "plimsoll {words:?}: {}: {} {}",
        output.status,
        said.trim(),
        text.trim()
    );
    Ok(text.into_owned())
}

/// The guest has busybox and nothing else; scripts want its names.
pub fn install_shell() -> Result<()> {
    let status = Command::new("/bin/busybox")
        .args(["--install", "-s", "/bin"])
        .status()?;
    ensure!(status.success(), "busybox: {status}");
    Ok(())
}

pub fn told(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
