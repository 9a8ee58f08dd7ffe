//! containerd: plain containers made by `ctr`, pods made through CRI; late, restarted, removed.

use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, anyhow, ensure};
use plimsoll_test_support::agent::Agent;
use plimsoll_test_support::poll;
use plimsoll_test_support::report::Runner;
use serde_json::Value;

use crate::cri::{
    Client, ContainerConfig, ContainerMetadata, Image, LinuxContainer, LinuxPod, PodConfig,
    PodMetadata, Resources,
};
use crate::scene::{Daemon, NAMED, READY, ROW, Scene, output, program, wait_gone, wait_row};
use plimsoll_test_support::image;

const NAMESPACE: &str = "k8s.io";
const PAUSE: &str = "registry.test/plimsoll/pause:1";

pub fn cases(runner: &mut Runner<impl Write>, scene: &mut Scene) {
    let mut stage = None;
    // Before any containerd: the others build on the agent that had to wait for it.
    runner.setup("containerd_starts_after_agent", || {
        let stage = stage.insert(Stage::agent_first(scene)?);
        stage.run_plain("late")?.is_named(&stage.agent)?;
        Ok(String::new())
    });
    let Some(stage) = &mut stage else { return };
    runner.case("ctr_container", || ctr_container(stage));
    runner.case("cri_pod", || cri_pod(stage, scene));
    runner.case("containerd_restarts", || restart(stage, scene));
    runner.case("removed_containers_go", || removed(stage));
    runner.case("containerd_starts_before_agent", || {
        let agent = scene.agent(&[&stage.flag()])?;
        for plain in &stage.plain {
            plain.is_named(&agent)?;
        }
        agent.stop()?;
        Ok(String::new())
    });
}

/// A container made by `ctr`.
#[derive(Debug, Clone)]
struct Plain {
    id: String,
    cgroup: String,
    purpose: String,
}

impl Plain {
    fn is_named(&self, agent: &Agent) -> Result<()> {
        let labels = [
            ("name", self.id.as_str()),
            ("image", image::NAME),
            ("container_label_test_purpose", self.purpose.as_str()),
        ];
        wait_row(agent, "/metrics", &self.cgroup, &labels)?;
        Ok(())
    }
}

#[derive(Debug)]
struct Pod {
    config: PodConfig,
    id: String,
    container: String,
}

impl Pod {
    fn cgroup(&self) -> &str {
        self.config
            .linux
            .as_ref()
            .map_or("", |linux| linux.cgroup_parent.as_str())
    }

    fn name(&self) -> &str {
        self.config
            .metadata
            .as_ref()
            .map_or("", |metadata| metadata.name.as_str())
    }

    /// The kubelet's labels on the container's row.
    fn is_named(&self, agent: &Agent) -> Result<()> {
        let labels = [
            ("name", self.container.as_str()),
            ("pod", self.name()),
            ("namespace", "tests"),
            ("container", "main"),
        ];
        wait_row(
            agent,
            "/metrics/cadvisor",
            &format!("{}/{}", self.cgroup(), self.container),
            &labels,
        )?;
        Ok(())
    }
}

struct Stage {
    socket: PathBuf,
    config: PathBuf,
    cgroup: String,
    daemon: Daemon,
    agent: Agent,
    plain: Vec<Plain>,
    pods: Vec<Pod>,
}

impl Stage {
    fn agent_first(scene: &mut Scene) -> Result<Self> {
        let socket = scene.path("containerd.sock");
        let agent = scene.agent(&[&flag(&socket)])?;
        let config = write_config(scene)?;
        let daemon = start(scene, &config, &socket)?;
        let archive = scene.write("image.tar", image::oci_archive(&[image::NAME, PAUSE])?)?;
        let stage = Self {
            socket,
            config,
            cgroup: scene.cgroup.clone(),
            daemon,
            agent,
            plain: Vec::new(),
            pods: Vec::new(),
        };
        // The native snapshotter copies files, and so works on whatever file system this is.
        output(
            stage
                .ctr()
                .args(["images", "import", "--snapshotter", "native"])
                .arg(archive),
        )?;
        Ok(stage)
    }

