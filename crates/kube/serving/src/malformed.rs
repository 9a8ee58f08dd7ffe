//! Responses to malformed HTTP/1 requests, with Go's texts; the connection is then closed.
//!
//! hyper answers what it cannot parse by itself, with an empty body, and tells its owner why only afterwards. So its
//! bare answer is kept off the wire, and one that names the reason is sent in its place.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, EXPECT, HOST, HeaderValue, TRANSFER_ENCODING};
use http::{Method, Request, Response, StatusCode, Version};
use http_body_util::Full;
use hyper::ext::ReasonPhrase;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

use super::io_timeouts::Busy;

const PLAIN: &str = "text/plain; charset=utf-8";
const TOO_LARGE: &str = "431 Request Header Fields Too Large";
const UNKNOWN_CODING: &str = "Unsupported transfer encoding";
/// What a head may be longer than its limit, as Go reads a little ahead.
const HEAD_SLACK: usize = 4096;
/// How long a refused client may go on talking: hanging up on it at once would take the answer away from it.
const LINGER: Duration = Duration::from_millis(500);

/// A connection that does not pass on hyper's own answers to malformed requests.
#[derive(Debug)]
pub struct MalformedFilter<S> {
    inner: S,
    busy: Busy,
    /// Answers of the service that were begun when bytes last went out.
    answers_out: usize,
    /// Some of what was last to be written is still to come.
    cut_short: bool,
    muted: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> MalformedFilter<S> {
    pub fn new(inner: S, busy: Busy) -> Self {
        Self {
            inner,
            busy,
            answers_out: 0,
            cut_short: false,
            muted: false,
        }
    }

    /// Says what was wrong, where hyper gave up on a request and nobody said so yet.
    pub async fn explain(mut self, error: &hyper::Error) {
        // What looks like HTTP/2, hyper does not answer at all.
        if !self.muted && !error.is_parse_version_h2() {
            return;
        }
        let (status, text) = words(error);
        let answer = format!(
            "HTTP/1.1 {status}\r\nContent-Type: {PLAIN}\r\nConnection: close\r\n\r\n{text}"
        );
        let farewell = async {
            self.inner.write_all(answer.as_bytes()).await?;
            self.inner.shutdown().await?;
            let mut ignored = [0; 4096];
            while self.inner.read(&mut ignored).await? > 0 {}
            Ok::<_, io::Error>(())
        };
        // Whether it hears us out is up to the client.
        let _ = tokio::time::timeout(LINGER, farewell).await;
    }
}

/// The status line and the text in which Go refuses the same: it keeps what was wrong to itself.
fn words(error: &hyper::Error) -> (&'static str, &'static str) {
    if error.is_parse_too_large() {
        return (TOO_LARGE, TOO_LARGE);
    }
    tracing::debug!(%error, "no request");
    // hyper tells these apart in words only.
    match error.to_string().contains("transfer-encoding") {
        true => ("501 Not Implemented", UNKNOWN_CODING),
        false => ("400 Bad Request", "400 Bad Request"),
    }
}

impl<S> MalformedFilter<S> {
    /// Services may answer with a bare head too, or send something that looks like one: theirs always gets out.
    fn is_hypers(&self, bytes: &[u8]) -> bool {
        let is_services =
            self.cut_short || self.busy.is_busy() || self.busy.answered() != self.answers_out;
        !is_services && is_bare_refusal(bytes)
    }

