//! The agent on the embedded API server: what it learns from the cluster, and what it tells.

#![allow(clippy::unwrap_used)] // a test that cannot go on says so by panicking

mod evictions;
mod reports;
mod states;
mod world;
