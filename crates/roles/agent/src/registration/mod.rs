//! This machine as a Node of a cluster: registered, and kept Ready while the agent runs.
//!
//! [`facts`] reads what the machine is, [`object`] says which Node that makes, [`plan`] what must change for the
//! cluster to say the same, and [`registrar`] does it every ten seconds, as a kubelet would. Pods are not run; [`pod_finalizer`] lets
//! deleted ones go.

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
