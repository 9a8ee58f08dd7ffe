//! The API as a server: build, spawn, drain.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use plimsoll_ground::auth::{
    Authenticator, Authorizer, Delegation, Gate, LookupError, PathPatternError, TokenReviewer,
};
use plimsoll_ground::clients::{self, Clients, ConfigError};
use plimsoll_ground::health::{Endpoint, Health, InFlight};
use plimsoll_ground::reflect;
use plimsoll_ground::serve::{self, Certificate, SelfSigned, Tls};
use plimsoll_ground::shutdown::{self, Shutdown, Stopper};
use rustls::sign::CertifiedKey;
use tokio::time::Instant;

use crate::api::freshness::Freshness;
use crate::api::{Announced, Rooms, Surface};
use crate::config::{Config, Serving};
use crate::history::History;
use crate::own::OwnMetrics;
use crate::own::access::AccessCounts;
use crate::own::requests::Requests;
use crate::scrape::Telemetry;
use crate::view::View;

/// TokenReviews a second, and at once after a pause.
const REVIEWS: (f64, u32) = (200.0, 400);
const REVIEWED_WITHIN: Duration = Duration::from_secs(10);

/// What there is to show, and how collecting it goes.
#[derive(Debug, Clone)]
pub struct Figures {
    pub view: View,
    /// `None`: nothing is remembered.
    pub history: Option<History>,
    pub telemetry: Telemetry,
    /// Opens when all nodes and pods are known.
    pub known: reflect::Gate,
}

