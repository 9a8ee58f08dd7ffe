//! What the cluster knows about this node: its pods, its object, its policy.
//!
//! Informers write [`ClusterState`]; reporters and policies read it. Nothing waits for it: fields that are not known yet
//! are `None` or a default.

mod cell;
mod claims;
pub(crate) mod cluster_state;
mod counters;
mod decode;
mod informers;
mod kubelet;
mod objects;
mod pods;
mod policy;
mod reporting_check;

pub use cell::ClusterStateCell;
pub use cluster_state::{
    Claim, ClusterState, Container, CpuPool, CpuPools, HostApplication, KubeletConfiguration, Node,
    NodeSlo, Phase, Pod,
};
pub use counters::{Counter, Counters};
pub use informers::{Config, PodSource, Running, StatesInformer, crds_missing};
pub use kubelet::{Access, AddressType, READ_ONLY_PORT};
pub(crate) use objects::Topology;
pub use pods::PodHint;
pub use reporting_check::ReportingCheck;
