//! A real node: containerd and a stock kubelet with pods that really run, in a cgroup and a folder that go with them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use plimsoll_test_support::cgroup::{Group, Mounts};
use plimsoll_test_support::report::LeaveOut;
use plimsoll_test_support::{image, janitor, poll};
use serde_json::{Value, json};

use super::program::{MetricsServer, Program, own_address};
use super::{PATIENCE, Stage, fixture, stand_behind_service};
use crate::certificates::Authority;
use crate::client::Server;
use crate::kubectl::Kubectl;
use crate::process::{Process, Scratch, free_address};

const NAME: &str = "real-node";
const NAMESPACE: &str = "real";
const PAUSE: &str = "registry.test/plimsoll/pause:1";
/// Kernel settings that a kubelet changes when it starts.
const SETTINGS: [&str; 6] = [
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
];
/// Containers have to start, and the kubelet has to look at them twice.
const SLOW: Duration = Duration::from_secs(120);

/// What has to be there, beside the programs of Kubernetes.
fn missing(kube_bin: Option<&Path>) -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        return Some("a kubelet needs root".to_owned());
    }
    let kubelet = kube_bin.map(|folder| folder.join("kubelet"));
    if !kubelet.is_some_and(|program| program.is_file()) {
        return Some("there is no kubelet".to_owned());
    }
    let places = [
        "/usr/bin",
        "/usr/sbin",
        "/usr/local/bin",
        "/usr/local/sbin",
        "/bin",
    ];
    let is_there = |name: &&str| {
        places
            .iter()
            .any(|place| Path::new(place).join(name).is_file())
    };
    let absent = ["containerd", "ctr", "runc", "busybox"]
        .into_iter()
        .find(|name| !is_there(name))?;
    Some(format!("there is no {absent}"))
}

