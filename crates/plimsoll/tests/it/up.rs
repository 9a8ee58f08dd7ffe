//! `plimsoll up` as people start it: a process, a folder, a kubeconfig.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{ConfigMap, Node, Pod};
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{DynamicObject, GroupVersionKind};
use kube::discovery::ApiResource;
use plimsoll_api::quantity::Quantity;
use plimsoll_test_support::exposition::Exposition;
use plimsoll_test_support::{http, poll};
use serde_json::json;

/// Nothing here takes long, but test machines are busy.
const DEADLINE: Duration = Duration::from_secs(60);

struct Up {
    child: Child,
    lines: Receiver<String>,
}

impl Drop for Up {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn command(dir: &Path, flags: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_plimsoll"));
    command
        .args(["up", "--api-listen", "127.0.0.1:0", "--data-dir"])
        .arg(dir)
        .args(flags)
        .env_remove("PLIMSOLL_LOG")
        .stdin(Stdio::null());
    command
}

impl Up {
    fn start(dir: &Path, flags: &[&str]) -> Self {
        Self::spawn(command(dir, flags))
    }

    fn spawn(mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        Self { child, lines }
    }

    /// All lines up to the one that says that it is ready.
    fn ready(&self) -> Vec<String> {
        let until = Instant::now() + DEADLINE;
        let mut seen = Vec::new();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => seen.push(line),
                Err(RecvTimeoutError::Timeout) => panic!("not ready in time: {seen:#?}"),
                Err(RecvTimeoutError::Disconnected) => panic!("it ended: {seen:#?}"),
            }
            if seen.last().is_some_and(|line| line.starts_with("ready")) {
                return seen;
            }
        }
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    fn ended(mut self) -> ExitStatus {
        let until = Instant::now() + DEADLINE;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < until, "it does not end");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn stop(self) {
        self.signal(rustix::process::Signal::TERM);
        let status = self.ended();
        assert_eq!(status.code(), Some(0), "{status}");
    }
}

async fn client(dir: &Path) -> kube::Client {
    let kubeconfig = Kubeconfig::read_from(dir.join("kubeconfig")).unwrap();
    let options = KubeConfigOptions::default();
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options).await;
    kube::Client::try_from(config.unwrap()).unwrap()
}

/// Asks until the answer is there.
async fn until<T, F: Future<Output = Option<T>>>(what: &str, mut ask: impl FnMut() -> F) -> T {
    let asking = async {
        loop {
            if let Some(found) = ask().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    match tokio::time::timeout(DEADLINE, asking).await {
        Ok(found) => found,
        Err(_) => panic!("in vain: {what}"),
    }
}

fn ready_condition(node: &Node) -> &str {
    let conditions = node.status.as_ref().unwrap().conditions.iter().flatten();
    let mut ready = conditions.filter(|condition| condition.type_ == "Ready");
    &ready.next().unwrap().status
}

fn pod(name: &str, node: &str) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"nodeName": node, "containers": [{"name": "main", "image": "app"}]},
    }))
    .unwrap()
}

fn map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}, "data": {"a": name}})).unwrap()
}

fn memory_of_this_machine() -> u64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap();
    let line = text.lines().find(|line| line.starts_with("MemTotal:"));
    let kib = line.unwrap().split_whitespace().nth(1).unwrap();
    kib.parse::<u64>().unwrap() * 1024
}

fn cpus_of_this_machine() -> i64 {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap();
    let processors = text.lines().filter(|line| line.starts_with("processor"));
    i64::try_from(processors.count()).unwrap()
}

/// This machine and the simulated ones report what they use, and the manager lends what is left.
async fn reports_and_lends(client: &kube::Client) {
    let kind = GroupVersionKind::gvk("slo.koordinator.sh", "v1alpha1", "NodeMetric");
    let metrics: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
    let memory = until("this machine reports", || async {
        let metric = metrics.get_opt("box").await.unwrap()?;
        let usage = &metric.data["status"]["nodeMetric"]["nodeUsage"]["resources"];
        usage["memory"].as_str()?.parse::<Quantity>().ok()
    })
    .await;
    let all = i64::try_from(memory_of_this_machine()).unwrap();
    assert!((1..all).contains(&memory.value()), "{memory}");
    let nodes: Api<Node> = Api::all(client.clone());
    let lent = async |node: &str| {
        let status = nodes.get(node).await.unwrap().status?;
        let allocatable = status.allocatable?;
        Some(allocatable.get("kubernetes.io/batch-cpu")?.0.clone())
    };
    until("this machine lends", || lent("box")).await;
    // Of 16 cores 40 % are kept free, and the node itself uses 0.12.
    until("a node without pods lends 9480 thousandths", || async {
        let amount = lent("sim-0001").await?;
        (amount == "9480").then_some(())
    })
    .await;
}

