//! Requests that never become one: answered with a text, then hung up on.
//!
//! hyper answers what it cannot parse by itself, with an empty body, and tells its owner why only afterwards. So its
//! bare answer is kept off the wire, and one that names the reason is sent in its place.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::{CONNECTION, HOST, HeaderValue};
use http::{HeaderMap, Method, Request, StatusCode, Version};
use hyper::ext::ReasonPhrase;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

use super::reply::{self, Reply};

/// How long a refused client may go on talking: hanging up on it at once would take the answer away from it.
const LINGER: Duration = Duration::from_millis(500);

/// A connection that does not pass on hyper's own answers to malformed requests.
#[derive(Debug)]
pub struct Muted<S> {
    inner: S,
    muted: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Muted<S> {
    pub fn new(inner: S) -> Self {
        Self {
            inner,
            muted: false,
        }
    }

    /// Says what was wrong, where hyper gave up on a request; returns the status it answered with.
    pub async fn explain(mut self, error: &hyper::Error) -> Option<u16> {
        if !self.muted && !error.is_parse_version_h2() {
            return None;
        }
        let (status, text) = match error.is_parse_too_large() {
            true => (431, "431 Request Header Fields Too Large".to_owned()),
            false => (400, format!("400 Bad Request: {error}")),
        };
        let reason = StatusCode::from_u16(status).ok()?.canonical_reason()?;
        let answer = format!(
            "HTTP/1.1 {status} {reason}\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n{text}"
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
        Some(status)
    }
}

/// Our own refusals always have a text, so a bare head of this kind is hyper's.
fn is_bare_refusal(bytes: &[u8]) -> bool {
    const NO_BODY: &[u8] = b"\r\nContent-Length: 0\r\n";
    bytes.starts_with(b"HTTP/1.1 4")
        && bytes.ends_with(b"\r\n\r\n")
        && bytes.windows(NO_BODY.len()).any(|part| part == NO_BODY)
}

impl<S: AsyncRead + Unpin> AsyncRead for Muted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Muted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if is_bare_refusal(bytes) {
            self.muted = true;
            return Poll::Ready(Ok(bytes.len()));
        }
        Pin::new(&mut self.inner).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match bufs {
            [whole] => self.poll_write(cx, whole),
            bufs => Pin::new(&mut self.inner).poll_write_vectored(cx, bufs),
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

/// The answer to a request whose `Host` is missing, doubled or none; what hyper lets pass and Go does not.
pub fn unaddressed<B>(request: &Request<B>) -> Option<Reply> {
    let (text, said_in_status) = host_trouble(request)?;
    let text = format!("Bad Request: {text}");
    let mut answer = reply::plain(format!("400 {text}"));
    *answer.status_mut() = StatusCode::BAD_REQUEST;
    let close = HeaderValue::from_static("close");
    answer.headers_mut().insert(CONNECTION, close);
    if said_in_status && let Ok(reason) = ReasonPhrase::try_from(text.into_bytes()) {
        answer.extensions_mut().insert(reason);
    }
    Some(reply::with_length(answer))
}

/// What is wrong, and whether the original's status line says so too.
fn host_trouble<B>(request: &Request<B>) -> Option<(&'static str, bool)> {
    let headers: &HeaderMap = request.headers();
    let mut hosts = headers.get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (_, Some(_)) => Some(("too many Host headers", false)),
        (Some(host), None) if !host.as_bytes().iter().all(may_be_in_host) => {
            Some(("malformed Host header", true))
        }
        (None, _)
            if request.version() >= Version::HTTP_11 && request.method() != Method::CONNECT =>
        {
            Some(("missing required Host header", true))
        }
        _ => None,
    }
}

fn may_be_in_host(byte: &u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!$%&'()*+,-.:;=[]_~".contains(byte)
}