/// Installs by the manifests, with a process in the place of their pod, and asks with kubectl what real pods use.
pub fn real_pods(stage: &Stage<'_>, api: &Server) -> Result<String> {
    if let Some(missing) = missing(stage.kube_bin) {
        return Err(LeaveOut(missing).into());
    }
    let ip = own_address().map_err(|error| LeaveOut(format!("{error:#}")))?;
    let kubectl = stage.kubectl()?;
    let kubectl = Kubectl::new(&kubectl, api, NAMESPACE)?;
    let mut scratch = Scratch::make()?;
    let mut node = RealNode::start(stage, api, &mut scratch)?;
    node.run_pods(api)?;

    let manifests = stage.manifests().join("components.yaml");
    kubectl.text(&format!("apply -f {}", manifests.display()))?;
    let token = token(api)?;
    let trust = format!(
        "--kubelet-certificate-authority={}",
        node.authority.display()
    );
    let ours = Program::Ours(stage.program.to_owned());
    let running = MetricsServer::start_as(&ours, api, &token, ip, &[trust], &mut scratch)?;
    stand_behind_service(api, running.server.address)?;

    let nodes = poll::until("kubectl top node", PATIENCE, || {
        let text = kubectl.text(&format!("top node {NAME} --no-headers"))?;
        Ok((!text.contains("unknown")).then_some(text))
    })?;
    let [cpu, memory] = figures(&nodes, &[NAME])?;
    ensure!(cpu > 0 && memory > 0, "{nodes}");
    let rows = node.kubelet.wait("kubectl top pod", || {
        let text = kubectl.text("top pod --containers --no-headers")?;
        Ok((text.lines().count() == 3).then_some(text))
    })?;
    // It would take a whole core, and may have a fifth of one.
    let [cpu, _] = figures(&rows, &["busy", "spin"])?;
    ensure!((100..=300).contains(&cpu), "{rows}");
    for container in ["holds", "sleeps"] {
        let [cpu, _] = figures(&rows, &["calm", container])?;
        ensure!(cpu < 50, "{rows}");
    }
    // It wrote 16 MiB into memory.
    let [_, memory] = figures(&rows, &["calm", "holds"])?;
    ensure!((16..=40).contains(&memory), "{rows}");

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

struct RealNode {
    kubelet: Process,
    _containerd: Process,
    /// Whose word the kubelet's certificate is by.
    authority: PathBuf,
}

impl RealNode {
    fn start(stage: &Stage<'_>, api: &Server, scratch: &mut Scratch) -> Result<Self> {
        let folder = scratch.path().to_owned();
        let cgroup = format!("/plimsoll-node-{}", std::process::id());
        scratch.janitor().cgroup(&cgroup)?;
        for setting in SETTINGS {
            let path = Path::new("/proc/sys").join(setting);
            if path.exists() {
                scratch.janitor().setting(&path)?;
            }
        }
        let mounts = Mounts::detect()?;
        let daemons = Group::create(&mounts, &format!("{cgroup}/daemons"))?;
        // A kubelet wants to find its root wherever something is mounted, in named hierarchies, too.
        for mount in &mounts.all {
            fs::create_dir_all(mount.join(cgroup.trim_start_matches('/')))?;
        }
        let containerd = containerd(&folder, &daemons, scratch)?;
        let authority = Authority::make(&folder, "kubelet-authority")?;
        let serving = authority.server("kubelet")?;
        let config = json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": "127.0.0.1",
            "port": free_address()?.port(),
            "readOnlyPort": 0,
            "healthzPort": 0,
            "tlsCertFile": serving.certificate,
            "tlsPrivateKeyFile": serving.key,
            // Whoever asks is looked up, as in a cluster that is set up well.
            "authentication": {"anonymous": {"enabled": false}, "webhook": {"enabled": true, "cacheTTL": "1s"}},
            "authorization": {"mode": "Webhook",
                "webhook": {"cacheAuthorizedTTL": "1s", "cacheUnauthorizedTTL": "1s"}},
            "containerRuntimeEndpoint": format!("unix://{}", folder.join("containerd.sock").display()),
            "cgroupRoot": cgroup,
            "cgroupDriver": "cgroupfs",
            "failCgroupV1": false,
            "failSwapOn": false,
            "localStorageCapacityIsolation": false,
            "makeIPTablesUtilChains": false,
            "oomScoreAdj": 0,
            "podLogsDir": folder.join("pod-logs"),
            "volumePluginDir": folder.join("volume-plugins"),
            "resolvConf": "",
            "evictionHard": {"memory.available": "1Mi"},
            "imageGCHighThresholdPercent": 100,
            "shutdownGracePeriod": "0s",
        });
        let path = folder.join("kubelet.yaml");
        fs::write(&path, config.to_string())?;
        let kubeconfig = folder.join("kubelet-kubeconfig");
        fs::write(
            &kubeconfig,
            api.kubeconfig(api.address, "default").to_string(),
        )?;
        let program = stage.kube_bin.unwrap_or(Path::new("")).join("kubelet");
        let mut command = janitor::command_in(Some(&daemons), program);
        command
            .arg("--config")
            .arg(&path)
            .arg("--kubeconfig")
            .arg(&kubeconfig)
            .arg("--root-dir")
            .arg(folder.join("kubelet"))
            .arg("--cert-dir")
            .arg(folder.join("kubelet-certificates"))
            .args(["--hostname-override", NAME, "--node-ip", "127.0.0.1"]);
        let mut kubelet = Process::start("kubelet", command, &folder.join("kubelet.log"))?;
        scratch.process(&kubelet)?;
        let node = format!("/api/v1/nodes/{NAME}");
        kubelet.wait("the node registers", || fixture::get(api, &node).map(Some))?;
        // A kubelet does not tell of a loopback address by itself, and leaves alone what others tell.
        let status =
            json!({"status": {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}]}});
        fixture::patch(api, &format!("{node}/status"), &status)?;
        Ok(Self {
            kubelet,
            _containerd: containerd,
            authority: authority.certificate(),
        })
    }

    /// They are in the host's network: no plugin is needed for them.
    fn run_pods(&mut self, api: &Server) -> Result<()> {
        let namespace = json!({"metadata": {"name": NAMESPACE}});
        fixture::create(api, "/api/v1/namespaces", &namespace)?;
        let container = |name: &str, script: &str, limits: Value| {
            json!({"name": name, "image": image::NAME, "imagePullPolicy": "Never",
                "command": ["/bin/sh", "-c", script], "resources": {"limits": limits}})
        };
        let busy = vec![container(
            "spin",
            "while :; do :; done",
            json!({"cpu": "200m"}),
        )];
        let holds =
            "cat /dev/zero | busybox head -c 16777216 > /tmp/kept; while :; do sleep 5; done";
        let calm = vec![
            container("holds", holds, json!({})),
            container("sleeps", "while :; do sleep 5; done", json!({})),
        ];
        let pods = format!("/api/v1/namespaces/{NAMESPACE}/pods");
        for (name, containers) in [("busy", busy), ("calm", calm)] {
            let mut spec = json!({
                "nodeName": NAME, "hostNetwork": true, "automountServiceAccountToken": false,
                "enableServiceLinks": false, "terminationGracePeriodSeconds": 1,
                "tolerations": [{"operator": "Exists"}], "containers": containers,
            });
            if name == "calm" {
                spec["volumes"] = json!([{"name": "kept", "emptyDir": {"medium": "Memory"}}]);
                spec["containers"][0]["volumeMounts"] =
                    json!([{"name": "kept", "mountPath": "/tmp"}]);
            }
            let pod = json!({"metadata": {"name": name}, "spec": spec});
            fixture::create(api, &pods, &pod)?;
        }
        self.kubelet.wait("the pods run", || {
            let found = fixture::get(api, &pods)?;
            let items = found["items"]
                .as_array()
                .map(Vec::as_slice)
                .unwrap_or_default();
            let running = items
                .iter()
                .filter(|pod| pod["status"]["phase"] == "Running");
            ensure!(running.count() == 2, "{}", states(items));
            Ok(Some(()))
        })
    }
}