    fn flag(&self) -> String {
        flag(&self.socket)
    }

    fn ctr(&self) -> Command {
        let mut ctr = Command::new("ctr");
        ctr.arg("--address")
            .arg(&self.socket)
            .args(["--namespace", NAMESPACE]);
        ctr
    }

    /// Remembered before it is looked at: later cases count on it even when this one fails.
    fn run_plain(&mut self, purpose: &str) -> Result<Plain> {
        let id: String = (0..64).map(|_| fastrand::digit(16)).collect();
        let cgroup = format!("{}/{id}", self.cgroup);
        output(
            self.ctr()
                .args([
                    "run",
                    "--detach",
                    "--snapshotter",
                    "native",
                    "--cgroup",
                    &cgroup,
                ])
                .args(["--label", &format!("test.purpose={purpose}")])
                .args([image::NAME, &id, "sleep", "3600"]),
        )?;
        let plain = Plain {
            id,
            cgroup,
            purpose: purpose.to_owned(),
        };
        self.plain.push(plain.clone());
        Ok(plain)
    }

    /// A pod with one container, as the kubelet would ask for it.
    fn run_pod(&self, scene: &mut Scene, name: &str) -> Result<Pod> {
        let mut client = Client::connect(&self.socket)?;
        let uid = format!("00000000-0000-4000-8000-{:012x}", fastrand::u64(..1 << 48));
        let kubernetes = |extra: &[(&str, &str)]| -> HashMap<String, String> {
            [
                ("io.kubernetes.pod.name", name),
                ("io.kubernetes.pod.namespace", "tests"),
                ("io.kubernetes.pod.uid", uid.as_str()),
            ]
            .iter()
            .chain(extra)
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect()
        };
        let config = PodConfig {
            metadata: Some(PodMetadata {
                name: name.to_owned(),
                uid: uid.clone(),
                namespace: "tests".to_owned(),
                attempt: 0,
            }),
            hostname: name.to_owned(),
            log_directory: scene.path("pod-logs").display().to_string(),
            labels: kubernetes(&[("app", name)]),
            linux: Some(LinuxPod {
                cgroup_parent: format!("{}/kubepods/burstable/pod{uid}", self.cgroup),
            }),
        };
        // The image's import reaches CRI by an event of its own.
        let id = poll::until("the pod's sandbox runs", READY, || {
            client.run_pod(&config).map(Some)
        })?;
        scene
            .janitor()?
            .mount_point(&self.network_namespace(&id)?)?;
        let container = ContainerConfig {
            metadata: Some(ContainerMetadata {
                name: "main".to_owned(),
                attempt: 0,
            }),
            image: Some(Image {
                image: image::NAME.to_owned(),
            }),
            command: vec!["sleep".to_owned(), "3600".to_owned()],
            labels: kubernetes(&[("io.kubernetes.container.name", "main")]),
            linux: Some(LinuxContainer {
                resources: Some(Resources {
                    cpu_period: 100_000,
                    cpu_quota: 50_000,
                    memory_limit_in_bytes: 64 << 20,
                }),
            }),
        };
        let container = client.run_container(&id, &config, container)?;
        Ok(Pod {
            config,
            id,
            container,
        })
    }

    /// Where the pod's network is mounted: its own, whoever else makes namespaces on this machine meanwhile.
    fn network_namespace(&self, sandbox: &str) -> Result<PathBuf> {
        let info = self.info(sandbox)?;
        let namespaces = info["Spec"]["linux"]["namespaces"].as_array();
        let path = namespaces
            .into_iter()
            .flatten()
            .find(|one| one["type"] == "network")
            .and_then(|one| one["path"].as_str())
            .with_context(|| format!("no network namespace in {info}"))?;
        // Without links: the mount table has none either.
        fs::canonicalize(path).with_context(|| format!("find {path}"))
    }

    /// What containerd itself says of a container.
    fn info(&self, id: &str) -> Result<Value> {
        let text = output(self.ctr().args(["containers", "info", id]))?;
        Ok(serde_json::from_str(&text)?)
    }
}

