//! The manifests as they ship: with their account, their rights and their configuration, and with no others.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use plimsoll_test_support::{janitor, poll};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Api, PATIENCE, Scenario, Stage, objects};
use crate::admin::{self, Access};
use crate::process::{Process, Scratch, free_address};

pub const ALL: &[Scenario] = &[
    Scenario {
        name: "deployed-beside",
        play: |stage| deployed(stage, "beside.yaml", "plimsoll"),
    },
    Scenario {
        name: "deployed-instead",
        play: |stage| deployed(stage, "replace.yaml", "default-scheduler"),
    },
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/scheduler")
}

fn documents(file: &str) -> Result<Vec<Value>> {
    let path = folder().join(file);
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let mut documents = Vec::new();
    for document in text.split("\n---\n") {
        let value: Value = serde_saphyr::from_str(document)?;
        documents.push(value);
    }
    Ok(documents)
}

/// Where objects of a kind are made; those of these manifests only.
fn path_of(object: &Value) -> Result<String> {
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
    let rbac = "/apis/rbac.authorization.k8s.io/v1";
    Ok(match object["kind"].as_str().unwrap_or_default() {
        "ServiceAccount" => format!("/api/v1/namespaces/{namespace}/serviceaccounts"),
        "ConfigMap" => format!("/api/v1/namespaces/{namespace}/configmaps"),
        "Deployment" => format!("/apis/apps/v1/namespaces/{namespace}/deployments"),
        "ClusterRole" => format!("{rbac}/clusterroles"),
        "ClusterRoleBinding" => format!("{rbac}/clusterrolebindings"),
        "RoleBinding" => format!("{rbac}/namespaces/{namespace}/rolebindings"),
        other => anyhow::bail!("what is a {other}?"),
    })
}

/// Whatever is made is removed again.
struct Applied<'a> {
    api: &'a Api<'a>,
    paths: Vec<String>,
}

impl Applied<'_> {
    fn make(&mut self, object: &Value) -> Result<()> {
        let path = path_of(object)?;
        self.api.post(&path, object)?;
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        self.paths.push(format!("{path}/{name}"));
        Ok(())
    }
}

impl Applied<'_> {
    /// An object that stays would be in the way of whoever comes next.
    fn remove(mut self) -> Result<()> {
        while let Some(path) = self.paths.pop() {
            let (status, answer) = self.api.send("DELETE", &path, None)?;
            ensure!(
                (200..300).contains(&status) || status == 404,
                "DELETE {path}: {status} {answer}"
            );
        }
        Ok(())
    }
}

impl Drop for Applied<'_> {
    fn drop(&mut self) {
        for path in self.paths.iter().rev() {
            let _ = self.api.send("DELETE", path, None);
        }
    }
}

/// What a Deployment says about its container.
#[derive(Debug, Deserialize)]
struct Container {
    args: Vec<String>,
}

