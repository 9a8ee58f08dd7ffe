//! The HTTPS server every role serves with.
//!
//! [`Config::bind`] binds and checks, [`Bound::spawn`] serves, [`Serving::drain`] stops. Between the socket and the
//! service lies what every server needs and none should write twice: certificates that are reloaded, client
//! certificates, HTTP/1.1 and HTTP/2, limits on slow, silent and too many clients,
//! shares for those who are known, an answer when the service panics, answers to what is no request, and an
//! orderly end. The service is any cloneable tower service; each request carries its [`Peer`] as an extension.

mod arriving;
mod caught;
mod connection;
mod counters;
mod frames;
mod held;
mod names;
mod pace;
mod refusal;
mod respond;
mod self_signed;
mod server;
mod share;
mod suites;
mod tls;
mod trust;

#[cfg(test)]
mod tests;

pub use arriving::{ArrivalError, Arriving};
pub use caught::{Panicked, caught};
pub use connection::{LastOnHttp2, Protocol, serve_connection};
pub use counters::Counters;
pub use respond::{ReadError, Respond, Responder, Sent, read};
pub use self_signed::{SelfSigned, SelfSignedError};
pub use server::{BindError, Bound, Config, House, Limits, Serving};
pub use share::{Flow, Lasting, TooMuch, Visit, flow_of};
pub use suites::{Suites, UnknownSuite};
pub use tls::{
    Certificate, Clients, KeyPairError, KeyPairFiles, NamedFiles, Tls, TlsError, certified_key,
};
pub use trust::{Peer, Trust, TrustError};