#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error("the credentials for {purpose} cannot be used")]
    Credentials {
        purpose: &'static str,
        #[source]
        source: ConfigError,
    },
    #[error(transparent)]
    Lookup(#[from] LookupError),
    #[error("--authorization-always-allow-paths")]
    Paths(#[from] PathPatternError),
    #[error(transparent)]
    Bind(#[from] serve::BindError),
}

/// Bound and checked; nothing is served yet.
#[derive(Debug)]
pub struct Server {
    bound: serve::Bound,
    surface: Surface,
    delegation: Delegation,
    clients: Vec<Clients>,
    stopper: Stopper,
    shutdown_delay: Duration,
}

#[derive(Debug)]
pub struct Running {
    serving: serve::Serving,
    certificate: Option<Arc<CertifiedKey>>,
    stopper: Stopper,
    shutdown_delay: Duration,
}

impl Config {
    /// `clients` asks the API server where no other kubeconfig is named.
    pub async fn build(self, clients: Clients, figures: Figures) -> Result<Server, BuildError> {
        let other = |path: Option<&Path>, purpose| {
            let clients = clients.clone();
            let path = path.map(Path::to_owned);
            async move {
                let Some(path) = path else {
                    return Ok(clients);
                };
                let config = clients::Config::from_flag(Some(path));
                let built = config.build().await;
                built.map_err(|source| BuildError::Credentials { purpose, source })
            }
        };
        let authentication = &self.authentication;
        let for_tokens = other(authentication.kubeconfig.as_deref(), "authentication").await?;
        let for_access = other(self.authorization.kubeconfig.as_deref(), "authorization").await?;
        let asks = for_tokens.client_for("authentication", Some(REVIEWS), REVIEWED_WITHIN);
        let delegation = Delegation::lookup(&asks, authentication.delegation.clone()).await?;
        let tls = tls(&self.serving, &delegation);
        let mut http = serve::Config::new(self.serving.listen);
        http.limits.streams = self.serving.streams;
        http.tls = Some(tls);
        let bound = http.bind().await?;
        let reviews = for_access.client_for("authorization", Some(REVIEWS), REVIEWED_WITHIN);
        let gate = Gate {
            authenticator: Authenticator {
                front_proxy: delegation.front_proxy.clone(),
                client_ca: delegation.client_ca.clone(),
                tokens: Some(Arc::new(TokenReviewer::new(
                    asks,
                    Vec::new(),
                    authentication.tokens_last,
                ))),
                anonymous: true,
            },
            authorizer: Authorizer::new(reviews, self.authorization.rules.clone())?,
        };
        let (stopper, shutdown) = shutdown::channel();
        let surface = Surface::new(Rooms {
            view: figures.view.clone(),
            history: figures.history.clone(),
            known: figures.known.clone(),
            gate,
            in_flight: InFlight::new(self.max_in_flight.0, self.max_in_flight.1),
            request_timeout: self.request_timeout,
            health: health(&figures, shutdown),
            own: OwnMetrics {
                view: figures.view,
                telemetry: figures.telemetry,
                freshness: Freshness::default(),
                requests: Requests::default(),
                access: AccessCounts::default(),
                sockets: bound.counters(),
            },
            announced: Announced {
                past: figures.history.is_some(),
                ..self.announced
            },
            browsers: self.browsers,
            address: format!(":{}", bound.local_addr().port()),
        });
        Ok(Server {
            bound,
            surface,
            delegation,
            clients: vec![for_tokens, for_access],
            stopper,
            shutdown_delay: self.shutdown_delay,
        })
    }
}

fn tls(serving: &Serving, delegation: &Delegation) -> Tls {
    let mut tls = Tls::new(match &serving.certificate {
        Some(files) => Certificate::Files(files.clone()),
        None => {
            let mut wish = SelfSigned::kept_in(&serving.cert_dir);
            wish.names.clone_from(&serving.names);
            Certificate::SelfSigned(wish)
        }
    });
    tls.named.clone_from(&serving.named);
    tls.http2 = serving.http2;
    tls.tls13_only = serving.tls13_only;
    tls.suites.clone_from(&serving.suites);
    tls.clients = serve::Clients::Requested(vec![
        delegation.client_ca.clone(),
        delegation.front_proxy.trust.clone(),
    ]);
    tls
}

/// The checks by the names that probes and people know.
fn health(figures: &Figures, shutdown: Shutdown) -> Health {
    let (view, known) = (figures.view.clone(), figures.known.clone());
    let telemetry = figures.telemetry.clone();
    let also_known = known.clone();
    Health::default()
        .with(&Endpoint::ALL, "log", || Ok(()))
        .with(&Endpoint::ALL, "poststarthook/max-in-flight-filter", || {
            Ok(())
        })
        .with(
            &Endpoint::ALL,
            "poststarthook/storage-object-count-tracker-hook",
            || Ok(()),
        )
        .with(&[Endpoint::Readyz], "metric-storage-ready", move || {
            let ready = view.ready();
            match ready.nodes && ready.pods {
                true => Ok(()),
                false => Err("no metrics to serve".to_owned()),
            }
        })
        .with(&[Endpoint::Readyz], "metric-informer-sync", move || {
            all_known(&known)
        })
        .with(
            &[Endpoint::Livez],
            "metric-collection-timely",
            move || match telemetry.is_timely(Instant::now()) {
                true => Ok(()),
                false => Err("metric collection didn't finish on time".to_owned()),
            },
        )
        // Whoever is only waiting for the API server is not helped by a restart.
        .with(&[Endpoint::Readyz], "metadata-informer-sync", move || {
            all_known(&also_known)
        })
        .with(
            &[Endpoint::Livez, Endpoint::Healthz],
            "metadata-informer-sync",
            || Ok(()),
        )
        .with_shutdown(shutdown)
}

fn all_known(known: &reflect::Gate) -> Result<(), String> {
    match known.is_open() {
        true => Ok(()),
        false => Err(format!("not known yet: {}", known.missing().join(", "))),
    }
}

impl Server {
    pub fn local_addr(&self) -> SocketAddr {
        self.bound.local_addr()
    }

    pub fn spawn(self) -> Running {
        let shutdown = self.stopper.shutdown();
        let client = self.clients.first().map(Clients::client);
        if let Some(client) = client {
            self.delegation.spawn(client, shutdown.clone());
        }
        for clients in &self.clients {
            clients.spawn_reload(shutdown.clone());
        }
        Running {
            certificate: self.bound.certificate(),
            serving: self.bound.spawn(self.surface),
            stopper: self.stopper,
            shutdown_delay: self.shutdown_delay,
        }
    }
}

impl Running {
    pub fn local_addr(&self) -> SocketAddr {
        self.serving.local_addr()
    }

    /// Whose word the certificate is by, as an APIService's `caBundle` has it: PEM in base64.
    pub fn authority(&self) -> Option<String> {
        let last = self.certificate.as_ref()?.cert.last()?;
        let pem = format!(
            "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n",
            STANDARD.encode(last)
        );
        Some(STANDARD.encode(pem))
    }

    /// Says at once that it is not ready any more, serves on while others hear of it, then lets requests finish.
    pub async fn drain(self, within: Duration) {
        self.stopper.stop();
        tokio::time::sleep(self.shutdown_delay).await;
        self.serving.drain(within).await;
    }
}
