//! The server: what `plimsoll_serving` serves, with this crate's limits and secrets.
//!
//! [`Config::bind`] makes a server with a token or without; [`Config::behind`] one with the cluster's authentication and
//! authorization. A program may have one of each.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::Request;
use plimsoll_client::file_watcher::{LOOK_EVERY, Watcher};
use plimsoll_client::shutdown::Shutdown;
use plimsoll_serving as kit;
use plimsoll_serving::secure_serving::SecureServing;
use plimsoll_serving::{Bound, Certificate, Clients, KeyPairFiles, Serving};
use tower::service_fn;

use super::auth::{Auth, AuthError, BasicConfig};
use super::backend::Backend;
use super::counters::Counters;
use super::route::Mounts;
use super::service::{Door, Limits, ServerState, serve};

#[derive(Debug, Clone)]
pub struct Config {
    /// Port zero takes any free one; [`Server::address`] tells which.
    pub listen: SocketAddr,
    pub url_base_prefix: String,
    pub prometheus_endpoint: String,
    pub tls: Option<TlsFiles>,
    /// Without this token a client sees only the probes.
    pub token_file: Option<PathBuf>,
    pub basic: Option<BasicConfig>,
    pub shown: Shown,
    pub limits: Limits,
}

/// What a port serves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Shown {
    #[default]
    Everything,
    /// Pages of metrics, and health.
    Metrics,
}

#[derive(Debug, Clone)]
pub struct TlsFiles {
    pub cert: PathBuf,
    pub key: PathBuf,
    /// Clients must show a certificate of this authority.
    pub client_ca: Option<PathBuf>,
}

