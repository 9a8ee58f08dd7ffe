//! Connections to one APIService's server: HTTPS with our client certificate, kept open between requests.

use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Incoming;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{CertificateError, ClientConfig, RootCertStore, SignatureScheme};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::RemoteSpec;

/// For the connection and its handshake together.
const CONNECT_WITHIN: Duration = Duration::from_secs(10);
/// Shorter than servers keep connections that are not used.
const IDLE: Duration = Duration::from_secs(30);

pub type BoxError = Box<dyn Error + Send + Sync>;
pub type Outgoing = UnsyncBoxBody<Bytes, BoxError>;

/// How a server has to prove that it is the one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proof {
    /// By a certificate of these authorities, in PEM.
    Authorities(Vec<u8>),
    /// Not at all.
    None,
}

impl Proof {
    /// Of an APIService's `spec`.
    pub fn read(spec: &Value) -> Self {
        if spec["insecureSkipTLSVerify"] == true {
            return Self::None;
        }
        let bundle = spec["caBundle"].as_str().unwrap_or_default();
        // What is no base64 would not have been stored; without authorities nobody is trusted.
        Self::Authorities(STANDARD.decode(bundle).unwrap_or_default())
    }
}

/// Why a server could not be asked, in the words that people know from Kubernetes.
#[derive(Debug, thiserror::Error)]
pub enum ReachError {
    #[error("dial tcp {address}: connect: {reason}")]
    Connect { address: String, reason: String },
    #[error("dial tcp {0}: i/o timeout")]
    TooSlow(String),
    #[error("dial tcp: lookup {0}: no such host")]
    NoSuchHost(String),
    #[error("tls: failed to verify certificate: x509: {0}")]
    Unproven(String),
    #[error("remote error: tls: {0}")]
    Handshake(String),
    #[error("{0}")]
    Other(String),
}

#[derive(Debug)]
pub struct Backend {
    /// Or why there cannot be one.
    client: Result<Client<Connector, Outgoing>, String>,
}

impl Backend {
    pub fn new(spec: &RemoteSpec, identity: Option<&Arc<CertifiedKey>>) -> Self {
        let connector = Connector::new(spec, identity);
        Self {
            client: connector.map(|connector| {
                Client::builder(TokioExecutor::new())
                    .pool_idle_timeout(IDLE)
                    .pool_timer(TokioTimer::new())
                    .build(connector)
            }),
        }
    }

    /// Why no request can be made at all: the APIService makes no sense.
    pub fn flaw(&self) -> Option<&str> {
        self.client.as_ref().err().map(String::as_str)
    }

    /// `request` has a whole URI, whose host and port are where to connect to.
    pub async fn send(&self, request: Request<Outgoing>) -> Result<Response<Incoming>, ReachError> {
        match &self.client {
            Err(flaw) => Err(ReachError::Other(flaw.clone())),
            Ok(client) => client.request(request).await.map_err(in_words),
        }
    }
}

/// The cause that says most.
fn in_words(error: hyper_util::client::legacy::Error) -> ReachError {
    let mut last = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        if let Some(found) = error.downcast_ref::<ReachError>() {
            return found.again();
        }
        last = error.to_string();
        cause = error.source();
    }
    ReachError::Other(last)
}

impl ReachError {
    fn again(&self) -> Self {
        match self {
            Self::Connect { address, reason } => Self::Connect {
                address: address.clone(),
                reason: reason.clone(),
            },
            Self::TooSlow(address) => Self::TooSlow(address.clone()),
            Self::NoSuchHost(host) => Self::NoSuchHost(host.clone()),
            Self::Unproven(why) => Self::Unproven(why.clone()),
            Self::Handshake(why) => Self::Handshake(why.clone()),
            Self::Other(why) => Self::Other(why.clone()),
        }
    }

    fn of_connect(address: &str, error: &std::io::Error) -> Self {
        use std::io::ErrorKind;
        let reason = match error.kind() {
            ErrorKind::TimedOut => return Self::TooSlow(address.to_owned()),
            ErrorKind::ConnectionRefused => "connection refused",
            ErrorKind::ConnectionReset => "connection reset by peer",
            ErrorKind::HostUnreachable => "no route to host",
            ErrorKind::NetworkUnreachable => "network is unreachable",
            // The resolver's errors have no number.
            _ if error.raw_os_error().is_none() => {
                let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
                return Self::NoSuchHost(host.to_owned());
            }
            _ => {
                return Self::Connect {
                    address: address.to_owned(),
                    reason: error.to_string(),
                };
            }
        };
        Self::Connect {
            address: address.to_owned(),
            reason: reason.to_owned(),
        }
    }

