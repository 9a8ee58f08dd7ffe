//! Lists and watches objects and passes each one on as the bytes that the API server sent.
//!
//! For those who read objects their own way, and would otherwise have them parsed twice: each change goes through a
//! bounded channel, so that whoever reads slowly slows down the watch instead of filling the memory.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{Request, StatusCode};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use kube::core::Status;
use plimsoll_golang::url;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::cache_sync::{CacheSync, SyncHandle};
use super::typed::ReflectorStatus;
use crate::backoff::Backoff;
use crate::explain;
use crate::shutdown::Shutdown;

const PAGE: usize = 500;
/// The server ends a watch after so long; just below the time after which silence counts as a broken connection.
const WATCH_SECONDS: u64 = 290;
/// A watch that ends sooner than that was no good.
const SHORT_LIVED: Duration = Duration::from_secs(1);
/// A kind that the server does not have may be added to it.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// For one page of a list to be read.
const PAGE_WITHIN: Duration = Duration::from_secs(60);

/// What became of objects of one kind.
#[derive(Debug, Clone)]
pub enum RawChange {
    /// A whole list follows; an attempt that failed is followed by another one, which begins anew.
    Begin,
    Listed(Bytes),
    /// What was not listed since it began is gone. Whoever has taken it all says so by the ticket.
    End(Arc<SyncHandle>),
    Applied(Bytes),
    Deleted(Bytes),
}

/// One kind of object to be followed.
pub struct RawReflector {
    name: String,
    client: Client,
    /// Where the kind is; the first that the server has.
    paths: Vec<String>,
    selector: Option<String>,
}

impl std::fmt::Debug for RawReflector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RawReflector")
            .field("name", &self.name)
            .field("paths", &self.paths)
            .field("selector", &self.selector)
            .finish_non_exhaustive()
    }
}

#[derive(Debug, thiserror::Error)]
enum Trouble {
    #[error("{}", explain(.0))]
    Client(#[from] kube::Error),
    #[error("what the API server sent is no list or event: {0}")]
    Malformed(#[from] serde_json::Error),
    #[error("the connection broke: {0}")]
    Broken(String),
    #[error("no answer within {} s", PAGE_WITHIN.as_secs())]
    TooLate,
}

impl Trouble {
    fn is(&self, wanted: StatusCode) -> bool {
        match self {
            Self::Client(kube::Error::Api(status)) => status.code == wanted.as_u16(),
            _ => false,
        }
    }
}

#[derive(Deserialize)]
struct List<'a> {
    metadata: ListMeta,
    #[serde(borrow)]
    items: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct ListMeta {
    resource_version: String,
    r#continue: String,
}

#[derive(Deserialize)]
struct Event<'a> {
    r#type: &'a str,
    #[serde(borrow)]
    object: &'a RawValue,
}

#[derive(Deserialize)]
struct Versioned {
    metadata: ListMeta,
}

impl RawReflector {
    /// `name` is how the log and the gate call it; `path` is that of the collection: `/api/v1/pods`.
    pub fn new(name: impl Into<String>, client: Client, path: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            client,
            paths: vec![path.into()],
            selector: None,
        }
    }

    /// Where it is on servers that do not have it elsewhere.
    pub fn or_at(mut self, path: impl Into<String>) -> Self {
        self.paths.push(path.into());
        self
    }

    /// Only objects with these fields.
    pub fn fields(mut self, selector: &str) -> Self {
        self.selector = Some(url::escape(selector, |byte| !b"!=,".contains(&byte)));
        self
    }

    /// Starts to follow; the gate waits for the first whole list to be taken. Changes carry `tag`, so that many kinds
    /// can share a channel. A kind that the server does not have counts as empty.
    pub fn spawn<T: Copy + Send + Sync + 'static>(
        self,
        tag: T,
        changes: mpsc::Sender<(T, RawChange)>,
        gate: &CacheSync,
        shutdown: Shutdown,
    ) -> ReflectorStatus {
        let rounds = ReflectorStatus::default();
        let name = format!("following {}", self.name);
        let task = Task {
            ticket: Arc::new(gate.register(self.name.clone())),
            rounds: rounds.clone(),
            reflector: self,
            tag,
            changes,
            is_absent: false,
            path: 0,
        };
        let until = shutdown.clone();
        shutdown.keep(name, async move {
            tokio::select! {
                () = until.begins() => {}
                // Whoever took the changes has ended first, and says why.
                Unwanted = task.run() => until.begins().await,
            }
        });
        rounds
    }
}

/// Nobody takes changes any more.
struct Unwanted;

struct Task<T> {
    reflector: RawReflector,
    tag: T,
    changes: mpsc::Sender<(T, RawChange)>,
    ticket: Arc<SyncHandle>,
    rounds: ReflectorStatus,
    /// It was said that the server does not have this kind.
    is_absent: bool,
    path: usize,
}

