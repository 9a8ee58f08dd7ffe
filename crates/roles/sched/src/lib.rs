//! The scheduler's core: queue, cache, plugins, preemption, explanation.
//!
//! A state machine. What happens in the cluster comes in through [`Scheduler::observe`]; [`Scheduler::step`] runs one
//! scheduling cycle and says what is to be written where, as plain data; [`Scheduler::finished`] is told how a write
//! ended. Time is an argument. The same events at the same times give the same decisions.

pub mod action;
pub mod cluster;
pub mod explain;
pub mod extender;
mod features;
pub mod framework;
pub mod model;
pub mod plugins;
pub mod preemption;
pub mod queue;
pub mod sandbox;
mod scheduler;
pub mod what_if;

mod time;

pub use features::Features;
pub use framework::workers::Parallelism;
pub use scheduler::{Config, Cycle, GivenUp, Observation, Outcome, Scheduler};
pub use time::Time;
