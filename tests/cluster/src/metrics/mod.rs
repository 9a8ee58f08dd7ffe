//! `plimsoll metrics-server` in a cluster: held against recordings of metrics-server 0.9.0, asked by a stock `kubectl
//! top` and by a stock HorizontalPodAutoscaler, installed by its manifests.

mod autoscaler;
mod families;
mod fixture;
mod kubelet;
mod node;
mod openapi;
mod paths;
mod program;
mod recording;
mod shown;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use plimsoll_test_support::report::LeaveOut;
use plimsoll_test_support::{janitor, poll};
use serde_json::{Value, json};

use crate::client::{Request, Server};
use crate::embedded::server_of;
use crate::kubectl::Kubectl;
use crate::plan::Tests;
use crate::process::{Process, Scratch, free_address};
use kubelet::Kubelet;
use program::{MetricsServer, Program};

const PATIENCE: Duration = Duration::from_secs(90);
const GROUP: &str = "/apis/metrics.k8s.io/v1beta1";

/// What a test has to work with.
#[derive(Debug, Clone, Copy)]
pub struct Stage<'a> {
    /// `tests/cluster/metrics-server`
    pub folder: &'a Path,
    /// The plimsoll binary.
    pub program: &'a Path,
    pub kube_bin: Option<&'a Path>,
}

const REPLAY: &str = "metrics-server/replay";
const KUBECTL_TOP: &str = "metrics-server/kubectl-top";
const AUTOSCALER: &str = "metrics-server/autoscaler";
const MANIFESTS: &str = "metrics-server/manifests";
const UP: &str = "metrics-server/up";
/// Wants a real server and a quiet machine.
pub const KUBELET: &str = "metrics-server/kubelet";

/// Of the tests that want a real API server.
pub const ON_REAL: [&str; 4] = [REPLAY, KUBECTL_TOP, AUTOSCALER, MANIFESTS];
/// Of the tests that the embedded one serves as well.
pub const ON_EMBEDDED: [&str; 2] = [MANIFESTS, UP];

impl Stage<'_> {
    fn kubectl(&self) -> Result<PathBuf> {
        let program = self.kube_bin.map(|folder| folder.join("kubectl"));
        let program = program.filter(|program| program.is_file());
        program.ok_or_else(|| LeaveOut("there is no kubectl".to_owned()).into())
    }

    fn manifests(&self) -> PathBuf {
        self.folder.join("../../../deploy/metrics-server")
    }
}

/// Writes down what the original answers.
pub fn record(stage: &Stage<'_>, api: &Server) -> Result<String> {
    let original = stage.kube_bin.and_then(program::original);
    let original = original.context("there is no metrics-server beside kube-apiserver")?;
    let mut scratch = Scratch::make()?;
    let kubelet = Kubelet::start()?;
    fixture::lay_out(api, kubelet.address, free_address()?)?;
    let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let running = MetricsServer::start(&original, api, loopback, &mut scratch)?;
    let count = recording::record(&running.server, stage.folder)?;
    paths::record(&running, stage.folder)?;
    Ok(format!("{count} requests"))
}

/// Everything that wants a real API server, but for [`real_kubelet`].
pub fn on_real(stage: &Stage<'_>, api: &Server, tests: &Tests<'_>) {
    let with_figures: Vec<&str> = [REPLAY, KUBECTL_TOP, AUTOSCALER]
        .into_iter()
        .filter(|name| tests.wants(name))
        .collect();
    if !with_figures.is_empty() {
        match Rig::start(stage, api) {
            Err(error) => tests.none_of(&with_figures, &error),
            Ok(rig) => {
                for name in with_figures {
                    tests.case(name, || rig.play(name));
                }
            }
        }
    }
    tests.case(MANIFESTS, || manifests(stage, api, "--dry-run=server"));
}

pub fn real_kubelet(stage: &Stage<'_>, api: &Server, tests: &Tests<'_>) {
    tests.case(KUBELET, || node::real_pods(stage, api));
}

/// Everything that the embedded one serves as well.
pub fn on_embedded(stage: &Stage<'_>, api: &Server, tests: &Tests<'_>) {
    tests.case(MANIFESTS, || manifests(stage, api, ""));
    tests.case(UP, || up(stage));
}

/// Ours, with figures, in a real cluster.
struct Rig<'a> {
    stage: &'a Stage<'a>,
    api: &'a Server,
    ip: IpAddr,
    running: MetricsServer,
    _kubelet: Kubelet,
    _scratch: Scratch,
}

impl<'a> Rig<'a> {
    fn start(stage: &'a Stage<'a>, api: &'a Server) -> Result<Self> {
        let mut scratch = Scratch::make()?;
        let kubelet = Kubelet::start()?;
        fixture::lay_out(api, kubelet.address, free_address()?)?;
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        // Endpoints must not be on a loopback address.
        let ip = program::own_address().unwrap_or(loopback);
        let ours = Program::Ours(stage.program.to_owned());
        let running = MetricsServer::start(&ours, api, ip, &mut scratch)?;
        Ok(Self {
            stage,
            api,
            ip,
            running,
            _kubelet: kubelet,
            _scratch: scratch,
        })
    }