    fn written(&mut self, poll: &Poll<io::Result<usize>>, offered: usize) {
        if let Poll::Ready(Ok(written)) = poll {
            self.cut_short = *written < offered;
            self.answers_out = self.busy.answered();
        }
    }
}

/// A head like those hyper makes for what it cannot parse: no body, and no headers but its own.
fn is_bare_refusal(bytes: &[u8]) -> bool {
    let Some(lines) = bytes.strip_suffix(b"\r\n\r\n") else {
        return false;
    };
    let Ok(lines) = std::str::from_utf8(lines) else {
        return false;
    };
    let mut lines = lines.split("\r\n");
    let status = lines.next().unwrap_or_default();
    let mut is_empty = false;
    let only_own = lines.all(|line| match line.split_once(": ") {
        Some((name, "0")) if name.eq_ignore_ascii_case("content-length") => {
            is_empty = true;
            true
        }
        Some((name, "close")) => name.eq_ignore_ascii_case("connection"),
        Some((name, _)) => name.eq_ignore_ascii_case("date"),
        None => false,
    });
    only_own && is_empty && status.starts_with("HTTP/1.1 4")
}

impl<S: AsyncRead + Unpin> AsyncRead for MalformedFilter<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for MalformedFilter<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.is_hypers(bytes) {
            self.muted = true;
            return Poll::Ready(Ok(bytes.len()));
        }
        let poll = Pin::new(&mut self.inner).poll_write(cx, bytes);
        self.written(&poll, bytes.len());
        poll
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match bufs {
            [whole] => self.poll_write(cx, whole),
            bufs => {
                let poll = Pin::new(&mut self.inner).poll_write_vectored(cx, bufs);
                self.written(&poll, bufs.iter().map(|buf| buf.len()).sum());
                poll
            }
        }
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.muted {
            // Not before the answer is out.
            true => Poll::Ready(Ok(())),
            false => Pin::new(&mut self.inner).poll_shutdown(cx),
        }
    }
}

/// The answer to a request that hyper lets pass and Go does not: its head is too long, its `Host` is missing, doubled or
/// none, its body is wrapped in something else than chunks, or it expects what nobody can do.
pub fn refused<B>(request: &Request<B>, head_bytes: usize) -> Option<Response<Full<Bytes>>> {
    // HTTP/2 has the address elsewhere, may do without, and knows nothing of the rest.
    if request.version() > Version::HTTP_11 {
        return None;
    }
    if head_size(request) > head_bytes + HEAD_SLACK {
        let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        return Some(last_words(status, TOO_LARGE));
    }
    let bad = |text: &str| last_words(StatusCode::BAD_REQUEST, &format!("400 {text}"));
    if request.headers().get_all(HOST).iter().count() > 1 {
        return Some(bad("Bad Request"));
    }
    if is_wrapped(request) {
        return Some(last_words(StatusCode::NOT_IMPLEMENTED, UNKNOWN_CODING));
    }
    if let Some(text) = host_trouble(request) {
        let text = format!("Bad Request: {text}");
        let mut answer = bad(&text);
        if let Ok(reason) = ReasonPhrase::try_from(text.into_bytes()) {
            answer.extensions_mut().insert(reason);
        }
        return Some(answer);
    }
    expects_too_much(request).then(|| {
        let mut answer = last_words(StatusCode::EXPECTATION_FAILED, "");
        answer.headers_mut().remove(CONTENT_TYPE);
        answer
    })
}

/// A text, after which the connection ends.
fn last_words(status: StatusCode, text: &str) -> Response<Full<Bytes>> {
    let mut answer = Response::new(Full::from(text.to_owned()));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(PLAIN));
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    answer
}

/// About as many bytes as it was sent in.
pub fn head_size<B>(request: &Request<B>) -> usize {
    let headers = request.headers().iter();
    let lines: usize = headers
        .map(|(name, value)| name.as_str().len() + value.len() + ": \r\n".len())
        .sum();
    let target = request.uri().path_and_query();
    lines + target.map_or(0, |target| target.as_str().len())
}

/// Whether the body comes in a coding that is not taken off. HTTP/1.0 knows of none.
fn is_wrapped<B>(request: &Request<B>) -> bool {
    let mut codings = request.headers().get_all(TRANSFER_ENCODING).iter();
    let is_chunked = |coding: &HeaderValue| coding.as_bytes().eq_ignore_ascii_case(b"chunked");
    request.version() == Version::HTTP_11
        && match (codings.next(), codings.next()) {
            (None, _) => false,
            (Some(only), None) => !is_chunked(only),
            (Some(_), Some(_)) => true,
        }
}

fn expects_too_much<B>(request: &Request<B>) -> bool {
    let Some(expected) = request.headers().get(EXPECT) else {
        return false;
    };
    let mut words = expected
        .as_bytes()
        .split(|byte| b" \t,".contains(byte))
        .filter(|word| !word.is_empty());
    !expected.is_empty() && !words.any(|word| word.eq_ignore_ascii_case(b"100-continue"))
}

