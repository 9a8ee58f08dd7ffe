//! HTTP/1.1 over TLS, one connection a request, blocking: as much as the cases need, and none of the code under test.
//!
//! Reading is resumable: a watch that has nothing to say yet is asked again later without losing what came half.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use rustls::pki_types::ServerName;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::{Value, json};

/// For an answer's head and for a whole ordinary answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// A server, and how to trust it.
#[derive(Debug, Clone)]
pub struct Server {
    pub address: SocketAddr,
    name: ServerName<'static>,
    tls: Arc<ClientConfig>,
    pub admin_token: String,
    /// PEM certificates that its own comes from.
    pub authorities: Vec<u8>,
}

impl Server {
    /// `url` is `https://HOST:PORT`, `authorities` the PEM certificates that its own must come from.
    pub fn new(url: &str, authorities: &[u8], admin_token: &str) -> Result<Self> {
        let host = url
            .strip_prefix("https://")
            .with_context(|| format!("{url} is not https://HOST:PORT"))?
            .trim_end_matches('/');
        let address = std::net::ToSocketAddrs::to_socket_addrs(host)
            .with_context(|| format!("resolve {host}"))?
            .next()
            .with_context(|| format!("{host} has no address"))?;
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
        let mut roots = RootCertStore::empty();
        for certificate in rustls::pki_types::CertificateDer::pem_slice_iter(authorities) {
            roots.add(certificate.context("read the certificate authority")?)?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Self {
            address,
            name: ServerName::try_from(name.to_owned())?,
            tls: Arc::new(tls),
            admin_token: admin_token.to_owned(),
            authorities: authorities.to_owned(),
        })
    }

    /// A kubeconfig of the administrator who reaches it at this address.
    pub fn kubeconfig(&self, address: SocketAddr, namespace: &str) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u", "namespace": namespace}}],
            "clusters": [{"name": "c", "cluster": {
                "server": format!("https://{address}"),
                "certificate-authority-data": BASE64_STANDARD.encode(&self.authorities),
            }}],
            "users": [{"name": "u", "user": {"token": self.admin_token}}],
        })
    }

    /// Connects, sends these bytes and does not wait for anything.
    pub fn begin(&self, bytes: &[u8]) -> Result<StreamOwned<ClientConnection, TcpStream>> {
        let socket = TcpStream::connect_timeout(&self.address, PATIENCE)?;
        socket.set_write_timeout(Some(PATIENCE))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let session = ClientConnection::new(Arc::clone(&self.tls), self.name.clone())?;
        let mut stream = StreamOwned::new(session, socket);
        stream.write_all(bytes)?;
        stream.flush()?;
        Ok(stream)
    }

    /// Sends one request and waits for the head of its answer.
    pub fn send(&self, request: &Request) -> Result<Exchange> {
        let what = format!("{} {}", request.method, request.path);
        let socket = TcpStream::connect_timeout(&self.address, PATIENCE)
            .with_context(|| format!("connect to {}", self.address))?;
        socket.set_nodelay(true)?;
        socket.set_write_timeout(Some(PATIENCE))?;
        let session = ClientConnection::new(Arc::clone(&self.tls), self.name.clone())?;
        let mut exchange = Exchange {
            stream: StreamOwned::new(session, socket),
            status: 0,
            headers: Vec::new(),
            raw: Vec::new(),
            framing: Framing::UntilClose,
            finished: false,
        };
        // A server that refuses a huge body answers and closes before it has read all of it.
        let written = exchange.stream.write_all(&request.bytes(&self.address));
        let written = written.and_then(|()| exchange.stream.flush());
        match exchange.read_head(request.method == "HEAD") {
            Ok(()) => Ok(exchange),
            Err(error) => match written {
                Ok(()) => Err(error).context(what),
                Err(cause) => Err(cause).context(what),
            },
        }
    }
}

#[derive(Debug, Clone)]
pub struct Request {
    pub method: String,
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: Option<Vec<u8>>,
}

impl Request {
    fn bytes(&self, host: &SocketAddr) -> Vec<u8> {
        let mut head = format!("{} {} HTTP/1.1\r\nHost: {host}\r\n", self.method, self.path);
        head.push_str("Connection: close\r\n");
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        if let Some(body) = &self.body {
            head.push_str(&format!("Content-Length: {}\r\n", body.len()));
        }
        head.push_str("\r\n");
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(self.body.as_deref().unwrap_or_default());
        bytes
    }
}

#[derive(Debug)]
enum Framing {
    Length(usize),
    Chunked,
    UntilClose,
}

/// An answer whose body is still to be read.
#[derive(Debug)]
pub struct Exchange {
    stream: StreamOwned<ClientConnection, TcpStream>,
    pub status: u16,
    /// Names are lower-cased; a name may come more than once.
    pub headers: Vec<(String, String)>,
    /// Bytes that have arrived and are not part of a returned piece yet.
    raw: Vec<u8>,
    framing: Framing,
    finished: bool,
}

