//! Our Kubernetes object types, names and quantities. No I/O, ever.

pub mod cpus;
pub mod eviction_wishes;
pub mod json;
pub mod kubelet_cgroups;
pub mod label_selector;
pub mod names;
pub mod node_metric;
pub mod node_slo;
pub mod node_topology;
pub mod pod;
pub mod priority;
pub mod quantity;
