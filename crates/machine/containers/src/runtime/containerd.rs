//! containerd's own services, which say more than its CRI face: the labels are exactly those that the original exports.

mod wire;

use std::collections::HashMap;
use std::path::Path;

use plimsoll_host::Timestamp;
use prost::Message;
use serde::Deserialize;

use super::cri::Cri;
use super::grpc::Rpc;
use super::{Event, InspectResult, ListResult, Options, RuntimeError};
use crate::{Health, Identity, Namespace};

const NAMESPACE_HEADER: &str = "containerd-namespace";
const VERSION: &str = "/containerd.services.version.v1.Version/Version";
const GET_CONTAINER: &str = "/containerd.services.containers.v1.Containers/Get";
/// One message a container: a plain list of many would be larger than containerd lets a message be.
const LIST_CONTAINERS: &str = "/containerd.services.containers.v1.Containers/ListStream";
const GET_TASK: &str = "/containerd.services.tasks.v1.Tasks/Get";
const LIST_TASKS: &str = "/containerd.services.tasks.v1.Tasks/List";
const SUBSCRIBE: &str = "/containerd.services.events.v1.Events/Subscribe";

const TASK_START: &str = "/tasks/start";
const TASK_EXIT: &str = "/tasks/exit";
const CONTAINER_UPDATE: &str = "/containers/update";

/// The label by which containerd's CRI tells a pod's sandbox, which owns the network, from its containers.
pub(super) const KIND_LABEL: &str = "io.cri-containerd.kind";
pub(super) const SANDBOX_KIND: &str = "sandbox";

/// A connected containerd, looking at one of its namespaces.
#[derive(Debug)]
pub(crate) struct Containerd {
    rpc: Rpc,
    /// Remembers exit codes after the task itself was deleted.
    cri: Cri,
    namespace: String,
    options: Options,
}

impl Containerd {
    pub(crate) async fn connect(
        socket: &Path,
        namespace: &str,
        options: &Options,
    ) -> Result<Self, RuntimeError> {
        let rpc = Rpc::connect(socket).await?;
        let cri = Cri::new(rpc.clone(), Namespace::Containerd, options);
        let client = Self {
            rpc: rpc.with_header(NAMESPACE_HEADER, namespace)?,
            cri,
            namespace: namespace.to_owned(),
            options: options.clone(),
        };
        client.ping().await?;
        Ok(client)
    }

    pub(crate) async fn ping(&self) -> Result<(), RuntimeError> {
        self.version().await.map(|_| ())
    }

    pub(crate) async fn version(&self) -> Result<String, RuntimeError> {
        let answer: Option<wire::VersionResponse> = self.rpc.call(VERSION, ()).await?;
        answer.map(|v| v.version).ok_or(RuntimeError::Unsupported)
    }

    pub(crate) async fn inspect(&self, id: &str) -> Result<InspectResult, RuntimeError> {
        let question = wire::GetContainerRequest { id: id.to_owned() };
        let container = self.rpc.call(GET_CONTAINER, question);
        let (container, task) = tokio::join!(container, self.task(id));
        let found: Option<wire::GetContainerResponse> = container?;
        let Some(container) = found.and_then(|found| found.container) else {
            return Ok(InspectResult::Unknown);
        };
        Ok(self.seen(container, task?.as_ref()))
    }

    async fn task(&self, id: &str) -> Result<Option<wire::Process>, RuntimeError> {
        let question = wire::GetTaskRequest {
            container_id: id.to_owned(),
        };
        let answer: Option<wire::GetTaskResponse> = self.rpc.call(GET_TASK, question).await?;
        Ok(answer.and_then(|answer| answer.process))
    }

    pub(crate) async fn list(&self) -> Result<ListResult, RuntimeError> {
        let tasks = self.rpc.call(LIST_TASKS, wire::ListTasksRequest {}).await?;
        let tasks: wire::ListTasksResponse = tasks.unwrap_or_default();
        let tasks: HashMap<String, wire::Process> = tasks
            .tasks
            .into_iter()
            .map(|task| (task.name().to_owned(), task))
            .collect();
        let question = wire::ListContainersRequest {};
        let mut stream = self.rpc.stream(LIST_CONTAINERS, question).await?;
        let mut all = Vec::new();
        while let Some(message) = stream.next().await? {
            let message: wire::ListContainerMessage = message;
            if let Some(container) = message.container {
                let task = tasks.get(&container.id);
                all.push(self.seen(container, task));
            }
        }
        Ok(ListResult::Full(all))
    }

