//! Responses: status, headers and body as clients of cAdvisor expect them.

use std::io;

use http::header::{
    ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, LOCATION,
    RETRY_AFTER, VARY, X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderMap, Method, Response, StatusCode};
use hyper::body::Bytes;

use super::body::Body;
use super::extra::ExtraText;
use plimsoll_metrics::negotiate::Format;

pub type Reply = Response<Body>;

const PLAIN: &str = "text/plain; charset=utf-8";
const HTML: &str = "text/html; charset=utf-8";
const JSON: &str = "application/json";

/// An error response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub status: u16,
    pub text: String,
    /// `Retry-After`, in seconds.
    pub retry_after: Option<u32>,
}

impl Failure {
    pub fn new(status: StatusCode, text: impl Into<String>) -> Self {
        Self {
            status: status.as_u16(),
            text: text.into(),
            retry_after: None,
        }
    }

    /// Too many concurrent requests for large answers.
    pub fn service_unavailable() -> Self {
        Self {
            retry_after: Some(1),
            ..Self::new(
                StatusCode::SERVICE_UNAVAILABLE,
                "too many large answers at once",
            )
        }
    }

    /// cAdvisor's status for nearly every error.
    pub fn internal(text: impl ToString) -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, text.to_string())
    }

    pub fn bad(text: impl ToString) -> Self {
        Self::new(StatusCode::BAD_REQUEST, text.to_string())
    }

    /// A bug in this program.
    pub fn defect() -> Self {
        Self::internal("internal error, see the log")
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::internal(error)
    }
}

fn reply(status: StatusCode, kind: Option<&'static str>, body: Body) -> Reply {
    let mut reply = Response::new(body);
    *reply.status_mut() = status;
    if let Some(kind) = kind {
        let kind = HeaderValue::from_static(kind);
        reply.headers_mut().insert(CONTENT_TYPE, kind);
    }
    reply
}

pub fn json(body: Body) -> Reply {
    reply(StatusCode::OK, Some(JSON), body)
}

pub fn plain(text: impl Into<Bytes>) -> Reply {
    reply(StatusCode::OK, Some(PLAIN), Body::full(text))
}

pub fn text(page: ExtraText) -> Reply {
    let mut reply = reply(
        StatusCode::OK,
        Some(page.content_type),
        Body::full(page.body),
    );
    for (name, value) in page.headers {
        if let Ok(value) = HeaderValue::from_str(&value) {
            reply.headers_mut().insert(name, value);
        }
    }
    reply
}

pub fn html(text: String) -> Reply {
    reply(StatusCode::OK, Some(HTML), Body::full(text))
}

/// No type at all: the original's event streams have none.
pub fn stream(body: Body) -> Reply {
    reply(StatusCode::OK, None, body)
}

/// The text with a line end, which browsers must not take for anything but text.
pub fn error(failure: &Failure) -> Reply {
    let status = StatusCode::from_u16(failure.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut reply = reply(
        status,
        Some(PLAIN),
        Body::full(format!("{}\n", failure.text)),
    );
    let nosniff = HeaderValue::from_static("nosniff");
    reply.headers_mut().insert(X_CONTENT_TYPE_OPTIONS, nosniff);
    if let Some(seconds) = failure.retry_after {
        reply.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    reply
}

/// As the kubelet refuses: the text alone.
pub fn bare(status: StatusCode, text: &'static str) -> Reply {
    reply(status, Some(PLAIN), Body::full(text))
}

/// Readers get a page to click on, others nothing.
pub fn redirect(method: &Method, to: &str, permanent: bool) -> Reply {
    let (status, words) = match permanent {
        true => (StatusCode::MOVED_PERMANENTLY, "Moved Permanently"),
        false => (StatusCode::TEMPORARY_REDIRECT, "Temporary Redirect"),
    };
    let mut reply = match *method {
        Method::GET => {
            let page = format!("<a href=\"{}\">{words}</a>.\n\n", escape_html(to));
            reply(status, Some(HTML), Body::full(page))
        }
        Method::HEAD => reply(status, Some(HTML), Body::empty()),
        _ => reply(status, None, Body::empty()),
    };
    // What a path may hold that a header may not was refused when the request was read.
    if let Ok(location) = HeaderValue::from_str(to) {
        reply.headers_mut().insert(LOCATION, location);
    }
    reply
}

pub fn escape_html(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&#34;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// A page for scrapers, compressed where that was asked for.
pub fn exposition(body: Body, format: Format, zipped: bool) -> Reply {
    let mut reply = reply(StatusCode::OK, None, body);
    if let Ok(kind) = HeaderValue::from_str(&format.content_type()) {
        reply.headers_mut().insert(CONTENT_TYPE, kind);
    }
    mark_zipped(reply.headers_mut(), zipped);
    reply
}

pub fn mark_zipped(headers: &mut HeaderMap, zipped: bool) {
    headers.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
    if zipped {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
}

/// Does the client want gzip? A quality of zero means that it does not.
pub fn wants_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(ACCEPT_ENCODING).iter();
    let codings = values
        .filter_map(|v| v.to_str().ok())
        .flat_map(|v| v.split(','));
    for coding in codings {
        let mut parts = coding.split(';').map(str::trim);
        let name = parts.next().unwrap_or("");
        let refused = parts
            .filter_map(|p| p.strip_prefix("q="))
            .any(|q| q.parse::<f32>().is_ok_and(|q| q == 0.0));
        if name.eq_ignore_ascii_case("gzip") || name == "*" {
            return !refused;
        }
    }
    false
}

/// The length where it is known; hyper does the rest (`HEAD` keeps the headers and loses the body).
pub fn with_length(mut reply: Reply) -> Reply {
    let is_redirect = reply.headers().contains_key(LOCATION);
    let said_nothing = is_redirect && reply.headers().contains_key(CONTENT_TYPE);
    match reply.body().len() {
        // A redirect for HEAD says its type and no length.
        Some(0) if said_nothing => {}
        Some(len) => {
            let len = HeaderValue::from(len);
            reply.headers_mut().insert(CONTENT_LENGTH, len);
        }
        None => {}
    }
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_only_for_those_who_ask() {
        for (header, expected) in [
            ("gzip", true),
            ("zstd, gzip", true),
            ("deflate, gzip;q=0.5", true),
            ("*", true),
            ("gzip;q=0", false),
            ("zstd", false),
            ("identity;q=0", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_ENCODING, HeaderValue::from_static(header));
            assert_eq!(wants_gzip(&headers), expected, "{header}");
        }
        assert!(!wants_gzip(&HeaderMap::new()));
    }

    #[test]
    fn redirects_by_method() {
        let get = redirect(&Method::GET, "/a?b='&", true);
        assert_eq!(get.status(), 301);
        assert_eq!(get.headers()[LOCATION], "/a?b='&");
        assert_eq!(get.headers()[CONTENT_TYPE], HTML);
        let post = redirect(&Method::POST, "/a", false);
        assert_eq!(post.status(), 307);
        assert!(!post.headers().contains_key(CONTENT_TYPE));
        assert_eq!(with_length(post).headers()[CONTENT_LENGTH], "0");
    }
}
