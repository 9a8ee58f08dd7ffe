//! What is in `deploy/`, as it ships: servers take all of it, and what it forbids is forbidden.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use plimsoll_test_support::poll;
use serde_json::{Value, json};

use crate::admin::{self, Access};
use crate::client::Server;
use crate::colocation::Stage;
use crate::kubectl::Kubectl;
use crate::plan::Tests;

/// Runs on every server.
pub const MANIFESTS: &str = "deploy/manifests";
/// Wants a real one: the embedded one holds no writes to a status against policies.
pub const OWN_NODE: &str = "deploy/own-node";

const PATIENCE: std::time::Duration = std::time::Duration::from_secs(90);
const SPACE: &str = "koordinator-system";

pub fn taken(stage: &Stage<'_>, api: &Server, tests: &Tests<'_>) {
    tests.case(MANIFESTS, || manifests(stage, api));
}

pub fn enforced(stage: &Stage<'_>, api: &Server, tests: &Tests<'_>) {
    tests.case(OWN_NODE, || own_node(stage, api));
}

fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let path = entry?.path();
        match path.is_dir() {
            true => found.extend(files(&path)?),
            // A patch is no object; where it is applied is tested with the manifest that it patches.
            false if path.extension().is_some_and(|kind| kind == "patch") => {}
            false => found.push(path),
        }
    }
    found.sort();
    Ok(found)
}

/// Each file by itself, with every field known; nothing is kept.
fn manifests(stage: &Stage<'_>, api: &Server) -> Result<String> {
    let program = stage.kubectl()?;
    let kubectl = Kubectl::new(&program, api, "default")?;
    admin::create(
        api,
        "/api/v1/namespaces",
        &json!({"metadata": {"name": SPACE}}),
    )?;
    let files = files(stage.manifests)?;
    let mut objects = 0;
    for file in &files {
        let line = format!(
            "apply --dry-run=server --validate=strict -f {}",
            file.display()
        );
        objects += kubectl.text(&line)?.lines().count();
    }
    Ok(format!("{} files, {objects} objects", files.len()))
}

/// Two nodes, and on each an agent with the token that its pod has.
fn own_node(stage: &Stage<'_>, api: &Server) -> Result<String> {
    let program = stage.kubectl()?;
    let kubectl = Kubectl::new(&program, api, "default")?;
    stage.install(&kubectl)?;
    let devices = stage.manifests.join("agent/rbac-optional.yaml");
    kubectl.text(&format!("apply -f {}", devices.display()))?;
    for node in ["own-a", "own-b"] {
        let object = json!({"metadata": {"name": node}});
        admin::create(api, "/api/v1/nodes", &object)?;
        admin::create_retrying(api, METRICS, &metric(node))?;
    }
    let token = pod_token(api, "own-a")?;
    let agent = Agent {
        api: api.clone(),
        token,
    };
    agent.wait_allowed()?;
    wait_enforced(&agent)?;

    let mut asked = 0;
    for (name, own) in [("own-a", true), ("own-b", false)] {
        for (what, (method, path, media, body)) in writes(name) {
            let (status, answer) = agent.send(method, &path, media, &body)?;
            let allowed = (200..300).contains(&status);
            ensure!(
                allowed == own && (own || status == 403),
                "{what} of {name}, from own-a: {status} {answer}"
            );
            asked += 1;
        }
    }
    // Neither by a name that the server chooses, nor by a token that names no node.
    let unnamed = json!({"apiVersion": TOPOLOGY, "kind": KIND, "metadata": {"generateName": "own-a"},
            "topologyPolicies": [], "zones": []});
    let (status, answer) = agent.send("POST", TOPOLOGIES, "application/json", &unnamed)?;
    ensure!(status == 403, "a chosen name: {status} {answer}");
    let loose = Agent {
        api: api.clone(),
        token: unbound_token(api)?,
    };
    for (what, (method, path, media, body)) in writes("own-a") {
        let (status, answer) = loose.send(method, &path, media, &body)?;
        ensure!(
            status == 403 && answer.to_string().contains("names no node"),
            "{what} without a node: {status} {answer}"
        );
    }
    // Others are not concerned.
    admin::patch(
        api,
        &format!("{METRICS}/own-b/status"),
        &json!({"status": {}}),
    )?;
    for node in ["own-a", "own-b"] {
        kubectl.text(&format!("delete node,nodemetric {node}"))?;
    }
    kubectl.text("delete noderesourcetopology,device own-a")?;
    kubectl.text(&format!("delete pod -n {SPACE} own-a --force"))?;
    Ok(format!("{asked} writes"))
}

