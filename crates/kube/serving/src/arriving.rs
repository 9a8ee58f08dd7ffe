//! Request bodies: enforces a minimum rate and counts bytes.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};

use super::server::Limits;
use super::share::{TooMuch, Visit};

/// Why a body did not come whole.
#[derive(Debug, thiserror::Error)]
pub enum ArrivalError {
    #[error("the request's body took too long")]
    TooSlow,
    #[error(transparent)]
    TooMuch(#[from] TooMuch),
    #[error(transparent)]
    Broken(#[from] hyper::Error),
}

/// What a request brings with it.
#[derive(Debug)]
pub struct Arriving {
    inner: Incoming,
    visit: Visit,
    pace: Pace,
    /// Set while nothing comes.
    waiting: Option<Pin<Box<Sleep>>>,
}

/// A body may take some time at first, and then must have come at some rate on the whole.
#[derive(Debug)]
struct Pace {
    patience: Duration,
    bytes_per_second: u64,
    began: Option<Instant>,
    received: u64,
}

impl Pace {
    /// Counts from when somebody first wanted to read.
    fn due(&mut self) -> Instant {
        let began = *self.began.get_or_insert_with(Instant::now);
        let earned = self.received / self.bytes_per_second.max(1);
        began + self.patience + Duration::from_secs(earned.min(3600))
    }
}

impl Arriving {
    pub(super) fn new(inner: Incoming, visit: Visit, limits: &Limits) -> Self {
        Self {
            inner,
            visit,
            pace: Pace {
                patience: limits.body,
                bytes_per_second: limits.body_rate,
                began: None,
                received: 0,
            },
            waiting: None,
        }
    }
}

impl Body for Arriving {
    type Data = Bytes;
    type Error = ArrivalError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, ArrivalError>>> {
        let this = &mut *self;
        match Pin::new(&mut this.inner).poll_frame(cx) {
            Poll::Ready(Some(Ok(frame))) => {
                this.waiting = None;
                let bytes = frame.data_ref().map_or(0, Bytes::len) as u64;
                this.pace.received = this.pace.received.saturating_add(bytes);
                // Who trickles is late at some time, even if there is always something.
                if this.pace.due() <= Instant::now() {
                    return Poll::Ready(Some(Err(ArrivalError::TooSlow)));
                }
                Poll::Ready(Some(
                    this.visit.asks(bytes).map(|()| frame).map_err(Into::into),
                ))
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(error.into()))),
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => {
                let due = this.pace.due();
                let waiting = this
                    .waiting
                    .get_or_insert_with(|| Box::pin(sleep_until(due)));
                match waiting.as_mut().poll(cx) {
                    Poll::Ready(()) => Poll::Ready(Some(Err(ArrivalError::TooSlow))),
                    Poll::Pending => Poll::Pending,
                }
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
