//! Connections to kubelets, kept between scrapes.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use futures::FutureExt;
use rustls::pki_types::ServerName;
use thiserror::Error;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::http::{Answer, HttpError, exchange};
use super::target::Target;
use super::wire::Wire;

#[derive(Debug)]
pub(super) enum Connection {
    Plain(Wire),
    /// Boxed: most of the time it is kept rather than used.
    Tls(Box<TlsStream<Wire>>),
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
    pub async fn open(
        target: &Target,
        tls: Arc<rustls::ClientConfig>,
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
            return Ok(Self::Plain(Wire::new(tcp)));
        }
        let name = ServerName::try_from(target.host.clone())
            .map_err(|_| ConnectError::Name(target.host.clone()))?;
        match TlsConnector::from(tls).connect(name, Wire::new(tcp)).await {
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

    /// Lends it room to read in large pieces.
    pub fn lend(&mut self, room: Vec<u8>) {
        self.wire().lend(room);
    }

    /// After an answer: takes the room back, and says whether there is nothing more to be read, as there should not be.
    /// Looking also makes the TLS library let go of the room that the answer took.
    pub fn rest(&mut self) -> (Vec<u8>, bool) {
        let mut byte = [0];
        let quiet = match self {
            Self::Plain(stream) => stream.read(&mut byte).now_or_never().is_none(),
            Self::Tls(stream) => stream.read(&mut byte).now_or_never().is_none(),
        };
        (self.wire().reclaim(), quiet)
    }

    fn wire(&mut self) -> &mut Wire {
        match self {
            Self::Plain(stream) => stream,
            Self::Tls(stream) => stream.get_mut().0,
        }
    }
}
