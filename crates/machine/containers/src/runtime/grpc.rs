//! gRPC over a unix socket, with hand-written messages that hold only the fields in use.

use std::path::{Path, PathBuf};

use http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use prost::Message;
use tokio::net::UnixStream;
use tonic::client::Grpc;
use tonic::metadata::{AsciiMetadataKey, AsciiMetadataValue};
use tonic::transport::{Channel, Endpoint, Uri};
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;

use super::RuntimeError;

/// What containerd itself limits a message to.
pub(super) const MESSAGE_LIMIT: usize = 16 * 1024 * 1024;

/// A connection that has been made; it is not made again, so that a restart is noticed.
#[derive(Debug, Clone)]
pub(super) struct Rpc {
    channel: Channel,
    header: Option<(AsciiMetadataKey, AsciiMetadataValue)>,
}

impl Rpc {
    pub async fn connect(socket: &Path) -> Result<Self, RuntimeError> {
        // Tried first by hand, because the channel's own errors do not tell an absent socket from a deaf one.
        let connect_error = |source| RuntimeError::Connect {
            socket: socket.to_owned(),
            source,
        };
        UnixStream::connect(socket).await.map_err(connect_error)?;
        let path: PathBuf = socket.to_owned();
        let connector = tower::service_fn(move |_: Uri| {
            let path = path.clone();
            async move { UnixStream::connect(path).await.map(TokioIo::new) }
        });
        // The authority is a formality that the peer's HTTP/2 insists on.
        let channel = Endpoint::from_static("http://localhost")
            .connect_with_connector(connector)
            .await
            .map_err(|error| RuntimeError::Broken(error.to_string().into()))?;
        Ok(Self {
            channel,
            header: None,
        })
    }

    #[cfg(test)]
    pub fn of(channel: Channel) -> Self {
        Self {
            channel,
            header: None,
        }
    }

    /// Sends this header with every call.
    pub fn with_header(mut self, key: &'static str, value: &str) -> Result<Self, RuntimeError> {
        let value = value
            .parse()
            .map_err(|_| RuntimeError::Malformed(format!("header {key}: {value:?}").into()))?;
        self.header = Some((AsciiMetadataKey::from_static(key), value));
        Ok(self)
    }

    fn request<M>(&self, message: M) -> Request<M> {
        let mut request = Request::new(message);
        if let Some((key, value)) = &self.header {
            request.metadata_mut().insert(key.clone(), value.clone());
        }
        request
    }

    async fn ready(&self) -> Result<Grpc<Channel>, RuntimeError> {
        let mut grpc = Grpc::new(self.channel.clone()).max_decoding_message_size(MESSAGE_LIMIT);
        match grpc.ready().await {
            Ok(()) => Ok(grpc),
            Err(error) => Err(RuntimeError::Broken(error.to_string().into())),
        }
    }

    /// `Ok(None)`: the peer says that there is no such thing.
    pub async fn call<Q, A>(
        &self,
        method: &'static str,
        question: Q,
    ) -> Result<Option<A>, RuntimeError>
    where
        Q: Message + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        let mut grpc = self.ready().await?;
        let codec = ProstCodec::<Q, A>::new();
        let path = PathAndQuery::from_static(method);
        match grpc.unary(self.request(question), path, codec).await {
            Ok(answer) => Ok(Some(answer.into_inner())),
            Err(status) if status.code() == Code::NotFound => Ok(None),
            Err(status) => Err(error(&status)),
        }
    }

    pub async fn stream<Q, A>(
        &self,
        method: &'static str,
        question: Q,
    ) -> Result<Stream<A>, RuntimeError>
    where
        Q: Message + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        let mut grpc = self.ready().await?;
        let codec = ProstCodec::<Q, A>::new();
        let path = PathAndQuery::from_static(method);
        let answer = grpc
            .server_streaming(self.request(question), path, codec)
            .await
            .map_err(|status| error(&status))?;
        Ok(Stream(answer.into_inner()))
    }
}

#[derive(Debug)]
pub(super) struct Stream<A>(Streaming<A>);

impl<A> Stream<A> {
    /// `Ok(None)`: the peer has ended the stream.
    pub async fn next(&mut self) -> Result<Option<A>, RuntimeError> {
        self.0.message().await.map_err(|status| error(&status))
    }
}

fn error(status: &Status) -> RuntimeError {
    match status.code() {
        Code::Unimplemented => RuntimeError::Unsupported,
        Code::OutOfRange | Code::ResourceExhausted => RuntimeError::TooLarge(MESSAGE_LIMIT),
        // What tonic itself makes of undecodable bytes, and of a lost connection.
        Code::Internal if status.message().contains("decode") => {
            RuntimeError::Malformed(status.message().into())
        }
        Code::Unavailable | Code::Cancelled | Code::Internal | Code::Unknown => {
            RuntimeError::Broken(status.message().into())
        }
        code => RuntimeError::Refused {
            code: code.to_string().into(),
            message: status.message().into(),
        },
    }
}
