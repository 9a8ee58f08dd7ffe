//! Turns node reports into batch capacity and node policy: what may be lent of each node's resources, and how each
//! node's agent is to treat its pods.
//!
//! Most of it computes and talks to nobody: [`config`] reads what the operator wrote, [`colocation`] and [`slo`] say
//! what holds for a node, [`reclaim`] does the sums, [`plan`] says what to write. [`live`] follows a cluster and writes.

pub mod amount;
pub mod amplification;
mod by_node;
pub mod colocation;
pub mod config;
pub mod live;
pub mod normalization;
pub mod plan;
pub mod reclaim;
mod shape;
pub mod slo;