fn flag(socket: &Path) -> String {
    format!("--containerd={}", socket.display())
}

fn start(scene: &mut Scene, config: &Path, socket: &Path) -> Result<Daemon> {
    let containerd = program("containerd").context("containerd is not installed")?;
    let mut daemon = scene.daemon(
        "containerd",
        Command::new(containerd).arg("--config").arg(config),
    )?;
    daemon.wait_ready(READY, || Client::connect(socket)?.version())?;
    Ok(daemon)
}

fn write_config(scene: &mut Scene) -> Result<PathBuf> {
    let directory = scene.directory.display().to_string();
    // Plugins that look for devices and file systems which no test needs are left out: they only fill the log.
    let config = format!(
        r#"version = 2
root = "{directory}/root"
state = "{directory}/state"
disabled_plugins = ["io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.zfs"]
[grpc]
  address = "{directory}/containerd.sock"
[ttrpc]
  address = "{directory}/containerd.ttrpc"
[plugins."io.containerd.internal.v1.opt"]
  path = "{directory}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PAUSE}"
  # Without CAP_SYS_RESOURCE no score below the daemon's own can be set, and no sandbox starts.
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{directory}/cni"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
"#
    );
    // Of this run alone: another one may have its pods at the same time.
    let net = fastrand::u8(..);
    let network = format!(
        r#"{{"cniVersion": "0.4.0", "name": "plimsoll-tests", "plugins": [{{"type": "ptp", "ipMasq": false,
  "ipam": {{"type": "host-local", "dataDir": "{directory}/cni-ipam", "ranges": [[{{"subnet": "10.213.{net}.0/24"}}]]}}}}]}}
"#
    );
    scene.write("cni/10-tests.conflist", network)?;
    // The network plugin switches forwarding on and never off.
    scene
        .janitor()?
        .setting(Path::new("/proc/sys/net/ipv4/ip_forward"))?;
    scene.write("containerd.toml", config)
}

fn ctr_container(stage: &mut Stage) -> Result<String> {
    let plain = stage.run_plain("normal")?;
    plain.is_named(&stage.agent)?;
    // The REST interface knows it by its path, with id and path as aliases.
    let info = stage
        .agent
        .json(&format!("/api/v1.3/containers{}", plain.cgroup))?;
    ensure!(
        info["namespace"] == "containerd",
        "namespace is {}",
        info["namespace"]
    );
    ensure!(
        info["aliases"][0] == plain.id.as_str(),
        "aliases are {}",
        info["aliases"]
    );
    ensure!(
        info["spec"]["image"] == image::NAME,
        "image is {}",
        info["spec"]["image"]
    );
    ensure!(
        info["spec"]["labels"]["test.purpose"] == "normal",
        "labels are {}",
        info["spec"]["labels"]
    );
    Ok(String::new())
}

