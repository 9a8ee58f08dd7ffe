//! This machine as a Node of a cluster: registered, and kept Ready while the agent runs.
//!
//! [`facts`] reads what the machine is, [`object`] says which Node that makes, [`plan`] what must change for the
//! cluster to say the same, and [`keeper`] does it every ten seconds, as a kubelet would. Pods are not run; [`pods`] lets
//! deleted ones go.

mod facts;
mod keeper;
mod lease;
mod object;
mod plan;
mod pods;

#[cfg(test)]
mod tests;

pub use facts::{Facts, Machine};
pub use keeper::{Config, Registration, Running};
pub use object::{KUBELET_VERSION, node};
