//! One connection from its first byte to its last.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_LENGTH;
use http::{Method, Request, Response, StatusCode};
use http_body_util::Either;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulConnection;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tower::{Service, ServiceExt};

use super::pace::{Busy, BusyGuard, Paced, Patience};
use super::refusal::{Muted, refused};
use super::server::House;
use super::trust::Peer;

/// How long a new connection is left alone while somebody waits for its place.
const NEWCOMERS_MAY_STAY: Duration = Duration::from_secs(1);

/// How long a draining server waits for the rest of a request's head.
const HALF_A_HEAD_MAY_TAKE: Duration = Duration::from_millis(500);

/// A front proxy sends a header for each group that somebody is in, and there are people in hundreds of them.
const MOST_HEADERS: usize = 1000;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    Http1,
    Http2,
}

/// As an extension of an answer: after it, an HTTP/2 connection takes no more requests.
#[derive(Debug, Clone, Copy)]
pub struct LastOnHttp2;

/// Serves one connection to its end.
pub async fn serve_connection<I, S, B>(
    stream: I,
    protocol: Protocol,
    peer: Peer,
    house: &House,
    service: S,
) where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Service<Request<Incoming>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let limits = &house.limits;
    let patience = Patience {
        head: limits.head,
        idle: match protocol {
            Protocol::Http1 => limits.idle,
            // Such a client is first asked to leave, see below.
            Protocol::Http2 => limits.idle * 3,
        },
        stalled: limits.stalled,
        frames: protocol == Protocol::Http2,
    };
    let busy = Busy::default();
    let stream = Paced::new(stream, patience, busy.clone());
    let answers = busy.clone();
    let last = Arc::new(Notify::new());
    let marked = Arc::clone(&last);
    let counters = Arc::clone(&house.counters);
    let header_bytes = limits.header_bytes;
    let service = service_fn(move |mut request: Request<Incoming>| {
        let guard = answers.begin();
        // HTTP/1 leaves such a body out by itself.
        let without_body = protocol == Protocol::Http2 && request.method() == Method::HEAD;
        let answer = match refused(&request, header_bytes) {
            Some(refusal) => {
                match refusal.status() {
                    StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => counters.too_large(),
                    _ => counters.malformed(),
                }
                Err(refusal)
            }
            None => {
                request.extensions_mut().insert(peer.clone());
                Ok(service.clone().oneshot(request))
            }
        };
        let marked = Arc::clone(&marked);
        async move {
            let mut answer = match answer {
                Ok(answer) => answer.await?.map(Either::Left),
                Err(refusal) => refusal.map(Either::Right),
            };
            if protocol == Protocol::Http2
                && let Some(length) = answer.body().size_hint().exact()
                && tells_length(answer.status(), without_body, length)
            {
                let headers = answer.headers_mut();
                headers.entry(CONTENT_LENGTH).or_insert(length.into());
            }
            if answer.extensions().get::<LastOnHttp2>().is_some() {
                marked.notify_one();
            }
            guard.answer();
            Ok::<_, S::Error>(answer.map(|body| Held::new(body, guard, without_body)))
        }
    });
    match protocol {
        // The pace is ours to keep: hyper's timer does not tell a slow head from an idle connection.
        Protocol::Http1 => {
            let io = TokioIo::new(Muted::new(stream, busy.clone()));
            let mut connection = http1::Builder::new()
                .header_read_timeout(None)
                .title_case_headers(house.title_case_headers)
                .max_buf_size(limits.header_bytes.max(8 << 10))
                .max_headers(MOST_HEADERS)
                .half_close(false)
                .serve_connection(io, service);
            let ended = Pin::new(&mut connection);
            let ended = to_the_end(ended, &busy, house, std::future::pending()).await;
            if let Err(error) = ended
                && error.is_parse()
            {
                match error.is_parse_too_large() {
                    true => house.counters.too_large(),
                    false => house.counters.malformed(),
                }
                let stream = connection.into_parts().io.into_inner();
                stream.explain(&error).await;
            }
        }
        Protocol::Http2 => {
            let io = TokioIo::new(stream);
            let connection = http2::Builder::new(TokioExecutor::new())
                .timer(TokioTimer::new())
                .max_concurrent_streams(limits.streams)
                .max_header_list_size(u32::try_from(limits.header_bytes).unwrap_or(u32::MAX))
                .serve_connection(io, service);
            // Such a client may be about to ask: it must be told, not cut off.
            let tired = async {
                tokio::select! {
                    () = busy.unused_for(limits.idle) => {}
                    () = last.notified() => {}
                }
            };
            // What was wrong, this protocol tells the client by itself.
            let _ = to_the_end(pin!(connection), &busy, house, tired).await;
        }
    }
}

/// Whether an answer of HTTP/2 says how long it is where hyper does not: one whose body was not asked for, or is empty.
fn tells_length(status: StatusCode, without_body: bool, length: u64) -> bool {
    let has_body = !matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    has_body && without_body == (length > 0)
}

/// Ends with an error where a request never reached the service, or an answer never the client.
async fn to_the_end<C>(
    mut connection: Pin<&mut C>,
    busy: &Busy,
    house: &House,
    tired: impl Future<Output = ()>,
) -> hyper::Result<()>
where
    C: GracefulConnection<Error = hyper::Error>,
{
    let leave = async {
        tokio::select! {
            () = house.shutdown.begins() => {}
            () = tired => {}
        }
    };
    let gracefully = async {
        tokio::select! {
            ended = connection.as_mut() => return ended,
            () = leave => connection.as_mut().graceful_shutdown(),
        }
        connection.as_mut().await
    };
    let closing = async {
        house.shutdown.begins().await;
        busy.unused_for(HALF_A_HEAD_MAY_TAKE).await;
    };
    // Half a request is no reason to stay: dropping the connection ends it.
    let ended = tokio::select! {
        ended = gracefully => ended,
        () = in_the_way(house, busy) => Ok(()),
        () = closing => Ok(()),
    };
    ended.inspect_err(|error| tracing::debug!(%error, "connection ended"))
}

/// Ends when this connection should make room: the server is crowded, and nothing is going on here.
pub(super) async fn in_the_way(house: &House, busy: &Busy) {
    let since = tokio::time::Instant::now();
    loop {
        house.crowded.notified().await;
        if since.elapsed() >= NEWCOMERS_MAY_STAY && busy.is_of_no_use(NEWCOMERS_MAY_STAY) {
            return;
        }
    }
}

/// A body that keeps its connection marked as busy.
struct Held<B> {
    /// `None`: only the head of the answer was asked for.
    body: Option<Pin<Box<B>>>,
    _busy: BusyGuard,
}

impl<B> Held<B> {
    fn new(body: B, busy: BusyGuard, without_body: bool) -> Self {
        Self {
            body: (!without_body).then(|| Box::pin(body)),
            _busy: busy,
        }
    }
}

impl<B: Body> Body for Held<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        match &mut self.body {
            Some(body) => body.as_mut().poll_frame(cx),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(|body| body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            Some(body) => body.size_hint(),
            None => SizeHint::default(),
        }
    }
}
