//! Makes clients. They keep working when credentials change: a new client replaces the old one behind a stable
//! handle.

use std::path::PathBuf;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use http::header::CONTENT_LENGTH;
use http::header::{HeaderValue, USER_AGENT};
use http::{Request, Response, StatusCode};
use hyper::body::Body as _;
use kube::client::Body;
use parking_lot::Mutex;
use plimsoll_golang::platform::own_goarch;
use tower::{BoxError, Service};

use super::fence::{self, Permit};
use super::kubeconfig::{ConfigError, Found, Source};
use super::metrics::{ClientMetrics, Counted};
use crate::file_watcher::{LOOK_EVERY, Watcher};
use crate::leader_election::Leadership;
use crate::rate_limiter::Limiter;
use crate::shutdown::Shutdown;

const CONNECT_WITHIN: Duration = Duration::from_secs(10);

#[derive(Debug, Clone)]
pub struct Config {
    pub source: Source,
    /// Where the API server is, whatever the source says.
    pub server: Option<http::Uri>,
    /// Requests a second, and how many at once after a pause; `None`: as many as it takes.
    pub rate: Option<(f64, u32)>,
    /// What goes into the API server's audit log; `plimsoll/VERSION (linux/amd64)` and what is said here.
    pub user_agent: String,
    /// For an answer to begin, watches excepted: they begin when there is something to tell.
    pub timeout: Duration,
    /// Where requests are counted.
    pub traffic: ClientMetrics,
}

impl Config {
    pub fn new(source: Source) -> Self {
        Self {
            source,
            server: None,
            rate: None,
            user_agent: String::new(),
            timeout: Duration::from_secs(60),
            traffic: ClientMetrics::default(),
        }
    }

    /// From a kubeconfig if one is given, else from inside the cluster.
    pub fn from_flag(kubeconfig: Option<PathBuf>) -> Self {
        Self::new(match kubeconfig {
            Some(path) => Source::Kubeconfig {
                path,
                context: None,
            },
            None => Source::InCluster,
        })
    }

    /// Reads and checks everything; asks the API server nothing.
    pub async fn build(self) -> Result<Clients, ConfigError> {
        let found = load(&self.source, self.server.as_ref()).await?;
        let address = found.config.cluster_url.to_string();
        let namespace = found.config.default_namespace.clone();
        let current = Arc::new(ArcSwap::from_pointee(client(found.config.clone())?));
        self.traffic.made();
        Ok(Clients {
            source: self.source,
            server: self.server,
            files: found.files,
            current,
            config: Arc::new(ArcSwap::from_pointee(found.config)),
            address,
            namespace,
            rate: self.rate,
            user_agent: self.user_agent,
            timeout: self.timeout,
            traffic: self.traffic,
        })
    }
}

async fn load(source: &Source, server: Option<&http::Uri>) -> Result<Found, ConfigError> {
    let mut found = source.load().await?;
    if let Some(server) = server {
        found.config.cluster_url = server.clone();
    }
    let plain = found.config.cluster_url.scheme_str() == Some("http");
    if plain || found.config.accept_invalid_certs {
        skip_tls_verify(&mut found.config);
    }
    Ok(found)
}

/// No certificate is checked. The system's authorities are not asked for then: small images have none.
pub fn skip_tls_verify(config: &mut kube::Config) {
    config.accept_invalid_certs = true;
    config.root_cert = Some(Vec::new());
    config.root_cert_file = None;
}

fn client(mut config: kube::Config) -> Result<kube::Client, ConfigError> {
    config.connect_timeout = Some(CONNECT_WITHIN);
    kube::Client::try_from(config).map_err(ConfigError::Client)
}

/// Makes clients with one identity, each with a rate of its own.
#[derive(Clone)]
pub struct Clients {
    source: Source,
    server: Option<http::Uri>,
    files: Vec<PathBuf>,
    current: Arc<ArcSwap<kube::Client>>,
    config: Arc<ArcSwap<kube::Config>>,
    address: String,
    namespace: String,
    rate: Option<(f64, u32)>,
    user_agent: String,
    timeout: Duration,
    traffic: ClientMetrics,
}

