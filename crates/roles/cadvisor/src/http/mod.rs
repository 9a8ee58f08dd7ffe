//! The agent's HTTP server: cAdvisor's interfaces and the kubelet's, on one port.
//!
//! [`Config::bind`] binds and checks, [`Server::spawn`] serves, [`Running::drain`] stops. What is shown comes through
//! the [`Backend`]; everything else here is the contract with clients: paths, statuses, headers, error texts. Nothing
//! that can take long runs on a network thread, and no client can hold up another.

mod api;
mod auth;
mod backend;
mod body;
mod counters;
mod extra;
mod htpasswd;
mod messages;
mod pages;
mod response;
mod route;
mod server;
mod service;
mod url;

#[cfg(test)]
mod tests;

pub use auth::{AuthError, BasicConfig};
pub use backend::Backend;
pub use counters::Counters;
pub use extra::{ExtraPage, ExtraRoute};
pub use response::Failure;
pub use server::{BindError, Config, Running, Server, Shown, TlsFiles};
pub use service::Limits;
pub use url::Query;