impl<T: Copy> Task<T> {
    async fn run(mut self) -> Unwanted {
        let mut backoff = Backoff::default();
        let mut since: Option<Since> = None;
        loop {
            let began = Instant::now();
            let outcome = match since.take() {
                None => self.list().await,
                Some(version) => self.watch(version).await,
            };
            let trouble = match outcome {
                Ok(Followed::Unwanted) => return Unwanted,
                Ok(Followed::Until(version)) => {
                    since = Some(version);
                    if began.elapsed() >= SHORT_LIVED || backoff.is_fresh() {
                        continue;
                    }
                    None
                }
                Err((trouble, version)) => {
                    since = version;
                    Some(trouble)
                }
            };
            let mut wait = backoff.next_wait();
            if let Some(trouble) = trouble {
                if trouble.is(StatusCode::GONE) {
                    tracing::debug!(
                        name = self.reflector.name,
                        "listing again, the version was too old"
                    );
                    since = None;
                } else if trouble.is(StatusCode::NOT_FOUND) {
                    match self.try_elsewhere().await {
                        Ok(true) => continue,
                        Ok(false) => wait = LOOK_AGAIN,
                        Err(Unwanted) => return Unwanted,
                    }
                } else {
                    self.failed(&trouble);
                }
            }
            tokio::time::sleep(wait).await;
        }
    }

    /// The server does not have it at this path. Whether there is another one to try.
    async fn try_elsewhere(&mut self) -> Result<bool, Unwanted> {
        self.path = (self.path + 1) % self.reflector.paths.len();
        if self.path != 0 {
            return Ok(true);
        }
        if !std::mem::replace(&mut self.is_absent, true) {
            tracing::info!(
                name = self.reflector.name,
                "the API server does not have this kind"
            );
        }
        self.send(RawChange::Begin).await?;
        self.send(RawChange::End(Arc::clone(&self.ticket))).await?;
        Ok(false)
    }

    async fn send(&self, change: RawChange) -> Result<(), Unwanted> {
        let sent = self.changes.send((self.tag, change)).await;
        sent.map_err(|_| Unwanted)
    }

    fn uri(&self, more: &str) -> String {
        let path = &self.reflector.paths[self.path];
        let selector = match &self.reflector.selector {
            Some(selector) => format!("&fieldSelector={selector}"),
            None => String::new(),
        };
        format!("{path}?{more}{selector}")
    }

    async fn get(&self, uri: &str) -> Result<http::Response<Body>, Trouble> {
        let request = Request::get(uri).body(Body::empty());
        let request = request.map_err(|error| Trouble::Broken(error.to_string()))?;
        let answer = self.reflector.client.send(request).await?;
        if answer.status().is_success() {
            return Ok(answer);
        }
        let code = answer.status().as_u16();
        let text = read(answer.into_body()).await?;
        let status: Option<Status> = serde_json::from_slice(&text).ok();
        let status = status.filter(|status| !status.message.is_empty());
        let status = status.unwrap_or_else(|| {
            let message = String::from_utf8_lossy(&text);
            Status::failure(message.trim(), "")
        });
        Err(refused(status.with_code(code)))
    }

    async fn list(&mut self) -> Outcome {
        self.list_pages().await.map_err(|trouble| (trouble, None))
    }

    async fn list_pages(&mut self) -> Result<Followed, Trouble> {
        let mut token = String::new();
        let mut begun = false;
        loop {
            let uri = self.uri(&format!("limit={PAGE}{token}"));
            let page = async { read(self.get(&uri).await?.into_body()).await };
            let page = tokio::time::timeout(PAGE_WITHIN, page).await;
            let page = page.unwrap_or(Err(Trouble::TooLate))?;
            let list: List<'_> = serde_json::from_slice(&page)?;
            if !begun {
                begun = true;
                if self.send(RawChange::Begin).await.is_err() {
                    return Ok(Followed::Unwanted);
                }
            }
            for item in list.items.into_iter().flatten() {
                let object = page.slice_ref(item.get().as_bytes());
                if self.send(RawChange::Listed(object)).await.is_err() {
                    return Ok(Followed::Unwanted);
                }
            }
            if list.metadata.r#continue.is_empty() {
                let end = RawChange::End(Arc::clone(&self.ticket));
                if self.send(end).await.is_err() {
                    return Ok(Followed::Unwanted);
                }
                self.rounds.listed();
                self.following();
                return Ok(Followed::Until(Since::Version(
                    list.metadata.resource_version,
                )));
            }
            token = format!("&continue={}", list.metadata.r#continue);
        }
    }

    async fn watch(&mut self, since: Since) -> Outcome {
        let mut since = since;
        match self.watch_from(&mut since).await {
            Ok(true) => Ok(Followed::Until(since)),
            Ok(false) => Ok(Followed::Unwanted),
            Err(trouble) => Err((trouble, Some(since))),
        }
    }

