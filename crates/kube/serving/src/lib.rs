//! The serving side of Kubernetes: the HTTPS server that every role uses, and what stands in front of its handlers.
//!
//! - [`Config::bind`] binds and checks, [`Bound::spawn`] serves, [`Serving::drain`] stops. Between the socket and the
//!   service are certificates that are reloaded, client certificates, HTTP/1.1 and HTTP/2, limits on slow, silent and too
//!   many clients, shares for known clients ([`Flow`]), a Status where the service panics and answers to malformed
//!   requests. The service is any cloneable tower service; each request carries its [`Peer`] as an extension.
//! - [`auth`] decides who a request is from and whether it is allowed. [`health`] answers probes and limits requests in
//!   flight.
//! - [`secure_serving`] puts all of it together for a role.
//!
//! It knows no domain. What cannot be decided is refused; nothing waits without a deadline.

mod arriving;
pub mod auth;
mod ca_bundle;
mod caught;
mod cipher_suites;
mod connection;
mod connection_metrics;
mod frames;
mod handler;
pub mod health;
mod held;
mod io_timeouts;
mod malformed;
pub mod process_metrics;
pub mod secure_serving;
mod self_signed;
mod server;
mod share;
mod sni;
mod tls;

#[cfg(test)]
mod client_tests;
// The same stand-in as in the tests of the client kit.
#[cfg(test)]
#[allow(dead_code, reason = "some of it only those tests use")]
#[path = "../../client/src/fake.rs"]
mod fake;
#[cfg(test)]
mod pki;
#[cfg(test)]
mod tests;

pub use arriving::{ArrivalError, Arriving};
pub use ca_bundle::{CaBundle, Peer, TrustError};
pub use caught::{Panicked, caught};
pub use cipher_suites::{CipherSuites, UnknownSuite};
pub use connection::{GoAway, Protocol, serve_connection};
pub use connection_metrics::Counters;
pub use handler::{Handler, HandlerService, ReadError, RequestBody, read};
pub use self_signed::{SelfSigned, SelfSignedError};
pub use server::{BindError, Bound, Config, Limits, ServerContext, Serving};
pub use share::{Flow, Lasting, TooMuch, Visit, flow_of};
pub use tls::{
    Certificate, Clients, KeyPairError, KeyPairFiles, NamedFiles, Tls, TlsError, certified_key,
};
