//! One connection from its first byte to its last.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, HeaderValue, RETRY_AFTER};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{Either, Full};
use hyper::body::{Body, Incoming};
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulConnection;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;
use tower::{Service, ServiceExt};

use super::arriving::Arriving;
use super::ca_bundle::Peer;
use super::caught::caught;
use super::held::{Held, PIECE};
use super::io_timeouts::{Busy, IoTimeouts, TimeoutIo};
use super::malformed::{MalformedFilter, head_size, refused};
use super::server::ServerContext;
use super::share::{SMALL, Seat, TooMuch, Visit};

/// How long a new connection is left alone while somebody waits for its place.
const NEWCOMERS_MAY_STAY: Duration = Duration::from_secs(1);

/// How long a draining server waits for the rest of a request's head.
const HALF_A_HEAD_MAY_TAKE: Duration = Duration::from_millis(500);

/// A front proxy sends a header for each group that somebody is in, and there are people in hundreds of them.
const MOST_HEADERS: usize = 1000;

/// What a client may send on an HTTP/2 connection before somebody reads it, and on one stream of it.
const CONNECTION_WINDOW: u32 = 512 << 10;
const STREAM_WINDOW: u32 = 256 << 10;

/// Requests that an HTTP/2 client may take back before they were looked at, and those that were wrong.
const MOST_RESETS: usize = 64;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    Http1,
    Http2,
}

/// As an extension of an answer: after it, an HTTP/2 connection takes no more requests.
#[derive(Debug, Clone, Copy)]
pub struct GoAway;

/// Serves one connection to its end.
pub async fn serve_connection<I, S, B>(
    stream: I,
    protocol: Protocol,
    peer: Peer,
    house: &ServerContext,
    service: S,
) where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    S: Service<Request<Arriving>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Into<BoxError>,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let limits = &house.limits;
    let patience = IoTimeouts {
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
    let seat = Arc::new(Seat::new(Arc::clone(&house.shares)));
    let stream = TimeoutIo::new(stream, patience, busy.clone(), Arc::clone(&seat));
    let answers = busy.clone();
    let last = Arc::new(Notify::new());
    let marked = Arc::clone(&last);
    let counters = Arc::clone(&house.counters);
    let own_limits = limits.clone();
    let service = service_fn(move |request: Request<Incoming>| {
        let guard = answers.begin();
        let visit = Visit::new(Arc::clone(&seat));
        // HTTP/1 leaves such a body out by itself.
        let without_body = protocol == Protocol::Http2 && request.method() == Method::HEAD;
        let answer = match refused(&request, own_limits.header_bytes) {
            Some(refusal) => {
                match refusal.status() {
                    StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => counters.too_large(),
                    _ => counters.malformed(),
                }
                Err(refusal)
            }
            None => match visit.asks(long_head(&request)) {
                Err(TooMuch) => Err(too_much()),
                Ok(()) => {
                    let arriving = |body| Arriving::new(body, visit.clone(), &own_limits);
                    let mut request = request.map(arriving);
                    request.extensions_mut().insert(peer.clone());
                    request.extensions_mut().insert(visit.clone());
                    Ok(service.clone().oneshot(request))
                }
            },
        };
        let marked = Arc::clone(&marked);
        let counters = Arc::clone(&counters);
        async move {
            let mut answer = match answer {
                Ok(answer) => match caught(&counters, answer).await {
                    Ok(answer) => answer?.map(Either::Left),
                    Err(panicked) => panicked.into_response().map(Either::Right),
                },
                Err(refusal) => refusal.map(Either::Right),
            };
            let length = answer.body().size_hint().exact().unwrap_or_default();
            if visit.is_answered(length).is_err() {
                answer = too_much().map(Either::Right);
            }
            if answer.status() == StatusCode::TOO_MANY_REQUESTS {
                counters.refused();
            }
            if visit.was_refused() {
                match protocol {
                    Protocol::Http1 => {
                        let close = HeaderValue::from_static("close");
                        answer.headers_mut().insert(CONNECTION, close);
                    }
                    Protocol::Http2 => marked.notify_one(),
                }
            }
            if protocol == Protocol::Http2
                && let Some(length) = answer.body().size_hint().exact()
                && tells_length(answer.status(), without_body, length)
            {
                let headers = answer.headers_mut();
                headers.entry(CONTENT_LENGTH).or_insert(length.into());
            }
            if answer.extensions().get::<GoAway>().is_some() {
                marked.notify_one();
            }
            guard.answer();
            Ok::<_, S::Error>(answer.map(|body| {
                let body = (!without_body).then(|| Box::pin(body));
                Held::new(body, protocol, guard, visit, counters)
            }))
        }
    });
    match protocol {
        // The pace is ours to keep: hyper's timer does not tell a slow head from an idle connection.
        Protocol::Http1 => {
            let io = TokioIo::new(MalformedFilter::new(stream, busy.clone()));
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
                .initial_connection_window_size(CONNECTION_WINDOW)
                .initial_stream_window_size(STREAM_WINDOW)
                .max_pending_accept_reset_streams(MOST_RESETS)
                .max_local_error_reset_streams(MOST_RESETS)
                .max_send_buf_size(PIECE)
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
    house: &ServerContext,
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
        () = busy.untaken_for(house.limits.stalled) => Ok(()),
    };
    ended.inspect_err(|error| tracing::debug!(%error, "connection ended"))
}

/// Ends when this connection should make room: the server is crowded, and nothing is going on here.
pub(super) async fn in_the_way(house: &ServerContext, busy: &Busy) {
    let since = tokio::time::Instant::now();
    loop {
        house.crowded.notified().await;
        if since.elapsed() >= NEWCOMERS_MAY_STAY && busy.is_of_no_use(NEWCOMERS_MAY_STAY) {
            return;
        }
    }
}

/// The size of a head that is worth counting.
fn long_head<B>(request: &Request<B>) -> u64 {
    let size = head_size(request) as u64;
    if size > SMALL { size } else { 0 }
}

fn too_much() -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::from(format!("{TooMuch}\n")));
    *answer.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    let soon = HeaderValue::from_static("1");
    answer.headers_mut().insert(RETRY_AFTER, soon);
    answer
}
