//! A body that owns a guard until it is sent or dropped, and counts what was sent.

use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::body::{Frame, SizeHint};

use super::answer::Body;

struct Kept<T: Keepsake> {
    body: Body,
    kept: T,
    sent: u64,
}

/// What a body holds on to.
pub trait Keepsake: Send + Unpin + 'static {
    /// It ends, after this many bytes.
    fn ends(&mut self, _sent: u64) {}
}

impl<T: Send + Unpin + 'static> Keepsake for Held<T> {}

/// Anything, for as long as the body is there.
#[derive(Debug)]
pub struct Held<T>(pub T);

/// `kept` is dropped with the body. What is known of the body's length stays known.
pub fn keeping<T: Keepsake>(body: Body, kept: T) -> Body {
    let sent = 0;
    Kept { body, kept, sent }.boxed_unsync()
}

impl<T: Keepsake> Drop for Kept<T> {
    fn drop(&mut self) {
        self.kept.ends(self.sent);
    }
}

impl<T: Keepsake> hyper::body::Body for Kept<T> {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        if let Poll::Ready(Some(Ok(frame))) = &polled {
            self.sent += frame.data_ref().map_or(0, Bytes::len) as u64;
        }
        polled
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
    use crate::answer::full;

    #[tokio::test]
    async fn its_length_is_known_and_the_rest_goes_with_it() {
        let place = Arc::new(());
        let body = keeping(full("abc"), Held(Arc::clone(&place)));
        assert_eq!(body.size_hint().exact(), Some(3));
        assert!(!body.is_end_stream());
        assert_eq!(Arc::strong_count(&place), 2);
        assert_eq!(body.collect().await.unwrap().to_bytes(), "abc");
        assert_eq!(Arc::strong_count(&place), 1);
    }

    #[tokio::test]
    async fn what_was_sent_is_told() {
        struct Told(Arc<std::sync::atomic::AtomicU64>);
        impl Keepsake for Told {
            fn ends(&mut self, sent: u64) {
                self.0.store(sent, std::sync::atomic::Ordering::Relaxed);
            }
        }
        let told = Arc::new(std::sync::atomic::AtomicU64::new(0));
        let body = keeping(full("abcd"), Told(Arc::clone(&told)));
        body.collect().await.unwrap();
        assert_eq!(told.load(std::sync::atomic::Ordering::Relaxed), 4);
    }
}