    pub(crate) async fn exit_code(&self, id: &str) -> Result<Option<i32>, RuntimeError> {
        match self.task(id).await? {
            Some(task) if task.status == wire::STOPPED => Ok(i32::try_from(task.exit_status).ok()),
            Some(_) => Ok(None),
            None => self.cri.exit_code(id).await,
        }
    }

    pub(crate) async fn follow(
        &self,
        mut each: impl FnMut(Event) + Send,
    ) -> Result<(), RuntimeError> {
        let filters = [TASK_START, TASK_EXIT, CONTAINER_UPDATE]
            .map(|topic| format!("topic=={topic:?}"))
            .to_vec();
        let question = wire::SubscribeRequest { filters };
        let mut stream = self.rpc.stream(SUBSCRIBE, question).await?;
        while let Some(envelope) = stream.next().await? {
            let envelope: wire::Envelope = envelope;
            if envelope.namespace != self.namespace {
                continue;
            }
            if let Some(event) = event(&envelope)? {
                each(event);
            }
        }
        Ok(())
    }

    fn seen(&self, container: wire::Container, task: Option<&wire::Process>) -> InspectResult {
        let task = task.filter(|task| task.status != wire::UNKNOWN);
        let identity = Identity {
            namespace: Namespace::Containerd,
            // The second alias is the cgroup's path, which is not known here.
            aliases: vec![container.id.clone()],
            image: container.image,
            envs: self.envs(&container.id, container.spec.as_ref()),
            created: container
                .created_at
                .map(|at| Timestamp(at.nanos()))
                .filter(|at| at.nanos() > 0),
            started: None,
            pid: task.map(|task| task.pid).filter(|pid| *pid > 0),
            owns_network: container.labels.get(KIND_LABEL).map(String::as_str)
                == Some(SANDBOX_KIND),
            health: Health::default(),
            writable_layer: None,
            log_dir: None,
            labels: container.labels.into_iter().collect(),
            id: container.id,
        };
        match identity.pid {
            Some(_) => InspectResult::CgroupTree(Box::new(identity)),
            None => InspectResult::Starting(Box::new(identity)),
        }
    }

    /// A container's environment is in its OCI specification, which is large and read only if someone wants it.
    fn envs(
        &self,
        id: &str,
        spec: Option<&wire::Any>,
    ) -> std::collections::BTreeMap<String, String> {
        if self.options.env_whitelist.iter().all(String::is_empty) {
            return Default::default();
        }
        let spec = spec.map_or(&[][..], |any| &any.value);
        match serde_json::from_slice::<Spec>(spec) {
            Ok(spec) => {
                let variables = spec.process.and_then(|p| p.env).unwrap_or_default();
                self.options
                    .envs(variables.iter().map(String::as_str), str::to_owned)
            }
            Err(error) => {
                tracing::debug!(id, %error, "container specification cannot be understood");
                Default::default()
            }
        }
    }
}

/// The part of an OCI runtime specification that is used.
#[derive(Debug, Default, Deserialize)]
pub(super) struct Spec {
    pub process: Option<Process>,
    pub root: Option<Root>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Process {
    pub env: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize)]
pub(super) struct Root {
    #[serde(default)]
    pub path: String,
}

fn event(envelope: &wire::Envelope) -> Result<Option<Event>, RuntimeError> {
    let bytes = envelope.event.as_ref().map_or(&[][..], |any| &any.value);
    let malformed = |error: prost::DecodeError| RuntimeError::Malformed(error.to_string().into());
    match envelope.topic.as_str() {
        TASK_START => {
            let start = wire::TaskStart::decode(bytes).map_err(malformed)?;
            Ok(Some(Event::Changed(start.container_id)))
        }
        TASK_EXIT => {
            let exit = wire::TaskExit::decode(bytes).map_err(malformed)?;
            // The end of a process that someone put into the container says nothing about the container.
            let is_first = exit.id == exit.container_id;
            let code = i32::try_from(exit.exit_status).ok().filter(|_| is_first);
            Ok(code.map(|code| Event::Exited(exit.container_id, code)))
        }
        CONTAINER_UPDATE => {
            let update = wire::ContainerUpdate::decode(bytes).map_err(malformed)?;
            Ok(Some(Event::Changed(update.id)))
        }
        _ => Ok(None),
    }
}

#[cfg(test)]
mod tests;
