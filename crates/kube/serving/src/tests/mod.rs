//! The kit on real sockets with real certificates, and on connections without sockets where time must jump.

mod burden;
mod certificates;
mod connections;
mod refusals;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::{BodyExt, Empty, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{DuplexStream, duplex};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tower::Service;

use super::*;
use crate::pki::{Authority, Pair};

pub const SOON: Duration = Duration::from_secs(60);

pub fn write(pair: &Pair, dir: &Path) -> KeyPairFiles {
    let files = KeyPairFiles {
        cert: dir.join("tls.crt"),
        key: dir.join("tls.key"),
    };
    std::fs::write(&files.cert, &pair.cert).unwrap();
    std::fs::write(&files.key, &pair.key).unwrap();
    files
}

pub fn connector(ca_pem: &str, own: Option<&Pair>, protocol: Protocol) -> TlsConnector {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(ca_pem.as_bytes()) {
        roots.add(certificate.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match own {
        None => builder.with_no_client_auth(),
        Some(pair) => {
            let cert = CertificateDer::from_pem_slice(pair.cert.as_bytes()).unwrap();
            let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
            builder.with_client_auth_cert(vec![cert], key).unwrap()
        }
    };
    config.alpn_protocols = match protocol {
        Protocol::Http1 => vec![b"http/1.1".to_vec()],
        Protocol::Http2 => vec![b"h2".to_vec()],
    };
    TlsConnector::from(Arc::new(config))
}

pub async fn connect(
    connector: &TlsConnector,
    address: SocketAddr,
) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from("localhost").unwrap();
    connector.connect(name, stream).await
}

/// One request on a connection of its own, by whatever protocol was agreed.
pub async fn get(
    connector: &TlsConnector,
    address: SocketAddr,
    path: &str,
) -> Result<(u16, String), Box<dyn std::error::Error>> {
    let stream = connect(connector, address).await?;
    let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let request = Request::builder().header("host", "localhost");
    let reply = match http2 {
        true => {
            let (mut sender, connection) =
                hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
                    .await?;
            tokio::spawn(connection);
            let uri = format!("https://localhost{path}");
            let request = Request::get(uri).body(Empty::<Bytes>::new())?;
            sender.send_request(request).await?
        }
        false => {
            let (mut sender, connection) =
                hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
            tokio::spawn(connection);
            let request = request.uri(path).body(Empty::<Bytes>::new())?;
            sender.send_request(request).await?
        }
    };
    let status = reply.status().as_u16();
    let body = reply.into_body().collect().await?.to_bytes();
    Ok((status, String::from_utf8_lossy(&body).into_owned()))
}

/// Says which protocol it was asked by and how many certificates the client showed.
pub async fn describe(request: Request<Arriving>) -> Result<Response<Full<Bytes>>, Infallible> {
    let peer = request.extensions().get::<Peer>().unwrap();
    assert!(peer.address.ip().is_loopback());
    let text = format!("{:?} {}", request.version(), peer.certificates.len());
    Ok(Response::new(Full::new(Bytes::from(text))))
}

/// A connection without a socket.
pub fn open<S>(
    protocol: Protocol,
    service: S,
) -> (
    DuplexStream,
    tokio::task::JoinHandle<()>,
    Arc<ServerContext>,
)
where
    S: Service<Request<Arriving>, Response = Response<Full<Bytes>>, Error = Infallible>
        + Clone
        + Send
        + Sync
        + 'static,
    S::Future: Send,
{
    let (client, server) = duplex(16 << 10);
    let (stopper, shutdown) = plimsoll_client::shutdown::channel();
    let house = ServerContext::new(Limits::default(), true, Arc::default(), shutdown);
    let house = Arc::new(house);
    let peer = Peer::new("127.0.0.1:1".parse().unwrap(), &[]);
    let shared = Arc::clone(&house);
    let task = tokio::spawn(async move {
        let _stopper = stopper;
        serve_connection(server, protocol, peer, &shared, service).await;
    });
    (client, task, house)
}

pub async fn until(mut condition: impl AsyncFnMut() -> bool) {
    let poll = async {
        while !condition().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(SOON, poll).await.expect("in time");
}
