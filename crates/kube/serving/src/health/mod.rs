//! Health endpoints and the limit on requests in flight.
//!
//! [`Health`] answers `/livez`, `/readyz` and `/healthz` as an API server does, down to the words, because probes and
//! people look for them. [`InFlight`] turns away requests beyond what can be served well.

mod healthz;
mod max_in_flight;

pub use healthz::{Endpoint, Health, is_health_check};
pub use max_in_flight::{Class, InFlight, Permit, TooMany};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS};
use http::{Response, StatusCode};
use http_body_util::Full;

fn text(status: StatusCode, text: impl Into<Bytes>, nosniff: bool) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    headers.insert(CONTENT_TYPE, plain);
    if nosniff {
        let nosniff = HeaderValue::from_static("nosniff");
        headers.insert(X_CONTENT_TYPE_OPTIONS, nosniff);
    }
    response
}
