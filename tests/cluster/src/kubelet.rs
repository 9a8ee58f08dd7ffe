//! A real node: containerd and a stock kubelet with pods that really run, in a cgroup and a folder that go with them.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use plimsoll_test_support::cgroup::{Group, Mounts};
use plimsoll_test_support::report::LeaveOut;
use plimsoll_test_support::{image, janitor};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::admin;
use crate::certificates::Authority;
use crate::client::Server;
use crate::process::{Process, Scratch, free_address};

const PAUSE: &str = "registry.test/plimsoll/pause:1";
const KUBELET_ENDS: Duration = Duration::from_secs(60);
/// Kernel settings that a kubelet changes when it starts.
const SETTINGS: [&str; 6] = [
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
];

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

/// What pods get from their runtime.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Runtime {
    /// Whole copies of their images and the host's network: nothing is mounted and nothing is to be cleaned up.
    #[default]
    Plain,
    /// Overlays on one image, and a network of their own.
    Full,
}

impl Runtime {
    fn snapshotter(self) -> &'static str {
        match self {
            Self::Plain => "native",
            Self::Full => "overlayfs",
        }
    }
}

/// Pairs of network cards with addresses, from plugins that the distribution has.
fn network(folder: &Path) -> Value {
    json!({
        "cniVersion": "0.4.0",
        "name": "plimsoll-pods",
        "plugins": [{
            "type": "ptp",
            "ipMasq": false,
            "ipam": {
                "type": "host-local",
                "ranges": [[{"subnet": "10.231.0.0/16"}]],
                "dataDir": folder.join("addresses"),
            },
        }],
    })
}

#[derive(Debug)]
pub struct RealNode {
    pub name: String,
    pub kubelet: Process,
    /// What it was started with.
    arguments: Vec<OsString>,
    program: PathBuf,
    folder: PathBuf,
    _containerd: Process,
    /// Whose word the kubelet's certificate is by.
    pub authority: PathBuf,
    /// What the kubelet takes for the root of the tree.
    cgroup: String,
}

impl RealNode {
    /// Registers as `name`; everything of it goes with the scratch folder. Where no kubelet can run it is left out,
    /// but in CI.
    pub fn start(
        kube_bin: Option<&Path>,
        api: &Server,
        name: &str,
        scratch: &mut Scratch,
    ) -> Result<Self> {
        Self::start_with(Runtime::default(), kube_bin, api, name, scratch)
    }

