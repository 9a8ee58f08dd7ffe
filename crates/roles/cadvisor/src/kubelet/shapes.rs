//! The summary's JSON.

use serde::Serialize;

use crate::rest::PsiPair;
use crate::rest::json::Seconds;

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Node<'a> {
    pub node_name: &'a str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub system_containers: Vec<Container<'a>>,
    pub start_time: Seconds,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Cpu>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io: Option<Io>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fs: Option<Fs>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime: Option<Runtime>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rlimit: Option<Rlimit>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swap: Option<Swap>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Runtime {
    pub image_fs: Fs,
    pub container_fs: Fs,
}

#[derive(Debug, Serialize)]
pub struct Rlimit {
    pub time: Seconds,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub maxpid: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub curproc: Option<u64>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Pod<'a> {
    pub pod_ref: PodRef<'a>,
    pub start_time: Seconds,
    pub containers: Vec<Container<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Cpu>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io: Option<Io>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volume: Vec<Volume<'a>>,
    #[serde(rename = "ephemeral-storage", skip_serializing_if = "Option::is_none")]
    pub ephemeral_storage: Option<Fs>,
    #[serde(rename = "process_stats", skip_serializing_if = "Option::is_none")]
    pub process_stats: Option<ProcessCount>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swap: Option<Swap>,
}

#[derive(Debug, Serialize)]
pub struct PodRef<'a> {
    pub name: &'a str,
    pub namespace: &'a str,
    pub uid: &'a str,
}

#[derive(Debug, Serialize)]
pub struct ProcessCount {
    pub process_count: u64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Container<'a> {
    pub name: &'a str,
    pub start_time: Seconds,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Cpu>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io: Option<Io>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rootfs: Option<Fs>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logs: Option<Fs>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swap: Option<Swap>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Cpu {
    pub time: Seconds,
    /// Absent until there are two samples.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage_nano_cores: Option<u64>,
    pub usage_core_nano_seconds: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub psi: Option<PsiPair>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Memory {
    pub time: Seconds,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available_bytes: Option<u64>,
    pub usage_bytes: u64,
    pub working_set_bytes: u64,
    pub rss_bytes: u64,
    pub page_faults: u64,
    pub major_page_faults: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub psi: Option<PsiPair>,
}

#[derive(Debug, Serialize)]
pub struct Io {
    pub time: Seconds,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub psi: Option<PsiPair>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Swap {
    pub time: Seconds,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub swap_available_bytes: Option<u64>,
    pub swap_usage_bytes: u64,
}

#[derive(Debug, Serialize)]
pub struct Network {
    pub time: Seconds,
    #[serde(flatten)]
    pub main: Interface,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub interfaces: Vec<Interface>,
}

/// Without figures where there is no such interface.
#[derive(Debug, Clone, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Interface {
    pub name: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rx_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rx_errors: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tx_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tx_errors: Option<u64>,
}

#[derive(Debug, Serialize)]
pub struct Volume<'a> {
    #[serde(flatten)]
    pub fs: Fs,
    pub name: &'a str,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Fs {
    pub time: Seconds,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub available_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub used_bytes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inodes_free: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inodes: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inodes_used: Option<u64>,
}