/// What waiting for more of a body gave.
#[derive(Debug, PartialEq, Eq)]
pub enum Piece {
    Bytes(Vec<u8>),
    NothingYet,
    End,
}

impl Exchange {
    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(key, _)| key == name);
        found.map(|(_, value)| value.as_str())
    }

    /// The whole body of an answer that ends.
    pub fn body(mut self) -> Result<Vec<u8>> {
        let deadline = Instant::now() + PATIENCE;
        let mut body = Vec::new();
        loop {
            match self.piece(deadline)? {
                Piece::Bytes(bytes) => body.extend_from_slice(&bytes),
                Piece::End => return Ok(body),
                Piece::NothingYet => bail!("the body did not end within {PATIENCE:?}"),
            }
        }
    }

    /// The next part of the body, if one comes before the deadline.
    pub fn piece(&mut self, deadline: Instant) -> Result<Piece> {
        loop {
            if self.finished {
                return Ok(Piece::End);
            }
            if let Some(piece) = self.take_piece()? {
                return Ok(piece);
            }
            match self.fill(deadline)? {
                Fill::More => {}
                Fill::TimedOut => return Ok(Piece::NothingYet),
                Fill::Closed => {
                    self.finished = true;
                    ensure!(
                        matches!(self.framing, Framing::UntilClose),
                        "the connection closed in the middle of the body"
                    );
                    return Ok(Piece::Bytes(std::mem::take(&mut self.raw)));
                }
            }
        }
    }

    /// A piece out of what has arrived; `None` when more must come first.
    fn take_piece(&mut self) -> Result<Option<Piece>> {
        match self.framing {
            Framing::UntilClose => Ok(None),
            Framing::Length(length) => {
                if self.raw.len() < length {
                    return Ok(None);
                }
                self.finished = true;
                Ok(Some(Piece::Bytes(self.raw.drain(..length).collect())))
            }
            Framing::Chunked => self.take_chunk(),
        }
    }

    fn take_chunk(&mut self) -> Result<Option<Piece>> {
        let Some(line_end) = find(&self.raw, b"\r\n") else {
            return Ok(None);
        };
        let line = std::str::from_utf8(&self.raw[..line_end]).context("chunk size")?;
        let size = usize::from_str_radix(line.trim(), 16)
            .with_context(|| format!("chunk size {line:?}"))?;
        let start = line_end + 2;
        if self.raw.len() < start + size + 2 {
            return Ok(None);
        }
        let bytes = self.raw[start..start + size].to_vec();
        self.raw.drain(..start + size + 2);
        if size == 0 {
            self.finished = true;
            return Ok(Some(Piece::End));
        }
        Ok(Some(Piece::Bytes(bytes)))
    }

    fn read_head(&mut self, without_body: bool) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        let end = loop {
            if let Some(end) = find(&self.raw, b"\r\n\r\n") {
                break end;
            }
            match self.fill(deadline)? {
                Fill::More => {}
                Fill::TimedOut => bail!("no answer within {PATIENCE:?}"),
                Fill::Closed => bail!("the connection closed before an answer came"),
            }
        };
        let head: Vec<u8> = self.raw.drain(..end + 4).collect();
        let head = String::from_utf8_lossy(&head[..end]).into_owned();
        let mut lines = head.split("\r\n");
        let status_line = lines.next().unwrap_or_default();
        self.status = status_line
            .split(' ')
            .nth(1)
            .and_then(|code| code.parse().ok())
            .with_context(|| format!("status line {status_line:?}"))?;
        for line in lines {
            let (name, value) = line
                .split_once(':')
                .with_context(|| format!("header line {line:?}"))?;
            self.headers
                .push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        self.framing = if without_body || self.status == 204 || self.status == 304 {
            Framing::Length(0)
        } else if self.header("transfer-encoding").is_some() {
            Framing::Chunked
        } else if let Some(length) = self.header("content-length") {
            Framing::Length(length.parse().context("content-length")?)
        } else {
            Framing::UntilClose
        };
        Ok(())
    }

    fn fill(&mut self, deadline: Instant) -> Result<Fill> {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(Fill::TimedOut);
        }
        self.stream.sock.set_read_timeout(Some(left))?;
        let mut buffer = [0; 16 * 1024];
        match self.stream.read(&mut buffer) {
            Ok(0) => Ok(Fill::Closed),
            Ok(count) => {
                self.raw.extend_from_slice(&buffer[..count]);
                Ok(Fill::More)
            }
            Err(error) => match error.kind() {
                ErrorKind::WouldBlock | ErrorKind::TimedOut => Ok(Fill::TimedOut),
                ErrorKind::Interrupted => Ok(Fill::More),
                // Without a TLS goodbye: the same as closed, the framing tells whether something is missing.
                ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset => Ok(Fill::Closed),
                _ => Err(error).context("read"),
            },
        }
    }
}

enum Fill {
    More,
    TimedOut,
    Closed,
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack
        .windows(needle.len())
        .position(|window| window == needle)
}
