//! The sockets: bind and check first, then serve, then drain.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::Body;
use rustix::net::sockopt;
use rustix::process::{Resource, getrlimit};
use rustls::sign::CertifiedKey;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{AcquireError, Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tower::Service;

use super::arriving::Arriving;
use super::ca_bundle::Peer;
use super::connection::{Protocol, in_the_way, serve_connection};
use super::connection_metrics::Counters;
use super::io_timeouts::Busy;
use super::share::Shares;
use super::tls::{Certificate, Live, Tls, TlsError};
use plimsoll_client::file_watcher::{LOOK_EVERY, Watcher};
use plimsoll_client::shutdown;
use plimsoll_client::shutdown::{Shutdown, ShutdownTrigger};

/// How often the idle are asked to leave while somebody waits.
const ASK_TO_LEAVE_EVERY: Duration = Duration::from_millis(200);
/// After a failure to accept (too many open files, most likely).
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Peers that vanish without a word are noticed after one and a half minutes, even where nothing is sent to them.
const KEEPALIVE: Duration = Duration::from_secs(15);
const KEEPALIVE_PROBES: u32 = 5;
/// What Go's servers say, and what people search the web for.
const PLAIN_HTTP: &[u8] =
    b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n";

#[derive(Debug, Clone)]
pub struct Limits {
    pub connections: usize,
    pub header_bytes: usize,
    /// Requests at once on one HTTP/2 connection.
    pub streams: u32,
    /// For a request's head, and a TLS handshake, to arrive.
    pub head: Duration,
    /// Between requests on one connection.
    pub idle: Duration,
    /// For a client to take a piece of an answer.
    pub stalled: Duration,
    /// For a request's body to begin …
    pub body: Duration,
    /// … and what must have come of it each second from then on.
    pub body_rate: u64,
    /// Requests at once, of those whose users are known and no administrators.
    pub requests: u64,
    /// The same of watches.
    pub watches: u64,
    /// What requests under way may take in memory …
    pub asked_bytes: u64,
    /// … and large answers that have not gone out.
    pub answered_bytes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 4096,
            header_bytes: 1 << 20,
            streams: 100,
            head: Duration::from_secs(32),
            idle: Duration::from_secs(90),
            stalled: Duration::from_secs(60),
            body: Duration::from_secs(10),
            body_rate: 64 << 10,
            requests: 1024,
            watches: 4 << 10,
            asked_bytes: 64 << 20,
            answered_bytes: 256 << 20,
        }
    }
}

/// Descriptors that are left to files and to connections of our own.
const SPARE_DESCRIPTORS: usize = 64;

impl Limits {
    /// No more connections than the machine lets us have.
    fn within_descriptors(mut self) -> Self {
        let limit = getrlimit(Resource::Nofile).current;
        let limit = limit.and_then(|limit| usize::try_from(limit).ok());
        if let Some(limit) = limit {
            let most = limit.saturating_sub(SPARE_DESCRIPTORS).max(limit / 2);
            self.connections = self.connections.min(most.max(1));
        }
        self
    }
}

#[derive(Debug, Clone)]
pub struct Config {
    /// Port zero takes any free one; [`Bound::local_addr`] tells which.
    pub listen: SocketAddr,
    /// `None`: plain HTTP/1.1.
    pub tls: Option<Tls>,
    pub limits: Limits,
    /// `Content-Type:` rather than `content-type:` on HTTP/1.1: scripts with patterns were written against Go's
    /// spelling.
    pub title_case_headers: bool,
}

impl Config {
    pub fn new(listen: SocketAddr) -> Self {
        Self {
            listen,
            tls: None,
            limits: Limits::default(),
            title_case_headers: true,
        }
    }

