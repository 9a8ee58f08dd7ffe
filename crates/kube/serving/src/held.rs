//! Response bodies.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tower::BoxError;

use super::caught::caught_now;
use super::connection::Protocol;
use super::connection_metrics::Counters;
use super::io_timeouts::BusyGuard;
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
    /// HTTP/2 has windows for that.
    waits_for_client: bool,
    visit: Visit,
    counters: Arc<Counters>,
}

impl<B> Held<B> {
    pub(super) fn new(
        body: Option<Pin<Box<B>>>,
        protocol: Protocol,
        busy: BusyGuard,
        visit: Visit,
        counters: Arc<Counters>,
    ) -> Self {
        Self {
            body,
            rest: Bytes::new(),
            busy,
            waits_for_client: protocol == Protocol::Http1,
            visit,
            counters,
        }
    }

    fn piece(&mut self) -> Frame<Bytes> {
        let length = self.rest.len().min(PIECE);
        self.busy.feeds(length);
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
        if this.waits_for_client && !this.busy.may_feed(cx) {
            return Poll::Pending;
        }
        this.busy.is_fed();
        let Some(body) = &mut this.body else {
            return Poll::Ready(None);
        };
        if !this.rest.is_empty() {
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
                Ok(frame) => Ok(match frame.into_data() {
                    Ok(data) => {
                        this.rest = data;
                        this.piece()
                    }
                    Err(other) => {
                        this.busy.feeds(0);
                        other
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

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use futures::{FutureExt, StreamExt};
    use http_body_util::{BodyExt, StreamBody};

    use super::super::io_timeouts::Busy;
    use super::super::server::Limits;
    use super::super::share::{Seat, Shares};
    use super::*;

    fn held(busy: &Busy, protocol: Protocol) -> Held<impl Body<Data = Bytes, Error = Infallible>> {
        let pieces = futures::stream::repeat_with(|| {
            Ok::<_, Infallible>(Frame::data(Bytes::from_static(&[b'x'; 1 << 10])))
        });
        let body = StreamBody::new(pieces.take(100));
        let seat = Arc::new(Seat::new(Arc::new(Shares::new(&Limits::default()))));
        let (guard, visit) = (busy.begin(), Visit::new(seat));
        Held::new(Some(Box::pin(body)), protocol, guard, visit, Arc::default())
    }

    /// How many pieces can be had without waiting.
    fn pieces(held: &mut Held<impl Body<Data = Bytes, Error = Infallible>>) -> usize {
        let next = || matches!(held.frame().now_or_never(), Some(Some(Ok(_))));
        std::iter::repeat_with(next).take_while(|had| *had).count()
    }

    #[test]
    fn nothing_is_handed_on_while_much_is_not_written() {
        let busy = Busy::default();
        let mut held = held(&busy, Protocol::Http1);
        for expected in [32, 32, 32, 4, 0] {
            assert_eq!(pieces(&mut held), expected);
            busy.all_is_written();
        }
    }

    #[test]
    fn http2_has_windows_for_that() {
        let busy = Busy::default();
        let mut held = held(&busy, Protocol::Http2);
        assert_eq!(pieces(&mut held), 100);
    }
}
