//! The scheduler at work: the live half of `sched`.
//!
//! Follows the cluster into the core, runs its cycles, and writes what it decides: bindings, conditions, evictions,
//! events. One task owns the core and everything else tells it or asks it by channels; nothing here decides where a pod
//! goes. Configuration, extenders, election, figures and explanations are kube-scheduler's, or what it lacks.

mod actions;
pub mod config;
mod driver;
pub mod explain;
mod extender;
mod follow;
pub mod gates;
mod journal;
pub mod live;
mod metrics;
mod owed;
pub mod server;
pub mod snapshot;
mod zpages;
