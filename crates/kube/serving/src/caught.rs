//! Catches a panic of the service and answers the client with an error.

use std::panic::AssertUnwindSafe;

use bytes::Bytes;
use futures::FutureExt;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::Full;

use super::connection_metrics::Counters;
use plimsoll_apimachinery::status::StatusError;
use plimsoll_client::shutdown::panic_text;

/// What is said by a real API server, too.
const TOLD: &str = "This request caused the server to panic. Look in the logs for details.";

/// Somebody's work panicked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{TOLD}")]
pub struct Panicked;

/// The work's outcome. A panic is counted and logged.
pub async fn caught<F: Future>(counters: &Counters, work: F) -> Result<F::Output, Panicked> {
    let outcome = AssertUnwindSafe(work).catch_unwind().await;
    outcome.map_err(|panic| panicked(counters, &*panic))
}

/// As [`caught`], for what does not wait.
pub(super) fn caught_now<T>(counters: &Counters, work: impl FnOnce() -> T) -> Result<T, Panicked> {
    let outcome = std::panic::catch_unwind(AssertUnwindSafe(work));
    outcome.map_err(|panic| panicked(counters, &*panic))
}

fn panicked(counters: &Counters, panic: &(dyn std::any::Any + Send)) -> Panicked {
    counters.panicked();
    let cause = panic_text(panic);
    tracing::error!(cause, "a request panicked; this is a bug, please report it");
    Panicked
}

impl Panicked {
    pub(super) fn into_response(self) -> Response<Full<Bytes>> {
        let told = StatusError::internal(self.to_string())
            .to_value()
            .to_string();
        let mut answer = Response::new(Full::from(told));
        *answer.status_mut() = StatusCode::INTERNAL_SERVER_ERROR;
        let json = HeaderValue::from_static("application/json");
        answer.headers_mut().insert(CONTENT_TYPE, json);
        answer
    }
}
