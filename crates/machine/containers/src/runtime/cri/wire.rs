//! CRI v1 messages, as far as they are used: the numbers are the fields' tags in the published protocol.

use std::collections::HashMap;

pub(super) const STOPPED_EVENT: i32 = 2;
const EXITED_STATE: i32 = 2;

/// Every request whose fields are all optional.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Everything {}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct StopContainerRequest {
    #[prost(string, tag = "1")]
    pub container_id: String,
    /// Seconds until it is killed.
    #[prost(int64, tag = "2")]
    pub timeout: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct VersionResponse {
    #[prost(string, tag = "2")]
    pub runtime_name: String,
    #[prost(string, tag = "3")]
    pub runtime_version: String,
}

/// The answer of both list calls: containers and sandboxes alike are items with an id in front.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Listed {
    #[prost(message, repeated, tag = "1")]
    pub items: Vec<Item>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Item {
    #[prost(string, tag = "1")]
    pub id: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ContainerStatusRequest {
    #[prost(string, tag = "1")]
    pub container_id: String,
    #[prost(bool, tag = "2")]
    pub verbose: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ContainerStatusResponse {
    #[prost(message, optional, tag = "1")]
    pub status: Option<ContainerStatus>,
    #[prost(map = "string, string", tag = "2")]
    pub info: HashMap<String, String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ContainerStatus {
    #[prost(string, tag = "1")]
    pub id: String,
    #[prost(message, optional, tag = "2")]
    pub metadata: Option<ContainerMetadata>,
    #[prost(int32, tag = "3")]
    pub state: i32,
    #[prost(int64, tag = "4")]
    pub created_at: i64,
    #[prost(int64, tag = "5")]
    pub started_at: i64,
    #[prost(int32, tag = "7")]
    pub exit_code: i32,
    #[prost(message, optional, tag = "8")]
    pub image: Option<ImageSpec>,
    #[prost(map = "string, string", tag = "12")]
    pub labels: HashMap<String, String>,
    #[prost(map = "string, string", tag = "13")]
    pub annotations: HashMap<String, String>,
    #[prost(string, tag = "15")]
    pub log_path: String,
}

impl ContainerStatus {
    /// The exit code of a container that has ended.
    pub fn ended(&self) -> Option<i32> {
        (self.state == EXITED_STATE).then_some(self.exit_code)
    }
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ContainerMetadata {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(uint32, tag = "2")]
    pub attempt: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ImageSpec {
    #[prost(string, tag = "1")]
    pub image: String,
    #[prost(string, tag = "18")]
    pub user_specified_image: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct PodSandboxStatusRequest {
    #[prost(string, tag = "1")]
    pub pod_sandbox_id: String,
    #[prost(bool, tag = "2")]
    pub verbose: bool,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct PodSandboxStatusResponse {
    #[prost(message, optional, tag = "1")]
    pub status: Option<PodSandboxStatus>,
    #[prost(map = "string, string", tag = "2")]
    pub info: HashMap<String, String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct PodSandboxStatus {
    #[prost(string, tag = "1")]
    pub id: String,
    #[prost(message, optional, tag = "2")]
    pub metadata: Option<PodSandboxMetadata>,
    #[prost(int64, tag = "4")]
    pub created_at: i64,
    #[prost(map = "string, string", tag = "7")]
    pub labels: HashMap<String, String>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct PodSandboxMetadata {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub uid: String,
    #[prost(string, tag = "3")]
    pub namespace: String,
    #[prost(uint32, tag = "4")]
    pub attempt: u32,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ImageFsInfoResponse {
    #[prost(message, repeated, tag = "1")]
    pub image_filesystems: Vec<FilesystemUsage>,
    #[prost(message, repeated, tag = "2")]
    pub container_filesystems: Vec<FilesystemUsage>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct FilesystemUsage {
    #[prost(int64, tag = "1")]
    pub timestamp: i64,
    #[prost(message, optional, tag = "2")]
    pub fs_id: Option<FilesystemIdentifier>,
    #[prost(message, optional, tag = "3")]
    pub used_bytes: Option<UInt64Value>,
    #[prost(message, optional, tag = "4")]
    pub inodes_used: Option<UInt64Value>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct FilesystemIdentifier {
    #[prost(string, tag = "1")]
    pub mountpoint: String,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
pub(super) struct UInt64Value {
    #[prost(uint64, tag = "1")]
    pub value: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ContainerEvent {
    #[prost(string, tag = "1")]
    pub container_id: String,
    #[prost(int32, tag = "2")]
    pub kind: i32,
    #[prost(message, repeated, tag = "5")]
    pub containers_statuses: Vec<ContainerStatus>,
}