fn deployed(stage: &Stage<'_>, manifest: &str, scheduler_name: &str) -> Result<String> {
    let mut applied = Applied {
        api: &stage.api,
        paths: Vec::new(),
    };
    for object in documents("rbac.yaml")?.iter().chain(&documents(manifest)?) {
        // Nobody here would make its pods; that is done below.
        applied.make(object)?;
    }
    let documents = documents(manifest)?;
    let of_kind = |kind: &str| documents.iter().find(move |object| object["kind"] == kind);
    let config = of_kind("ConfigMap").context("no configuration")?;
    let config = config["data"]["scheduler.yaml"].as_str();
    let deployment = of_kind("Deployment").context("no deployment")?;
    let spec = &deployment["spec"]["template"]["spec"];
    let container: Container = serde_json::from_value(spec["containers"][0].clone())?;
    let account = spec["serviceAccountName"].as_str().context("no account")?;
    let mut scratch = Scratch::make()?;
    let started = start(
        stage,
        &mut scratch,
        account,
        config.context("no configuration")?,
        &container.args,
    );
    let (_process, log) = started?;
    stage.node("a", "2", "z")?;
    let pod = |name: &str, more: Value| {
        let mut pod = objects::pod(name, "2");
        pod["spec"]["schedulerName"] = scheduler_name.into();
        pod["spec"]["nodeSelector"] = json!({"pool": stage.pool});
        if let (Some(spec), Value::Object(more)) = (pod["spec"].as_object_mut(), more) {
            spec.extend(more);
        }
        let pods = format!("/api/v1/namespaces/{}/pods", stage.namespace);
        admin::create_retrying(stage.api.server, &pods, &pod)
    };
    pod("low", json!({}))?;
    ensure!(stage.node_of("low")? == "a", "on another node");
    let class = json!({"metadata": {"name": format!("{}-high", stage.pool)}, "value": 1000});
    let classes = "/apis/scheduling.k8s.io/v1/priorityclasses";
    stage.api.post(classes, &class)?;
    applied.paths.push(format!("{classes}/{}-high", stage.pool));
    pod(
        "high",
        json!({"priorityClassName": format!("{}-high", stage.pool)}),
    )?;
    ensure!(stage.node_of("high")? == "a", "on another node");
    let events = format!("/api/v1/namespaces/{}/events", stage.namespace);
    for (about, reason) in [("low", "Preempted"), ("high", "Scheduled")] {
        poll::until(&format!("{reason} is told of {about}"), PATIENCE, || {
            let list = stage.api.get(&events)?;
            let mut events = list["items"].as_array().into_iter().flatten();
            Ok(events
                .any(|event| event["involvedObject"]["name"] == about && event["reason"] == reason)
                .then_some(()))
        })?;
    }
    let config: Value = serde_saphyr::from_str(config.unwrap_or_default())?;
    let lease = config["leaderElection"]["resourceName"].as_str();
    let lease = lease.context("no lease")?;
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
    let held = stage.api.get(&format!("{leases}/{lease}"))?;
    applied.paths.push(format!("{leases}/{lease}"));
    let holder = held["spec"]["holderIdentity"].as_str().unwrap_or_default();
    ensure!(!holder.is_empty(), "nobody holds {lease}");
    let log = fs::read_to_string(&log)?;
    let mut lines = log.lines();
    // Nothing can be bound in a namespace that is on its way out, either; that is no matter of rights.
    let refused = lines.find(|line| line.contains("is forbidden: User"));
    ensure!(refused.is_none(), "not allowed: {refused:?}");
    applied.remove()?;
    Ok(format!("{manifest}: as {account}, with {lease}"))
}

/// Waits until the server knows of every binding of `rbac.yaml`: something of each that no other gives.
fn wait_allowed(stage: &Stage<'_>, token: &str) -> Result<()> {
    let access = |verb, group, resource| Access {
        verb,
        group,
        resource,
        namespace: "",
    };
    let wanted = [
        access("list", "", "nodes"),
        access("update", "", "persistentvolumes"),
        access("list", "slo.koordinator.sh", "nodemetrics"),
    ];
    admin::wait_allowed(stage.api.server, token, &wanted)?;
    let mut server = stage.api.server.clone();
    server.admin_token = token.to_owned();
    let api = Api { server: &server };
    let path = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
    poll::until("the front proxy's settings may be read", PATIENCE, || {
        let (status, _) = api.send("GET", path, None)?;
        Ok((status != 403).then_some(()))
    })
}

/// With the token of the account, and what a pod would find mounted in its place.
fn start(
    stage: &Stage<'_>,
    scratch: &mut Scratch,
    account: &str,
    config: &str,
    args: &[String],
) -> Result<(Process, PathBuf)> {
    let tokens = format!("/api/v1/namespaces/kube-system/serviceaccounts/{account}/token");
    let asked =
        json!({"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "spec": {}});
    let answer = stage.api.post(&tokens, &asked)?;
    let token = answer["status"]["token"].as_str().context("no token")?;
    wait_allowed(stage, token)?;
    let folder = scratch.path().to_owned();
    let server = stage.api.server;
    let mut kubeconfig = server.kubeconfig(server.address, "default");
    kubeconfig["users"][0]["user"] = json!({"token": token});
    let kubeconfig_file = folder.join("kubeconfig");
    fs::write(&kubeconfig_file, kubeconfig.to_string())?;
    let mut config: Value = serde_saphyr::from_str(config)?;
    config["clientConnection"] = json!({"kubeconfig": kubeconfig_file});
    let config_file = folder.join("scheduler.yaml");
    fs::write(&config_file, config.to_string())?;
    let address = free_address()?;
    let mut command = janitor::command_in(None, stage.program);
    for arg in args {
        match arg.split_once('=') {
            Some(("--config", _)) => command.arg("--config").arg(&config_file),
            _ => command.arg(arg),
        };
    }
    // In a pod, all of these are found without being named.
    for flag in ["--authentication-kubeconfig", "--authorization-kubeconfig"] {
        command.arg(flag).arg(&kubeconfig_file);
    }
    command.args(["--secure-port", &address.port().to_string()]);
    let log = folder.join("scheduler.log");
    let process = Process::start("scheduler", command, &log)?;
    scratch.process(&process)?;
    Ok((process, log))
}
