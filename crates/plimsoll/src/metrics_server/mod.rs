//! `plimsoll metrics-server`.

mod args;
mod inert;
mod kubelet;
mod sni;

pub use args::MetricsServerArgs;