    fn of_handshake(error: &std::io::Error, name: &str) -> Self {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
        match inner {
            Some(rustls::Error::InvalidCertificate(why)) => Self::Unproven(unproven(why, name)),
            Some(rustls::Error::AlertReceived(alert)) => Self::Handshake(format!("{alert:?}")),
            Some(rustls::Error::InvalidMessage(_)) => {
                Self::Other("http: server gave HTTP response to HTTPS client".to_owned())
            }
            _ if error.kind() == std::io::ErrorKind::UnexpectedEof => Self::Other("EOF".to_owned()),
            _ => Self::Other(error.to_string()),
        }
    }
}

fn unproven(why: &CertificateError, name: &str) -> String {
    match why {
        // Another authority of the same name is as unknown.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "certificate signed by unknown authority".to_owned()
        }
        CertificateError::NotValidForNameContext { presented, .. } => {
            let names: Vec<&str> = presented
                .iter()
                .map(|one| one.split('"').nth(1).unwrap_or(one))
                .collect();
            match names.is_empty() {
                true => {
                    format!("certificate is not valid for any names, but wanted to match {name}")
                }
                false => format!("certificate is valid for {}, not {name}", names.join(", ")),
            }
        }
        CertificateError::Expired
        | CertificateError::ExpiredContext { .. }
        | CertificateError::NotValidYet
        | CertificateError::NotValidYetContext { .. } => {
            format!("certificate has expired or is not yet valid: {why}")
        }
        other => other.to_string(),
    }
}

#[derive(Clone)]
struct Connector {
    tls: TlsConnector,
    name: ServerName<'static>,
}

impl std::fmt::Debug for Connector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connector")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Connector {
    fn new(spec: &RemoteSpec, identity: Option<&Arc<CertifiedKey>>) -> Result<Self, String> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let name = ServerName::try_from(spec.service.server_name())
            .map_err(|error| format!("{}: {error}", spec.service.server_name()))?;
        let builder = ClientConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?;
        let builder = match &spec.proof {
            Proof::None => builder
                .dangerous()
                .with_custom_certificate_verifier(Arc::new(Anybody(provider))),
            Proof::Authorities(pem) => builder.with_root_certificates(authorities(pem)?),
        };
        let config = match identity {
            None => builder.with_no_client_auth(),
            Some(key) => {
                builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(key.clone())))
            }
        };
        let tls = TlsConnector::from(Arc::new(config));
        Ok(Self { tls, name })
    }

    async fn connect(self, to: Uri) -> Result<TokioIo<Stream>, ReachError> {
        let address = to.authority().map(ToString::to_string).unwrap_or_default();
        let attempt = async {
            let stream = TcpStream::connect(&address)
                .await
                .map_err(|error| ReachError::of_connect(&address, &error))?;
            // Small requests should not wait for larger ones.
            let _ = stream.set_nodelay(true);
            let name = self.name.to_str().into_owned();
            let stream = self.tls.connect(self.name, stream).await;
            stream.map_err(|error| ReachError::of_handshake(&error, &name))
        };
        match tokio::time::timeout(CONNECT_WITHIN, attempt).await {
            Ok(outcome) => outcome.map(|stream| TokioIo::new(Stream(stream))),
            Err(_) => Err(ReachError::TooSlow(address)),
        }
    }
}

fn authorities(pem: &[u8]) -> Result<RootCertStore, String> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(pem) {
        let certificate = certificate.map_err(|error| error.to_string());
        let added = certificate.and_then(|one| roots.add(one).map_err(|error| error.to_string()));
        added.map_err(|error| format!("unable to load root certificates: {error}"))?;
    }
    Ok(roots)
}

impl tower::Service<Uri> for Connector {
    type Response = TokioIo<Stream>;
    type Error = ReachError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, ReachError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ReachError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        Box::pin(self.clone().connect(to))
    }
}

/// A connection, as the pool wants it.
struct Stream(TlsStream<TcpStream>);

impl Connection for Stream {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, into)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}

/// Asks for no proof but that the server holds the key of its certificate.
#[derive(Debug)]
struct Anybody(Arc<CryptoProvider>);

impl ServerCertVerifier for Anybody {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, cert, dss, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &rustls::DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, cert, dss, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
