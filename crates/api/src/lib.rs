//! Our Kubernetes object types, names and quantities. No I/O, ever.

pub mod label_selector;
pub mod names;
pub mod node_metric;
pub mod priority;
pub mod quantity;