#[tokio::test]
async fn from_nothing_to_a_cluster_and_back() {
    let temp = tempfile::tempdir().unwrap();
    let dir = temp.path().join("data");
    let flags = ["--node-name", "box", "--simulate-nodes", "2"];
    let up = Up::start(&dir, &flags);
    let lines = up.ready();
    let shown = lines.join("\n");
    for part in [
        "https://127.0.0.1:",
        "box",
        "sim-0002",
        "kubectl --kubeconfig",
    ] {
        assert!(shown.contains(part), "{shown}");
    }
    use std::os::unix::fs::PermissionsExt;
    let mode = std::fs::metadata(dir.join("kubeconfig")).unwrap();
    assert_eq!(mode.permissions().mode() & 0o777, 0o600);

    let client = client(&dir).await;
    let nodes: Api<Node> = Api::all(client.clone());
    let node = nodes.get("box").await.unwrap();
    assert_eq!(ready_condition(&node), "True");
    let capacity = node.status.unwrap().capacity.unwrap();
    let amount = |name: &str| capacity[name].0.parse::<Quantity>().unwrap();
    assert_eq!(
        amount("memory"),
        Quantity::from_bytes(memory_of_this_machine())
    );
    assert_eq!(amount("cpu").value(), cpus_of_this_machine());

    // Before there is any pod: what is lent does not change for every little thing, so a report with one would stay.
    reports_and_lends(&client).await;

    let pods: Api<Pod> = Api::default_namespaced(client.clone());
    pods.create(&PostParams::default(), &pod("far", "sim-0001"))
        .await
        .unwrap();
    until("the simulated pod runs", || async {
        let status = pods.get("far").await.unwrap().status?;
        (status.phase? == "Running").then_some(())
    })
    .await;
    pods.delete("far", &DeleteParams::default()).await.unwrap();
    until("the simulated pod is gone", || async {
        pods.get_opt("far").await.unwrap().is_none().then_some(())
    })
    .await;

    // Nobody starts the pods of this machine, but they can be deleted.
    pods.create(&PostParams::default(), &pod("near", "box"))
        .await
        .unwrap();
    let near = pods.delete("near", &DeleteParams::default()).await.unwrap();
    let phase = near.left().and_then(|pod| pod.status?.phase);
    assert_eq!(phase.as_deref(), Some("Pending"));
    until("the pod of this machine is gone", || async {
        pods.get_opt("near").await.unwrap().is_none().then_some(())
    })
    .await;

    let second = command(&dir, &[]).output().unwrap();
    let complaint = String::from_utf8(second.stderr).unwrap();
    assert_eq!(second.status.code(), Some(1), "{complaint}");
    let holder = format!("in use by process {}", up.child.id());
    assert!(complaint.contains(&holder), "{complaint}");
    assert!(complaint.contains("--data-dir"), "{complaint}");

    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    let kept = maps.create(&PostParams::default(), &map("kept")).await;
    let uid = kept.unwrap().metadata.uid;
    up.stop();

    // Without its agent and its simulation the nodes are still known, and not ready.
    let up = Up::start(&dir, &["--no-agent"]);
    up.ready();
    let client = self::client(&dir).await;
    let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
    assert_eq!(maps.get("kept").await.unwrap().metadata.uid, uid);
    let nodes: Api<Node> = Api::all(client);
    until("all three are there, and not ready", || async {
        let listed = nodes.list(&ListParams::default()).await.unwrap();
        let states: Vec<(&str, &str)> = listed
            .iter()
            .map(|node| {
                (
                    node.metadata.name.as_deref().unwrap(),
                    ready_condition(node),
                )
            })
            .collect();
        let expected = ["box", "sim-0001", "sim-0002"].map(|name| (name, "False"));
        (states == expected).then_some(())
    })
    .await;
    up.stop();
}

