//! `plimsoll scheduler` as a process of its own: what it does on a real API server and on the embedded one, what comes of
//! it when things go wrong, and what it costs beside kube-scheduler.

pub mod bench;
mod deployed;
mod faults;
mod objects;
mod scenarios;

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use plimsoll_test_support::{janitor, poll};
use serde_json::{Value, json};

use crate::admin;
use crate::client::{Request, Server};
use crate::plan::Tests;
use crate::process::{Process, Scratch};

const PATIENCE: Duration = Duration::from_secs(120);
/// For ten thousand pods to go, on a machine that does much else.
const CLEARED: Duration = Duration::from_secs(600);

/// One test, in a namespace of its own.
struct Scenario {
    name: &'static str,
    play: fn(&Stage<'_>) -> Result<String>,
}

/// What every scenario has.
struct Stage<'a> {
    api: Api<'a>,
    program: &'a Path,
    namespace: String,
    /// Nodes of this scenario have this label, and its pods want it.
    pool: String,
}

fn all() -> impl Iterator<Item = &'static Scenario> {
    scenarios::ALL
        .iter()
        .chain(faults::ALL)
        .chain(deployed::ALL)
}

/// Of all its tests.
pub fn names() -> Vec<String> {
    all()
        .map(|scenario| format!("scheduler/{}", scenario.name))
        .collect()
}

/// Plays them one after the other: the deployed schedulers take every pod of the cluster.
pub fn play(program: &Path, server: &Server, tests: &Tests<'_>) {
    for scenario in all() {
        tests.case(&format!("scheduler/{}", scenario.name), || {
            let stage = Stage {
                api: Api { server },
                program,
                namespace: format!("sched-{}", scenario.name),
                pool: scenario.name.to_owned(),
            };
            let outcome = stage.begin().and_then(|()| (scenario.play)(&stage));
            // Whatever is left would be in the way of the next.
            let cleared = stage.clear();
            let outcome = outcome?;
            cleared.context("clean up")?;
            Ok(outcome)
        });
    }
}

impl Stage<'_> {
    fn begin(&self) -> Result<()> {
        self.api.post(
            "/api/v1/namespaces",
            &json!({"metadata": {"name": self.namespace}}),
        )?;
        Ok(())
    }

    /// One by one, on several threads: a request for all of them would take longer than a request may.
    fn clear(&self) -> Result<()> {
        let pods = format!("/api/v1/namespaces/{}/pods", self.namespace);
        self.delete_all(&pods, "?gracePeriodSeconds=0", |_| true)?;
        let own = format!("{}-", self.pool);
        self.delete_all("/api/v1/nodes", "", |name| name.starts_with(&own))
    }

    fn delete_all(&self, path: &str, query: &str, meant: impl Fn(&str) -> bool) -> Result<()> {
        poll::until(&format!("{path} are gone"), CLEARED, || {
            let items = self.api.list(path)?;
            let names = items
                .iter()
                .filter_map(|one| one["metadata"]["name"].as_str());
            let names: Vec<&str> = names.filter(|name| meant(name)).collect();
            if names.is_empty() {
                return Ok(Some(()));
            }
            bench::in_parallel(names.len(), |index| {
                let path = format!("{path}/{}{query}", names[index]);
                let (status, answer) = self.api.send("DELETE", &path, None)?;
                let is_gone = (200..300).contains(&status) || status == 404;
                ensure!(is_gone, "DELETE {path}: {status} {answer}");
                Ok(())
            })?;
            Ok(None)
        })
    }

    /// A scheduler for the pods of this scenario.
    fn scheduler(&self, scratch: &mut Scratch, more: &[&str]) -> Result<Process> {
        start(self.program, &self.api, scratch, &self.namespace, more)
    }

    fn node(&self, name: &str, cpu: &str, zone: &str) -> Result<()> {
        let name = format!("{}-{name}", self.pool);
        let node = objects::node(
            &name,
            cpu,
            json!({"pool": self.pool, "topology.kubernetes.io/zone": zone}),
        );
        self.api.post("/api/v1/nodes", &node)?;
        Ok(())
    }

    /// One that only this scenario's nodes will do for.
    fn pod(&self, name: &str, cpu: &str, more: Value) -> Result<Value> {
        let mut pod = objects::pod(name, cpu);
        pod["spec"]["schedulerName"] = self.namespace.as_str().into();
        pod["spec"]["nodeSelector"] = json!({"pool": self.pool});
        if let (Some(spec), Value::Object(more)) = (pod["spec"].as_object_mut(), more) {
            spec.extend(more);
        }
        let path = format!("/api/v1/namespaces/{}/pods", self.namespace);
        admin::create_retrying(self.api.server, &path, &pod)
    }

    fn pods(&self) -> Result<Vec<Value>> {
        self.api
            .list(&format!("/api/v1/namespaces/{}/pods", self.namespace))
    }

    /// The pod, once it has a node.
    fn bound(&self, name: &str) -> Result<Value> {
        let path = format!("/api/v1/namespaces/{}/pods/{name}", self.namespace);
        poll::until(&format!("{name} has a node"), PATIENCE, || {
            let pod = self.api.get(&path)?;
            Ok(pod["spec"]["nodeName"].is_string().then_some(pod))
        })
    }

    fn node_of(&self, name: &str) -> Result<String> {
        let pod = self.bound(name)?;
        let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
        let own = node.strip_prefix(&format!("{}-", self.pool));
        Ok(own.unwrap_or(node).to_owned())
    }
}

