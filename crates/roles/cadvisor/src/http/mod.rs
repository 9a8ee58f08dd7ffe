//! The HTTP server: cAdvisor's and the kubelet's interfaces on one port.
//!
//! [`Config::bind`] binds and checks, [`Server::spawn`] serves, [`Running::drain`] stops. Data comes
//! through the [`Backend`]; this module is the contract with clients: paths, statuses, headers, error texts. Nothing slow
//! runs on a network thread, and no client can block another.

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
pub use extra::{ExtraPage, ExtraRoute, ExtraText};
pub use response::Failure;
pub use server::{BindError, Config, Running, Server, Shown, TlsFiles};
pub use service::Limits;
pub use url::Query;
