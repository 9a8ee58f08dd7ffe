//! What a metrics server is told, as plain data. Reading it off a command line is the binary's part.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use plimsoll_ground::auth::{AuthorizerConfig, DelegationConfig};
use plimsoll_ground::serve::{KeyPairFiles, NamedFiles, Suites};

use crate::api::{Announced, Browsers};

/// How the API is served, and to whom.
#[derive(Debug, Clone)]
pub struct Config {
    pub serving: Serving,
    pub authentication: Authentication,
    pub authorization: Authorization,
    pub browsers: Browsers,
    pub announced: Announced,
    /// Requests at once, reading and changing; zero: any number.
    pub max_in_flight: (usize, usize),
    /// The longest that a request may take, whatever it asks for.
    pub request_timeout: Duration,
    /// How long to go on serving after a signal, while others are told.
    pub shutdown_delay: Duration,
}

#[derive(Debug, Clone)]
pub struct Serving {
    pub listen: SocketAddr,
    /// Where a certificate of our own making is kept, if none is given.
    pub cert_dir: PathBuf,
    /// What that is made out to, beside localhost.
    pub names: Vec<String>,
    pub certificate: Option<KeyPairFiles>,
    /// For clients that call us by other names.
    pub named: Vec<NamedFiles>,
    pub http2: bool,
    /// Requests at once on one HTTP/2 connection.
    pub streams: u32,
    /// Nothing older than TLS 1.3.
    pub tls13_only: bool,
    /// Of TLS 1.2; `None`: all that are good.
    pub suites: Option<Suites>,
}

#[derive(Debug, Clone)]
pub struct Authentication {
    /// For TokenReviews and the ConfigMap; where the collector's does not serve.
    pub kubeconfig: Option<PathBuf>,
    pub delegation: DelegationConfig,
    /// How long the answer to a TokenReview counts.
    pub tokens_last: Duration,
}

#[derive(Debug, Clone)]
pub struct Authorization {
    pub kubeconfig: Option<PathBuf>,
    pub rules: AuthorizerConfig,
}

impl Config {
    /// On this address, with the defaults of the original.
    pub fn new(listen: SocketAddr) -> Self {
        Self {
            serving: Serving {
                listen,
                cert_dir: "apiserver.local.config/certificates".into(),
                names: Vec::new(),
                certificate: None,
                named: Vec::new(),
                http2: true,
                streams: 100,
                tls13_only: false,
                suites: None,
            },
            authentication: Authentication {
                kubeconfig: None,
                delegation: DelegationConfig::default(),
                tokens_last: Duration::from_secs(10),
            },
            authorization: Authorization {
                kubeconfig: None,
                rules: AuthorizerConfig::default(),
            },
            browsers: Browsers::default(),
            announced: Announced::default(),
            max_in_flight: (400, 200),
            request_timeout: Duration::from_secs(60),
            shutdown_delay: Duration::ZERO,
        }
    }
}
