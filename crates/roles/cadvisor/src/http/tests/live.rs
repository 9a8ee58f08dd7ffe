//! Real sockets: certificates, tokens, draining.

use super::*;
use crate::http::{Config, TlsFiles};
use http_body_util::Empty;
use hyper_util::rt::TokioIo;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use std::net::SocketAddr;
use std::path::Path;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

pub const LOOPBACK: &str = "127.0.0.1:0";
/// However busy the machine is.
pub const PATIENCE: Duration = Duration::from_secs(60);

pub fn config() -> Config {
    Config::new(LOOPBACK.parse().unwrap())
}

pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        Self(CertifiedIssuer::self_signed(params, key).unwrap())
    }

    fn pem(&self) -> String {
        self.0.pem()
    }

    /// Writes `NAME.pem` and `NAME.key`.
    pub fn issue(&self, dir: &Path, name: &str) -> TlsFiles {
        let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let key = KeyPair::generate().unwrap();
        let cert = params.signed_by(&key, &self.0).unwrap();
        let files = TlsFiles {
            cert: dir.join(format!("{name}.pem")),
            key: dir.join(format!("{name}.key")),
            client_ca: None,
        };
        std::fs::write(&files.cert, cert.pem()).unwrap();
        std::fs::write(&files.key, key.serialize_pem()).unwrap();
        files
    }

    pub fn client(&self, own: Option<&TlsFiles>) -> TlsConnector {
        let mut roots = RootCertStore::empty();
        roots
            .add(CertificateDer::from_pem_slice(self.pem().as_bytes()).unwrap())
            .unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(roots);
        let config = match own {
            None => builder.with_no_client_auth(),
            Some(files) => {
                let cert = CertificateDer::from_pem_file(&files.cert).unwrap();
                let key = PrivateKeyDer::from_pem_file(&files.key).unwrap();
                builder.with_client_auth_cert(vec![cert], key).unwrap()
            }
        };
        TlsConnector::from(Arc::new(config))
    }
}

async fn get<S>(stream: S, target: &str, token: Option<&str>) -> hyper::Result<(u16, String)>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (mut sender, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let mut request = Request::builder().uri(target).header("host", "localhost");
    if let Some(token) = token {
        request = request.header("authorization", format!("Bearer {token}"));
    }
    let reply = sender
        .send_request(request.body(Empty::<Bytes>::new()).unwrap())
        .await?;
    let status = reply.status().as_u16();
    let body = reply.into_body().collect().await?.to_bytes();
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}

pub async fn over_tls(
    connector: &TlsConnector,
    address: SocketAddr,
    target: &str,
    token: Option<&str>,
) -> Result<(u16, String), String> {
    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let stream = connector
        .connect(name, stream)
        .await
        .map_err(|e| e.to_string())?;
    get(stream, target, token).await.map_err(|e| e.to_string())
}

#[tokio::test]
async fn plain_http() {
    let server = config().bind().await.unwrap();
    let address = server.address();
    assert_ne!(address.port(), 0);
    let running = server.spawn(Arc::new(Machine::new()));
    let stream = TcpStream::connect(address).await.unwrap();
    assert_eq!(
        get(stream, "/healthz", None).await.unwrap(),
        (200, "ok".to_owned())
    );
    let stream = TcpStream::connect(address).await.unwrap();
    let (status, body) = get(stream, "/api/v1.3/subcontainers/", None).await.unwrap();
    assert_eq!(status, 200);
    assert_eq!(
        serde_json::from_str::<serde_json::Value>(&body)
            .unwrap()
            .as_array()
            .unwrap()
            .len(),
        6
    );
    assert_eq!(running.drain(Duration::from_secs(5)).await, 0);
    TcpStream::connect(address).await.unwrap_err();
}

