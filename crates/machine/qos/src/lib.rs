//! What a node does to keep its promises to latency-sensitive pods while others borrow its spare room: pure strategies that
//! turn a policy, pods and usage into [`plimsoll_plan::Plan`]s, each change with its reason.
//!
//! No I/O, no clock, no threads. [`Planner`] keeps the small states of all strategies; the agent gives it an [`Input`] each
//! second and hands its plans to crate `actuate`.

mod bases;
mod eviction;
#[cfg(test)]
mod fixture;
mod gate;
pub mod input;
mod metrics;
mod planner;
mod policy;
mod settings;
mod strategy;
mod windows;

pub use bases::KubeletBases;
pub use eviction::{EvictionRound, REASON as EVICTION_REASON, message as eviction_message};
pub use gate::{GateStatus, Source, Wait};
pub use input::Input;
pub use metrics::{ContainerFigure, Metrics};
pub use planner::{Planned, Planner};
pub use policy::Policy;
pub use settings::{EvictBy, Gates, Settings};
