//! The body of an answer on its way out.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tower::BoxError;

use super::caught::caught_now;
use super::counters::Counters;
use super::pace::BusyGuard;
use super::share::Visit;

/// Answers are handed on in pieces of this size, so that what a client does not take can be told from what it does.
pub(super) const PIECE: usize = 64 << 10;

/// A body that keeps its connection marked as busy, and what the request takes counted.
pub(super) struct Held<B> {
    /// `None`: only the head of the answer was asked for.
    body: Option<Pin<Box<B>>>,
    /// Of a large frame.
    rest: Bytes,
    busy: BusyGuard,
    visit: Visit,
    counters: Arc<Counters>,
}

impl<B> Held<B> {
    pub(super) fn new(
        body: Option<Pin<Box<B>>>,
        busy: BusyGuard,
        visit: Visit,
        counters: Arc<Counters>,
    ) -> Self {
        Self {
            body,
            rest: Bytes::new(),
            busy,
            visit,
            counters,
        }
    }

    fn piece(&mut self) -> Frame<Bytes> {
        let length = self.rest.len().min(PIECE);
        Frame::data(self.rest.split_to(length))
    }
}

impl<B> Drop for Held<B> {
    fn drop(&mut self) {
        self.visit.is_over();
    }
}

impl<B> Body for Held<B>
where
    B: Body<Data = Bytes>,
    B::Error: Into<BoxError>,
{
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = &mut *self;
        this.busy.is_fed();
        let Some(body) = &mut this.body else {
            return Poll::Ready(None);
        };
        if !this.rest.is_empty() {
            this.busy.feeds();
            return Poll::Ready(Some(Ok(this.piece())));
        }
        let polled = match caught_now(&this.counters, || body.as_mut().poll_frame(cx)) {
            Ok(polled) => polled,
            Err(panicked) => {
                this.body = None;
                return Poll::Ready(Some(Err(panicked.into())));
            }
        };
        polled.map(|frame| {
            Some(match frame? {
                Err(error) => Err(error.into()),
                Ok(frame) => Ok({
                    this.busy.feeds();
                    match frame.into_data() {
                        Ok(data) => {
                            this.rest = data;
                            this.piece()
                        }
                        Err(other) => other,
                    }
                }),
            })
        })
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.as_ref().is_none_or(|body| body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let rest = self.rest.len() as u64;
        let Some(body) = &self.body else {
            return SizeHint::default();
        };
        let inner = body.size_hint();
        let mut hint = SizeHint::new();
        if let Some(upper) = inner.upper().and_then(|upper| upper.checked_add(rest)) {
            hint.set_upper(upper);
        }
        hint.set_lower(
            inner
                .lower()
                .saturating_add(rest)
                .min(hint.upper().unwrap_or(u64::MAX)),
        );
        hint
    }
}
