//! What browsers and balancers are told: whose pages may ask, that plain HTTP is no option, to connect elsewhere.

use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::request::Parts;
use http::{Method, Response, StatusCode};
use plimsoll_apimachinery::answer::{Answer, full};
use regex::Regex;

#[derive(Debug, Clone, Default)]
pub struct Browsers {
    /// Pages whose origin matches may ask.
    pub origins: Vec<Regex>,
    /// `Strict-Transport-Security`.
    pub strict_transport: Option<HeaderValue>,
    /// How many of the requests on HTTP/2 are the last on their connection.
    pub goaway_chance: f64,
}

const ALLOWED: [(HeaderName, &str); 4] = [
    (
        header::ACCESS_CONTROL_ALLOW_METHODS,
        "POST, GET, OPTIONS, PUT, DELETE, PATCH",
    ),
    (
        header::ACCESS_CONTROL_ALLOW_HEADERS,
        "Content-Type, Content-Length, Accept-Encoding, X-CSRF-Token, Authorization, X-Requested-With, If-Modified-Since",
    ),
    (header::ACCESS_CONTROL_EXPOSE_HEADERS, "Date"),
    (header::ACCESS_CONTROL_ALLOW_CREDENTIALS, "true"),
];

impl Browsers {
    fn allows(&self, origin: Option<&HeaderValue>) -> bool {
        let origin = origin.and_then(|origin| origin.to_str().ok());
        origin.is_some_and(|origin| self.origins.iter().any(|one| one.is_match(origin)))
    }

    /// The answer to a browser that asks whether it may ask.
    pub fn preflight(&self, head: &Parts) -> Option<Answer> {
        let asks = head.method == Method::OPTIONS && self.allows(head.headers.get(header::ORIGIN));
        asks.then(|| {
            let mut response = Response::new(full(""));
            *response.status_mut() = StatusCode::NO_CONTENT;
            response
        })
    }

    pub fn mark(&self, headers: &mut HeaderMap, origin: Option<&HeaderValue>) {
        if let Some(strict) = &self.strict_transport {
            headers.insert(header::STRICT_TRANSPORT_SECURITY, strict.clone());
        }
        if let Some(origin) = origin.filter(|origin| self.allows(Some(origin))) {
            headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone());
            for (name, value) in ALLOWED {
                headers.insert(name, HeaderValue::from_static(value));
            }
        }
    }

    /// By chance, so that long connections find their way to other replicas.
    pub fn sends_away(&self) -> bool {
        self.goaway_chance > 0.0 && fastrand::f64() < self.goaway_chance
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whose_pages_may_ask() {
        let browsers = Browsers {
            origins: vec![Regex::new("//example\\.com(:|$)").unwrap()],
            strict_transport: Some(HeaderValue::from_static("max-age=1")),
            goaway_chance: 0.0,
        };
        for (origin, expected) in [("https://example.com", true), ("https://other.org", false)] {
            let origin = HeaderValue::from_static(origin);
            let mut headers = HeaderMap::new();
            browsers.mark(&mut headers, Some(&origin));
            assert_eq!(
                headers.contains_key("access-control-allow-origin"),
                expected
            );
            assert_eq!(headers["strict-transport-security"], "max-age=1");
        }
        assert!(!browsers.sends_away());
    }
}
