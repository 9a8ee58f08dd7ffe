//! The node role: discovery, sampling and serving put together.
//!
//! Nothing here reads flags, the environment or the real clock; it is told everything through [`Config`] and
//! [`World`].

mod agent;
mod cadvisor_backend;
mod config;
mod koordlet_metrics;
mod metrics;
mod monitor;
mod node_handle;
pub mod protect;
pub mod registration;
pub mod reports;
pub mod states;
mod workloads;

pub use agent::{Agent, BuildError, Running, World};
pub use config::Config;
pub use node_handle::{ClusterHealth, NodeHandle};
