//! An API server of a few lines, for the edges of a protocol that a real one does not show on demand.

use std::convert::Infallible;
use std::sync::Arc;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::Value;
use tower::service_fn;

#[derive(Debug, Clone)]
pub struct Asked {
    pub method: Method,
    /// With its query.
    pub path: String,
    pub body: Value,
}

/// What was asked so far.
pub type Log = Arc<Mutex<Vec<Asked>>>;

/// Answers with a status and a body.
pub fn client<F>(answer: F) -> (kube::Client, Log)
where
    F: Fn(&Asked) -> (u16, Value) + Send + Sync + 'static,
{
    client_async(move |asked| {
        let answer = answer(&asked);
        async move { answer }
    })
}

pub fn client_async<F, A>(answer: F) -> (kube::Client, Log)
where
    F: Fn(Asked) -> A + Send + Sync + 'static,
    A: Future<Output = (u16, Value)> + Send + 'static,
{
    let log = Log::default();
    let written = Arc::clone(&log);
    let answer = Arc::new(answer);
    let service = service_fn(move |request: Request<Body>| {
        let (answer, written) = (Arc::clone(&answer), Arc::clone(&written));
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            let asked = Asked {
                method: head.method,
                path: head.uri.to_string(),
                body: serde_json::from_slice(&body).unwrap_or(Value::Null),
            };
            written.lock().push(asked.clone());
            let (status, body) = answer(asked).await;
            let response = Response::builder()
                .status(status)
                .header("content-type", "application/json")
                .body(Full::new(Bytes::from(body.to_string())))
                .unwrap();
            Ok::<_, Infallible>(response)
        }
    });
    (kube::Client::new(service, "default"), log)
}

pub fn failure(code: u16, reason: &str) -> (u16, Value) {
    let status = serde_json::json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": reason, "reason": reason, "code": code,
    });
    (code, status)
}
