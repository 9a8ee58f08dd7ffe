//! The kubelet's own interface to runtimes (CRI v1): for CRI-O, and for any other runtime that has no better one.

mod wire;

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};

use plimsoll_host::Timestamp;
use serde::Deserialize;

use super::containerd::{KIND_LABEL, SANDBOX_KIND, Spec};
use super::grpc::Rpc;
use super::{Event, InspectResult, ListResult, Options, RuntimeError};
use crate::{Health, Identity, Namespace};

const VERSION: &str = "/runtime.v1.RuntimeService/Version";
const LIST_CONTAINERS: &str = "/runtime.v1.RuntimeService/ListContainers";
const LIST_SANDBOXES: &str = "/runtime.v1.RuntimeService/ListPodSandbox";
const CONTAINER_STATUS: &str = "/runtime.v1.RuntimeService/ContainerStatus";
const SANDBOX_STATUS: &str = "/runtime.v1.RuntimeService/PodSandboxStatus";
const IMAGE_FS_INFO: &str = "/runtime.v1.ImageService/ImageFsInfo";
const STOP_CONTAINER: &str = "/runtime.v1.RuntimeService/StopContainer";
const EVENTS: &str = "/runtime.v1.RuntimeService/GetContainerEvents";

const CONTAINER_NAME: &str = "io.kubernetes.container.name";
const POD_NAME: &str = "io.kubernetes.pod.name";
const POD_NAMESPACE: &str = "io.kubernetes.pod.namespace";
const POD_UID: &str = "io.kubernetes.pod.uid";
const RESTART_COUNT: &str = "io.kubernetes.container.restartCount";
/// What the original calls the container that holds a pod's network.
const INFRA_NAME: &str = "POD";

/// What a runtime keeps on one file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FsUse {
    pub at: Timestamp,
    /// A directory on it.
    pub dir: String,
    pub bytes: Option<u64>,
    pub inodes: Option<u64>,
}

/// Stops a container at once, over a connection of its own. One that has ended is no error.
pub async fn stop_container(socket: &Path, id: &str) -> Result<(), RuntimeError> {
    let rpc = Rpc::connect(socket).await?;
    let request = wire::StopContainerRequest {
        container_id: id.to_owned(),
        timeout: 0,
    };
    let _: Option<wire::Everything> = rpc.call(STOP_CONTAINER, request).await?;
    Ok(())
}

/// How much of the disk a runtime takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageFs {
    pub images: FsUse,
    /// Writable layers; for most runtimes the same place.
    pub containers: FsUse,
}

/// Asks a runtime for its disk usage over a connection of its own. `Ok(None)`: it does not tell.
pub(crate) async fn image_fs(socket: &Path) -> Result<Option<ImageFs>, RuntimeError> {
    let rpc = Rpc::connect(socket).await?;
    let answer: Option<wire::ImageFsInfoResponse> =
        rpc.call(IMAGE_FS_INFO, wire::Everything {}).await?;
    Ok(answer.and_then(told))
}

/// Of several file systems the first counts, as for the kubelet.
fn told(answer: wire::ImageFsInfoResponse) -> Option<ImageFs> {
    let usage = |fs: &wire::FilesystemUsage| FsUse {
        at: Timestamp(fs.timestamp),
        dir: fs.fs_id.clone().unwrap_or_default().mountpoint,
        bytes: fs.used_bytes.map(|bytes| bytes.value),
        inodes: fs.inodes_used.map(|inodes| inodes.value),
    };
    let images = usage(answer.image_filesystems.first()?);
    let containers = answer.container_filesystems.first().map(usage);
    Some(ImageFs {
        containers: containers.unwrap_or_else(|| images.clone()),
        images,
    })
}

/// A connected CRI runtime.
#[derive(Debug)]
pub(crate) struct Cri {
    rpc: Rpc,
    namespace: Namespace,
    options: Options,
}

/// What a status call adds when asked to be verbose, the same in containerd and CRI-O as far as it goes.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Verbose {
    pid: i64,
    image: Option<serde_json::Value>,
    runtime_spec: Option<Spec>,
}

impl Cri {
    pub(crate) async fn connect(socket: &Path, options: &Options) -> Result<Self, RuntimeError> {
        let rpc = Rpc::connect(socket).await?;
        let version = version(&rpc).await?;
        let namespace = match version.runtime_name.as_str() {
            "cri-o" => Namespace::Crio,
            "docker" => Namespace::Docker,
            _ => Namespace::Containerd,
        };
        Ok(Self::new(rpc, namespace, options))
    }

