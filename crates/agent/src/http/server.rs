//! The sockets: bind and check first, then serve, then drain.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use super::auth::{Auth, AuthError, BasicConfig};
use super::counters::Counters;
use super::pace::{Busy, Paced, Patience};
use super::refusal::{Muted, unaddressed};
use super::route::Places;
use super::service::{Limits, Shared, drain_begins, serve};
use super::surface::Surface;
use super::tls::{Tls, TlsError, TlsFiles, Watched};

/// How often changed certificates and tokens are looked for.
const RELOAD_EVERY: Duration = Duration::from_secs(10);
/// How often the idle are asked to leave while somebody waits, and how long a new connection is left alone.
const ASK_TO_LEAVE_EVERY: Duration = Duration::from_millis(200);
const NEWCOMERS_MAY_STAY: Duration = Duration::from_secs(1);
/// After a failure to accept (too many open files, most likely).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

#[derive(Debug, Clone)]
pub struct Config {
    /// Port zero takes any free one; [`Server::address`] tells which.
    pub listen: SocketAddr,
    pub url_base_prefix: String,
    pub prometheus_endpoint: String,
    pub tls: Option<TlsFiles>,
    /// Whoever does not show this token sees nothing but the probes.
    pub token_file: Option<PathBuf>,
    pub basic: Option<BasicConfig>,
    pub limits: Limits,
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
            limits: Limits::default(),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum BindError {
    #[error("listen on {address}")]
    Listen {
        address: SocketAddr,
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    Auth(#[from] AuthError),
}

/// Bound and checked, not serving yet: connections wait in the kernel's queue.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
    places: Places,
    limits: Limits,
    tls: Option<Arc<Tls>>,
    auth: Arc<Auth>,
    counters: Arc<Counters>,
}

impl Config {
    pub async fn bind(self) -> Result<Server, BindError> {
        let auth = Auth::load(self.token_file.as_deref(), self.basic.as_ref())?;
        let tls = match self.tls {
            Some(files) => Some(Arc::new(Tls::load(files)?)),
            None => None,
        };
        let failed = |source| BindError::Listen {
            address: self.listen,
            source,
        };
        let listener = TcpListener::bind(self.listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        if !address.ip().is_loopback() && (tls.is_none() || !auth.has_token()) {
            let (tls, token) = (tls.is_some(), auth.has_token());
            tracing::warn!(%address, tls, token, "anyone who reaches this address can read all figures");
        }
        Ok(Server {
            listener,
            address,
            places: Places::new(&self.url_base_prefix, &self.prometheus_endpoint),
            limits: self.limits,
            tls,
            auth: Arc::new(auth),
            counters: Arc::default(),
        })
    }
}

impl Server {
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    pub fn spawn(self, surface: Arc<dyn Surface>) -> Running {
        let (drain, draining) = watch::channel(false);
        let shared = Arc::new(Shared::new(
            surface,
            self.places,
            self.limits,
            Arc::clone(&self.auth),
            Arc::clone(&self.counters),
            draining,
        ));
        let secrets = Secrets::new(self.tls.clone(), self.auth, Arc::clone(&self.counters));
        let task = tokio::spawn(run(self.listener, shared, self.tls, secrets));
        tracing::info!(address = %self.address, "serving");
        Running {
            address: self.address,
            counters: self.counters,
            drain,
            task,
        }
    }
}

/// A serving server.
#[derive(Debug)]
pub struct Running {
    address: SocketAddr,
    counters: Arc<Counters>,
    drain: watch::Sender<bool>,
    task: JoinHandle<JoinSet<()>>,
}

impl Running {
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    /// Takes no more connections, ends event streams, lets requests finish, and cuts off whatever is left when the
    /// time is up. Says how many were cut off.
    pub async fn drain(self, within: Duration) -> usize {
        let _ = self.drain.send(true);
        let Ok(mut connections) = self.task.await else {
            return 0;
        };
        let all_done = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(within, all_done).await.is_ok() {
            return 0;
        }
        let left = connections.len();
        tracing::warn!(connections = left, "time is up, cutting off connections");
        connections.shutdown().await;
        left
    }
}

async fn run(
    listener: TcpListener,
    shared: Arc<Shared>,
    tls: Option<Arc<Tls>>,
    secrets: Secrets,
) -> JoinSet<()> {
    let mut connections = JoinSet::new();
    let places = Arc::new(Semaphore::new(shared.limits.connections));
    let mut draining = shared.draining.clone();
    let mut reload = tokio::time::interval(RELOAD_EVERY);
    loop {
        let place = tokio::select! {
            () = drain_begins(&mut draining) => return connections,
            _ = reload.tick() => {
                secrets.refresh();
                continue;
            }
            // What has ended gives its memory back.
            Some(_) = connections.join_next() => continue,
            Ok(place) = a_place(&places, &shared) => place,
        };
        let stream = tokio::select! {
            () = drain_begins(&mut draining) => return connections,
            _ = reload.tick() => {
                secrets.refresh();
                continue;
            }
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            },
        };
        let shared = Arc::clone(&shared);
        let acceptor = tls.as_ref().map(|tls| TlsAcceptor::from(tls.config()));
        connections.spawn(async move {
            let _place = place;
            let _open = shared.counters.connection();
            accept(stream, acceptor, shared).await;
        });
    }
}

/// Waits for a place. While there is none, connections that nobody uses are asked to leave: those who hold them, by
/// mistake or malice, must not keep others out.
async fn a_place(
    places: &Arc<Semaphore>,
    shared: &Shared,
) -> Result<OwnedSemaphorePermit, AcquireError> {
    let mut place = pin!(Arc::clone(places).acquire_owned());
    loop {
        tokio::select! {
            biased;
            place = place.as_mut() => return place,
            () = tokio::time::sleep(ASK_TO_LEAVE_EVERY) => {
                shared.counters.crowded();
                shared.crowded.notify_waiters();
            }
        }
    }
}

/// Ends when this connection should make room: the server is crowded, and nothing is going on here.
async fn in_the_way(shared: &Shared, busy: &Busy) {
    let since = tokio::time::Instant::now();
    loop {
        shared.crowded.notified().await;
        if since.elapsed() >= NEWCOMERS_MAY_STAY && busy.is_of_no_use(NEWCOMERS_MAY_STAY) {
            return;
        }
    }
}

async fn accept(stream: TcpStream, acceptor: Option<TlsAcceptor>, shared: Arc<Shared>) {
    // Answers are written whole; waiting for more would only delay them.
    let _ = stream.set_nodelay(true);
    let Some(acceptor) = acceptor else {
        return connection(stream, shared).await;
    };
    let handshake = tokio::time::timeout(shared.limits.head, acceptor.accept(stream));
    let nothing_asked = Busy::default();
    let handshake = async {
        tokio::select! {
            outcome = handshake => outcome,
            () = in_the_way(&shared, &nothing_asked) => {
                Ok(Err(io::ErrorKind::TimedOut.into()))
            }
        }
    };
    match handshake.await {
        Ok(Ok(stream)) => connection(stream, shared).await,
        Ok(Err(error)) => {
            shared.counters.handshake_failed();
            tracing::debug!(%error, "TLS handshake failed");
        }
        Err(_) => shared.counters.handshake_failed(),
    }
}

/// Serves one connection to its end.
pub async fn connection<S>(stream: S, shared: Arc<Shared>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let limits = &shared.limits;
    let patience = Patience {
        head: limits.head,
        idle: limits.idle,
        stalled: limits.stalled,
    };
    let busy = Busy::default();
    let answers = busy.clone();
    let io = TokioIo::new(Muted::new(Paced::new(stream, patience, busy.clone())));
    let answering = Arc::clone(&shared);
    let service = service_fn(move |request| {
        let guard = busy.begin();
        let shared = Arc::clone(&answering);
        async move {
            let answer = match unaddressed(&request) {
                Some(refusal) => {
                    shared.counters.answered("malformed", 400);
                    refusal
                }
                None => serve(shared, request).await,
            };
            Ok::<_, Infallible>(answer.map(|body| body.holding(guard)))
        }
    });
    // The pace is ours to keep: hyper's timer does not tell a slow head from an idle connection.
    let mut connection = http1::Builder::new()
        .header_read_timeout(None)
        // Scripts that look for `Content-Type:` with a pattern were written against Go's spelling.
        .title_case_headers(true)
        .max_buf_size(limits.header_bytes.max(8 << 10))
        .half_close(false)
        .serve_connection(io, service);
    let mut draining = shared.draining.clone();
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = drain_begins(&mut draining) => {
            Pin::new(&mut connection).graceful_shutdown();
            (&mut connection).await
        }
        // Half a request is no reason to stay: dropping the connection ends it.
        () = in_the_way(&shared, &answers) => Ok(()),
    };
    if let Err(error) = ended {
        // The request never reached a handler: too long a line, or no HTTP at all.
        tracing::debug!(%error, "connection ended");
        let stream = connection.into_parts().io.into_inner();
        if let Some(status) = stream.explain(&error).await {
            shared.counters.answered("malformed", status);
        }
    }
}

/// Certificates and tokens, and when to take them anew.
#[derive(Debug)]
pub struct Secrets {
    tls: Option<(Arc<Tls>, Watched)>,
    token: Option<Watched>,
    auth: Arc<Auth>,
    counters: Arc<Counters>,
}

impl Secrets {
    fn new(tls: Option<Arc<Tls>>, auth: Arc<Auth>, counters: Arc<Counters>) -> Self {
        let tls = tls.map(|tls| {
            let paths = tls.paths().into_iter().map(PathBuf::from).collect();
            (tls, Watched::new(paths))
        });
        let token = auth
            .token_file()
            .map(|path| Watched::new(vec![path.to_owned()]));
        Self {
            tls,
            token,
            auth,
            counters,
        }
    }

    /// Looks at the files; a handful of `stat` calls when nothing changed.
    fn refresh(&self) {
        if let Some((tls, files)) = &self.tls
            && files.changed()
        {
            match tls.reload() {
                Ok(()) => tracing::info!("certificate reloaded"),
                Err(error) => {
                    self.counters.reload_failed();
                    let error: &dyn std::error::Error = &error;
                    tracing::warn!(
                        error,
                        "cannot load the changed certificate, keeping the old one"
                    );
                }
            }
        }
        if self.token.as_ref().is_some_and(Watched::changed) {
            match self.auth.reload_token() {
                Ok(()) => tracing::info!("token reloaded"),
                Err(error) => {
                    self.counters.reload_failed();
                    let error: &dyn std::error::Error = &error;
                    tracing::warn!(error, "cannot load the changed token, keeping the old one");
                }
            }
        }
    }
}
