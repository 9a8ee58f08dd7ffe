//! Requests that never become one: answered with a text, then hung up on.
//!
//! hyper answers what it cannot parse by itself, with an empty body, and tells its owner why only afterwards. So its
//! bare answer is kept off the wire, and one that names the reason is sent in its place.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, HOST, HeaderValue};
use http::{Method, Request, Response, StatusCode, Version};
use http_body_util::Full;
use hyper::ext::ReasonPhrase;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

use super::pace::Busy;

const PLAIN: &str = "text/plain; charset=utf-8";
/// How long a refused client may go on talking: hanging up on it at once would take the answer away from it.
const LINGER: Duration = Duration::from_millis(500);

/// A connection that does not pass on hyper's own answers to malformed requests.
#[derive(Debug)]
pub struct Muted<S> {
    inner: S,
    busy: Busy,
    /// Answers of the service that were begun when bytes last went out.
    answers_out: usize,
    /// Some of what was last to be written is still to come.
    cut_short: bool,
    muted: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Muted<S> {
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
        let (status, text) = match error.is_parse_too_large() {
            true => (
                "431 Request Header Fields Too Large",
                "431 Request Header Fields Too Large".to_owned(),
            ),
            false => ("400 Bad Request", format!("400 Bad Request: {error}")),
        };
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

impl<S> Muted<S> {
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

/// The answer to a request whose `Host` is missing, doubled or none; what hyper lets pass and Go does not.
pub fn unaddressed<B>(request: &Request<B>) -> Option<Response<Full<Bytes>>> {
    let (text, said_in_status) = host_trouble(request)?;
    let text = format!("Bad Request: {text}");
    let mut answer = Response::new(Full::from(format!("400 {text}")));
    *answer.status_mut() = StatusCode::BAD_REQUEST;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(PLAIN));
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    if said_in_status && let Ok(reason) = ReasonPhrase::try_from(text.into_bytes()) {
        answer.extensions_mut().insert(reason);
    }
    Some(answer)
}

/// What is wrong, and whether the original's status line says so too.
fn host_trouble<B>(request: &Request<B>) -> Option<(&'static str, bool)> {
    // HTTP/2 has the address elsewhere, and may do without.
    if request.version() > Version::HTTP_11 {
        return None;
    }
    let mut hosts = request.headers().get_all(HOST).iter();
    match (hosts.next(), hosts.next()) {
        (_, Some(_)) => Some(("too many Host headers", false)),
        (Some(host), None) if !host.as_bytes().iter().all(may_be_in_host) => {
            Some(("malformed Host header", true))
        }
        (None, _)
            if request.version() == Version::HTTP_11 && request.method() != Method::CONNECT =>
        {
            Some(("missing required Host header", true))
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

    #[test]
    fn addresses() {
        let missing = Some(("missing required Host header", true));
        let doubled = Some(("too many Host headers", false));
        let malformed = Some(("malformed Host header", true));
        for (version, method, hosts, expected) in [
            (Version::HTTP_11, "GET", &["example.org:80"][..], None),
            (Version::HTTP_11, "GET", &["[::1]:443"], None),
            (Version::HTTP_11, "GET", &[""], None),
            (Version::HTTP_11, "GET", &[], missing),
            (Version::HTTP_11, "CONNECT", &[], None),
            (Version::HTTP_10, "GET", &[], None),
            (Version::HTTP_2, "GET", &[], None),
            (Version::HTTP_2, "GET", &["x/y"], None),
            (Version::HTTP_11, "GET", &["x", "x"], doubled),
            (Version::HTTP_10, "GET", &["x", "y"], doubled),
            (Version::HTTP_11, "GET", &["x/y"], malformed),
            (Version::HTTP_10, "GET", &["a b"], malformed),
            (Version::HTTP_11, "GET", &["\u{e9}"], malformed),
        ] {
            let mut request = Request::builder().version(version).method(method);
            for host in hosts {
                let host = HeaderValue::from_bytes(host.as_bytes()).unwrap();
                request = request.header(HOST, host);
            }
            let request = request.body(()).unwrap();
            let case = format!("{version:?} {method} {hosts:?}");
            assert_eq!(host_trouble(&request), expected, "{case}");
        }
    }
}