#[tokio::test]
async fn certificates_and_tokens() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let token = dir.path().join("token");
    std::fs::write(&token, "s3cret\n").unwrap();
    let config = Config {
        tls: Some(authority.issue(dir.path(), "server")),
        token_file: Some(token),
        ..config()
    };
    let running = config.bind().await.unwrap().spawn(Arc::new(Machine::new()));
    let address = running.address();
    let client = authority.client(None);
    let status = async |target, token| over_tls(&client, address, target, token).await.unwrap().0;
    assert_eq!(status("/healthz", None).await, 200);
    assert_eq!(status("/readyz", None).await, 200);
    for target in [
        "/metrics",
        "/api/v1.3/machine",
        "/containers/",
        "/",
        "/nope",
        "/metrics/self",
    ] {
        assert_eq!(status(target, None).await, 401, "{target}");
        assert_eq!(status(target, Some("wrong!")).await, 401, "{target}");
    }
    assert_eq!(status("/metrics", Some("s3cret")).await, 200);
    // Somebody who speaks no TLS gets no answer and does no harm.
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream
        .write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        .await
        .unwrap();
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest).await;
    assert!(!String::from_utf8_lossy(&rest).contains("200 OK"));
    running.drain(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn clients_must_show_a_certificate() {
    let dir = tempfile::tempdir().unwrap();
    let (authority, stranger) = (Authority::new(), Authority::new());
    let ca = dir.path().join("ca.pem");
    std::fs::write(&ca, authority.pem()).unwrap();
    let config = Config {
        tls: Some(TlsFiles {
            client_ca: Some(ca),
            ..authority.issue(dir.path(), "server")
        }),
        ..config()
    };
    let running = config.bind().await.unwrap().spawn(Arc::new(Machine::new()));
    let address = running.address();
    let own = authority.issue(dir.path(), "client");
    let known = authority.client(Some(&own));
    assert_eq!(
        over_tls(&known, address, "/healthz", None).await.unwrap().0,
        200
    );
    let foreign = stranger.issue(dir.path(), "stranger");
    for client in [authority.client(None), authority.client(Some(&foreign))] {
        over_tls(&client, address, "/healthz", None)
            .await
            .unwrap_err();
    }
    running.drain(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn a_new_certificate_is_taken_and_a_broken_one_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let (old, new) = (Authority::new(), Authority::new());
    let config = Config {
        tls: Some(old.issue(dir.path(), "server")),
        ..config()
    };
    let running = config.bind().await.unwrap().spawn(Arc::new(Machine::new()));
    let address = running.address();
    let reaches = async |authority: &Authority| {
        let answer = over_tls(&authority.client(None), address, "/healthz", None).await;
        answer.is_ok()
    };
    assert!(reaches(&old).await && !reaches(&new).await);
    new.issue(dir.path(), "server");
    let deadline = tokio::time::Instant::now() + PATIENCE;
    while !reaches(&new).await {
        assert!(tokio::time::Instant::now() < deadline, "never reloaded");
    }
    assert!(!reaches(&old).await);
    std::fs::write(dir.path().join("server.pem"), "not a certificate").unwrap();
    let failures = "reload_failures_total 0\n";
    let counters = running.counters();
    while families(&counters).contains(failures) {
        assert!(tokio::time::Instant::now() < deadline, "never noticed");
        tokio::task::yield_now().await;
    }
    assert!(reaches(&new).await);
    running.drain(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn what_cannot_be_served_is_said_before_it_is_tried() {
    let dir = tempfile::tempdir().unwrap();
    let authority = Authority::new();
    let files = authority.issue(dir.path(), "server");
    let taken = config().bind().await.unwrap();
    let error = Config::new(taken.address()).bind().await.unwrap_err();
    assert_eq!(error.to_string(), format!("listen on {}", taken.address()));
    let missing = Config {
        tls: Some(TlsFiles {
            key: dir.path().join("none"),
            ..files.clone()
        }),
        ..config()
    };
    assert!(
        missing
            .bind()
            .await
            .unwrap_err()
            .to_string()
            .starts_with("read ")
    );
    let other = authority.issue(dir.path(), "other");
    let mismatched = Config {
        tls: Some(TlsFiles {
            key: other.key,
            ..files
        }),
        ..config()
    };
    assert!(
        mismatched
            .bind()
            .await
            .unwrap_err()
            .to_string()
            .starts_with("certificate ")
    );
}

/// A stream has to end, a request that is being read may finish, and what hangs is cut off.
#[tokio::test]
async fn draining() {
    let running = config()
        .bind()
        .await
        .unwrap()
        .spawn(Arc::new(Machine::new()));
    let address = running.address();
    let counters = running.counters();
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream
        .write_all(b"GET /api/v1.3/events?stream=true&all_events=true HTTP/1.1\r\nHost: x\r\n\r\n")
        .await
        .unwrap();
    let mut head = [0; 15];
    stream.read_exact(&mut head).await.unwrap();
    let mut idle = TcpStream::connect(address).await.unwrap();
    idle.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        .await
        .unwrap();
    idle.read_exact(&mut head).await.unwrap();
    assert_eq!(counters.open_connections(), 2);
    assert_eq!(running.drain(Duration::from_secs(5)).await, 0);
    let mut rest = String::new();
    stream.read_to_string(&mut rest).await.unwrap();
    assert!(rest.ends_with("0\r\n\r\n"), "{rest}");
    assert_eq!(counters.open_connections(), 0);
}

#[tokio::test]
async fn what_hangs_is_cut_off() {
    let running = config()
        .bind()
        .await
        .unwrap()
        .spawn(Arc::new(Machine::new()));
    let mut stuck = TcpStream::connect(running.address()).await.unwrap();
    // Says that a body follows, and never sends it.
    stuck
        .write_all(b"POST /api/v1.3/containers/ HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n{")
        .await
        .unwrap();
    let counters = running.counters();
    while counters.in_flight() == 0 {
        tokio::task::yield_now().await;
    }
    // At once: a while later the server would itself give up the body.
    assert_eq!(running.drain(Duration::ZERO).await, 1);
    assert_eq!(counters.open_connections(), 0);
}

#[tokio::test]
async fn no_more_connections_than_allowed() {
    let mut config = config();
    config.limits.connections = 2;
    let running = config.bind().await.unwrap().spawn(Arc::new(Machine::new()));
    let address = running.address();
    let first = TcpStream::connect(address).await.unwrap();
    let second = TcpStream::connect(address).await.unwrap();
    let counters = running.counters();
    while counters.open_connections() < 2 {
        tokio::task::yield_now().await;
    }
    // The third waits in the kernel's queue until a place is free.
    let third = TcpStream::connect(address).await.unwrap();
    let asked = tokio::spawn(get(third, "/healthz", None));
    drop((first, second));
    assert_eq!(asked.await.unwrap().unwrap().0, 200);
    running.drain(Duration::from_secs(5)).await;
}

#[tokio::test]
async fn those_who_only_hold_a_place_do_not_keep_others_out() {
    let mut config = config();
    // Heads may take as long as they like: only asking to leave makes room.
    config.limits.head = Duration::from_secs(3600);
    config.limits.connections = 2;
    let running = config.bind().await.unwrap().spawn(Arc::new(Machine::new()));
    let address = running.address();
    let _silent = TcpStream::connect(address).await.unwrap();
    let mut half = TcpStream::connect(address).await.unwrap();
    half.write_all(b"GET /metrics HTT").await.unwrap();
    let late = TcpStream::connect(address).await.unwrap();
    let answer = get(late, "/healthz", None);
    let (status, _) = tokio::time::timeout(PATIENCE, answer)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(status, 200);
    running.drain(Duration::from_secs(5)).await;
}
