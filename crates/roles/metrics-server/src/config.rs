//! What a metrics server is told, as plain data. Reading it off a command line is the binary's part.

use std::net::SocketAddr;
use std::time::Duration;

use plimsoll_serving::secure_serving;

use crate::api::{Announced, Browsers, Verbosity};
use crate::audit::Audit;

/// How the API is served, and to whom.
#[derive(Debug, Clone)]
pub struct Config {
    pub front: secure_serving::Config,
    pub browsers: Browsers,
    pub announced: Announced,
    /// Requests at once, reading and changing; zero: any number.
    pub max_in_flight: (usize, usize),
    /// The longest that a request may take, whatever it asks for.
    pub request_timeout: Duration,
    /// How long to go on serving after a signal, while others are told.
    pub shutdown_delay: Duration,
    /// Sets how much is logged, where that is the server's to say.
    pub verbosity: Option<Verbosity>,
    /// `None`: nothing is written down.
    pub audit: Option<Audit>,
}

impl Config {
    /// On this address, with the defaults of the original.
    pub fn new(listen: SocketAddr) -> Self {
        let mut front = secure_serving::Config::new(listen);
        front.serving.cert_dir = Some("apiserver.local.config/certificates".into());
        Self {
            front,
            browsers: Browsers::default(),
            announced: Announced::default(),
            max_in_flight: (400, 200),
            request_timeout: Duration::from_secs(60),
            shutdown_delay: Duration::ZERO,
            verbosity: None,
            audit: None,
        }
    }
}
