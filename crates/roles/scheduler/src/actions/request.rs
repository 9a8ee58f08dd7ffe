//! Requests to the API server, with bodies that are written once and answers that are read only where they matter.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, Request};
use http_body_util::BodyExt;
use kube::client::Body;
use plimsoll_client::chain;
use serde::Deserialize;
use serde_json::Value;

/// For a whole request, its answer included.
const WITHIN: Duration = Duration::from_secs(30);
/// Tries of a request that failed for no fault of its own, and the pause before the second; each is five times the last.
const TRIES: u32 = 4;
const PAUSE: Duration = Duration::from_millis(10);

#[derive(Debug, Clone, thiserror::Error)]
pub enum Refused {
    /// The API server said no.
    #[error("{message}")]
    Status {
        code: u16,
        reason: String,
        message: String,
    },
    /// Whether it took effect is not known.
    #[error("{0}")]
    Unreachable(String),
}

impl Refused {
    /// `None`: nobody answered.
    pub fn code(&self) -> Option<u16> {
        match self {
            Self::Status { code, .. } => Some(*code),
            Self::Unreachable(_) => None,
        }
    }

    pub fn is_gone(&self) -> bool {
        matches!(self, Self::Status { code: 404, .. })
    }

    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Status { code: 409, .. })
    }

    /// Worth another try at once: the server is not quite there, or nobody listened.
    fn is_passing(&self) -> bool {
        match self {
            Self::Status { code, .. } => matches!(code, 500 | 503),
            Self::Unreachable(text) => text.contains("refused"),
        }
    }
}

#[derive(Debug, Clone, Copy)]
pub enum Verb {
    Get,
    Post,
    Put,
    Delete,
    /// Lists of things with names are merged by these.
    StrategicPatch,
    MergePatch,
}

impl Verb {
    fn method(self) -> Method {
        match self {
            Self::Get => Method::GET,
            Self::Post => Method::POST,
            Self::Put => Method::PUT,
            Self::Delete => Method::DELETE,
            Self::StrategicPatch | Self::MergePatch => Method::PATCH,
        }
    }

    fn content_type(self) -> &'static str {
        match self {
            Self::StrategicPatch => "application/strategic-merge-patch+json",
            Self::MergePatch => "application/merge-patch+json",
            _ => "application/json",
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Status {
    reason: String,
    message: String,
}

/// Sends one request and reads the answer.
async fn send(
    client: &kube::Client,
    verb: Verb,
    path: &str,
    body: Bytes,
) -> Result<Bytes, Refused> {
    let broken = |error: &dyn std::error::Error| Refused::Unreachable(chain(error));
    let mut request = Request::builder().method(verb.method()).uri(path);
    if !body.is_empty() {
        let kind = HeaderValue::from_static(verb.content_type());
        request = request.header(CONTENT_TYPE, kind);
    }
    let request = request.body(Body::from(body));
    let request = request.map_err(|error| broken(&error))?;
    let answer = client.send(request).await;
    let answer = answer.map_err(|error| broken(&error))?;
    let code = answer.status();
    let text = answer.into_body().collect().await;
    let text = text.map_err(|error| broken(&error))?.to_bytes();
    if code.is_success() {
        return Ok(text);
    }
    let status: Status = serde_json::from_slice(&text).unwrap_or_default();
    let message = match status.message.as_str() {
        "" => format!("the server answered {code}"),
        message => message.to_owned(),
    };
    Err(Refused::Status {
        code: code.as_u16(),
        reason: status.reason,
        message,
    })
}

/// Sends until it is taken, refused for good, or tried often enough. `conflicts`: those are tried again, too.
pub async fn ask(
    client: &kube::Client,
    verb: Verb,
    path: &str,
    body: Bytes,
    conflicts: bool,
) -> Result<Bytes, Refused> {
    let mut pause = PAUSE;
    let mut tried = 1;
    loop {
        let sent = tokio::time::timeout(WITHIN, send(client, verb, path, body.clone())).await;
        let refused = match sent {
            Ok(Ok(answer)) => return Ok(answer),
            Ok(Err(refused)) => refused,
            Err(_) => return Err(Refused::Unreachable("context deadline exceeded".to_owned())),
        };
        let again = refused.is_passing() || (conflicts && refused.is_conflict());
        if !again || tried == TRIES {
            return Err(refused);
        }
        tokio::time::sleep(pause.mul_f64(1.0 + 0.1 * fastrand::f64())).await;
        pause *= 5;
        tried += 1;
    }
}

/// The same for an object, whose answer is one, too.
pub async fn ask_json(
    client: &kube::Client,
    verb: Verb,
    path: &str,
    body: Option<&Value>,
) -> Result<Value, Refused> {
    let body = body.map_or_else(Bytes::new, |body| Bytes::from(body.to_string()));
    let answer = ask(client, verb, path, body, false).await?;
    serde_json::from_slice(&answer).map_err(|error| Refused::Unreachable(error.to_string()))
}