    fn play(&self, name: &str) -> Result<String> {
        match name {
            REPLAY => self.replay(),
            KUBECTL_TOP => self.kubectl_top(),
            _ => {
                self.register()?;
                autoscaler::scales(self.api, self.stage.kube_bin)
            }
        }
    }

    fn replay(&self) -> Result<String> {
        // First, because it names the places.
        let paths = paths::compare(&self.running, self.stage.folder)?;
        let (count, differences) = recording::compare(&self.running.server, self.stage.folder)?;
        if differences.is_empty() {
            // After those requests there is something to say of everything.
            let page = self.running.page("/metrics")?;
            let families = families::compare(&page, self.stage.folder)?;
            return Ok(format!(
                "{count} requests, {families} families, {paths} paths of OpenAPI"
            ));
        }
        let shown: Vec<&str> = differences.iter().take(10).map(String::as_str).collect();
        bail!(
            "{} of {count} differ:\n{}",
            differences.len(),
            shown.join("\n")
        )
    }

    /// Has the API server hand the group on to ours, and waits until it does.
    fn register(&self) -> Result<()> {
        if self.ip.is_loopback() {
            return Err(LeaveOut("this machine has no address but loopback".to_owned()).into());
        }
        let api = self.api;
        let namespace = "/api/v1/namespaces/kube-system";
        let service = json!({
            "metadata": {"name": "metrics-server"},
            "spec": {"ports": [{"name": "https", "port": 443}]},
        });
        fixture::create(api, &format!("{namespace}/services"), &service)?;
        stand_behind_service(api, self.running.server.address)?;
        let registration = json!({
            "metadata": {"name": "v1beta1.metrics.k8s.io"},
            "spec": {
                "group": "metrics.k8s.io", "version": "v1beta1",
                "groupPriorityMinimum": 100, "versionPriority": 100,
                "insecureSkipTLSVerify": true,
                "service": {"namespace": "kube-system", "name": "metrics-server", "port": 443},
            },
        });
        let registrations = "/apis/apiregistration.k8s.io/v1/apiservices";
        fixture::create(api, registrations, &registration)?;
        poll::until("the API server hands on", PATIENCE, || {
            let nodes = fixture::get(api, &format!("{GROUP}/nodes?labelSelector=zone"))?;
            Ok((nodes["items"].as_array().map(Vec::len) == Some(2)).then_some(()))
        })?;
        wait_discovered(api)
    }

    fn kubectl_top(&self) -> Result<String> {
        self.register()?;
        let program = self.stage.kubectl()?;
        let kubectl = Kubectl::new(&program, self.api, "default")?;
        let mut asked = 0;
        for (line, expected) in [
            (
                "top nodes -l zone --no-headers --show-capacity=false --use-protocol-buffers=true --sort-by=cpu",
                "node-c 2000m 1Mi|node-a 821m 3281Mi|node-b <unknown> <unknown> <unknown> <unknown>",
            ),
            (
                "top pods --no-headers --containers trio",
                "trio alpha 0m 0Mi|trio mid 1m 1Mi|trio zeta 2000m 1Mi",
            ),
            ("top pods --no-headers -l tier=1", "one 35m 79Mi"),
            ("top pods --no-headers -n other", "one 10m 0Mi"),
            (
                "top pods --no-headers -A --field-selector metadata.name=one",
                "default one 35m 79Mi|other one 10m 0Mi",
            ),
        ] {
            let found = kubectl.text(line)?;
            let rows: Vec<String> = found
                .lines()
                .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
                .collect();
            ensure!(
                rows.join("|") == expected,
                "{line}:\n{found}expected {expected}"
            );
            asked += 1;
        }
        Ok(format!("{asked} commands"))
    }
}

/// Waits until discovery has the group, too: kubectl looks there, and another part of a real API server fills it.
fn wait_discovered(api: &Server) -> Result<()> {
    let request = Request {
        method: "GET".to_owned(),
        path: "/apis".to_owned(),
        headers: vec![
            (
                "Authorization".to_owned(),
                format!("Bearer {}", api.admin_token),
            ),
            (
                "Accept".to_owned(),
                "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList".to_owned(),
            ),
        ],
        body: None,
    };
    poll::until("discovery has the metrics", PATIENCE, || {
        let answer = api.send(&request)?.body()?;
        let groups: Value = serde_json::from_slice(&answer)?;
        let groups = groups["items"].as_array().context("no list of groups")?;
        let group = groups
            .iter()
            .find(|group| group["metadata"]["name"] == "metrics.k8s.io");
        let version = group.map_or(&Value::Null, |group| &group["versions"][0]);
        let is_there = version["freshness"] == "Current"
            && version["resources"]
                .as_array()
                .is_some_and(|resources| !resources.is_empty());
        Ok(is_there.then_some(()))
    })
}