/// Why they do not run.
fn states(pods: &[Value]) -> String {
    let states = pods.iter().map(|pod| {
        let containers = &pod["status"]["containerStatuses"];
        format!(
            "{}: {} {containers}",
            pod["metadata"]["name"], pod["status"]["phase"]
        )
    });
    states.collect::<Vec<_>>().join("; ")
}

/// With an image of our own for everything.
fn containerd(folder: &Path, daemons: &Group, scratch: &mut Scratch) -> Result<Process> {
    let at = folder.display();
    let config = format!(
        r#"version = 2
root = "{at}/containerd"
state = "{at}/containerd-state"
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs"]
[grpc]
  address = "{at}/containerd.sock"
[ttrpc]
  address = "{at}/containerd.ttrpc"
[plugins."io.containerd.internal.v1.opt"]
  path = "{at}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    conf_dir = "{at}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
"#
    );
    let path = folder.join("containerd.toml");
    fs::write(&path, config)?;
    let archive = folder.join("image.tar");
    fs::write(&archive, image::oci_archive(&[image::NAME, PAUSE])?)?;
    let mut command = janitor::command_in(Some(daemons), "containerd");
    command.arg("--config").arg(&path);
    let mut process = Process::start("containerd", command, &folder.join("containerd.log"))?;
    scratch.process(&process)?;
    let socket = folder.join("containerd.sock");
    process.wait("the image is imported", || {
        let output = Command::new("ctr")
            .arg("--address")
            .arg(&socket)
            .args([
                "--namespace",
                "k8s.io",
                "images",
                "import",
                "--snapshotter",
                "native",
            ])
            .arg(&archive)
            .output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{said}");
        Ok(Some(()))
    })?;
    Ok(process)
}
