//! Which containers exist on this machine, and who they are.
//!
//! Two independent sources are joined here: the cgroup trees say *that* a container exists (`discovery`), the
//! container runtimes say *who* it is (`runtime`). Neither is once-and-for-all: discovery is confirmed by periodic
//! rescans, and a container that no runtime could name yet is asked for again when a runtime answers.
//!
//! This crate takes no samples.

mod discovery;
mod herald;
mod identity;
pub mod names;
pub mod runtime;
mod service;

pub use discovery::Counters as DiscoveryCounters;
pub use identity::{CgroupPath, Change, Health, Identity, Namespace};
pub use names::Rules;
pub use runtime::cri::stop_container;
pub use service::{BuildError, Config, Containers, Counters, Handle};
