//! The few calls of the Kubernetes container runtime interface that make and end a pod. Field numbers are those of
//! `runtime.v1`'s `api.proto`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use hyper_util::rt::TokioIo;
use prost::Message;
use tokio::net::UnixStream;
use tokio::runtime::Runtime;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint, Uri};

const CALL: Duration = Duration::from_secs(30);

#[derive(Clone, PartialEq, Message)]
pub struct PodMetadata {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub uid: String,
    #[prost(string, tag = "3")]
    pub namespace: String,
    #[prost(uint32, tag = "4")]
    pub attempt: u32,
}

#[derive(Clone, PartialEq, Message)]
pub struct LinuxPod {
    #[prost(string, tag = "1")]
    pub cgroup_parent: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct PodConfig {
    #[prost(message, optional, tag = "1")]
    pub metadata: Option<PodMetadata>,
    #[prost(string, tag = "2")]
    pub hostname: String,
    #[prost(string, tag = "3")]
    pub log_directory: String,
    #[prost(map = "string, string", tag = "6")]
    pub labels: HashMap<String, String>,
    #[prost(message, optional, tag = "8")]
    pub linux: Option<LinuxPod>,
}

#[derive(Clone, PartialEq, Message)]
struct RunPod {
    #[prost(message, optional, tag = "1")]
    config: Option<PodConfig>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ContainerMetadata {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(uint32, tag = "2")]
    pub attempt: u32,
}

#[derive(Clone, PartialEq, Message)]
pub struct Image {
    #[prost(string, tag = "1")]
    pub image: String,
}

#[derive(Clone, PartialEq, Message)]
pub struct Resources {
    #[prost(int64, tag = "1")]
    pub cpu_period: i64,
    #[prost(int64, tag = "2")]
    pub cpu_quota: i64,
    #[prost(int64, tag = "4")]
    pub memory_limit_in_bytes: i64,
}

#[derive(Clone, PartialEq, Message)]
pub struct LinuxContainer {
    #[prost(message, optional, tag = "1")]
    pub resources: Option<Resources>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ContainerConfig {
    #[prost(message, optional, tag = "1")]
    pub metadata: Option<ContainerMetadata>,
    #[prost(message, optional, tag = "2")]
    pub image: Option<Image>,
    #[prost(string, repeated, tag = "3")]
    pub command: Vec<String>,
    #[prost(map = "string, string", tag = "9")]
    pub labels: HashMap<String, String>,
    #[prost(message, optional, tag = "15")]
    pub linux: Option<LinuxContainer>,
}

#[derive(Clone, PartialEq, Message)]
struct CreateContainer {
    #[prost(string, tag = "1")]
    pod: String,
    #[prost(message, optional, tag = "2")]
    config: Option<ContainerConfig>,
    #[prost(message, optional, tag = "3")]
    pod_config: Option<PodConfig>,
}

/// Every request or answer that is one id in its first field.
#[derive(Clone, PartialEq, Message)]
struct Id {
    #[prost(string, tag = "1")]
    id: String,
}

#[derive(Clone, PartialEq, Message)]
struct Nothing {}

/// A blocking client: the tests go step by step.
#[derive(Debug)]
pub struct Client {
    runtime: Runtime,
    grpc: Grpc<Channel>,
}

impl Client {
    pub fn connect(socket: &Path) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let socket: PathBuf = socket.to_owned();
        let connector = tower::service_fn(move |_: Uri| {
            let socket = socket.clone();
            async move { UnixStream::connect(socket).await.map(TokioIo::new) }
        });
        // The address is only a form to fill in; the connector decides.
        let endpoint = Endpoint::from_static("http://cri").timeout(CALL);
        let channel = runtime.block_on(endpoint.connect_with_connector(connector))?;
        Ok(Self {
            runtime,
            grpc: Grpc::new(channel),
        })
    }

    pub fn version(&mut self) -> Result<()> {
        self.call::<_, Nothing>("Version", Nothing {}).map(|_| ())
    }

    pub fn run_pod(&mut self, config: &PodConfig) -> Result<String> {
        let request = RunPod {
            config: Some(config.clone()),
        };
        Ok(self.call::<_, Id>("RunPodSandbox", request)?.id)
    }

    /// Creates and starts.
    pub fn run_container(
        &mut self,
        pod: &str,
        pod_config: &PodConfig,
        config: ContainerConfig,
    ) -> Result<String> {
        let request = CreateContainer {
            pod: pod.to_owned(),
            config: Some(config),
            pod_config: Some(pod_config.clone()),
        };
        let created: Id = self.call("CreateContainer", request)?;
        self.call::<_, Nothing>("StartContainer", created.clone())?;
        Ok(created.id)
    }

    /// Stops the pod with its containers and forgets it.
    pub fn remove_pod(&mut self, pod: &str) -> Result<()> {
        let pod = Id { id: pod.to_owned() };
        self.call::<_, Nothing>("StopPodSandbox", pod.clone())?;
        self.call::<_, Nothing>("RemovePodSandbox", pod)?;
        Ok(())
    }

    fn call<Q, A>(&mut self, method: &'static str, request: Q) -> Result<A>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let path = format!("/runtime.v1.RuntimeService/{method}");
        let path = http::uri::PathAndQuery::try_from(path)?;
        let grpc = &mut self.grpc;
        let answer = self.runtime.block_on(async {
            grpc.ready()
                .await
                .map_err(|error| tonic::Status::unavailable(error.to_string()))?;
            let codec = tonic_prost::ProstCodec::<Q, A>::default();
            grpc.unary(tonic::Request::new(request), path, codec).await
        });
        let answer = answer.with_context(|| format!("CRI call {method}"))?;
        Ok(answer.into_inner())
    }
}
