//! This machine as a Node of a cluster: registered, and kept Ready while the agent runs.
//!
//! [`node_facts`] reads the machine, [`object`] makes the Node, [`plan`] computes the patches, and [`registrar`] applies
//! them every ten seconds, as a kubelet would. Pods are not run; [`pod_finalizer`] deletes terminating ones.

mod lease;
mod node_facts;
mod object;
mod plan;
mod pod_finalizer;
mod registrar;

#[cfg(test)]
mod tests;

pub use node_facts::{Facts, Machine};
pub use object::{KUBELET_VERSION, node};
pub use registrar::{Config, NodeRegistrar, Running};
