//! A client that keeps to nothing but what it wants to show: requests are bytes.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// An answer that is longer is not read to its end.
const LONGEST: u64 = 64 << 20;
const CONNECTED_WITHIN: Duration = Duration::from_secs(60);

#[derive(Clone)]
pub struct Client {
    pub address: SocketAddr,
    pub token: String,
    http1: TlsConnector,
    http2: TlsConnector,
}

/// A connection on which something was sent.
pub struct Sent(pub TlsStream<TcpStream>);

pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl Client {
    pub fn new(address: SocketAddr, authority: &str, token: &str) -> Self {
        let connector = |protocol: &[u8]| {
            let mut roots = RootCertStore::empty();
            roots
                .add(CertificateDer::from_pem_slice(authority.as_bytes()).unwrap())
                .unwrap();
            let provider = Arc::new(rustls::crypto::ring::default_provider());
            let builder = ClientConfig::builder_with_provider(provider);
            let builder = builder.with_safe_default_protocol_versions().unwrap();
            let mut config = builder.with_root_certificates(roots).with_no_client_auth();
            config.alpn_protocols = vec![protocol.to_vec()];
            TlsConnector::from(Arc::new(config))
        };
        Self {
            address,
            token: token.to_owned(),
            http1: connector(b"http/1.1"),
            http2: connector(b"h2"),
        }
    }

    pub fn with_token(&self, token: &str) -> Self {
        Self {
            token: token.to_owned(),
            ..self.clone()
        }
    }

    async fn connect(&self, connector: &TlsConnector) -> io::Result<TlsStream<TcpStream>> {
        let connect = async {
            let stream = TcpStream::connect(self.address).await?;
            let name = ServerName::try_from("localhost").unwrap();
            connector.connect(name, stream).await
        };
        tokio::time::timeout(CONNECTED_WITHIN, connect).await?
    }

    pub async fn open(&self) -> io::Result<TlsStream<TcpStream>> {
        self.connect(&self.http1).await
    }

    pub async fn open_http2(&self) -> io::Result<TlsStream<TcpStream>> {
        self.connect(&self.http2).await
    }

    pub fn head(&self, method: &str, path: &str, length: usize) -> String {
        let token = &self.token;
        format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\nContent-Type: {}\r\n\
             Content-Length: {length}\r\nConnection: close\r\n\r\n",
            if method == "PATCH" {
                "application/merge-patch+json"
            } else {
                "application/json"
            }
        )
    }

    pub async fn get(&self, path: &str) -> io::Result<(u16, String)> {
        self.ask("GET", path, "").await
    }

    pub async fn ask(&self, method: &str, path: &str, body: &str) -> io::Result<(u16, String)> {
        let answer = self.send(method, path, body).await?.answer().await?;
        Ok((answer.status, answer.body))
    }

    /// Asks, and reads nothing.
    pub async fn send(&self, method: &str, path: &str, body: &str) -> io::Result<Sent> {
        let mut stream = self.open().await?;
        let head = self.head(method, path, body.len());
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(body.as_bytes()).await?;
        stream.flush().await?;
        Ok(Sent(stream))
    }

    /// A request that anybody with a token may make, whose body does not come whole.
    pub async fn unfinished(&self, length: usize, sent: usize) -> io::Result<Sent> {
        const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
        let mut stream = self.open().await?;
        let head = self.head("POST", REVIEWS, length);
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(&vec![b' '; sent]).await?;
        stream.flush().await?;
        Ok(Sent(stream))
    }
}

impl Sent {
    pub async fn answer(&mut self) -> io::Result<Answer> {
        let mut told = Vec::new();
        let outcome = (&mut self.0).take(LONGEST).read_to_end(&mut told).await;
        let told = String::from_utf8_lossy(&told).into_owned();
        let Some((head, body)) = told.split_once("\r\n\r\n") else {
            outcome?;
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        let status = head.get(9..12).and_then(|status| status.parse().ok());
        Ok(Answer {
            status: status.unwrap_or_default(),
            head: head.to_lowercase(),
            body: body.to_owned(),
        })
    }
}
