//! Metrics that every role has: its process and its background work.

pub mod process;
mod work;

pub use work::Work;
