//! What a scheduler tells over HTTPS: how it is, its figures, its configuration, and why pods are where they are.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, Response, StatusCode, request};
use http_body_util::Full;
use plimsoll_ground::auth::{Access, Gate};
use plimsoll_ground::front::Front;
use plimsoll_ground::health::{Endpoint, Health};
use plimsoll_ground::serve::{self, Respond, Responder, Sent};
use plimsoll_ground::shutdown::{self, Shutdown, Stopper};
use serde_json::json;

use crate::live::Shared;

type Answer = Response<Full<Bytes>>;

/// Where explanations are: `/explain/pods/NAMESPACE/NAME`.
const EXPLAIN: &str = "/explain/pods/";

/// Everything that an answer may need.
#[derive(Debug, Clone)]
pub struct Surface {
    shared: Shared,
    gate: Gate,
    health: Health,
}

#[derive(Debug)]
pub struct Serving {
    serving: serve::Serving,
    stopper: Stopper,
}

/// Starts to serve.
pub fn spawn(front: Front, shared: Shared) -> Serving {
    let (stopper, shutdown) = shutdown::channel();
    front.keep_current(&shutdown);
    let surface = Surface {
        health: health(&shared, shutdown),
        shared,
        gate: front.gate,
    };
    Serving {
        serving: front.bound.spawn(Responder(surface)),
        stopper,
    }
}

/// The checks by the names that probes know. Whether the lease is renewed is not among them: who loses it ends.
fn health(shared: &Shared, shutdown: Shutdown) -> Health {
    let synced = shared.clone();
    Health::default()
        .with(
            &[Endpoint::Healthz, Endpoint::Readyz],
            "leaderElection",
            || Ok(()),
        )
        .with_shutdown(shutdown)
        .with(&[Endpoint::Readyz], "sched-handler-sync", move || {
            synced.is_synced()
        })
}

impl Serving {
    pub fn local_addr(&self) -> SocketAddr {
        self.serving.local_addr()
    }

    pub async fn drain(self, within: Duration) {
        self.stopper.stop();
        self.serving.drain(within).await;
    }
}

fn text(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    let kind = HeaderValue::from_static(kind);
    answer.headers_mut().insert(CONTENT_TYPE, kind);
    answer
}

const PLAIN: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";

impl Surface {
    async fn handle(self, mut head: request::Parts) -> Answer {
        let path = head.uri.path().to_owned();
        let access = Access::path(&head.method, &path);
        if let Err(refusal) = self.gate.admit(&mut head, access).await {
            return refusal.into_response();
        }
        if let Some(answer) = self.health.answer(&path, head.uri.query()) {
            return answer;
        }
        if head.method != Method::GET {
            return text(
                StatusCode::METHOD_NOT_ALLOWED,
                PLAIN,
                "Method Not Allowed\n",
            );
        }
        match path.as_str() {
            "/metrics" => {
                let page = self.shared.metrics().await;
                text(
                    StatusCode::OK,
                    "text/plain; version=0.0.4; charset=utf-8",
                    page,
                )
            }
            "/configz" => {
                let config = json!({"componentconfig": self.shared.configuration().completed()});
                text(StatusCode::OK, JSON, config.to_string())
            }
            "/version" => text(StatusCode::OK, JSON, version()),
            path => match path
                .strip_prefix(EXPLAIN)
                .and_then(|rest| rest.split_once('/'))
            {
                Some((namespace, name)) => self.explain(namespace, name, head.uri.query()).await,
                None => text(StatusCode::NOT_FOUND, PLAIN, "404 page not found\n"),
            },
        }
    }

    async fn explain(&self, namespace: &str, name: &str, query: Option<&str>) -> Answer {
        let Some(report) = self.shared.explain(namespace, name).await else {
            let body = format!("pod {namespace}/{name} is not known here\n");
            return text(StatusCode::NOT_FOUND, PLAIN, body);
        };
        if query.is_some_and(|query| query.split('&').any(|part| part == "output=text")) {
            return text(StatusCode::OK, PLAIN, report.text());
        }
        let body = serde_json::to_vec(&report).unwrap_or_default();
        text(StatusCode::OK, JSON, body)
    }
}

fn version() -> String {
    let own = env!("CARGO_PKG_VERSION");
    json!({"major": "1", "minor": "36", "gitVersion": format!("v1.36.3+plimsoll-{own}"), "platform": "linux/amd64"})
        .to_string()
}

impl Respond for Surface {
    type Body = Full<Bytes>;

    async fn respond(self, head: request::Parts, _: Sent) -> Answer {
        self.handle(head).await
    }
}