impl std::fmt::Debug for Clients {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Clients")
            .field("address", &self.address)
            .field("files", &self.files)
            .finish_non_exhaustive()
    }
}

impl Clients {
    /// Where the API server is.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Who we are at the moment, for those who talk to others than the API server with the same credentials.
    pub fn config(&self) -> Arc<kube::Config> {
        self.config.load_full()
    }

    /// What was asked by any of them.
    pub fn traffic(&self) -> ClientMetrics {
        self.traffic.clone()
    }

    /// The client that most of a role uses.
    pub fn client(&self) -> kube::Client {
        let way = Way::Shared(Arc::clone(&self.current));
        self.with(way, &self.user_agent, self.rate, self.timeout)
    }

    /// The client by which a leader writes. It asks whether this process leads before each step of a request and each
    /// byte it sends, has connections of its own, and cuts off what is under way when leading ends.
    pub fn writer(&self, leadership: &Leadership) -> kube::Client {
        let way = Way::Fenced(Arc::new(Own {
            permit: leadership.permit(),
            config: Arc::clone(&self.config),
            built: Mutex::default(),
        }));
        leadership.guard(self.with(way, &self.user_agent, self.rate, self.timeout))
    }

    /// One for a special purpose, which the API server can tell and others cannot starve: leader election, say.
    pub fn client_for(
        &self,
        purpose: &str,
        rate: Option<(f64, u32)>,
        timeout: Duration,
    ) -> kube::Client {
        let agent = format!("{} {purpose}", self.user_agent);
        let way = Way::Shared(Arc::clone(&self.current));
        self.with(way, agent.trim(), rate, timeout)
    }

    fn with(
        &self,
        way: Way,
        agent: &str,
        rate: Option<(f64, u32)>,
        timeout: Duration,
    ) -> kube::Client {
        let own = format!(
            "plimsoll/{} ({}/{}) {agent}",
            env!("CARGO_PKG_VERSION"),
            std::env::consts::OS,
            own_goarch()
        );
        self.traffic.shared();
        let service = Current {
            way,
            address: self.address.trim_end_matches('/').into(),
            credentials: self.source.to_string().into(),
            limiter: rate.map(|(rate, burst)| Arc::new(Limiter::new(rate, burst))),
            user_agent: HeaderValue::from_str(own.trim()).ok(),
            timeout,
            traffic: self.traffic.clone(),
            host: host(&self.address),
        };
        kube::Client::new(service, self.namespace.clone())
    }

    /// Takes changed files until the end.
    pub fn spawn_reload(&self, shutdown: Shutdown) {
        if self.files.is_empty() {
            return;
        }
        let this = self.clone();
        let mut files = Watcher::new(this.files.clone(), LOOK_EVERY);
        let until = shutdown.clone();
        shutdown.keep("following credentials", async move {
            loop {
                tokio::select! {
                    () = until.begins() => return,
                    () = files.changed() => {}
                }
                match this.reload().await {
                    Ok(now) => {
                        tracing::info!("credentials for the API server reloaded");
                        files = Watcher::new(now, LOOK_EVERY);
                    }
                    Err(error) => {
                        files.doubt();
                        let error: &dyn std::error::Error = &error;
                        tracing::warn!(
                            error,
                            "cannot use the changed credentials for the API server, keeping the old"
                        );
                    }
                }
            }
        });
    }

    /// Reads the credentials again and makes the client that everybody uses from now on. Returns the files to watch.
    pub async fn reload(&self) -> Result<Vec<PathBuf>, ConfigError> {
        let found = load(&self.source, self.server.as_ref()).await?;
        self.current.store(Arc::new(client(found.config.clone())?));
        self.config.store(Arc::new(found.config));
        Ok(found.files)
    }
}

/// Sends each request by the client of the moment.
#[derive(Clone)]
struct Current {
    way: Way,
    /// For errors: where the API server is, and what tells it who we are.
    address: Arc<str>,
    credentials: Arc<str>,
    limiter: Option<Arc<Limiter>>,
    user_agent: Option<HeaderValue>,
    timeout: Duration,
    traffic: ClientMetrics,
    host: Arc<str>,
}