    pub(super) fn new(rpc: Rpc, namespace: Namespace, options: &Options) -> Self {
        Self {
            rpc,
            namespace,
            options: options.clone(),
        }
    }

    pub(crate) fn namespace(&self) -> Namespace {
        self.namespace
    }

    pub(crate) async fn ping(&self) -> Result<(), RuntimeError> {
        version(&self.rpc).await.map(|_| ())
    }

    /// With the runtime's name for itself.
    pub(crate) async fn version(&self) -> Result<(String, String), RuntimeError> {
        let answer = version(&self.rpc).await?;
        Ok((answer.runtime_name, answer.runtime_version))
    }

    pub(crate) async fn inspect(&self, id: &str) -> Result<InspectResult, RuntimeError> {
        if let Some(answer) = self.container(id, true).await?
            && let Some(status) = answer.status
        {
            return Ok(self.container_seen(status, &verbose(&answer.info)));
        }
        let question = wire::PodSandboxStatusRequest {
            pod_sandbox_id: id.to_owned(),
            verbose: true,
        };
        let answer: Option<wire::PodSandboxStatusResponse> =
            self.rpc.call(SANDBOX_STATUS, question).await?;
        Ok(match answer {
            Some(wire::PodSandboxStatusResponse {
                status: Some(status),
                info,
            }) => self.sandbox_seen(status, &verbose(&info)),
            _ => InspectResult::Unknown,
        })
    }

    async fn container(
        &self,
        id: &str,
        verbose: bool,
    ) -> Result<Option<wire::ContainerStatusResponse>, RuntimeError> {
        let question = wire::ContainerStatusRequest {
            container_id: id.to_owned(),
            verbose,
        };
        self.rpc.call(CONTAINER_STATUS, question).await
    }

    pub(crate) async fn list(&self) -> Result<ListResult, RuntimeError> {
        let (containers, sandboxes) = tokio::join!(
            self.rpc
                .call::<_, wire::Listed>(LIST_CONTAINERS, wire::Everything {}),
            self.rpc
                .call::<_, wire::Listed>(LIST_SANDBOXES, wire::Everything {}),
        );
        let items = [containers?, sandboxes?]
            .into_iter()
            .flatten()
            .flat_map(|listed| listed.items);
        Ok(ListResult::Ids(items.map(|item| item.id).collect()))
    }

    pub(crate) async fn exit_code(&self, id: &str) -> Result<Option<i32>, RuntimeError> {
        let answer = self.container(id, false).await?;
        let status = answer.and_then(|answer| answer.status);
        Ok(status.and_then(|status| status.ended()))
    }

    pub(crate) async fn follow(
        &self,
        mut each: impl FnMut(Event) + Send,
    ) -> Result<(), RuntimeError> {
        let stream = self.rpc.stream(EVENTS, wire::Everything {}).await;
        let mut stream = match stream {
            // CRI-O refuses in words where the feature is switched off.
            Err(RuntimeError::Refused { .. }) => return Err(RuntimeError::Unsupported),
            stream => stream?,
        };
        while let Some(message) = stream.next().await? {
            let message: wire::ContainerEvent = message;
            let ended = message
                .containers_statuses
                .iter()
                .find(|status| status.id == message.container_id)
                .and_then(wire::ContainerStatus::ended);
            each(match (message.kind, ended) {
                (wire::STOPPED_EVENT, Some(code)) => Event::Exited(message.container_id, code),
                _ => Event::Changed(message.container_id),
            });
        }
        Ok(())
    }