const METRICS: &str = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics";
const TOPOLOGY: &str = "topology.node.k8s.io/v1alpha1";
const KIND: &str = "NodeResourceTopology";
const TOPOLOGIES: &str = "/apis/topology.node.k8s.io/v1alpha1/noderesourcetopologies";
const DEVICES: &str = "/apis/scheduling.koordinator.sh/v1alpha1/devices";

fn metric(node: &str) -> Value {
    json!({"apiVersion": "slo.koordinator.sh/v1alpha1", "kind": "NodeMetric", "metadata": {"name": node}, "spec": {}})
}

type Write = (&'static str, String, &'static str, Value);

/// Everything that agents write about a node.
fn writes(node: &str) -> Vec<(&'static str, Write)> {
    let topology = json!({"apiVersion": TOPOLOGY, "kind": KIND, "metadata": {"name": node},
        "topologyPolicies": [], "zones": []});
    let device = json!({"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "Device",
        "metadata": {"name": node}, "spec": {"devices": []}});
    let json = "application/json";
    let status = json!([{"op": "add", "path": "/status", "value": {}}]);
    vec![
        (
            "a report",
            (
                "PATCH",
                format!("{METRICS}/{node}/status"),
                "application/json-patch+json",
                status,
            ),
        ),
        (
            "a topology",
            ("POST", TOPOLOGIES.to_owned(), json, topology),
        ),
        ("devices", ("POST", DEVICES.to_owned(), json, device)),
    ]
}

struct Agent {
    api: Server,
    token: String,
}

impl Agent {
    fn send(&self, method: &str, path: &str, media: &str, body: &Value) -> Result<(u16, Value)> {
        let mut server = self.api.clone();
        server.admin_token.clone_from(&self.token);
        admin::send(&server, method, path, media, body)
    }

    fn wait_allowed(&self) -> Result<()> {
        let access = |verb, group, resource| Access {
            verb,
            group,
            resource,
            namespace: "",
        };
        let wanted = [
            access("list", "slo.koordinator.sh", "nodemetrics"),
            access("create", "scheduling.koordinator.sh", "devices"),
        ];
        admin::wait_allowed(&self.api, &self.token, &wanted)
    }
}

/// Policies reach a real server's admission some time after they are stored.
fn wait_enforced(agent: &Agent) -> Result<()> {
    poll::until("the policy is enforced", PATIENCE, || {
        let (_, (method, path, media, body)) = writes("own-b").swap_remove(0);
        let (status, _) = agent.send(method, &path, media, &body)?;
        Ok((status == 403).then_some(()))
    })
}

/// As the kubelet of a node asks for it: bound to a pod there.
fn pod_token(api: &Server, node: &str) -> Result<String> {
    let pod = json!({
        "metadata": {"name": node, "namespace": SPACE},
        "spec": {"nodeName": node, "serviceAccountName": "koordlet", "containers": [{"name": "c", "image": "i"}]},
    });
    let pod = admin::create_retrying(api, &format!("/api/v1/namespaces/{SPACE}/pods"), &pod)?;
    let bound =
        json!({"kind": "Pod", "apiVersion": "v1", "name": node, "uid": pod["metadata"]["uid"]});
    token(api, &json!({"boundObjectRef": bound}))
}

fn unbound_token(api: &Server) -> Result<String> {
    token(api, &json!({}))
}

fn token(api: &Server, spec: &Value) -> Result<String> {
    let path = format!("/api/v1/namespaces/{SPACE}/serviceaccounts/koordlet/token");
    let request =
        json!({"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "spec": spec});
    let (status, answer) = admin::send(api, "POST", &path, "application/json", &request)?;
    ensure!(status == 201, "a token: {status} {answer}");
    let token = answer["status"]["token"].as_str();
    Ok(token.context("no token")?.to_owned())
}
