//! `/api/`: versions 1.0 to 2.1.

mod events;
mod options;
mod request;
mod syntax;
mod v1;
mod v2;

use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use crate::rest::RenderContext;
use hyper::body::Bytes;
use plimsoll_containers::CgroupPath;
use plimsoll_golang::strconv::quote;
use plimsoll_observe::store::Container;
use plimsoll_observe::{GroupSet, Observer, SampleRequest};
use tokio::sync::oneshot;

pub use events::EventHub;
pub use options::Options;

use super::body::Body;
use super::response::{self, Failure, Reply};
use super::service::ServerState;
use super::url::{Query, clean};

type Answer = Result<Reply, Failure>;

const V1: [&str; 4] = ["v1.0", "v1.1", "v1.2", "v1.3"];
const V2: [&str; 2] = ["v2.0", "v2.1"];

/// A parsed request: `/api/<version>/<kind>/<rest>`.
#[derive(Debug)]
pub struct Call {
    version: &'static str,
    kind: String,
    /// What follows the kind, by slashes.
    rest: Vec<String>,
    query: Query,
    body: Bytes,
}

impl Call {
    /// The rest as a container's name: cleaned, with a slash in front and none at the end.
    fn container(&self) -> String {
        let joined = format!("/{}", self.rest.join("/"));
        match clean(&joined).trim_end_matches('/') {
            "" => "/".to_owned(),
            name => name.to_owned(),
        }
    }
}

/// What each version answers, sorted.
fn kinds(version: &str) -> &'static [&'static str] {
    match version {
        "v1.0" => &["containers", "machine"],
        "v1.1" => &["containers", "machine", "subcontainers"],
        "v1.2" => &["containers", "docker", "machine", "subcontainers"],
        "v1.3" => &["containers", "docker", "events", "machine", "subcontainers"],
        "v2.0" => &[
            "appmetrics",
            "attributes",
            "events",
            "machine",
            "ps",
            "spec",
            "stats",
            "storage",
            "summary",
            "version",
        ],
        _ => &[
            "appmetrics",
            "attributes",
            "events",
            "machine",
            "machinestats",
            "ps",
            "spec",
            "stats",
            "storage",
            "summary",
            "version",
        ],
    }
}

/// Does this request want its body read? Only version 1 looks at bodies.
pub fn reads_body(path: &str) -> bool {
    path.starts_with("/api/v1.")
}

/// `path` is decoded and begins with `/api/`.
fn parse_path(path: &str, query: Query, body: Bytes) -> Result<Call, Failure> {
    let mut parts = path.trim_start_matches("/api").split('/').skip(1);
    let version = parts.next().unwrap_or("");
    if version.is_empty() {
        let versions = [V1.join(","), V2.join(",")].join(",");
        return Err(Failure::bad(format!("Supported API versions: {versions}")));
    }
    let known = V1.iter().chain(&V2).find(|v| **v == version);
    let Some(&version) = known else {
        return Err(Failure::internal(format!(
            "unsupported API version {}",
            quote(version)
        )));
    };
    let kind = parts.next().unwrap_or("").to_owned();
    if kind.is_empty() {
        let kinds = kinds(version).join(",");
        return Err(Failure::bad(format!(
            "Supported request types: {}",
            quote(&kinds)
        )));
    }
    Ok(Call {
        version,
        kind,
        rest: parts.map(str::to_owned).collect(),
        query,
        body,
    })
}

pub async fn answer(shared: &Arc<ServerState>, path: &str, query: Query, body: Bytes) -> Answer {
    let call = parse_path(path, query, body)?;
    if V2.contains(&call.version) {
        return v2::answer(shared, call).await;
    }
    v1::answer(shared, call).await
}

fn unknown_kind(call: &Call) -> Failure {
    Failure::internal(format!("unknown request type {}", quote(&call.kind)))
}

/// An answer rendered on a blocking thread, with a permit.
async fn json<F>(shared: &Arc<ServerState>, make: F) -> Answer
where
    F: FnOnce(&ServerState, &mut dyn Write) -> Result<(), Failure> + Send + 'static,
{
    let of = Arc::clone(shared);
    let body = shared.render_streaming(&shared.renders, move |out| make(&of, out));
    Ok(response::json(body.await?))
}

/// A short answer.
fn short(bytes: Vec<u8>) -> Reply {
    response::json(Body::full(bytes))
}

fn render_context(observer: &Observer) -> RenderContext {
    let machine = observer.machine.info();
    RenderContext {
        memory_capacity: machine.memory_capacity,
        swap_capacity: machine.swap_capacity,
        devices: observer.store.devices(),
        groups: observer.groups,
    }
}

/// Waits until these containers have a sample no older than `max_age`, with a deadline: old samples are better than none.
pub async fn wait_for_sample(
    shared: &ServerState,
    containers: Vec<CgroupPath>,
    max_age: Duration,
    also: GroupSet,
) {
    let (done, finished) = oneshot::channel();
    shared.backend.observer().on_demand.request(SampleRequest {
        containers,
        max_age,
        also,
        done: Box::new(move || {
            let _ = done.send(());
        }),
    });
    if tokio::time::timeout(shared.limits.pass, finished)
        .await
        .is_err()
    {
        tracing::warn!("on-demand sampling timed out; answering with older samples");
    }
}

fn paths(containers: &[Arc<Container>]) -> Vec<CgroupPath> {
    containers.iter().map(|c| Arc::clone(c.path())).collect()
}

/// Runs something that may block on a blocking thread.
pub async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Failure> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| Failure::defect())
}
