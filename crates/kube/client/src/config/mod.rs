//! Clients of the API server: where it is, who we are, and how often we may ask.
//!
//! [`Config::build`] makes a `kube::Client` from a kubeconfig or from what a pod finds mounted. Tokens and the cluster's
//! authority are read anew by kube itself; ours adds that a changed kubeconfig, client certificate or key makes a new
//! client behind the one that is already in everybody's hands, that requests keep to a rate, that they say who asks, and
//! that errors say whom they are about and what to do about them.

mod error_hints;
mod factory;
mod fence;
mod kubeconfig;
mod metrics;

pub use error_hints::{chain, explain, explain_way_to};
pub use factory::{Clients, Config, skip_tls_verify};
pub use fence::{Permit, fenced_client};
pub use kubeconfig::{ConfigError, Source};
pub use metrics::ClientMetrics;
