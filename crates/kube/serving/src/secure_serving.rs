//! Secure serving for a role: TLS, delegated authentication and authorization.
//!
//! Who asks and whether they may is the API server's word, as every component of a control plane has it; certificates
//! are given, or made here. [`Config::build`] binds and checks, the role then serves what it has to tell.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::auth::{
    AuthFilter, Authenticator, Authorizer, AuthorizerConfig, CertificateExpiration, DelegatedAuth,
    DelegatedAuthConfig, FilterMetrics, ImpersonationModeCache, LookupError, PathPatternError,
    TokenReviewer,
};
use crate::{
    BindError, Bound, Certificate, CipherSuites, KeyPairFiles, NamedFiles, SelfSigned, Tls,
};
use plimsoll_client::shutdown::Shutdown;
use plimsoll_client::workqueue_metrics::WorkqueueMetrics;
use plimsoll_client::{Clients, ConfigError};

/// TokenReviews a second, and at once after a pause.
const REVIEWS: (f64, u32) = (200.0, 400);
const REVIEWED_WITHIN: Duration = Duration::from_secs(10);

/// How a role is served, and to whom.
#[derive(Debug, Clone)]
pub struct Config {
    pub serving: Serving,
    pub authentication: Authentication,
    pub authorization: Authorization,
}

#[derive(Debug, Clone)]
pub struct Serving {
    pub listen: SocketAddr,
    /// Where a certificate of our own making is kept, if none is given; `None`: nowhere.
    pub cert_dir: Option<PathBuf>,
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
    pub suites: Option<CipherSuites>,
}

#[derive(Debug, Clone)]
pub struct Authentication {
    /// For TokenReviews and the ConfigMap; where the role's own does not serve.
    pub kubeconfig: Option<PathBuf>,
    pub delegation: DelegatedAuthConfig,
    /// How long the answer to a TokenReview counts.
    pub tokens_last: Duration,
}

#[derive(Debug, Clone)]
pub struct Authorization {
    pub kubeconfig: Option<PathBuf>,
    pub rules: AuthorizerConfig,
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
    Bind(#[from] BindError),
}

/// Bound and checked; nothing is served yet.
#[derive(Debug)]
pub struct SecureServing {
    pub bound: Bound,
    pub gate: AuthFilter,
    delegation: DelegatedAuth,
    clients: Vec<Clients>,
}

impl Config {
    /// On this address, with the defaults that components have.
    pub fn new(listen: SocketAddr) -> Self {
        Self {
            serving: Serving {
                listen,
                cert_dir: None,
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
                delegation: DelegatedAuthConfig::default(),
                tokens_last: Duration::from_secs(10),
            },
            authorization: Authorization {
                kubeconfig: None,
                rules: AuthorizerConfig::default(),
            },
        }
    }

    /// `clients` asks the API server where no other kubeconfig is named.
    pub async fn build(&self, clients: &Clients) -> Result<SecureServing, BuildError> {
        let authentication = &self.authentication;
        let for_tokens = other(
            clients,
            authentication.kubeconfig.as_deref(),
            "authentication",
        )
        .await?;
        let for_access = other(
            clients,
            self.authorization.kubeconfig.as_deref(),
            "authorization",
        )
        .await?;
        let asks = for_tokens.client_for("authentication", Some(REVIEWS), REVIEWED_WITHIN);
        let delegation = DelegatedAuth::lookup(&asks, authentication.delegation.clone()).await?;
        let mut http = crate::Config::new(self.serving.listen);
        http.limits.streams = self.serving.streams;
        http.tls = Some(self.serving.tls(&delegation));
        let bound = http.bind().await?;
        let reviews = for_access.client_for("authorization", Some(REVIEWS), REVIEWED_WITHIN);
        let gate = AuthFilter {
            habits: ImpersonationModeCache::default(),
            filters: FilterMetrics::default(),
            authenticator: Authenticator {
                front_proxy: delegation.front_proxy.clone(),
                client_ca: delegation.client_ca.clone(),
                tokens: Some(Arc::new(TokenReviewer::new(
                    asks,
                    Vec::new(),
                    authentication.tokens_last,
                ))),
                anonymous: true,
                expirations: CertificateExpiration::default(),
            },
            authorizer: Authorizer::new(reviews, self.authorization.rules.clone())?,
        };
        Ok(SecureServing {
            bound,
            gate,
            delegation,
            clients: vec![for_tokens, for_access],
        })
    }
}

async fn other(
    clients: &Clients,
    path: Option<&Path>,
    purpose: &'static str,
) -> Result<Clients, BuildError> {
    let Some(path) = path else {
        return Ok(clients.clone());
    };
    let mut config = plimsoll_client::Config::from_flag(Some(path.to_owned()));
    config.traffic = clients.traffic();
    let built = config.build().await;
    built.map_err(|source| BuildError::Credentials { purpose, source })
}

impl Serving {
    fn tls(&self, delegation: &DelegatedAuth) -> Tls {
        let mut tls = Tls::new(match (&self.certificate, &self.cert_dir) {
            (Some(files), _) => Certificate::Files(files.clone()),
            (None, folder) => {
                let mut wish = match folder {
                    Some(folder) => SelfSigned::kept_in(folder),
                    None => SelfSigned::in_memory(),
                };
                wish.names.clone_from(&self.names);
                Certificate::SelfSigned(wish)
            }
        });
        tls.named.clone_from(&self.named);
        tls.http2 = self.http2;
        tls.tls13_only = self.tls13_only;
        tls.suites.clone_from(&self.suites);
        tls.clients = crate::Clients::Requested(vec![
            delegation.client_ca.clone(),
            delegation.front_proxy.trust.clone(),
        ]);
        tls
    }
}

impl SecureServing {
    /// What is done in the background to stay current.
    pub fn work(&self) -> Vec<WorkqueueMetrics> {
        let reloading = self.bound.counters().reloading.clone();
        let delegation = self.delegation.work().iter().cloned();
        delegation.chain([reloading]).collect()
    }

    /// Keeps credentials and what the cluster says about whom to believe current.
    pub fn keep_current(&self, shutdown: &Shutdown) {
        if let Some(client) = self.clients.first().map(Clients::client) {
            self.delegation.spawn(client, shutdown.clone());
        }
        for clients in &self.clients {
            clients.spawn_reload(shutdown.clone());
        }
    }
}