    /// `Ok(false)`: nobody wants changes any more.
    async fn watch_from(&mut self, since: &mut Since) -> Result<bool, Trouble> {
        let version = since.version()?;
        let uri = self.uri(&format!(
            "watch=true&allowWatchBookmarks=true&timeoutSeconds={WATCH_SECONDS}&resourceVersion={version}"
        ));
        let mut body = self.get(&uri).await?.into_body();
        self.following();
        let mut buffer = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| Trouble::Broken(error.to_string()))?;
            let Ok(data) = frame.into_data() else {
                continue;
            };
            let mut scanned = buffer.len();
            buffer.extend_from_slice(&data);
            while let Some(at) = memchr::memchr(b'\n', &buffer[scanned..]) {
                let line = buffer.split_to(scanned + at + 1).freeze();
                scanned = 0;
                let Some((change, object)) = event(&line)? else {
                    continue;
                };
                *since = Since::Object(object);
                if let Some(change) = change
                    && self.send(change).await.is_err()
                {
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    fn following(&mut self) {
        if self.rounds.recovered() {
            self.is_absent = false;
            self.ticket.recovered();
        }
    }

    fn failed(&mut self, trouble: &Trouble) {
        let trouble = trouble.to_string();
        self.rounds.failed();
        self.ticket.failed(trouble);
    }
}

type Outcome = Result<Followed, (Trouble, Option<Since>)>;

enum Followed {
    Until(Since),
    Unwanted,
}

/// From where to go on. An object's version is only looked for when it is needed.
enum Since {
    Version(String),
    Object(Bytes),
}

impl Since {
    fn version(&self) -> Result<String, Trouble> {
        match self {
            Self::Version(version) => Ok(version.clone()),
            Self::Object(object) => {
                let object: Versioned = serde_json::from_slice(object)?;
                Ok(object.metadata.resource_version)
            }
        }
    }
}

fn refused(status: Status) -> Trouble {
    Trouble::Client(kube::Error::Api(status.boxed()))
}

async fn read(body: Body) -> Result<Bytes, Trouble> {
    let body = body.collect().await;
    Ok(body
        .map_err(|error| Trouble::Broken(error.to_string()))?
        .to_bytes())
}

/// What a line of a watch says: what to tell, if anything, and the object, whose version is where we are now.
fn event(line: &Bytes) -> Result<Option<(Option<RawChange>, Bytes)>, Trouble> {
    let line = line.slice(..line.trim_ascii_end().len());
    if line.is_empty() {
        return Ok(None);
    }
    // As API servers write it; the parser would have to walk through the whole object to find its end.
    for (head, change) in [
        (
            &br#"{"type":"ADDED","object":"#[..],
            RawChange::Applied as fn(Bytes) -> RawChange,
        ),
        (br#"{"type":"MODIFIED","object":"#, RawChange::Applied),
        (br#"{"type":"DELETED","object":"#, RawChange::Deleted),
    ] {
        if line.starts_with(head) && line.ends_with(b"}") {
            let object = line.slice(head.len()..line.len() - 1);
            return Ok(Some((Some(change(object.clone())), object)));
        }
    }
    let event: Event<'_> = serde_json::from_slice(&line)?;
    let object = line.slice_ref(event.object.get().as_bytes());
    match event.r#type {
        "ADDED" | "MODIFIED" => Ok(Some((Some(RawChange::Applied(object.clone())), object))),
        "DELETED" => Ok(Some((Some(RawChange::Deleted(object.clone())), object))),
        "BOOKMARK" => Ok(Some((None, object))),
        _ => {
            let status: Status = serde_json::from_slice(&object)?;
            Err(refused(status))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(line: &'static str) -> String {
        match event(&Bytes::from_static(line.as_bytes())) {
            Ok(None) => "nothing".to_owned(),
            Ok(Some((Some(RawChange::Applied(object)), _))) => format!("applied {object:?}"),
            Ok(Some((Some(RawChange::Deleted(object)), _))) => format!("deleted {object:?}"),
            Ok(Some((_, object))) => format!("only {object:?}"),
            Err(trouble) => format!("{trouble} {}", trouble.is(StatusCode::GONE)),
        }
    }

    #[test]
    fn lines_of_a_watch() {
        for (line, expected) in [
            ("\n", "nothing"),
            (
                "{\"type\":\"ADDED\",\"object\":{\"a\":1}}\n",
                "applied b\"{\\\"a\\\":1}\"",
            ),
            (
                "{ \"type\": \"MODIFIED\", \"object\": {\"a\":1} }\r\n",
                "applied b\"{\\\"a\\\":1}\"",
            ),
            ("{\"object\":{},\"type\":\"DELETED\"}", "deleted b\"{}\""),
            ("{\"type\":\"BOOKMARK\",\"object\":{}}", "only b\"{}\""),
            (
                "{\"type\":\"ERROR\",\"object\":{\"code\":410,\"message\":\"too old\"}}",
                "too old; everything is read anew true",
            ),
        ] {
            assert_eq!(told(line), expected, "{line}");
        }
        assert!(told("nonsense").starts_with("what the API server sent is no list or event"));
    }

    #[test]
    fn where_to_go_on() {
        let object = Bytes::from_static(br#"{"metadata":{"resourceVersion":"7"},"spec":{}}"#);
        assert_eq!(Since::Object(object).version().unwrap(), "7");
        Since::Object(Bytes::from_static(b"{"))
            .version()
            .unwrap_err();
    }
}
