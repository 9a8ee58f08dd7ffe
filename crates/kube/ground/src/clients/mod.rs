//! Clients of the API server: where it is, who we are, and how often we may ask.
//!
//! [`Config::build`] makes a `kube::Client` from a kubeconfig or from what a pod finds mounted. Tokens and the cluster's
//! authority are read anew by kube itself; ours adds that a changed kubeconfig, client certificate or key makes a new
//! client behind the one that is already in everybody's hands, that requests keep to a rate, that they say who asks, and
//! that errors say whom they are about and what to do about them.

mod advice;
mod fence;
mod reload;
mod source;
mod traffic;

#[cfg(test)]
mod tests;

pub use advice::{chain, explain, explain_way_to};
pub use fence::Permit;
pub use reload::{Clients, Config, trust_anybody};
pub use source::{ConfigError, Source};
pub use traffic::Traffic;