fn cri_pod(stage: &mut Stage, scene: &mut Scene) -> Result<String> {
    let pod = stage.run_pod(scene, "web")?;
    pod.is_named(&stage.agent)?;
    let image = stage.info(&pod.container)?["Image"].clone();
    let image = image.as_str().context("containerd names no image")?;
    let cgroup = format!("{}/{}", pod.cgroup(), pod.container);
    let row = wait_row(
        &stage.agent,
        "/metrics/cadvisor",
        &cgroup,
        &[("image", image)],
    )?;
    let keys: Vec<&str> = row.labels.keys().map(String::as_str).collect();
    ensure!(
        keys == ["container", "id", "image", "name", "namespace", "pod"],
        "the kubelet's page has other labels: {keys:?}"
    );

    // Standalone page: the same container with its labels under their own names.
    let labels = [
        ("name", pod.container.as_str()),
        ("image", image),
        ("container_label_io_kubernetes_pod_name", pod.name()),
        ("container_label_io_kubernetes_pod_namespace", "tests"),
        ("container_label_io_kubernetes_container_name", "main"),
    ];
    wait_row(&stage.agent, "/metrics", &cgroup, &labels)?;

    // The sandbox owns the pod's network; its row has the pod but no container.
    let sandbox = format!("{}/{}", pod.cgroup(), pod.id);
    wait_row(
        &stage.agent,
        "/metrics/cadvisor",
        &sandbox,
        &[("pod", pod.name()), ("container", "")],
    )?;
    let network = "container_network_receive_bytes_total";
    poll::until("the sandbox's network shows", NAMED, || {
        let page = stage.agent.exposition("/metrics/cadvisor")?;
        page.value(
            network,
            &[("id", &sandbox), ("interface", "eth0"), ("pod", pod.name())],
        )?;
        if page.first(network, &[("id", &cgroup)]).is_some() {
            return Err(poll::fatal(anyhow!(
                "a container that shares the sandbox's network has network rows of its own"
            )));
        }
        Ok(Some(()))
    })?;

    // The pod's own cgroup has no runtime to name it; its children do.
    wait_row(
        &stage.agent,
        "/metrics/cadvisor",
        pod.cgroup(),
        &[
            ("pod", pod.name()),
            ("namespace", "tests"),
            ("container", ""),
            ("image", ""),
        ],
    )?;

    // The runtime sets limits after it made the cgroup.
    poll::until("the limits show", NAMED, || {
        let page = stage.agent.exposition("/metrics/cadvisor")?;
        let of = [("id", cgroup.as_str())];
        let quota = page.value("container_spec_cpu_quota", &of)?;
        let memory = page.value("container_spec_memory_limit_bytes", &of)?;
        Ok(((quota, memory) == (50_000.0, f64::from(64 << 20))).then_some(()))
    })?;
    stage.pods.push(pod);
    Ok(format!("image {image}"))
}

fn restart(stage: &mut Stage, scene: &mut Scene) -> Result<String> {
    stage.daemon.stop()?;
    let meanwhile = unchanged_without_runtime(stage);
    // First of all the runtime is back, whatever was found without it: later cases need it.
    stage.daemon = start(scene, &stage.config, &stage.socket)?;
    meanwhile.context("while containerd was away")?;
    for plain in &stage.plain {
        plain.is_named(&stage.agent)?;
    }
    stage.run_plain("after-restart")?.is_named(&stage.agent)?;
    let pod = stage.run_pod(scene, "after-restart")?;
    let named = pod.is_named(&stage.agent);
    stage.pods.push(pod);
    named?;
    Ok(String::new())
}

/// What is known stays known, and samples go on.
fn unchanged_without_runtime(stage: &Stage) -> Result<()> {
    for pod in &stage.pods {
        pod.is_named(&stage.agent)?;
    }
    let first = stage.plain.first().context("no container from before")?;
    first.is_named(&stage.agent)?;
    let taken = || -> Result<Option<i64>> {
        let page = stage.agent.metrics()?;
        Ok(page
            .first(ROW, &[("id", &first.cgroup)])
            .and_then(|row| row.timestamp))
    };
    let before = taken()?;
    poll::until("samples go on", READY, || {
        Ok((taken()? > before).then_some(()))
    })
}

fn removed(stage: &mut Stage) -> Result<String> {
    let plain = stage.plain.pop().context("no container to remove")?;
    output(
        stage
            .ctr()
            .args(["tasks", "kill", "--signal", "SIGKILL", &plain.id]),
    )?;
    // Deleting is refused until the kill has been noticed.
    poll::until("ctr deletes the container", READY, || {
        output(stage.ctr().args(["tasks", "delete", &plain.id])).map(Some)
    })?;
    output(stage.ctr().args(["containers", "delete", &plain.id]))?;
    wait_gone(&stage.agent, &plain.cgroup)?;

    let mut client = Client::connect(&stage.socket)?;
    for pod in stage.pods.drain(..) {
        client.remove_pod(&pod.id)?;
        wait_gone(&stage.agent, &format!("{}/{}", pod.cgroup(), pod.container))?;
        wait_gone(&stage.agent, &format!("{}/{}", pod.cgroup(), pod.id))?;
    }
    // The others are still there and still named.
    for plain in &stage.plain {
        plain.is_named(&stage.agent)?;
    }
    Ok(String::new())
}