/// What is wrong with the address, as the original's status line says it.
fn host_trouble<B>(request: &Request<B>) -> Option<&'static str> {
    match request.headers().get(HOST) {
        Some(host) if !host.as_bytes().iter().all(may_be_in_host) => Some("malformed Host header"),
        None if request.version() == Version::HTTP_11 && request.method() != Method::CONNECT => {
            Some("missing required Host header")
        }
        _ => None,
    }
}

fn may_be_in_host(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!$%&'()*+,-.:;=[]_~".contains(byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whose_head_it_is() {
        for (head, expected) in [
            (
                "HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Length: 0\r\nDate: x\r\n\r\n",
                true,
            ),
            (
                "HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\n\r\n",
                true,
            ),
            ("HTTP/1.1 400 Bad Request\r\nDate: x\r\n\r\n", false),
            ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", false),
            (
                "HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nWWW-Authenticate: Basic\r\n\r\n",
                false,
            ),
            (
                "HTTP/1.1 400 Bad Request\r\nContent-Length: 4\r\n\r\ntext",
                false,
            ),
            ("\r\n\r\n", false),
            ("", false),
        ] {
            assert_eq!(is_bare_refusal(head.as_bytes()), expected, "{head:?}");
        }
    }

    fn request(version: Version, method: &str, headers: &[(&str, &str)]) -> Request<()> {
        let mut request = Request::builder().version(version).method(method);
        for (name, value) in headers {
            let value = HeaderValue::from_bytes(value.as_bytes()).unwrap();
            request = request.header(*name, value);
        }
        request.body(()).unwrap()
    }

    #[test]
    fn addresses() {
        let missing = Some("missing required Host header");
        let malformed = Some("malformed Host header");
        for (version, method, host, expected) in [
            (Version::HTTP_11, "GET", Some("example.org:80"), None),
            (Version::HTTP_11, "GET", Some("[::1]:443"), None),
            (Version::HTTP_11, "GET", Some(""), None),
            (Version::HTTP_11, "GET", None, missing),
            (Version::HTTP_11, "CONNECT", None, None),
            (Version::HTTP_10, "GET", None, None),
            (Version::HTTP_11, "GET", Some("x/y"), malformed),
            (Version::HTTP_10, "GET", Some("a b"), malformed),
            (Version::HTTP_11, "GET", Some("\u{e9}"), malformed),
        ] {
            let headers: Vec<_> = host.map(|host| ("host", host)).into_iter().collect();
            let request = request(version, method, &headers);
            let case = format!("{version:?} {method} {host:?}");
            assert_eq!(host_trouble(&request), expected, "{case}");
        }
    }

    #[test]
    fn what_hyper_lets_pass() {
        const LIMIT: usize = 1000;
        let host = ("host", "x");
        let long = "a".repeat(LIMIT + HEAD_SLACK);
        for (version, headers, expected) in [
            (Version::HTTP_11, &[host][..], None),
            (Version::HTTP_11, &[host, ("a", &long[..LIMIT])], None),
            (Version::HTTP_11, &[host, ("a", &long)], Some(431)),
            (Version::HTTP_2, &[("host", "x/y"), ("a", &long)], None),
            (Version::HTTP_11, &[host, host], Some(400)),
            (Version::HTTP_10, &[host, ("host", "y")], Some(400)),
            (Version::HTTP_11, &[("host", "x/y")], Some(400)),
            (
                Version::HTTP_11,
                &[host, ("transfer-encoding", "Chunked")],
                None,
            ),
            (
                Version::HTTP_11,
                &[host, ("transfer-encoding", "gzip, chunked")],
                Some(501),
            ),
            (
                Version::HTTP_10,
                &[host, ("transfer-encoding", "gzip")],
                None,
            ),
            (Version::HTTP_11, &[host, ("expect", "")], None),
            (Version::HTTP_11, &[host, ("expect", "100-Continue")], None),
            (Version::HTTP_11, &[host, ("expect", "x")], Some(417)),
            (Version::HTTP_2, &[("expect", "x")], None),
        ] {
            let request = request(version, "GET", headers);
            let answer = refused(&request, LIMIT).map(|answer| answer.status().as_u16());
            assert_eq!(answer, expected, "{version:?} {:?}", &headers[..1]);
        }
    }
}
