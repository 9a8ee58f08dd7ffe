//! Who we are to kubelets, and whom of them we believe: credentials that are renewed while we run.

use std::future::Ready;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use http::header::AUTHORIZATION;
use http::{HeaderValue, Request, Response};
use kube::client::{Body, ConfigExt};
use parking_lot::Mutex;
use plimsoll_client::file_watcher::{LOOK_EVERY, Watcher};
use plimsoll_client::shutdown::Shutdown;
use plimsoll_client::skip_tls_verify;
use rustls::ClientConfig;
use rustls::client::Resumption;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use thiserror::Error;
use tokio::time::Instant;
use tower::{BoxError, Layer, ServiceExt};

/// A token is asked for again after this time; whoever keeps it knows whether it is still good.
const TOKEN_FOR: Duration = Duration::from_secs(10);

/// What the flags say, which goes before what the API server's client has.
#[derive(Debug, Clone, Default)]
pub struct Trust {
    /// Whoever answers is believed.
    pub insecure: bool,
    pub authority: Option<PathBuf>,
    /// Certificate and key.
    pub client: Option<(PathBuf, PathBuf)>,
    /// No TLS and no credentials.
    pub nothing: bool,
}

#[derive(Debug, Error)]
pub enum IdentityError {
    #[error("cannot read {}", .path.display())]
    Read {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("there is no certificate in {}", .path.display())]
    NoCertificate { path: PathBuf },
    #[error("no client for kubelets can be made of these certificates and keys")]
    Tls(#[source] kube::Error),
}

#[derive(Debug, Error)]
#[error("no token to be had")]
pub struct NoToken(#[source] BoxError);

/// The client configuration of the moment: asked for again when it may have changed.
pub type Source = Arc<dyn Fn() -> Arc<kube::Config> + Send + Sync>;

pub(super) struct Identity {
    trust: Trust,
    source: Source,
    tls: ArcSwap<ClientConfig>,
    token: Mutex<Option<(Instant, Token)>>,
}

/// The value of an `Authorization` header, if there is to be one.
type Token = Option<HeaderValue>;

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Identity")
            .field("trust", &self.trust)
            .finish_non_exhaustive()
    }
}

impl Identity {
    pub fn new(trust: Trust, source: Source) -> Result<Self, IdentityError> {
        let tls = tls(&trust, &source())?;
        Ok(Self {
            trust,
            source,
            tls: ArcSwap::from_pointee(tls),
            token: Mutex::new(None),
        })
    }

    /// For a new connection.
    pub fn tls(&self) -> Arc<ClientConfig> {
        self.tls.load_full()
    }

    pub async fn token(&self) -> Result<Token, NoToken> {
        if self.trust.nothing {
            return Ok(None);
        }
        let known = self.token.lock().clone();
        if let Some((at, token)) = &known
            && at.elapsed() < TOKEN_FOR
        {
            return Ok(token.clone());
        }
        let token = authorization(&(self.source)()).await.map_err(NoToken)?;
        *self.token.lock() = Some((Instant::now(), token.clone()));
        Ok(token)
    }

    /// Takes changed certificates until the end.
    pub fn spawn_reload(self: &Arc<Self>, shutdown: Shutdown) {
        let this = Arc::clone(self);
        let until = shutdown.clone();
        shutdown.keep_restarting("reloading credentials for kubelets", move || {
            Arc::clone(&this).reload(until.clone())
        });
    }

    async fn reload(self: Arc<Self>, shutdown: Shutdown) {
        let mut from = (self.source)();
        let mut files = Watcher::new(self.files(&from), LOOK_EVERY);
        loop {
            tokio::select! {
                () = shutdown.begins() => return,
                () = files.changed() => {}
                () = tokio::time::sleep(LOOK_EVERY) => {
                    // The client configuration itself may be another one.
                    if Arc::ptr_eq(&from, &(self.source)()) {
                        continue;
                    }
                }
            }
            from = (self.source)();
            match tls(&self.trust, &from) {
                Ok(tls) => {
                    tracing::info!("credentials for kubelets reloaded");
                    self.tls.store(Arc::new(tls));
                    files = Watcher::new(self.files(&from), LOOK_EVERY);
                }
                Err(error) => {
                    files.doubt();
                    let error: &dyn std::error::Error = &error;
                    tracing::warn!(
                        error,
                        "cannot use the changed credentials for kubelets, keeping the old"
                    );
                }
            }
        }
    }

    fn files(&self, from: &kube::Config) -> Vec<PathBuf> {
        let mut files: Vec<PathBuf> = self.trust.authority.iter().cloned().collect();
        match &self.trust.client {
            Some((certificate, key)) => files.extend([certificate.clone(), key.clone()]),
            None => {
                let who = &from.auth_info;
                let named = [&who.client_certificate, &who.client_key];
                files.extend(named.into_iter().flatten().map(PathBuf::from));
            }
        }
        files
    }
}

/// What the API server's client has, with what the flags say in its place.
fn tls(trust: &Trust, from: &kube::Config) -> Result<ClientConfig, IdentityError> {
    let mut config = from.clone();
    if trust.nothing {
        config.auth_info = kube::config::AuthInfo::default();
    }
    if trust.insecure || trust.nothing {
        skip_tls_verify(&mut config);
    }
    if let Some(path) = &trust.authority {
        config.accept_invalid_certs = false;
        config.root_cert = Some(certificates(path)?);
        // Read again as it changes.
        config.root_cert_file = Some(path.clone());
    }
    if let Some((certificate, key)) = &trust.client {
        let who = &mut config.auth_info;
        (who.client_certificate_data, who.client_key_data) = (None, None);
        who.client_certificate = Some(certificate.to_string_lossy().into_owned());
        who.client_key = Some(key.to_string_lossy().into_owned());
    }
    let mut tls = config.rustls_client_config().map_err(IdentityError::Tls)?;
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    // Connections are kept; what is remembered to make new ones quickly need not be much.
    tls.resumption = Resumption::in_memory_sessions(512);
    Ok(tls)
}

fn certificates(path: &PathBuf) -> Result<Vec<Vec<u8>>, IdentityError> {
    let text = std::fs::read(path).map_err(|source| IdentityError::Read {
        path: path.clone(),
        source,
    })?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text)
        .map(|certificate| certificate.map(|one| one.to_vec()))
        .collect();
    found
        .ok()
        .filter(|found| !found.is_empty())
        .ok_or_else(|| IdentityError::NoCertificate { path: path.clone() })
}

/// What kube would send: a request is shown to its layer, which reads and renews tokens of every kind.
async fn authorization(config: &kube::Config) -> Result<Token, BoxError> {
    let Some(layer) = config.auth_layer()? else {
        return Ok(None);
    };
    let answer = layer
        .layer(tower::service_fn(show))
        .oneshot(Request::new(Body::empty()));
    Ok(answer.await?.into_body())
}

/// In place of a server: answers with what it was shown.
fn show(request: Request<Body>) -> Ready<Result<Response<Token>, BoxError>> {
    let token = request.headers().get(AUTHORIZATION).cloned();
    std::future::ready(Ok(Response::new(token)))
}

#[cfg(test)]
#[path = "identity_tests.rs"]
mod tests;
