//! Why a scrape came to nothing, and what somebody could do about it.

use std::io;
use std::time::Duration;

use plimsoll_client::chain;
use thiserror::Error;

use super::connection::ConnectError;
use super::http::HttpError;
use super::identity::NoToken;
use super::target::NoAddress;
use super::telemetry::Reason;
use plimsoll_metrics::parser::SyntaxError;

#[derive(Debug, Error)]
pub(super) enum Fault {
    #[error(transparent)]
    Address(#[from] NoAddress),
    #[error(transparent)]
    Token(#[from] NoToken),
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Http(#[from] HttpError),
    #[error("request failed, status: {0:?}")]
    Status(String),
    #[error("redirected too often, or to nowhere")]
    Redirect,
    #[error("no answer within {} s", .0.as_secs_f64())]
    Timeout(Duration),
    #[error("the compressed answer is broken")]
    Compressed(#[source] io::Error),
    #[error("uncompressed, the answer is larger than {limit} bytes")]
    TooLarge { limit: usize },
    #[error("failed parsing metrics")]
    Malformed(#[from] SyntaxError),
}

impl Fault {
    pub fn reason(&self) -> Reason {
        match self {
            Self::Address(_) => Reason::Address,
            Self::Token(_) => Reason::Credentials,
            Self::Connect(ConnectError::Tcp { .. }) => Reason::Connect,
            Self::Connect(_) => Reason::Tls,
            Self::Http(HttpError::TooLarge { .. }) | Self::TooLarge { .. } => Reason::TooLarge,
            Self::Http(_) | Self::Redirect | Self::Compressed(_) => Reason::Protocol,
            Self::Status(_) => Reason::Status,
            Self::Timeout(_) => Reason::Timeout,
            Self::Malformed(_) => Reason::Malformed,
        }
    }

    /// With its causes.
    pub fn text(&self) -> String {
        chain(self)
    }

    pub fn advice(&self) -> Option<&'static str> {
        match self {
            Self::Connect(ConnectError::Tls { source, .. }) => {
                tls_error(source).and_then(tls_advice)
            }
            Self::Connect(ConnectError::Tcp { source, .. }) => match source.kind() {
                io::ErrorKind::ConnectionRefused => Some(
                    "does the kubelet run, and is this its port? see --kubelet-use-node-status-port",
                ),
                _ => Some(
                    "can this address be reached from here? see --kubelet-preferred-address-types and network policies",
                ),
            },
            Self::Address(_) => {
                Some("choose among the node's addresses by --kubelet-preferred-address-types")
            }
            Self::Timeout(_) => Some(
                "is the node overloaded, or does a firewall or network policy keep it from us?",
            ),
            Self::Status(status) if status.starts_with("401") => Some(
                "the kubelet has the API server check our token: can it reach that, and does it have authentication.webhook enabled?",
            ),
            Self::Status(status) if status.starts_with("403") => {
                Some("grant get on nodes/metrics to this service account")
            }
            Self::TooLarge { .. } | Self::Http(HttpError::TooLarge { .. }) => {
                Some("this is no kubelet's page of resource metrics")
            }
            _ => None,
        }
    }
}

/// TLS errors come wrapped.
fn tls_error(error: &io::Error) -> Option<&rustls::Error> {
    error.get_ref()?.downcast_ref()
}

fn tls_advice(error: &rustls::Error) -> Option<&'static str> {
    use rustls::{AlertDescription, CertificateError as Why};
    match error {
        rustls::Error::InvalidCertificate(why) => match why {
            Why::UnknownIssuer | Why::BadSignature => Some(
                "the kubelet's certificate is self-signed or of another authority: let kubelets have theirs signed by \
                 the cluster (serverTLSBootstrap), or name the authority by --kubelet-certificate-authority",
            ),
            Why::NotValidForName | Why::NotValidForNameContext { .. } => Some(
                "the kubelet's certificate is not for this address: prefer an address type that it is for by \
                 --kubelet-preferred-address-types, or let it be signed for this one",
            ),
            Why::Expired | Why::ExpiredContext { .. } => {
                Some("the kubelet's certificate has expired, or a clock is wrong")
            }
            Why::NotValidYet | Why::NotValidYetContext { .. } => {
                Some("the kubelet's certificate is not valid yet: are the clocks right?")
            }
            _ => None,
        },
        // What a kubelet says that has asked for its certificate and not got it.
        rustls::Error::AlertReceived(AlertDescription::InternalError) => Some(
            "the kubelet has no serving certificate yet: approve its certificate signing request",
        ),
        _ => None,
    }
}
