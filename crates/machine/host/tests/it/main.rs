//! The crate from outside, in one program: each program more is another link of everything.
#![allow(clippy::unwrap_used, reason = "test code")]

mod cgroup_trees;
mod hostile;
mod program;
mod steady_state;