/// Each has at most one write that was done and not acknowledged when the server was killed.
const WRITERS: usize = 8;
/// So many at least have to be there afterwards.
const ACKNOWLEDGED: usize = 200;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acknowledged_writes_survive_a_kill() {
    let temp = tempfile::tempdir().unwrap();
    let up = Up::start(temp.path(), &["--no-agent"]);
    up.ready();
    let client = client(temp.path()).await;
    let writers: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let maps: Api<ConfigMap> = Api::default_namespaced(client.clone());
            tokio::spawn(async move {
                let mut acknowledged = Vec::new();
                for number in 0.. {
                    let name = format!("map-{writer}-{number}");
                    match maps.create(&PostParams::default(), &map(&name)).await {
                        Ok(_) => acknowledged.push(name),
                        Err(_) => break,
                    }
                }
                acknowledged
            })
        })
        .collect();
    let maps: Api<ConfigMap> = Api::default_namespaced(client);
    until("some writes are done", || async {
        let listed = maps.list_metadata(&ListParams::default()).await.unwrap();
        (listed.items.len() >= ACKNOWLEDGED + WRITERS).then_some(())
    })
    .await;
    up.signal(rustix::process::Signal::KILL);
    up.ended();
    let mut acknowledged = Vec::new();
    for writer in writers {
        acknowledged.extend(writer.await.unwrap());
    }
    assert!(acknowledged.len() >= ACKNOWLEDGED, "{}", acknowledged.len());

    let up = Up::start(temp.path(), &["--no-agent"]);
    up.ready();
    let maps: Api<ConfigMap> = Api::default_namespaced(self::client(temp.path()).await);
    let listed = maps.list(&ListParams::default()).await.unwrap();
    let there: std::collections::HashSet<&str> = listed
        .iter()
        .filter(|map| map.data.as_ref().is_some_and(|data| data.len() == 1))
        .filter_map(|map| map.metadata.name.as_deref())
        .collect();
    let lost: Vec<&String> = acknowledged
        .iter()
        .filter(|name| !there.contains(name.as_str()))
        .collect();
    assert!(lost.is_empty(), "{lost:?}");
    up.stop();
}

#[track_caller]
fn refused(output: &Output, code: i32, advice: &str) {
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{complaint}");
    assert!(complaint.contains(advice), "{complaint}");
}

#[test]
fn trouble_comes_with_advice() {
    let temp = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let dir = temp.path().join("data");
    let mut busy = command(&dir, &[]);
    busy.args(["--api-listen", &address]);
    refused(
        &busy.output().unwrap(),
        1,
        "choose another address with --api-listen",
    );

    let file = temp.path().join("file");
    std::fs::write(&file, "").unwrap();
    let output = command(&file.join("data"), &[]).output().unwrap();
    refused(&output, 1, "choose another folder with --data-dir");

    let output = command(&dir, &["--node-name", "My_Box"]).output().unwrap();
    refused(&output, 64, "cannot be a node's name");
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let temp = tempfile::tempdir().unwrap();
    let up = Up::start(temp.path(), &["--no-agent"]);
    let lines = up.ready();
    // A client that stays connected and idle holds up a clean end.
    let address = lines[0].split("https://").nth(1).unwrap();
    let mut idle = std::net::TcpStream::connect(address).unwrap();
    up.signal(rustix::process::Signal::INT);
    up.signal(rustix::process::Signal::TERM);
    assert!(up.ended().code().is_some());
    let mut rest = Vec::new();
    let _ = idle.read_to_end(&mut rest);
}

#[test]
fn without_a_manager_its_kinds_are_missed_once() {
    let temp = tempfile::tempdir().unwrap();
    let log = temp.path().join("log");
    let mut command = command(
        &temp.path().join("data"),
        &[
            "--node-name",
            "box",
            "--no-manager",
            "--no-scheduler",
            "--no-metrics-server",
        ],
    );
    command.stderr(std::fs::File::create(&log).unwrap());
    let up = Up::spawn(command);
    let lines = up.ready();
    let pages = lines
        .iter()
        .find_map(|line| line.split_once("agent http://"));
    let pages = pages.unwrap().1.parse().unwrap();
    let missed = poll::until("all kinds are missed, and more than once", DEADLINE, || {
        let page = http::get_ok(pages, "/metrics/self")?;
        let page = Exposition::parse(page.text()?)?;
        let failures = |kind| page.sum("plimsoll_cluster_failures_total", &[("kind", kind)]);
        let topology = page.sum("plimsoll_topology_failures_total", &[])?;
        let all = [failures("nodeslos")?, failures("nodemetrics")?];
        Ok((topology >= 1.0 && all.iter().all(|count| *count >= 2.0)).then_some(()))
    });
    missed.unwrap();
    let log = std::fs::read_to_string(&log).unwrap();
    // A busy machine may have given rise to other warnings.
    let advice = log
        .lines()
        .filter(|line| line.contains("does not know this kind of object"));
    assert_eq!(advice.count(), 1, "{log}");
    up.stop();
}
