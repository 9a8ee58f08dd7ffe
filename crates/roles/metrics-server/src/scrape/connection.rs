//! Connections to kubelets, kept between scrapes.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use futures::FutureExt;
use rustls::pki_types::ServerName;
use thiserror::Error;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use super::client::Buffers;
use super::http::{Answer, HttpError, exchange};
use super::target::Target;
use super::tls::TlsStream;

#[derive(Debug)]
pub(super) enum Connection {
    Plain(TcpStream),
    /// Boxed: most of the time it is kept rather than used.
    Tls(Box<TlsStream>),
}

#[derive(Debug, Error)]
pub(super) enum ConnectError {
    #[error("cannot connect to {to}")]
    Tcp {
        to: String,
        #[source]
        source: io::Error,
    },
    #[error("no TLS with {to}")]
    Tls {
        to: String,
        #[source]
        source: io::Error,
    },
    #[error("{0:?} is no name that a certificate could be for")]
    Name(String),
}

impl Connection {
    /// With room out of `buffers`.
    pub async fn open(
        target: &Target,
        tls: Arc<rustls::ClientConfig>,
        buffers: &Buffers,
    ) -> Result<Self, ConnectError> {
        let to = target.authority();
        let tcp = match target.host.parse::<IpAddr>() {
            Ok(address) => TcpStream::connect((address, target.port)).await,
            Err(_) => TcpStream::connect((&*target.host, target.port)).await,
        };
        let tcp = tcp.and_then(|tcp| tcp.set_nodelay(true).map(|()| tcp));
        let tcp = match tcp {
            Ok(tcp) => tcp,
            Err(source) => return Err(ConnectError::Tcp { to, source }),
        };
        if target.plain {
            return Ok(Self::Plain(tcp));
        }
        let name = ServerName::try_from(target.host.clone())
            .map_err(|_| ConnectError::Name(target.host.clone()))?;
        match TlsStream::connect(tls, name, tcp, buffers.take()).await {
            Ok(stream) => Ok(Self::Tls(Box::new(stream))),
            Err(source) => Err(ConnectError::Tls { to, source }),
        }
    }

    pub async fn exchange(
        &mut self,
        request: &[u8],
        buffer: &mut Vec<u8>,
        limit: usize,
    ) -> Result<Answer, HttpError> {
        match self {
            Self::Plain(stream) => exchange(stream, request, buffer, limit).await,
            Self::Tls(stream) => exchange(stream, request, buffer, limit).await,
        }
    }

    /// Lends it room out of `buffers`, to read in large pieces.
    pub fn lend(&mut self, buffers: &Buffers) {
        if let Self::Tls(stream) = self {
            stream.lend(buffers.take());
        }
    }

    /// After an answer: gives the room back, and says whether there is nothing more to be read, as there should not be.
    pub fn rest(&mut self, buffers: &Buffers) -> bool {
        let mut byte = [0];
        match self {
            Self::Plain(stream) => stream.read(&mut byte).now_or_never().is_none(),
            Self::Tls(stream) => {
                let quiet = stream.read(&mut byte).now_or_never().is_none();
                let (room, empty) = stream.reclaim();
                buffers.give(room);
                quiet && empty
            }
        }
    }
}
