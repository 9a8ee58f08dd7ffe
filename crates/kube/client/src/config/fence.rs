//! Connections that ask for a permit before each write to the network.
//!
//! A request that was handed to a connection in time may be written much later: when the process was stopped in between.
//! Nothing above the connection can help that.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioIo};
use kube::client::{Body, ConfigExt};
use tokio::net::TcpStream;
use tower::{BoxError, Layer, Service, ServiceExt};

/// Asked before each write to the network; an error says why it must not be made.
pub type Permit = Arc<dyn Fn() -> Result<(), BoxError> + Send + Sync>;

/// A client with connections of its own, which the permit can close at any byte.
pub fn fenced_client(
    config: &kube::Config,
    connect_within: Duration,
    permit: Permit,
) -> Result<kube::Client, kube::Error> {
    let mut connector = HttpConnector::new();
    connector.enforce_http(false);
    connector.set_connect_timeout(Some(connect_within));
    let fenced = Fenced { connector, permit };
    let connector = config.rustls_https_connector_with_connector(fenced)?;
    let client: Client<_, Body> = Client::builder(TokioExecutor::new()).build(connector);
    let service = client.map_err(BoxError::from);
    let service = match config.auth_layer()? {
        Some(layer) => layer.layer(service).boxed(),
        None => service.boxed(),
    };
    let service = config.extra_headers_layer()?.layer(service);
    let service = config.base_uri_layer().layer(service);
    Ok(kube::Client::new(service, config.default_namespace.clone()))
}

#[derive(Clone)]
struct Fenced {
    connector: HttpConnector,
    permit: Permit,
}

impl Service<Uri> for Fenced {
    type Response = FencedIo;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<FencedIo, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.connector.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let permit = Arc::clone(&self.permit);
        let connecting = self.connector.call(to);
        async move {
            Ok(FencedIo {
                io: connecting.await?,
                permit,
            })
        }
        .boxed()
    }
}

struct FencedIo {
    io: TokioIo<TcpStream>,
    permit: Permit,
}

impl FencedIo {
    fn may(&self) -> io::Result<()> {
        (self.permit)().map_err(|why| io::Error::new(io::ErrorKind::PermissionDenied, why))
    }
}

impl Connection for FencedIo {
    fn connected(&self) -> Connected {
        self.io.connected()
    }
}

impl Read for FencedIo {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(context, into)
    }
}

impl Write for FencedIo {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.may()?;
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.may()?;
        Pin::new(&mut self.io).poll_write_vectored(context, parts)
    }
}
