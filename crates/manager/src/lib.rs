//! Turns node reports into batch capacity and node policy: what may be lent of each node's resources, and how each
//! node's agent is to treat its pods.
//!
//! Everything here computes; nothing talks to a cluster. [`config`] reads what the operator wrote, [`colocation`] and
//! [`slo`] say what holds for a node, [`reclaim`] does the sums, [`plan`] says what to write.

pub mod amount;
pub mod colocation;
pub mod config;
mod json;
pub mod plan;
pub mod reclaim;
pub mod slo;
