//! Kubernetes plumbing that every cluster role stands on. It knows no domain: nothing here decides what a cluster
//! should look like.

pub mod auth;
pub mod backoff;
pub mod cache;
pub mod clients;
pub mod events;
pub mod files;
pub mod front;
pub mod health;
pub mod leader;
pub mod metrics;
pub mod objects;
pub mod rate;
pub mod reflect;
pub mod rest;
pub mod serve;
pub mod shutdown;

#[cfg(test)]
mod fake;
#[cfg(test)]
mod pki;
