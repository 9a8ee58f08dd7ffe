//! What a scheduler tells over HTTPS: how it is, its figures, its configuration, and why pods are where they are.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, Method, Response, StatusCode, request};
use http_body_util::Full;
use plimsoll_apimachinery::answer::not_to_be_kept;
use plimsoll_client::shutdown;
use plimsoll_client::shutdown::{Shutdown, ShutdownTrigger};
use plimsoll_metrics::Exposition;
use plimsoll_serving::auth::{Access, AuthFilter};
use plimsoll_serving::health::{Endpoint, Health};
use plimsoll_serving::process_metrics;
use plimsoll_serving::secure_serving::SecureServing;
use plimsoll_serving::{Handler, HandlerService, RequestBody};
use serde_json::json;

use crate::live::Shared;
use crate::zpages::{self, Shape, Standing};

type Answer = Response<Full<Bytes>>;

/// What is always there.
const PATHS: [&str; 7] = [
    "/configz", "/explain", "/healthz", "/livez", "/metrics", "/readyz", "/version",
];

/// Where explanations are: `/explain/pods/NAMESPACE/NAME`.
const EXPLAIN: &str = "/explain/pods/";

/// Everything that an answer may need.
#[derive(Debug, Clone)]
pub struct Surface {
    shared: Shared,
    gate: AuthFilter,
    health: Health,
    /// The command line, by flag.
    flags: Arc<BTreeMap<String, String>>,
    started: jiff::Timestamp,
}

#[derive(Debug)]
pub struct Serving {
    serving: plimsoll_serving::Serving,
    stopper: ShutdownTrigger,
}

/// Starts to serve. `flags`: with which it was started, for those who ask.
pub fn spawn(front: SecureServing, shared: Shared, flags: BTreeMap<String, String>) -> Serving {
    let (stopper, shutdown) = shutdown::channel();
    front.keep_current(&shutdown);
    let surface = Surface {
        health: health(&shared, shutdown),
        shared,
        gate: front.gate,
        flags: Arc::new(flags),
        started: jiff::Timestamp::now(),
    };
    Serving {
        serving: front.bound.spawn(HandlerService(surface)),
        stopper,
    }
}

/// The checks by the names that probes know. Whether the lease is renewed is not among them: who loses it ends. Who gets
/// no answer about it is not ready.
fn health(shared: &Shared, shutdown: Shutdown) -> Health {
    let synced = shared.clone();
    let mut health = Health::bare().with(&[Endpoint::Livez], "ping", || Ok(()));
    health = match shared.is_elected() {
        true => {
            let stands = shared.clone();
            health
                .with(&[Endpoint::Healthz], "leaderElection", || Ok(()))
                .with(&[Endpoint::Readyz], "leaderElection", move || {
                    stands.stands()
                })
        }
        false => health.with(&[Endpoint::Healthz], "ping", || Ok(())),
    };
    health
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

/// A page for programs, with what was asked for as its type.
fn shaped(kind: &str, version: &str, page: &serde_json::Value) -> Answer {
    let mut answer = text(StatusCode::OK, JSON, page.to_string());
    let shape = format!("{JSON};g=config.k8s.io;v={version};as={kind}");
    if let Ok(shape) = HeaderValue::from_str(&shape) {
        answer.headers_mut().insert(CONTENT_TYPE, shape);
    }
    answer
}

fn not_acceptable() -> Answer {
    let status = serde_json::json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "only the following media types are accepted: application/json, application/yaml, text/plain",
        "reason": "NotAcceptable", "code": 406});
    text(StatusCode::NOT_ACCEPTABLE, JSON, status.to_string())
}

const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8; escaping=underscores";
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
        if ![Method::GET, Method::HEAD].contains(&head.method) {
            return text(
                StatusCode::METHOD_NOT_ALLOWED,
                PLAIN,
                "Method Not Allowed\n",
            );
        }
        match path.as_str() {
            "/metrics" => {
                let page = self.shared.metrics().await;
                text(StatusCode::OK, METRICS, page)
            }
            "/metrics/slis" => {
                let mut page = Exposition::default();
                self.health.write(&mut page);
                if let Some(started) = process_metrics::started() {
                    let name = "process_start_time_seconds";
                    page.family(name, "gauge", "[ALPHA] When the process started.");
                    page.sample(name, &[], started);
                }
                text(StatusCode::OK, METRICS, page.finish())
            }
            "/metrics/resources" => self.pod_resources().await,
            "/flagz" if self.shared.gates().is_on("ComponentFlagz") => self.flagz(&head.headers),
            "/statusz" if self.shared.gates().is_on("ComponentStatusz") => {
                self.statusz(&head.headers)
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

    /// Only whoever decides tells what pods ask for: the others would tell the same.
    async fn pod_resources(&self) -> Answer {
        if !self.shared.leads() {
            return text(StatusCode::OK, PLAIN, "");
        }
        match self.shared.pod_resources().await {
            Ok(page) => text(StatusCode::OK, METRICS, page),
            Err(error) => {
                tracing::warn!(error, "cannot read the pods for a page about them");
                let body = format!("{error}\n");
                text(StatusCode::INTERNAL_SERVER_ERROR, PLAIN, body)
            }
        }
    }

    fn flagz(&self, headers: &HeaderMap) -> Answer {
        match Shape::asked(headers, "Flagz") {
            Shape::Text => text(StatusCode::OK, PLAIN, zpages::flags_text(&self.flags)),
            Shape::Json(version) => {
                let page = zpages::flags_json(&self.flags, version);
                shaped("Flagz", version, &page)
            }
            Shape::None => not_acceptable(),
        }
    }

    fn statusz(&self, headers: &HeaderMap) -> Answer {
        let mut paths: Vec<String> = PATHS.iter().map(|path| (*path).to_owned()).collect();
        let gates = self.shared.gates();
        for (path, gate) in [
            ("/flagz", "ComponentFlagz"),
            ("/statusz", "ComponentStatusz"),
        ] {
            if gates.is_on(gate) {
                paths.push(path.to_owned());
            }
        }
        let standing = Standing::now(self.started, paths);
        match Shape::asked(headers, "Statusz") {
            Shape::Text => text(StatusCode::OK, PLAIN, standing.text()),
            Shape::Json(version) => {
                let page = standing.json(version);
                shaped("Statusz", version, &page)
            }
            Shape::None => not_acceptable(),
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

impl Handler for Surface {
    type Body = Full<Bytes>;

    async fn respond(self, head: request::Parts, _: RequestBody) -> Answer {
        let mut answer = self.handle(head).await;
        not_to_be_kept(answer.headers_mut());
        answer
    }
}
