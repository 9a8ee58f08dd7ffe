//! From the wire's JSON to the slim types. Fields that scheduling does not read are skipped by the parser.

mod devices;
mod in_tree;
mod meta;
mod node;
mod pod;
mod selectors;
mod volumes;
mod workloads;

pub use devices::{device_class, resource_claim, resource_slice, taint_rule};
pub use node::{node, node_metric};
pub use pod::{node_affinity, pod};
pub use volumes::{
    csi_driver, csi_node, csi_storage_capacity, persistent_volume, storage_class,
    volume_attachment, volume_claim,
};
pub use workloads::{disruption_budget, namespace, pod_group, service, workload};

use serde::Deserialize;

/// An object that cannot be read. Nothing of it is used; the rest of the cluster goes on.
#[derive(Debug, thiserror::Error)]
pub enum DecodeError {
    #[error("not a {kind} object")]
    Json {
        kind: &'static str,
        #[source]
        source: serde_json::Error,
    },
    #[error("{kind} {object}: {field}: bad quantity {text:?}")]
    Quantity {
        kind: &'static str,
        object: Box<str>,
        field: Box<str>,
        text: Box<str>,
    },
    #[error("{kind} {object}: {field}: unknown value {text:?}")]
    Unknown {
        kind: &'static str,
        object: Box<str>,
        field: &'static str,
        text: Box<str>,
    },
}

pub type Result<T> = std::result::Result<T, DecodeError>;

fn parse<'a, T: Deserialize<'a>>(kind: &'static str, json: &'a [u8]) -> Result<T> {
    serde_json::from_slice(json).map_err(|source| DecodeError::Json { kind, source })
}