#[derive(Clone)]
enum Way {
    /// By the connections of everybody.
    Shared(Arc<ArcSwap<kube::Client>>),
    /// By connections that ask first.
    Fenced(Arc<Own>),
}

struct Own {
    permit: Permit,
    config: Arc<ArcSwap<kube::Config>>,
    /// And of which configuration.
    built: Mutex<Option<(Arc<kube::Config>, kube::Client)>>,
}

impl Way {
    fn client(&self) -> Result<kube::Client, kube::Error> {
        let own = match self {
            Self::Shared(current) => return Ok((**current.load()).clone()),
            Self::Fenced(own) => own,
        };
        let config = own.config.load_full();
        let mut built = own.built.lock();
        if let Some((of, client)) = &*built
            && Arc::ptr_eq(of, &config)
        {
            return Ok(client.clone());
        }
        let client = fence::fenced_client(&config, CONNECT_WITHIN, Arc::clone(&own.permit))?;
        *built = Some((config, client.clone()));
        Ok(client)
    }
}

/// No answer, and from where.
#[derive(Debug, thiserror::Error)]
#[error("no answer from {address}")]
pub(super) struct Unreached {
    pub address: Arc<str>,
    #[source]
    source: BoxError,
}

/// `127.0.0.1:6443` of `https://127.0.0.1:6443/`.
fn host(address: &str) -> Arc<str> {
    let uri = address.parse::<http::Uri>().ok();
    let authority = uri.as_ref().and_then(http::Uri::authority);
    authority.map_or("", |authority| authority.as_str()).into()
}

impl Service<Request<Body>> for Current {
    type Response = Response<Counted>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Counted>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let this = self.clone();
        async move {
            if let Some(limiter) = &this.limiter {
                let began = Instant::now();
                limiter.take().await;
                this.traffic
                    .held_back(&this.host, request.method(), began.elapsed());
            }
            if let Some(agent) = &this.user_agent {
                let agent = agent.clone();
                request.headers_mut().entry(USER_AGENT).or_insert(agent);
            }
            let client = this.way.client()?;
            let endless = is_endless(&request);
            let size = request.body().size_hint().exact().unwrap_or(0);
            let exchange = this
                .traffic
                .begin(&this.host, request.method(), size, endless);
            let answer = client.send(request);
            let answer = match endless {
                true => answer.await.map_err(BoxError::from),
                false => match tokio::time::timeout(this.timeout, answer).await {
                    Ok(answer) => answer.map_err(BoxError::from),
                    Err(late) => Err(late.into()),
                },
            };
            let status = answer.as_ref().ok().map(|one| one.status().as_u16());
            exchange.answered(status);
            match answer {
                Ok(answer) => {
                    let answer = this.say_who(answer);
                    Ok(answer.map(|body| Counted::new(body, exchange)))
                }
                Err(source) => Err(Box::new(Unreached {
                    address: this.address,
                    source,
                }) as BoxError),
            }
        }
        .boxed()
    }
}

impl Current {
    /// The API server says `Unauthorized` and nothing else. Who was asked, and by what it should have known us, is known
    /// here only.
    fn say_who(&self, answer: Response<Body>) -> Response<Body> {
        if answer.status() != StatusCode::UNAUTHORIZED {
            return answer;
        }
        let message = format!(
            "the API server at {} does not accept {} (401 Unauthorized)",
            self.address, self.credentials
        );
        let status = serde_json::json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message, "reason": "Unauthorized", "code": 401,
        });
        let (mut head, _) = answer.into_parts();
        head.headers.remove(CONTENT_LENGTH);
        Response::from_parts(head, Body::from(Bytes::from(status.to_string())))
    }
}

fn is_endless(request: &Request<Body>) -> bool {
    let query = request.uri().query().unwrap_or_default();
    let mut parts = query.split('&');
    parts.any(|part| matches!(part, "watch=true" | "watch=1" | "follow=true"))
}
