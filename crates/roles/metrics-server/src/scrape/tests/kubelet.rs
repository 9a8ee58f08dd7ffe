//! Kubelets of every kind, on loopback.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::PrivateKeyDer;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// How it behaves.
#[derive(Debug, Clone)]
pub enum Kind {
    Good,
    /// Compressed and in chunks, as a real one does it.
    Zipped,
    /// Takes this long to answer.
    Slow(Duration),
    /// Takes the connection and never says a word.
    Hung,
    /// Says so much and stops.
    HalfWay,
    /// Sends these bytes for a page.
    Lying(Vec<u8>),
    /// Sends these instead of an answer.
    Raw(Vec<u8>),
    /// Never ends.
    Endless,
    /// A small answer that is large when it is uncompressed.
    Bomb,
    Status(&'static str),
    /// Sends elsewhere.
    Redirect(String),
    /// No TLS where some is expected.
    NoTls,
    /// Closes every other connection.
    Flapping,
    /// Closes each connection after an answer without saying so.
    Closing,
}

#[derive(Debug)]
pub struct Kubelet {
    pub address: SocketAddr,
    pub state: Arc<State>,
}

#[derive(Debug)]
pub struct State {
    pub name: String,
    kind: parking_lot::Mutex<Kind>,
    pub connections: AtomicUsize,
    pub requests: AtomicUsize,
    pub last_request: parking_lot::Mutex<String>,
    /// The certificate that the last client showed.
    pub shown: parking_lot::Mutex<Option<Vec<u8>>>,
    /// Told when connections are to end.
    ends: tokio::sync::watch::Sender<()>,
}

pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        Self(CertifiedIssuer::self_signed(params, key).unwrap())
    }

    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// A client's certificate and key.
    pub fn client(&self) -> (rcgen::Certificate, KeyPair) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
        (params.signed_by(&key, &self.0).unwrap(), key)
    }

    pub fn acceptor(&self, names: &[&str]) -> TlsAcceptor {
        self.acceptor_of(names, false)
    }

    /// Clients have to show a certificate of this authority, too, where that is wanted.
    pub fn acceptor_of(&self, names: &[&str], wants_certificates: bool) -> TlsAcceptor {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(names).unwrap();
        let certificate = params.signed_by(&key, &self.0).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = rustls::ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .unwrap();
        let builder = match wants_certificates {
            false => builder.with_no_client_auth(),
            true => {
                let mut roots = rustls::RootCertStore::empty();
                roots.add(self.0.der().clone()).unwrap();
                let verifier = rustls::server::WebPkiClientVerifier::builder_with_provider(
                    Arc::new(roots),
                    provider,
                );
                builder.with_client_cert_verifier(verifier.build().unwrap())
            }
        };
        let config = builder
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivateKeyDer::Pkcs8(key.serialize_der().into()),
            )
            .unwrap();
        TlsAcceptor::from(Arc::new(config))
    }
}

impl Kubelet {
    pub async fn start(name: &str, kind: Kind, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(State {
            name: name.to_owned(),
            kind: parking_lot::Mutex::new(kind),
            connections: AtomicUsize::new(0),
            requests: AtomicUsize::new(0),
            last_request: parking_lot::Mutex::default(),
            shown: parking_lot::Mutex::default(),
            ends: tokio::sync::watch::Sender::new(()),
        });
        let shared = Arc::clone(&state);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (state, tls) = (Arc::clone(&shared), tls.clone());
                let number = state.connections.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(async move {
                    let _ = state.connection(stream, tls, number).await;
                });
            }
        });
        Self { address, state }
    }

    pub fn becomes(&self, kind: Kind) {
        *self.state.kind.lock() = kind;
    }

    /// Ends the connections that have answered something, each before its next request.
    pub fn hang_up(&self) {
        self.state.ends.send_replace(());
    }

    pub fn requests(&self) -> usize {
        self.state.requests.load(Ordering::Relaxed)
    }

    pub fn connections(&self) -> usize {
        self.state.connections.load(Ordering::Relaxed)
    }
}