    /// On a free port of the loopback address.
    pub fn loopback() -> Self {
        Self::new(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
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
}

/// What all connections of a server share.
#[derive(Debug)]
pub struct ServerContext {
    pub limits: Limits,
    pub title_case_headers: bool,
    pub counters: Arc<Counters>,
    pub shutdown: Shutdown,
    /// Told when somebody waits at the door and every place is taken.
    pub(super) crowded: Notify,
    pub(super) shares: Arc<Shares>,
}

impl ServerContext {
    pub fn new(
        limits: Limits,
        title_case_headers: bool,
        counters: Arc<Counters>,
        shutdown: Shutdown,
    ) -> Self {
        Self {
            shares: Arc::new(Shares::new(&limits)),
            limits,
            title_case_headers,
            counters,
            shutdown,
            crowded: Notify::new(),
        }
    }
}

/// Bound and checked, not serving yet: connections wait in the kernel's queue.
#[derive(Debug)]
pub struct Bound {
    listener: TcpListener,
    local_addr: SocketAddr,
    tls: Option<Arc<Live>>,
    house: ServerContext,
    stopper: ShutdownTrigger,
}

impl Config {
    pub async fn bind(self) -> Result<Bound, BindError> {
        let failed = |source| BindError::Listen {
            address: self.listen,
            source,
        };
        let listener = TcpListener::bind(self.listen).await.map_err(failed)?;
        let local_addr = listener.local_addr().map_err(failed)?;
        let tls = match self.tls {
            Some(mut tls) => {
                if let Certificate::SelfSigned(wish) = &mut tls.certificate {
                    wish.ips.push(local_addr.ip());
                }
                Some(Arc::new(Live::load(tls)?))
            }
            None => None,
        };
        let (stopper, shutdown) = shutdown::channel();
        Ok(Bound {
            listener,
            local_addr,
            tls,
            house: ServerContext::new(
                self.limits.within_descriptors(),
                self.title_case_headers,
                Arc::default(),
                shutdown,
            ),
            stopper,
        })
    }
}

impl Bound {
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.house.counters)
    }

    /// Counts here from now on: for a service that counts on its own, too.
    pub fn counting(mut self, counters: Arc<Counters>) -> Self {
        self.house.counters = counters;
        self
    }

    /// Begins when the server is drained: answers without an end must end then.
    pub fn shutdown(&self) -> Shutdown {
        self.house.shutdown.clone()
    }

    /// What is shown to clients, leaf first; `None` without TLS.
    pub fn certificate(&self) -> Option<Arc<CertifiedKey>> {
        self.tls.as_ref().map(|tls| tls.shown())
    }

    pub fn spawn<S, B>(self, service: S) -> Serving
    where
        S: Service<Request<Arriving>, Response = Response<B>> + Clone + Send + Sync + 'static,
        S::Future: Send,
        S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let counters = self.counters();
        if let Some(tls) = &self.tls {
            keep_current(
                Arc::clone(tls),
                Arc::clone(&counters),
                self.house.shutdown.clone(),
            );
        }
        let house = Arc::new(self.house);
        let task = tokio::spawn(run(self.listener, house, self.tls, service));
        tracing::info!(address = %self.local_addr, "serving");
        Serving {
            local_addr: self.local_addr,
            counters,
            stopper: self.stopper,
            task,
        }
    }
}

/// A serving server. Dropped without [`Self::drain`], it cuts off everything at once.
#[derive(Debug)]
pub struct Serving {
    local_addr: SocketAddr,
    counters: Arc<Counters>,
    stopper: ShutdownTrigger,
    task: JoinHandle<JoinSet<()>>,
}

impl Serving {
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    /// Begins when the server is drained.
    pub fn shutdown(&self) -> Shutdown {
        self.stopper.shutdown()
    }

    /// Takes no more connections, tells streams to end, lets requests finish, and cuts off whatever is left when the
    /// time is up. Says how many were cut off.
    pub async fn drain(self, within: Duration) -> usize {
        self.stopper.stop();
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

async fn run<S, B>(
    listener: TcpListener,
    house: Arc<ServerContext>,
    tls: Option<Arc<Live>>,
    service: S,
) -> JoinSet<()>
where
    S: Service<Request<Arriving>, Response = Response<B>> + Clone + Send + Sync + 'static,
    S::Future: Send,
    S::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut connections = JoinSet::new();
    let places = Arc::new(Semaphore::new(house.limits.connections));
    loop {
        let place = tokio::select! {
            () = house.shutdown.begins() => return connections,
            // What has ended gives its memory back.
            Some(_) = connections.join_next() => continue,
            Ok(place) = a_place(&places, &house) => place,
        };
        let (stream, address) = tokio::select! {
            () = house.shutdown.begins() => return connections,
            Some(_) = connections.join_next() => continue,
            accepted = listener.accept() => match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            },
        };
        let house = Arc::clone(&house);
        let acceptor = tls.as_ref().map(|tls| TlsAcceptor::from(tls.config()));
        let service = service.clone();
        connections.spawn(async move {
            let _place = place;
            let _open = house.counters.connection();
            set_options(&stream);
            let Some(acceptor) = acceptor else {
                let peer = Peer::new(address, &[]);
                return serve_connection(stream, Protocol::Http1, peer, &house, service).await;
            };
            let Some(stream) = handshake(stream, &acceptor, &house).await else {
                return house.counters.handshake_failed();
            };
            let (_, session) = stream.get_ref();
            let protocol = match session.alpn_protocol() {
                Some(b"h2") => Protocol::Http2,
                _ => Protocol::Http1,
            };
            let peer = Peer::new(address, session.peer_certificates().unwrap_or_default());
            serve_connection(stream, protocol, peer, &house, service).await;
        });
    }
}

