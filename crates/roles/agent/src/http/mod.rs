//! The agent's HTTP server: cAdvisor's interfaces and the kubelet's, on one port.
//!
//! [`Config::bind`] binds and checks, [`Server::spawn`] serves, [`Running::drain`] stops. What is shown comes through
//! the [`Surface`]; everything else here is the contract with clients: paths, statuses, headers, error texts. Nothing
//! that can take long runs on a network thread, and no client can hold up another.

mod api;
mod auth;
mod body;
mod counters;
mod htpasswd;
mod messages;
mod pages;
mod reply;
mod route;
mod server;
mod service;
mod surface;
mod target;

#[cfg(test)]
mod tests;

pub use auth::{AuthError, BasicConfig};
pub use counters::Counters;
pub use server::{BindError, Config, Running, Server, Shown, TlsFiles};
pub use service::Limits;
pub use surface::{Half, Surface};
