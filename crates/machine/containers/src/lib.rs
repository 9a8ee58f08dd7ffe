//! Which containers exist on this machine, and their identity.
//!
//! Two sources are joined (`identity_join`): the cgroup trees tell *that* a container exists (`discovery`), the container
//! runtimes tell *what* it is (`runtime`). No answer is final: discovery rescans periodically, and containers without an
//! identity are queried again when a runtime connects.
//!
//! This crate takes no samples.

mod container;
mod discovery;
mod identity_join;
pub mod names;
pub mod runtime;
mod service;

pub use container::{CgroupPath, ContainerEvent, Health, Identity, Namespace};
pub use discovery::Counters as DiscoveryCounters;
pub use names::Rules;
pub use runtime::cri::stop_container;
pub use service::{BuildError, Config, Containers, Counters, Handle};