    fn container_seen(&self, status: wire::ContainerStatus, verbose: &Verbose) -> InspectResult {
        let metadata = status.metadata.unwrap_or_default();
        let mut labels: BTreeMap<_, _> = status.labels.into_iter().collect();
        let name = kube_name(&metadata.name, &labels, metadata.attempt);
        let restarts = status.annotations.get(RESTART_COUNT);
        let restarts = restarts.and_then(|count| count.parse::<i64>().ok());
        match self.namespace {
            Namespace::Containerd => {
                labels.insert(KIND_LABEL.to_owned(), "container".to_owned());
            }
            _ if restarts.is_some_and(|count| count > 0) => {
                let count = restarts.unwrap_or_default().to_string();
                labels.insert("restartcount".to_owned(), count);
            }
            _ => {}
        }
        let image = status.image.unwrap_or_default();
        let log_path = Some(status.log_path).filter(|path| !path.is_empty());
        self.seen(Identity {
            id: status.id,
            aliases: vec![name],
            image: match image.user_specified_image.is_empty() {
                true => image.image,
                false => image.user_specified_image,
            },
            labels,
            created: timestamp(status.created_at),
            started: timestamp(status.started_at),
            log_dir: log_path.map(PathBuf::from),
            ..self.blank(verbose)
        })
    }

    fn sandbox_seen(&self, status: wire::PodSandboxStatus, verbose: &Verbose) -> InspectResult {
        let metadata = status.metadata.unwrap_or_default();
        let mut labels: BTreeMap<_, _> = status.labels.into_iter().collect();
        let name = format!(
            "k8s_{INFRA_NAME}_{}_{}_{}_{}",
            metadata.name, metadata.namespace, metadata.uid, metadata.attempt
        );
        let (key, value) = match self.namespace {
            Namespace::Containerd => (KIND_LABEL, SANDBOX_KIND),
            _ => (CONTAINER_NAME, INFRA_NAME),
        };
        labels.insert(key.to_owned(), value.to_owned());
        self.seen(Identity {
            id: status.id,
            aliases: vec![name],
            image: match &verbose.image {
                Some(serde_json::Value::String(image)) => image.clone(),
                _ => String::new(),
            },
            labels,
            created: timestamp(status.created_at),
            owns_network: true,
            ..self.blank(verbose)
        })
    }

    fn blank(&self, verbose: &Verbose) -> Identity {
        let spec = verbose.runtime_spec.as_ref();
        let env = spec
            .and_then(|spec| spec.process.as_ref()?.env.as_deref())
            .unwrap_or_default();
        // The mounted root is not the place where the container's own bytes are; its neighbour is.
        let layer = spec
            .and_then(|spec| spec.root.as_ref()?.path.strip_suffix("/merged"))
            .filter(|_| self.namespace == Namespace::Crio)
            .map(|dir| PathBuf::from(format!("{dir}/diff")));
        Identity {
            namespace: self.namespace,
            id: String::new(),
            aliases: Vec::new(),
            image: String::new(),
            labels: BTreeMap::new(),
            envs: self
                .options
                .envs(env.iter().map(String::as_str), str::to_owned),
            created: None,
            started: None,
            pid: u32::try_from(verbose.pid).ok().filter(|pid| *pid > 0),
            owns_network: false,
            health: Health::default(),
            writable_layer: layer,
            log_dir: None,
        }
    }

    fn seen(&self, mut identity: Identity) -> InspectResult {
        identity.aliases.push(identity.id.clone());
        if self.namespace == Namespace::Containerd {
            // As containerd's own services have it: neither of these is known there.
            identity.log_dir = None;
            identity.started = None;
        }
        match identity.pid {
            Some(_) => InspectResult::CgroupTree(Box::new(identity)),
            None => InspectResult::Starting(Box::new(identity)),
        }
    }
}

async fn version(rpc: &Rpc) -> Result<wire::VersionResponse, RuntimeError> {
    let answer = rpc.call(VERSION, wire::Everything {}).await?;
    answer.ok_or(RuntimeError::Unsupported)
}

fn verbose(info: &HashMap<String, String>) -> Verbose {
    let text = info.get("info").map_or("{}", String::as_str);
    serde_json::from_str(text).unwrap_or_else(|error| {
        tracing::debug!(%error, "verbose container status cannot be understood");
        Verbose::default()
    })
}

/// The name that Docker's kubelet shim gave containers, which CRI-O kept.
fn kube_name(container: &str, labels: &BTreeMap<String, String>, attempt: u32) -> String {
    let label = |key: &str| labels.get(key).map_or("", String::as_str);
    format!(
        "k8s_{container}_{}_{}_{}_{attempt}",
        label(POD_NAME),
        label(POD_NAMESPACE),
        label(POD_UID)
    )
}

fn timestamp(nanos: i64) -> Option<Timestamp> {
    (nanos > 0).then_some(Timestamp(nanos))
}

#[cfg(test)]
mod tests;
