//! Nodes that exist only in a cluster's books, for trying things out and for tests: they are Ready, pods bound to them
//! run, use CPU and memory by a declared model, and end.
//!
//! A [`Simulation`] needs nothing but a client of an API server. What it does is decided by pure functions: [`nodes`]
//! says what a node looks like, [`pods`] what happens next to a pod, [`usage`] what a pod uses at a moment.

mod addresses;
mod driver;
mod herd;
mod level;
pub mod nodes;
mod pages;
pub mod pods;
pub mod reports;
mod simulation;
pub mod usage;

pub use level::BadLevel;
pub use pages::Pages;
pub use simulation::{Config, Running, Simulation};

/// How much CPU a pod uses: an amount, with how far it goes up and down: `200m±20%`.
pub const CPU: &str = "plimsoll.dev/simulated-cpu";
/// How much memory a pod uses: `1Gi±5%`.
pub const MEMORY: &str = "plimsoll.dev/simulated-memory";
/// After how many seconds a pod has done its work, if its restart policy lets it end.
pub const RUN_SECONDS: &str = "plimsoll.dev/simulated-run-seconds";
/// The label of simulated nodes.
pub const SIMULATED: &str = "plimsoll.dev/simulated";
