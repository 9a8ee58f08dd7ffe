//! Kubernetes plumbing that every cluster role stands on. It knows no domain: nothing here decides what a cluster
//! should look like.

pub mod auth;
pub mod cache;
pub mod files;
pub mod serve;
pub mod shutdown;

#[cfg(test)]
mod fake;