    /// The same, with a runtime of some kind.
    pub fn start_with(
        runtime: Runtime,
        kube_bin: Option<&Path>,
        api: &Server,
        name: &str,
        scratch: &mut Scratch,
    ) -> Result<Self> {
        match missing(kube_bin) {
            Some(missing) if std::env::var("CI").is_ok_and(|ci| ci == "true") => bail!(missing),
            Some(missing) => return Err(LeaveOut(missing).into()),
            None => {}
        }
        let folder = scratch.path().to_owned();
        let cgroup = format!("/plimsoll-node-{}-{name}", std::process::id());
        scratch.janitor()?.cgroup(&cgroup)?;
        for setting in SETTINGS {
            let path = Path::new("/proc/sys").join(setting);
            if path.exists() {
                scratch.janitor()?.setting(&path)?;
            }
        }
        let mounts = Mounts::detect()?;
        let daemons = Group::create(&mounts, &format!("{cgroup}/daemons"))?;
        // A kubelet wants to find its root wherever something is mounted, in named hierarchies, too.
        for mount in &mounts.all {
            fs::create_dir_all(mount.join(cgroup.trim_start_matches('/')))?;
        }
        let containerd = containerd(runtime, &folder, &daemons, scratch)?;
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
            "maxPods": 500,
            "shutdownGracePeriod": "0s",
        });
        let path = folder.join("kubelet.yaml");
        fs::write(&path, config.to_string())?;
        let kubeconfig = folder.join("kubelet-kubeconfig");
        fs::write(
            &kubeconfig,
            api.kubeconfig(api.address, "default").to_string(),
        )?;
        let program = kube_bin.unwrap_or(Path::new("")).join("kubelet");
        let argument = |name: &str, value: &Path| [name.into(), value.as_os_str().to_owned()];
        let mut arguments: Vec<OsString> = [
            argument("--config", &path),
            argument("--kubeconfig", &kubeconfig),
            argument("--root-dir", &folder.join("kubelet")),
            argument("--cert-dir", &folder.join("kubelet-certificates")),
            // Where the cAdvisor in it looks for names; it does not follow the configuration.
            argument("--containerd", &folder.join("containerd.sock")),
        ]
        .concat();
        let named = ["--hostname-override", name, "--node-ip", "127.0.0.1"];
        arguments.extend(named.map(OsString::from));
        let mut command = janitor::command_in(Some(&daemons), &program);
        command.args(&arguments);
        let mut kubelet = Process::start("kubelet", command, &folder.join("kubelet.log"))?;
        scratch.process(&kubelet)?;
        let node = format!("/api/v1/nodes/{name}");
        kubelet.wait("the node registers", || admin::get(api, &node).map(Some))?;
        // A kubelet does not tell of a loopback address by itself, and leaves alone what others tell.
        let status =
            json!({"status": {"addresses": [{"type": "InternalIP", "address": "127.0.0.1"}]}});
        admin::patch(api, &format!("{node}/status"), &status)?;
        Ok(Self {
            name: name.to_owned(),
            cgroup,
            kubelet,
            arguments,
            program,
            folder,
            _containerd: containerd,
            authority: authority.certificate(),
        })
    }

    /// Ends the kubelet and starts it again as it was; its pods go on meanwhile.
    pub fn restart_kubelet(&mut self, scratch: &mut Scratch) -> Result<()> {
        self.kubelet.signal(Signal::TERM);
        self.kubelet.ended(KUBELET_ENDS)?;
        let daemons = Group::existing(&Mounts::detect()?, &format!("{}/daemons", self.cgroup));
        let mut command = janitor::command_in(Some(&daemons), &self.program);
        command.args(&self.arguments);
        let log = self.folder.join("kubelet-again.log");
        self.kubelet = Process::start("kubelet", command, &log)?;
        scratch.process(&self.kubelet)
    }

    /// Makes pods and waits until they run. `pods` are names, and what is particular about their specs: they all are in
    /// the host's network, where no plugin is needed for them.
    pub fn run_pods(
        &mut self,
        api: &Server,
        namespace: &str,
        pods: Vec<(&str, Value)>,
    ) -> Result<()> {
        let object = json!({"metadata": {"name": namespace}});
        admin::create(api, "/api/v1/namespaces", &object)?;
        let count = pods.len();
        self.run_pods_more(api, namespace, pods, count)
    }

    /// Makes further pods and waits until so many run in all.
    pub fn run_pods_more(
        &mut self,
        api: &Server,
        namespace: &str,
        pods: Vec<(&str, Value)>,
        count: usize,
    ) -> Result<()> {
        let path = format!("/api/v1/namespaces/{namespace}/pods");
        for (name, particular) in pods {
            let mut spec = json!({
                "nodeName": self.name, "hostNetwork": true, "automountServiceAccountToken": false,
                "enableServiceLinks": false, "terminationGracePeriodSeconds": 1,
                "tolerations": [{"operator": "Exists"}],
            });
            let mut metadata = json!({"name": name});
            for (field, value) in particular.as_object().into_iter().flatten() {
                match field.as_str() {
                    "labels" => metadata["labels"] = value.clone(),
                    field => spec[field] = value.clone(),
                }
            }
            admin::create(api, &path, &json!({"metadata": metadata, "spec": spec}))?;
        }
        self.wait_running(api, namespace, count)
    }

    /// Waits until so many pods of a namespace run.
    pub fn wait_running(&mut self, api: &Server, namespace: &str, count: usize) -> Result<()> {
        let path = format!("/api/v1/namespaces/{namespace}/pods");
        self.kubelet.wait("the pods run", || {
            let found = admin::get(api, &path)?;
            let items = items(&found);
            let running = items
                .iter()
                .filter(|pod| pod["status"]["phase"] == "Running");
            ensure!(running.count() == count, "{}", states(items));
            Ok(Some(()))
        })
    }

    /// Waits until a namespace has no pods any more.
    pub fn wait_gone(&mut self, api: &Server, namespace: &str) -> Result<()> {
        let path = format!("/api/v1/namespaces/{namespace}/pods");
        self.kubelet.wait("the pods are gone", || {
            let found = admin::get(api, &path)?;
            Ok(items(&found).is_empty().then_some(()))
        })
    }

    /// What the kubelet takes for the root of the tree.
    pub fn cgroup(&self) -> &str {
        &self.cgroup
    }

    /// The cgroup of a pod that runs, by what its status says.
    pub fn cgroup_of(&self, pod: &Value) -> Result<String> {
        let uid = pod["metadata"]["uid"].as_str().context("no UID")?;
        let class = match pod["status"]["qosClass"].as_str().context("no QoS class")? {
            "Guaranteed" => "",
            "Burstable" => "burstable/",
            _ => "besteffort/",
        };
        Ok(format!("{}/kubepods/{class}pod{uid}", self.cgroup))
    }
}

fn items(list: &Value) -> &[Value] {
    list["items"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default()
}

/// A container of the image that is at hand, running a shell script.
pub fn container(name: &str, script: &str, resources: Value) -> Value {
    json!({"name": name, "image": image::NAME, "imagePullPolicy": "Never",
        "command": ["/bin/sh", "-c", script], "resources": resources})
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
fn containerd(
    runtime: Runtime,
    folder: &Path,
    daemons: &Group,
    scratch: &mut Scratch,
) -> Result<Process> {
    let at = folder.display();
    let snapshotter = runtime.snapshotter();
    if runtime == Runtime::Full {
        fs::create_dir_all(folder.join("cni"))?;
        let network = network(folder).to_string();
        fs::write(folder.join("cni/10-pods.conflist"), network)?;
    }
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
    bin_dir = "/usr/lib/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "{snapshotter}"
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
                snapshotter,
            ])
            .arg(&archive)
            .output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{said}");
        Ok(Some(()))
    })?;
    Ok(process)
}