impl Config {
    pub fn new(listen: SocketAddr) -> Self {
        Self {
            listen,
            url_base_prefix: String::new(),
            prometheus_endpoint: "/metrics".to_owned(),
            tls: None,
            token_file: None,
            basic: None,
            shown: Shown::default(),
            limits: Limits::default(),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error(transparent)]
    Bind(#[from] kit::BindError),
    #[error(transparent)]
    Auth(#[from] AuthError),
}

impl From<TlsFiles> for kit::Tls {
    fn from(files: TlsFiles) -> Self {
        let pair = KeyPairFiles {
            cert: files.cert,
            key: files.key,
        };
        Self {
            clients: files
                .client_ca
                .map_or(Clients::Ignored, Clients::RequiredByFile),
            http2: false,
            ..Self::new(Certificate::Files(pair))
        }
    }
}

impl From<&Limits> for kit::Limits {
    fn from(limits: &Limits) -> Self {
        Self {
            connections: limits.connections,
            header_bytes: limits.header_bytes,
            head: limits.head,
            idle: limits.idle,
            stalled: limits.stalled,
            body: limits.body,
            ..Self::default()
        }
    }
}

/// Bound and checked, not serving yet: connections wait in the kernel's queue.
#[derive(Debug)]
pub struct Server {
    way: Way,
    shown: Shown,
    mounts: Mounts,
    limits: Limits,
    auth: Arc<Auth>,
    counters: Arc<Counters>,
}

/// How connections come in.
#[derive(Debug)]
enum Way {
    AsTold(Box<Bound>),
    /// With the cluster's authentication and authorization.
    SecureServing(Box<SecureServing>),
}

impl Way {
    fn bound(&self) -> &Bound {
        match self {
            Self::AsTold(bound) => bound,
            Self::SecureServing(front) => &front.bound,
        }
    }
}

impl Config {
    /// A server with the cluster's authentication and authorization. Address, certificate and secrets of this config are
    /// not used.
    pub fn behind(self, front: SecureServing) -> Server {
        self.server(Way::SecureServing(Box::new(front)), Auth::default())
    }

    fn server(self, way: Way, auth: Auth) -> Server {
        Server {
            shown: self.shown,
            mounts: Mounts::new(&self.url_base_prefix, &self.prometheus_endpoint),
            limits: self.limits,
            auth: Arc::new(auth),
            counters: Arc::new(Counters::new(way.bound().counters())),
            way,
        }
    }

    pub async fn bind(self) -> Result<Server, BindError> {
        let auth = Auth::load(self.token_file.as_deref(), self.basic.as_ref())?;
        let (tls, token) = (self.tls.is_some(), auth.has_token());
        let bound = kit::Config {
            tls: self.tls.clone().map(kit::Tls::from),
            limits: kit::Limits::from(&self.limits),
            ..kit::Config::new(self.listen)
        };
        let bound = bound.bind().await?;
        let address = bound.local_addr();
        if !address.ip().is_loopback() && (!tls || !token) {
            match self.shown {
                Shown::Everything => tracing::warn!(
                    %address, tls, token,
                    "serving everything on a non-loopback address without TLS or token: anyone who reaches it can read all metrics and process lists; set --tls-cert and --token-file, or see --open-to-all"
                ),
                Shown::Metrics => {
                    tracing::info!(%address, "serving metrics to anyone who reaches this address, and nothing else");
                }
            }
        }
        Ok(self.server(Way::AsTold(Box::new(bound)), auth))
    }
}

impl Server {
    pub fn address(&self) -> SocketAddr {
        self.way.bound().local_addr()
    }

    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    pub fn spawn(self, backend: Arc<dyn Backend>) -> Running {
        let shutdown = self.way.bound().shutdown();
        keep_token(
            Arc::clone(&self.auth),
            Arc::clone(&self.counters),
            shutdown.clone(),
        );
        let (bound, gate) = match self.way {
            Way::AsTold(bound) => (*bound, None),
            Way::SecureServing(front) => {
                front.keep_current(&shutdown);
                let front = *front;
                (front.bound, Some(front.gate))
            }
        };
        let door = Door {
            shown: self.shown,
            gate,
        };
        let shared = Arc::new(ServerState::new(
            backend,
            door,
            self.mounts,
            self.limits,
            self.auth,
            Arc::clone(&self.counters),
            shutdown,
        ));
        let service = service_fn(move |request: Request<kit::Arriving>| {
            let answer = serve(Arc::clone(&shared), request);
            async move { Ok::<_, Infallible>(answer.await) }
        });
        Running {
            serving: bound.spawn(service),
            counters: self.counters,
        }
    }
}

/// A serving server.
#[derive(Debug)]
pub struct Running {
    serving: Serving,
    counters: Arc<Counters>,
}

impl Running {
    pub fn address(&self) -> SocketAddr {
        self.serving.local_addr()
    }

    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    /// Accepts no more connections, ends event streams, lets requests finish, and after `within` cuts off the rest.
    /// Returns how many were cut off.
    pub async fn drain(self, within: Duration) -> usize {
        self.serving.drain(within).await
    }
}

/// Reloads a changed token until the server stops.
fn keep_token(auth: Arc<Auth>, counters: Arc<Counters>, shutdown: Shutdown) {
    let Some(path) = auth.token_file().map(PathBuf::from) else {
        return;
    };
    let file = Arc::new(Watcher::new(vec![path], LOOK_EVERY));
    let until = shutdown.clone();
    shutdown.keep_restarting("reloading the token", move || {
        reload_token(
            Arc::clone(&auth),
            Arc::clone(&counters),
            Arc::clone(&file),
            until.clone(),
        )
    });
}

async fn reload_token(
    auth: Arc<Auth>,
    counters: Arc<Counters>,
    file: Arc<Watcher>,
    shutdown: Shutdown,
) {
    loop {
        tokio::select! {
            () = shutdown.begins() => return,
            () = file.changed() => {}
        }
        match auth.reload_token() {
            Ok(()) => tracing::info!("token reloaded"),
            Err(error) => {
                counters.reload_failed();
                file.doubt();
                let error: &dyn std::error::Error = &error;
                tracing::warn!(error, "cannot load the changed token, keeping the old one");
            }
        }
    }
}