/// Starts a scheduler for pods that name it so.
fn start(
    program: &Path,
    api: &Api<'_>,
    scratch: &mut Scratch,
    scheduler_name: &str,
    more: &[&str],
) -> Result<Process> {
    let folder = scratch.path().to_owned();
    let kubeconfig = folder.join("kubeconfig");
    let config = folder.join("scheduler.yaml");
    fs::write(
        &kubeconfig,
        api.server
            .kubeconfig(api.server.address, "default")
            .to_string(),
    )?;
    fs::write(
        &config,
        json!({
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            // A shorter lease is lost where the machine has much else to do, and who loses it ends.
            "leaderElection": {"leaderElect": false, "resourceName": scheduler_name, "leaseDuration": "10s",
                "renewDeadline": "8s", "retryPeriod": "500ms"},
            "clientConnection": {"kubeconfig": kubeconfig.display().to_string()},
            "podMaxBackoffSeconds": 2,
            "profiles": [{"schedulerName": scheduler_name}],
        })
        .to_string(),
    )?;
    let number = fs::read_dir(&folder)?.count();
    let mut command = janitor::command_in(None, program);
    command
        .arg("scheduler")
        .arg("--config")
        .arg(&config)
        .args(["--secure-port", "0"])
        .args(more);
    let log = folder.join(format!("scheduler-{number}.log"));
    let process = Process::start("scheduler", command, &log)?;
    scratch.process(&process)?;
    Ok(process)
}

/// Requests as an administrator.
pub struct Api<'a> {
    pub server: &'a Server,
}

impl Api<'_> {
    pub fn send(
        &self,
        method: &str,
        path: &str,
        body: Option<(&str, &Value)>,
    ) -> Result<(u16, Value)> {
        let mut headers = vec![(
            "Authorization".to_owned(),
            format!("Bearer {}", self.server.admin_token),
        )];
        if let Some((kind, _)) = body {
            headers.push(("Content-Type".to_owned(), kind.to_owned()));
        }
        let request = Request {
            method: method.to_owned(),
            path: path.to_owned(),
            headers,
            body: body.map(|(_, body)| body.to_string().into_bytes()),
        };
        let exchange = self.server.send(&request)?;
        let status = exchange.status;
        let text = exchange.body()?;
        let value = serde_json::from_slice(&text).with_context(|| format!("{method} {path}"))?;
        Ok((status, value))
    }

    fn expect(&self, method: &str, path: &str, body: Option<(&str, &Value)>) -> Result<Value> {
        let (status, value) = self.send(method, path, body)?;
        ensure!(
            (200..300).contains(&status),
            "{method} {path}: {status} {}",
            value["message"]
        );
        Ok(value)
    }

    pub fn get(&self, path: &str) -> Result<Value> {
        self.expect("GET", path, None)
    }

    /// All items, in pages: thousands of objects take longer than a request may.
    pub fn list(&self, path: &str) -> Result<Vec<Value>> {
        let mut items = Vec::new();
        let mut token = String::new();
        loop {
            let mut page = self.get(&format!("{path}?limit=500&continue={token}"))?;
            if let Value::Array(more) = page["items"].take() {
                items.extend(more);
            }
            match page["metadata"]["continue"].as_str() {
                Some(next) if !next.is_empty() => token = next.replace('+', "%2B"),
                _ => return Ok(items),
            }
        }
    }

    pub fn post(&self, path: &str, object: &Value) -> Result<Value> {
        self.expect("POST", path, Some(("application/json", object)))
    }

    pub fn patch(&self, path: &str, patch: &Value) -> Result<Value> {
        self.expect("PATCH", path, Some(("application/merge-patch+json", patch)))
    }

    pub fn delete(&self, path: &str) -> Result<Value> {
        self.expect("DELETE", path, None)
    }
}
