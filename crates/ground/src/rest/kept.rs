//! A body that holds on to something until it is sent or given up.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Frame, SizeHint};

use super::answer::Body;

struct Kept<T> {
    body: Body,
    _kept: T,
}

/// `kept` is dropped with the body. What is known of the body's length stays known.
pub fn keeping<T: Send + Unpin + 'static>(body: Body, kept: T) -> Body {
    Kept { body, _kept: kept }.boxed_unsync()
}

impl<T: Unpin> hyper::body::Body for Kept<T> {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use hyper::body::Body as _;

    use super::*;
    use crate::rest::answer::full;

    #[tokio::test]
    async fn its_length_is_known_and_the_rest_goes_with_it() {
        let place = Arc::new(());
        let body = keeping(full("abc"), Arc::clone(&place));
        assert_eq!(body.size_hint().exact(), Some(3));
        assert!(!body.is_end_stream());
        assert_eq!(Arc::strong_count(&place), 2);
        assert_eq!(body.collect().await.unwrap().to_bytes(), "abc");
        assert_eq!(Arc::strong_count(&place), 1);
    }
}
