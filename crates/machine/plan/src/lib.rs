//! What is to be changed on a machine, as plain data.
//!
//! Strategies (crate `qos`) and hooks (crate `hooks`) make a [`Plan`]; crate `actuate` applies it. A plan says what its
//! asker wants *now*, completely: what the asker wanted before and does not name any more goes back to its base. So a
//! strategy that is turned off, an annotation that is removed and a pod that is deleted need no code of their own.
//!
//! This crate has no I/O, no clock and no Kubernetes objects.

mod base;
mod effect;
mod reason;
mod target;
mod value;

pub use base::Bases;
pub use effect::{Asker, Effect, Eviction, EvictionScope, Note, Plan, Urgency};
pub use reason::Reason;
pub use target::{BlockDevice, CgroupPath, IoKnob, Knob, ProcFile, ResctrlKnob, Sysctl, Target};
pub use value::Value;
