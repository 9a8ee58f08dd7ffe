//! A lean client: one request at a time on one TLS connection.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use base64::Engine;
use bytes::Bytes;
use http::{Method, Request, Response, header};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use rustls::{ClientConfig, RootCertStore};
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// Where the server is, and who we are.
#[derive(Clone)]
pub struct Target {
    address: String,
    token: String,
    tls: TlsConnector,
}

impl Target {
    pub fn from_kubeconfig(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
        let field = |name: &str| {
            let mut lines = text.lines().map(str::trim_start);
            let found = lines.find_map(|line| line.strip_prefix(name));
            found
                .map(str::trim)
                .with_context(|| format!("no {name} in the kubeconfig"))
        };
        let authority = base64::engine::general_purpose::STANDARD
            .decode(field("certificate-authority-data:")?)?;
        let server = field("server:")?;
        let address = server
            .strip_prefix("https://")
            .context("the server is not on HTTPS")?;
        Self::new(address, field("token:")?, &authority)
    }

    /// A server whose certificate is signed with one in `authority`, which is PEM.
    pub fn new(address: &str, token: &str, authority: &[u8]) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(authority).context("the authority")?)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self {
            address: address.to_owned(),
            token: token.to_owned(),
            tls: TlsConnector::from(Arc::new(config)),
        })
    }

    pub async fn connect(&self) -> Result<Connection> {
        let tcp = TcpStream::connect(&self.address).await?;
        tcp.set_nodelay(true)?;
        let host = self.address.rsplit_once(':').map_or("", |(host, _)| host);
        let name = ServerName::try_from(host.to_owned())?;
        let stream = self.tls.connect(name, tcp).await?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        Ok(Connection {
            sender,
            authorization: format!("Bearer {}", self.token),
            host: self.address.clone(),
        })
    }
}

#[derive(Debug)]
pub struct Connection {
    sender: SendRequest<Full<Bytes>>,
    authorization: String,
    host: String,
}

impl Connection {
    pub async fn send(
        &mut self,
        method: Method,
        path: &str,
        content_type: &str,
        body: impl Into<Bytes>,
    ) -> Result<Response<Incoming>> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, &self.host)
            .header(header::AUTHORIZATION, &self.authorization)
            .header(header::CONTENT_TYPE, content_type)
            .header(header::USER_AGENT, "plimsoll-load")
            .body(Full::new(body.into()))?;
        self.sender.ready().await?;
        Ok(self.sender.send_request(request).await?)
    }

    /// A whole answer, which must be a good one.
    pub async fn ask(
        &mut self,
        method: Method,
        path: &str,
        content_type: &str,
        body: impl Into<Bytes>,
    ) -> Result<Bytes> {
        let answer = self.send(method, path, content_type, body).await?;
        let status = answer.status();
        let body = answer.into_body().collect().await?.to_bytes();
        if !status.is_success() {
            bail!("{path}: {status}: {}", String::from_utf8_lossy(&body));
        }
        Ok(body)
    }

    pub async fn create(&mut self, path: &str, body: impl Into<Bytes>) -> Result<Bytes> {
        self.ask(Method::POST, path, "application/json", body).await
    }

    pub async fn merge(&mut self, path: &str, body: impl Into<Bytes>) -> Result<Bytes> {
        self.ask(Method::PATCH, path, "application/merge-patch+json", body)
            .await
    }

    pub async fn get(&mut self, path: &str) -> Result<Bytes> {
        self.ask(Method::GET, path, "application/json", Bytes::new())
            .await
    }
}
