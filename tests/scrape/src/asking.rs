//! Questions to a metrics-server.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::{Result, ensure};
use bytes::Bytes;
use http::{Request, Response, header};
use http_body_util::{BodyExt, Empty};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

pub const GROUP: &str = "/apis/metrics.k8s.io/v1beta1";

#[derive(Debug)]
pub struct Connection {
    sender: SendRequest<Empty<Bytes>>,
    authorization: String,
}

impl Connection {
    pub async fn open(address: SocketAddr, token: &str) -> Result<Self> {
        let tcp = TcpStream::connect(address).await?;
        tcp.set_nodelay(true)?;
        let name = ServerName::try_from("localhost")?;
        let stream = TlsConnector::from(client_tls()?).connect(name, tcp).await?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Self {
            sender,
            authorization: format!("Bearer {token}"),
        })
    }

    /// A whole answer, which must be a good one.
    pub async fn get(&mut self, path: &str, accept: &str) -> Result<Bytes> {
        let answer = self.ask(path, accept).await?;
        Ok(answer.into_body().collect().await?.to_bytes())
    }

    /// Reads an answer to its last byte and keeps nothing of it; says how long it was.
    pub async fn read(&mut self, path: &str, accept: &str) -> Result<usize> {
        let mut body = self.ask(path, accept).await?.into_body();
        let mut length = 0;
        while let Some(frame) = body.frame().await {
            length += frame?.data_ref().map_or(0, Bytes::len);
        }
        Ok(length)
    }

    async fn ask(&mut self, path: &str, accept: &str) -> Result<Response<Incoming>> {
        let request = Request::builder()
            .uri(path)
            .header(header::HOST, "localhost")
            .header(header::AUTHORIZATION, &self.authorization)
            .header(header::ACCEPT, accept)
            .body(Empty::new())?;
        self.sender.ready().await?;
        let answer = self.sender.send_request(request).await?;
        let status = answer.status();
        ensure!(status.is_success(), "{path}: {status}");
        Ok(answer)
    }
}

/// Trusts whoever answers: certificates are not what is measured.
pub fn client_tls() -> Result<Arc<ClientConfig>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = Arc::new(Anybody(Arc::clone(&provider)));
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

#[derive(Debug)]
struct Anybody(Arc<rustls::crypto::CryptoProvider>);

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
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
