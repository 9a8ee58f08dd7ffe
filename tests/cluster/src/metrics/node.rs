//! A stock kubelet and real pods: what `kubectl top` says about them.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use plimsoll_test_support::poll;
use plimsoll_test_support::report::LeaveOut;
use serde_json::{Value, json};

use super::program::{MetricsServer, Program, own_address};
use super::{GROUP, PATIENCE, Stage, fixture, stand_behind_service, wait_discovered};
use crate::admin::{Access, wait_allowed};
use crate::client::Server;
use crate::kubectl::Kubectl;
use crate::kubelet::{RealNode, container};
use crate::process::Scratch;

const NAME: &str = "real-node";
const NAMESPACE: &str = "real";
/// Containers have to start, and the kubelet has to look at them twice.
const SLOW: Duration = Duration::from_secs(120);

/// Installs by the manifests, with a process in the place of their pod, and asks with kubectl what real pods use.
pub fn real_pods(stage: &Stage<'_>, api: &Server) -> Result<String> {
    let ip = own_address().map_err(|error| LeaveOut(format!("{error:#}")))?;
    let kubectl = stage.kubectl()?;
    let kubectl = Kubectl::new(&kubectl, api, NAMESPACE)?;
    let mut scratch = Scratch::make()?;
    let mut node = RealNode::start(stage.kube_bin, api, NAME, &mut scratch)?;
    node.run_pods(api, NAMESPACE, pods())?;

    let manifests = stage.manifests().join("components.yaml");
    kubectl.text(&format!("apply -f {}", manifests.display()))?;
    let token = token(api)?;
    wait_until_allowed(api, &token)?;
    let trust = format!(
        "--kubelet-certificate-authority={}",
        node.authority.display()
    );
    let ours = Program::Ours(stage.program.to_owned());
    let running = MetricsServer::start_as(&ours, api, &token, ip, &[trust], &mut scratch)?;
    stand_behind_service(api, running.server.address)?;

    let of_node = format!("{GROUP}/nodes/{NAME}");
    let of_pods = format!("{GROUP}/namespaces/{NAMESPACE}/pods");
    node.kubelet.wait("there are figures of all", || {
        fixture::get(api, &of_node)?;
        let pods = fixture::get(api, &of_pods)?;
        Ok((pods["items"].as_array().map(Vec::len) == Some(2)).then_some(()))
    })?;
    wait_discovered(api)?;
    let nodes = kubectl.text(&format!("top node {NAME} --no-headers"))?;
    let [cpu, memory] = figures(&nodes, &[NAME])?;
    ensure!(cpu > 0 && memory > 0, "{nodes}");
    // The first figures may be of a time when they had not begun, or had not written everything yet.
    let rows = poll::until("kubectl top pod shows what they use", SLOW, || {
        let rows = kubectl.text("top pod --containers --no-headers")?;
        check(&rows)?;
        Ok(Some(rows))
    })?;

    // Its token is good for what the manifests' roles allow, and the kubelet asks about that.
    let gone = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/system:metrics-server";
    let (status, _) = fixture::send(api, "DELETE", gone, "application/json", &Value::Null)?;
    ensure!(status == 200, "DELETE {gone}: {status}");
    poll::until("the kubelet refuses", SLOW, || {
        let path = "/metrics";
        let exchange = running.server.send(&crate::client::Request {
            method: "GET".to_owned(),
            path: path.to_owned(),
            headers: vec![(
                "Authorization".to_owned(),
                format!("Bearer {}", api.admin_token),
            )],
            body: None,
        })?;
        let text = String::from_utf8_lossy(&exchange.body()?).into_owned();
        let refused = "plimsoll_metrics_server_scrape_failures_total{reason=\"status\"} ";
        let count = text.lines().find_map(|line| line.strip_prefix(refused));
        Ok(count.filter(|count| *count != "0").map(drop))
    })?;
    Ok(format!("{} rows of kubectl top", rows.lines().count() + 1))
}

/// Whether these are figures of the pods as they are when they have settled down.
fn check(rows: &str) -> Result<()> {
    ensure!(rows.lines().count() == 3, "{rows}");
    // It would take a whole core, and may have a fifth of one.
    let [cpu, _] = figures(rows, &["busy", "spin"])?;
    ensure!((100..=300).contains(&cpu), "{rows}");
    for container in ["holds", "sleeps"] {
        let [cpu, _] = figures(rows, &["calm", container])?;
        ensure!(cpu < 50, "{rows}");
    }
    // It wrote 16 MiB into memory.
    let [_, memory] = figures(rows, &["calm", "holds"])?;
    ensure!((16..=40).contains(&memory), "{rows}");
    Ok(())
}

/// Waits until the API server knows of the roles: it learns of them some time after it has stored them, and whoever is
/// refused what it looks up at its start ends.
fn wait_until_allowed(api: &Server, token: &str) -> Result<()> {
    let access = |verb, group, resource| Access {
        verb,
        group,
        resource,
        namespace: "",
    };
    let wanted = [
        access("create", "authentication.k8s.io", "tokenreviews"),
        access("create", "authorization.k8s.io", "subjectaccessreviews"),
        access("list", "", "nodes"),
        access("list", "", "pods"),
    ];
    wait_allowed(api, token, &wanted)?;
    let mut itself = api.clone();
    itself.admin_token = token.to_owned();
    // This role names the one object that it is about.
    let map = "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication";
    poll::until("it may see how others are authenticated", PATIENCE, || {
        fixture::get(&itself, map).map(Some)
    })?;
    Ok(())
}

/// Millicores and MiB of the row that begins with these words.
fn figures(text: &str, words: &[&str]) -> Result<[u64; 2]> {
    let row = text.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields.strip_prefix(words).map(<[&str]>::to_vec)
    });
    let row = row.with_context(|| format!("no {words:?} in:\n{text}"))?;
    // A node's row has shares in between.
    let numbers = row.iter().filter(|field| !field.ends_with('%'));
    let numbers: Vec<u64> = numbers
        .map(|field| {
            let digits = field.trim_end_matches(|c: char| c.is_ascii_alphabetic());
            digits.parse().with_context(|| format!("{field} in {text}"))
        })
        .collect::<Result<_>>()?;
    let numbers = numbers.try_into();
    numbers.map_err(|_| anyhow::anyhow!("not two figures in {row:?}"))
}

/// Of the service account that the manifests make.
fn token(api: &Server) -> Result<String> {
    let path = "/api/v1/namespaces/kube-system/serviceaccounts/metrics-server/token";
    let wish = json!({"spec": {"expirationSeconds": 3600}});
    let (status, answer) = fixture::send(api, "POST", path, "application/json", &wish)?;
    let token = answer["status"]["token"].as_str();
    let token = token.with_context(|| format!("POST {path}: {status} {answer}"))?;
    Ok(token.to_owned())
}

fn pods() -> Vec<(&'static str, Value)> {
    let limits = json!({"limits": {"cpu": "200m"}});
    let busy = json!({"containers": [container("spin", "while :; do :; done", limits)]});
    let holds = "cat /dev/zero | busybox head -c 16777216 > /tmp/kept; while :; do sleep 5; done";
    let mut holds = container("holds", holds, json!({}));
    holds["volumeMounts"] = json!([{"name": "kept", "mountPath": "/tmp"}]);
    let sleeps = container("sleeps", "while :; do sleep 5; done", json!({}));
    let calm = json!({
        "containers": [holds, sleeps],
        "volumes": [{"name": "kept", "emptyDir": {"medium": "Memory"}}],
    });
    vec![("busy", busy), ("calm", calm)]
}
