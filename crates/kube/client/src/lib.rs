//! The client side of Kubernetes: how a program finds, asks and follows an API server.
//!
//! - [`Config`] makes clients whose credentials rotate, with a rate limit, metrics and errors that say what to do.
//! - [`reflector`] keeps local copies of objects; [`reflector::CacheSync`] waits until all of them are there.
//! - [`leader_election`] is client-go's, on a Lease; [`events`] writes Events.
//! - [`shutdown`], [`backoff`], [`rate_limiter`], [`expiring_cache`] and [`file_watcher`] are small parts that the serving
//!   kit and the roles use as well.
//!
//! It knows no domain: nothing here decides what a cluster should look like.

pub mod backoff;
mod config;
pub mod events;
mod eviction;
pub mod expiring_cache;
pub mod file_watcher;
pub mod leader_election;
pub mod node_slo;
pub mod rate_limiter;
pub mod reflector;
pub mod shutdown;
pub mod workqueue_metrics;

#[cfg(test)]
mod fake;

pub use config::{
    ClientMetrics, Clients, Config, ConfigError, Permit, Source, chain, explain, explain_way_to,
    fenced_client, skip_tls_verify,
};
pub use eviction::evict;