impl State {
    async fn connection(
        &self,
        stream: TcpStream,
        tls: Option<TlsAcceptor>,
        number: usize,
    ) -> std::io::Result<()> {
        let kind = self.kind.lock().clone();
        if matches!(kind, Kind::Flapping) && number % 2 == 1 {
            return Ok(());
        }
        if matches!(kind, Kind::NoTls) {
            let mut stream = stream;
            stream
                .write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                .await?;
            return stream.shutdown().await;
        }
        match tls {
            Some(tls) => {
                let stream = tls.accept(stream).await?;
                let shown = stream.get_ref().1.peer_certificates();
                let leaf = shown.and_then(|chain| Some(chain.first()?.to_vec()));
                *self.shown.lock() = leaf;
                self.serve(stream).await
            }
            None => self.serve(stream).await,
        }
    }

    async fn serve<S: AsyncRead + AsyncWrite + Unpin>(&self, mut stream: S) -> std::io::Result<()> {
        let mut ends: Option<tokio::sync::watch::Receiver<()>> = None;
        loop {
            let first = match &mut ends {
                None => stream.read_u8().await?,
                Some(ends) => tokio::select! {
                    byte = stream.read_u8() => byte?,
                    _ = ends.changed() => return stream.shutdown().await,
                },
            };
            let mut request = vec![first];
            while !request.ends_with(b"\r\n\r\n") {
                request.push(stream.read_u8().await?);
            }
            self.requests.fetch_add(1, Ordering::Relaxed);
            *self.last_request.lock() = String::from_utf8_lossy(&request).into_owned();
            let kind = self.kind.lock().clone();
            let page = page(&self.name);
            let plain = |page: &[u8]| {
                let mut answer =
                    format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", page.len());
                answer.push_str(&String::from_utf8_lossy(page));
                answer.into_bytes()
            };
            let answer = match kind {
                Kind::Good | Kind::Flapping | Kind::NoTls => plain(page.as_bytes()),
                Kind::Zipped => zipped(page.as_bytes()),
                Kind::Bomb => zipped(&vec![b'\n'; 4 << 20]),
                Kind::Slow(pause) => {
                    tokio::time::sleep(pause).await;
                    plain(page.as_bytes())
                }
                Kind::Hung => std::future::pending().await,
                Kind::HalfWay => {
                    let answer = plain(page.as_bytes());
                    stream.write_all(&answer[..answer.len() / 2]).await?;
                    stream.flush().await?;
                    std::future::pending().await
                }
                Kind::Lying(bytes) => {
                    let head =
                        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", bytes.len());
                    [head.into_bytes(), bytes].concat()
                }
                Kind::Raw(bytes) => bytes,
                Kind::Endless => {
                    stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
                    loop {
                        stream.write_all(&[b'\n'; 1 << 16]).await?;
                    }
                }
                Kind::Status(status) => {
                    format!("HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\nno").into_bytes()
                }
                Kind::Redirect(to) => {
                    format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n")
                        .into_bytes()
                }
                Kind::Closing => {
                    stream.write_all(&plain(page.as_bytes())).await?;
                    return stream.shutdown().await;
                }
            };
            // Whoever is told to end while it answers ends afterwards.
            ends.get_or_insert_with(|| self.ends.subscribe());
            stream.write_all(&answer).await?;
            stream.flush().await?;
        }
    }
}

fn zipped(page: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let level = flate2::Compression::fast();
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
    encoder.write_all(page).unwrap();
    let body = encoder.finish().unwrap();
    let mut answer =
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec();
    for chunk in body.chunks(100) {
        answer.extend(format!("{:x}\r\n", chunk.len()).bytes());
        answer.extend(chunk);
        answer.extend(b"\r\n");
    }
    answer.extend(b"0\r\n\r\n");
    answer
}

/// One pod, named as the node; half a core.
pub fn page(name: &str) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let (millis, cpu) = (now.as_millis(), now.as_secs_f64() / 2.0);
    let whose = format!("{{container=\"c\",namespace=\"n\",pod=\"{name}\"}}");
    format!(
        "# TYPE container_cpu_usage_seconds_total counter\n\
         container_cpu_usage_seconds_total{whose} {cpu} {millis}\n\
         container_memory_working_set_bytes{whose} 1024 {millis}\n\
         container_start_time_seconds{whose} 1 {millis}\n\
         node_cpu_usage_seconds_total {cpu} {millis}\n\
         node_memory_working_set_bytes 4096 {millis}\n"
    )
}