/// Failures are not reported: the connection works without, only less well.
fn set_options(stream: &TcpStream) {
    // Answers are written whole; waiting for more would only delay them.
    let _ = stream.set_nodelay(true);
    let _ = sockopt::set_socket_keepalive(stream, true);
    let _ = sockopt::set_tcp_keepidle(stream, KEEPALIVE);
    let _ = sockopt::set_tcp_keepintvl(stream, KEEPALIVE);
    let _ = sockopt::set_tcp_keepcnt(stream, KEEPALIVE_PROBES);
}

/// Waits for a place. While there is none, connections that nobody uses are asked to leave: those who hold them, by
/// mistake or malice, must not keep others out.
async fn a_place(
    places: &Arc<Semaphore>,
    house: &ServerContext,
) -> Result<OwnedSemaphorePermit, AcquireError> {
    let mut place = pin!(Arc::clone(places).acquire_owned());
    loop {
        tokio::select! {
            biased;
            place = place.as_mut() => return place,
            () = tokio::time::sleep(ASK_TO_LEAVE_EVERY) => {
                house.counters.crowded();
                house.crowded.notify_waiters();
            }
        }
    }
}

/// `None`: it failed, took too long, or was in the way.
async fn handshake(
    stream: TcpStream,
    acceptor: &TlsAcceptor,
    house: &ServerContext,
) -> Option<TlsStream<TcpStream>> {
    let handshake = async {
        match speaks_plain_http(&stream).await {
            true => tell_plain_http(stream).await,
            false => acceptor.accept(stream).await,
        }
    };
    let nothing_asked = Busy::default();
    let outcome = tokio::select! {
        outcome = tokio::time::timeout(house.limits.head, handshake) => outcome.ok()?,
        () = house.shutdown.begins() => return None,
        () = in_the_way(house, &nothing_asked) => return None,
    };
    outcome
        .inspect_err(|error| tracing::debug!(%error, "TLS handshake failed"))
        .ok()
}

/// A TLS connection begins with a record's type, never with a letter.
async fn speaks_plain_http(stream: &TcpStream) -> bool {
    let mut first = [0];
    matches!(stream.peek(&mut first).await, Ok(1) if first[0].is_ascii_uppercase())
}

async fn tell_plain_http(mut stream: TcpStream) -> io::Result<TlsStream<TcpStream>> {
    stream.write_all(PLAIN_HTTP).await?;
    stream.shutdown().await?;
    // What was sent is taken before the socket is closed, or the kernel would tell the client of a reset instead.
    tokio::io::copy(&mut stream, &mut tokio::io::sink()).await?;
    Err(io::Error::other("plain HTTP"))
}

/// Takes changed files until the server stops.
fn keep_current(tls: Arc<Live>, counters: Arc<Counters>, shutdown: Shutdown) {
    let paths = tls.paths();
    if paths.is_empty() {
        return;
    }
    tokio::spawn(async move {
        let files = Watcher::new(paths, LOOK_EVERY);
        // They may have changed between being read and being watched.
        if counters.reloading.run(|| tls.reload()).is_err() {
            files.doubt();
        }
        loop {
            tokio::select! {
                () = shutdown.begins() => return,
                () = files.changed() => {}
            }
            match counters.reloading.run(|| tls.reload()) {
                Ok(()) => tracing::info!("certificate reloaded"),
                Err(error) => {
                    counters.reload_failed();
                    files.doubt();
                    let error: &dyn std::error::Error = &error;
                    tracing::warn!(
                        error,
                        "cannot load the changed certificate, keeping the old one"
                    );
                }
            }
        }
    });
}
