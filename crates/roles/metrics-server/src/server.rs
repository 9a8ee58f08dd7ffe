//! The API as a server: build, spawn, drain.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use plimsoll_client::Clients;
use plimsoll_client::reflector;
use plimsoll_client::shutdown;
use plimsoll_client::shutdown::{Failure, Shutdown, ShutdownTrigger};
use plimsoll_serving::HandlerService;
use plimsoll_serving::health::{Endpoint, Health, InFlight};
use plimsoll_serving::secure_serving::{BuildError, SecureServing};
use rustls::sign::CertifiedKey;
use tokio::time::Instant;

use crate::api::freshness::Freshness;
use crate::api::{Announced, Rooms, Surface};
use crate::config::Config;
use crate::history::History;
use crate::own::OwnMetrics;
use crate::own::access::AccessCounts;
use crate::own::requests::Requests;
use crate::scrape::Telemetry;
use crate::view::View;

/// What there is to show, and how collecting it goes.
#[derive(Debug, Clone)]
pub struct Figures {
    pub view: View,
    /// `None`: nothing is remembered.
    pub history: Option<History>,
    pub telemetry: Telemetry,
    /// Opens when all nodes and pods are known.
    pub known: reflector::CacheSync,
}

/// Bound and checked; nothing is served yet.
#[derive(Debug)]
pub struct Server {
    front: SecureServing,
    surface: Surface,
    stopper: ShutdownTrigger,
    shutdown_delay: Duration,
}

#[derive(Debug)]
pub struct Running {
    serving: plimsoll_serving::Serving,
    certificate: Option<Arc<CertifiedKey>>,
    stopper: ShutdownTrigger,
    shutdown_delay: Duration,
}

impl Config {
    /// `clients` asks the API server where no other kubeconfig is named.
    pub async fn build(self, clients: Clients, figures: Figures) -> Result<Server, BuildError> {
        let front = self.front.build(&clients).await?;
        let (stopper, shutdown) = shutdown::channel();
        let surface = Surface::new(Rooms {
            view: figures.view.clone(),
            history: figures.history.clone(),
            known: figures.known.clone(),
            gate: front.gate.clone(),
            in_flight: InFlight::new(self.max_in_flight.0, self.max_in_flight.1),
            request_timeout: self.request_timeout,
            health: health(&figures, shutdown),
            own: OwnMetrics {
                view: figures.view,
                telemetry: figures.telemetry,
                freshness: Freshness::default(),
                requests: Requests::default(),
                access: AccessCounts::default(),
                sockets: front.bound.counters(),
                gate: front.gate.clone(),
                traffic: clients.traffic(),
                work: front.work(),
                audit: self.audit.clone(),
            },
            announced: Announced {
                past: figures.history.is_some(),
                ..self.announced
            },
            browsers: self.browsers,
            address: format!(":{}", front.bound.local_addr().port()),
            verbosity: self.verbosity,
            audit: self.audit,
        });
        Ok(Server {
            front,
            surface,
            stopper,
            shutdown_delay: self.shutdown_delay,
        })
    }
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

fn all_known(known: &reflector::CacheSync) -> Result<(), String> {
    match known.is_open() {
        true => Ok(()),
        false => Err(format!("not known yet: {}", known.missing().join(", "))),
    }
}

impl Server {
    pub fn local_addr(&self) -> SocketAddr {
        self.front.bound.local_addr()
    }

    pub fn spawn(self) -> Running {
        let shutdown = self.stopper.shutdown();
        self.front.keep_current(&shutdown);
        Running {
            certificate: self.front.bound.certificate(),
            serving: self.front.bound.spawn(HandlerService(self.surface)),
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

    /// Waits for a failure of what must not fail.
    pub fn failure(&self) -> impl Future<Output = Failure> + Send + use<> {
        self.stopper.failure()
    }

    /// Says at once that it is not ready any more, serves on while others hear of it, then lets requests finish.
    pub async fn drain(self, within: Duration) {
        self.stopper.stop();
        tokio::time::sleep(self.shutdown_delay).await;
        self.serving.drain(within).await;
    }
}
