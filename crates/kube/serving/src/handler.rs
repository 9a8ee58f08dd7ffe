//! The trait of request handlers, and its adapter to a tower service.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use http::request::Parts;
use http::{Request, Response};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::Body;
use tower::{BoxError, Service};

/// What a request carries.
pub type RequestBody = UnsyncBoxBody<Bytes, BoxError>;

pub trait Handler: Clone + Send + Sync + 'static {
    type Body;

    /// Most answers need nothing but the head.
    fn respond(
        self,
        head: Parts,
        sent: RequestBody,
    ) -> impl Future<Output = Response<Self::Body>> + Send;
}

/// A [`Handler`] as a service.
#[derive(Debug, Clone)]
pub struct HandlerService<R>(pub R);

impl<R, B> Service<Request<B>> for HandlerService<R>
where
    R: Handler,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    type Response = Response<R::Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let responds = self.0.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let sent = body.map_err(Into::into).boxed_unsync();
            Ok(responds.respond(head, sent).await)
        })
    }
}

/// Why a text was not read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    #[error("more than {0} bytes")]
    TooLong(usize),
    #[error("{0}")]
    Broken(BoxError),
}

/// All of it, if it is no longer than this.
pub async fn read(mut sent: RequestBody, longest: usize) -> Result<Bytes, ReadError> {
    let mut all = BytesMut::new();
    while let Some(frame) = sent.frame().await {
        let frame = frame.map_err(ReadError::Broken)?;
        let data = frame.into_data().unwrap_or_default();
        if all.len() + data.len() > longest {
            return Err(ReadError::TooLong(longest));
        }
        all.extend_from_slice(&data);
    }
    Ok(all.freeze())
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;

    use super::*;

    #[tokio::test]
    async fn no_more_is_read_than_allowed() {
        let sent = |text: &'static str| -> RequestBody {
            Full::new(Bytes::from(text))
                .map_err(|never| match never {})
                .boxed_unsync()
        };
        assert_eq!(read(sent("abc"), 3).await.unwrap(), "abc");
        let refused = read(sent("abcd"), 3).await.unwrap_err();
        assert!(matches!(refused, ReadError::TooLong(3)), "{refused}");
    }
}
