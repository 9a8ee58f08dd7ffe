//! containerd's messages, as far as they are used: the numbers are the fields' tags in its published protocol.

use std::collections::HashMap;

/// A task's state while containerd cannot reach its shim, or the shim has not made it yet.
pub(super) const UNKNOWN: i32 = 0;
pub(super) const STOPPED: i32 = 3;

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct VersionResponse {
    #[prost(string, tag = "1")]
    pub version: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Any {
    #[prost(string, tag = "1")]
    pub type_url: String,
    #[prost(bytes = "vec", tag = "2")]
    pub value: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(super) struct Time {
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    #[prost(int32, tag = "2")]
    pub nanoseconds: i32,
}

impl Time {
    pub fn nanos(self) -> i64 {
        self.seconds
            .saturating_mul(1_000_000_000)
            .saturating_add(i64::from(self.nanoseconds))
    }
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Container {
    #[prost(string, tag = "1")]
    pub id: String,
    #[prost(map = "string, string", tag = "2")]
    pub labels: HashMap<String, String>,
    #[prost(string, tag = "3")]
    pub image: String,
    #[prost(message, optional, tag = "5")]
    pub spec: Option<Any>,
    #[prost(message, optional, tag = "8")]
    pub created_at: Option<Time>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct GetContainerRequest {
    #[prost(string, tag = "1")]
    pub id: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct GetContainerResponse {
    #[prost(message, optional, tag = "1")]
    pub container: Option<Container>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ListContainersRequest {}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ListContainerMessage {
    #[prost(message, optional, tag = "1")]
    pub container: Option<Container>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Process {
    #[prost(string, tag = "1")]
    pub container_id: String,
    /// What a list fills in instead of the container's id.
    #[prost(string, tag = "2")]
    pub id: String,
    #[prost(uint32, tag = "3")]
    pub pid: u32,
    #[prost(int32, tag = "4")]
    pub status: i32,
    #[prost(uint32, tag = "9")]
    pub exit_status: u32,
}

impl Process {
    /// The container's id, in whichever of the fields it came.
    pub fn name(&self) -> &str {
        match self.container_id.is_empty() {
            true => &self.id,
            false => &self.container_id,
        }
    }
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct GetTaskRequest {
    #[prost(string, tag = "1")]
    pub container_id: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct GetTaskResponse {
    #[prost(message, optional, tag = "1")]
    pub process: Option<Process>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ListTasksRequest {}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ListTasksResponse {
    #[prost(message, repeated, tag = "1")]
    pub tasks: Vec<Process>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct SubscribeRequest {
    #[prost(string, repeated, tag = "1")]
    pub filters: Vec<String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Envelope {
    #[prost(string, tag = "2")]
    pub namespace: String,
    #[prost(string, tag = "3")]
    pub topic: String,
    #[prost(message, optional, tag = "4")]
    pub event: Option<Any>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct TaskStart {
    #[prost(string, tag = "1")]
    pub container_id: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct TaskExit {
    #[prost(string, tag = "1")]
    pub container_id: String,
    #[prost(string, tag = "2")]
    pub id: String,
    #[prost(uint32, tag = "4")]
    pub exit_status: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ContainerUpdate {
    #[prost(string, tag = "1")]
    pub id: String,
}
