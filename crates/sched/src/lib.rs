//! The scheduler's core: queue, cache, plugins, preemption, explanation.
//!
//! A state machine. What happens in the cluster comes in through [`Scheduler::observe`]; [`Scheduler::step`] runs one
//! scheduling cycle and says what is to be written where, as plain data; [`Scheduler::finished`] is told how a write
//! ended. Time is an argument. The same events at the same times give the same decisions.



pub mod cluster;
pub mod framework;
pub mod model;
pub mod plugins;
pub mod queue;


mod time;

pub use time::Time;
