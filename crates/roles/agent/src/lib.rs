//! The node role: discovery, sampling and serving put together.
//!
//! Nothing here reads flags, the environment or the real clock; it is told everything through [`Config`] and
//! [`World`].

mod agent;
mod config;
mod koordlet_page;
mod monitor;
pub mod node;
pub mod protect;
pub mod report;
mod self_metrics;
pub mod states;
mod surface;
mod view;
mod workloads;

pub use agent::{Agent, BuildError, Running, World};
pub use config::Config;
pub use view::{Membership, View};