/// Has the service lead to this address, and to no other.
fn stand_behind_service(api: &Server, address: SocketAddr) -> Result<()> {
    let slices = "/apis/discovery.k8s.io/v1/namespaces/kube-system/endpointslices";
    let slice = json!({
        "metadata": {"name": "metrics-server-1",
            "labels": {"kubernetes.io/service-name": "metrics-server"}},
        "addressType": "IPv4",
        "ports": [{"name": "https", "port": address.port(), "protocol": "TCP"}],
        "endpoints": [{"addresses": [address.ip()]}],
    });
    fixture::create(api, slices, &slice)?;
    // It may be there already, for a server that has ended.
    let path = format!("{slices}/metrics-server-1");
    fixture::patch(
        api,
        &path,
        &json!({"ports": slice["ports"], "endpoints": slice["endpoints"]}),
    )
}

/// They apply as they are.
fn manifests(stage: &Stage<'_>, api: &Server, option: &str) -> Result<String> {
    let program = stage.kubectl()?;
    let kubectl = Kubectl::new(&program, api, "default")?;
    let mut objects = 0;
    for name in ["components", "high-availability", "v1", "history"] {
        let path = stage.manifests().join(format!("{name}.yaml"));
        let line = format!("apply {option} -f {}", path.display());
        let said = kubectl.text(&line)?;
        objects += said.lines().count();
    }
    // Others must not be sent to somebody who is not there.
    if option.is_empty() {
        let path = stage.manifests().join("high-availability.yaml");
        kubectl.text(&format!("delete --ignore-not-found -f {}", path.display()))?;
        for name in ["v1", "history"] {
            let path = stage.manifests().join(format!("{name}.yaml"));
            kubectl.text(&format!("delete -f {}", path.display()))?;
        }
    }
    Ok(format!("{objects} objects"))
}

/// `plimsoll up` has it already: simulated nodes and their pods, asked for by `kubectl top`.
fn up(stage: &Stage<'_>) -> Result<String> {
    let program = stage.kubectl()?;
    let mut scratch = Scratch::make()?;
    let data = scratch.path().join("data");
    let mut command = janitor::command_in(None, stage.program);
    command
        .arg("up")
        .arg("--data-dir")
        .arg(&data)
        .args(["--api-listen", "127.0.0.1:0"])
        .args(["--no-agent", "--simulate-nodes", "2"]);
    let mut process = Process::start("plimsoll up", command, &scratch.path().join("up.log"))?;
    scratch.process(&process)?;
    let kubeconfig = data.join("kubeconfig");
    let api = process.wait("plimsoll up writes its kubeconfig", || {
        if !kubeconfig.exists() {
            return Ok(None);
        }
        server_of(&kubeconfig).map(Some)
    })?;
    let pods = "/api/v1/namespaces/default/pods";
    let pod = json!({
        "metadata": {"name": "web", "annotations": {"plimsoll.dev/simulated-cpu": "500m",
            "plimsoll.dev/simulated-memory": "64Mi"}},
        "spec": {"nodeName": "sim-0002", "containers": [
            {"name": "a", "image": "x"}, {"name": "b", "image": "x"}]},
    });
    poll::until("a pod is taken", PATIENCE, || {
        fixture::create(&api, pods, &pod).map(Some)
    })?;
    process.wait("there are figures of the nodes and the pod", || {
        let nodes = fixture::get(&api, &format!("{GROUP}/nodes"))?;
        let pod = fixture::get(&api, &format!("{GROUP}/namespaces/default/pods/web"))?;
        let counts =
            [&nodes["items"], &pod["containers"]].map(|list| list.as_array().map(Vec::len));
        Ok((counts == [Some(2), Some(2)]).then_some(()))
    })?;
    wait_discovered(&api)?;
    let kubectl = Kubectl::new(&program, &api, "default")?;
    let nodes = kubectl.text("top nodes --no-headers")?;
    ensure!(
        nodes.lines().count() == 2 && nodes.contains("sim-0001") && !nodes.contains("unknown"),
        "{nodes}"
    );
    let containers = kubectl.text("top pods --no-headers --containers")?;
    ensure!(containers.lines().count() == 2, "{containers}");
    let rows: Vec<Vec<&str>> = containers
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    for (row, name) in rows.iter().zip(["a", "b"]) {
        // Half of half a core each, give or take a rounding, and half of the memory.
        let [pod, container, cpu, memory] = row[..] else {
            bail!("{containers}");
        };
        let cpu: u32 = cpu.trim_end_matches('m').parse().unwrap_or(0);
        let is_right = (pod, container, memory) == ("web", name, "32Mi");
        ensure!(is_right && (249..=252).contains(&cpu), "{containers}");
    }
    Ok("nodes and containers".to_owned())
}
