//! Watches: what is there, what changes, bookmarks in between, and an orderly end.

use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use http::StatusCode;
use serde_json::{Value, json};
use tokio::time::{Instant, Interval, interval_at};

use super::Call;
use super::options::{integer, invalid_options, revision};
use super::shape::Shaper;
use crate::answer::{self, Answer, Encoding, only_accepted};
use crate::field::{FieldError, Path};
use crate::selector::Selector;
use crate::status::StatusError;
use crate::store::{Change, Event, RevisionError, Stored, Tail};

/// Without a wish of the client, watches end after this and twice this.
const DEFAULT_MINUTES: u64 = 30;
/// However long a client wishes a watch to be.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);
/// In what events can be had, as others know it.
const STREAMS: &str =
    "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch";
/// How often a client that wants them gets bookmarks.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
/// Watches shorter than this get none but the one after what was there.
const NO_BOOKMARK_UNDER: Duration = Duration::from_secs(60);
/// A selector of more bytes takes a while for each object.
const LONG_SELECTOR: usize = 1 << 10;
/// What is gathered into one chunk when much happens at once.
const CHUNK: usize = 16 << 10;

/// What follows a watch from request to end.
struct Follower {
    tail: Tail,
    selector: Selector,
    /// It takes long to look at one object: others get their turn after each.
    looks_long: bool,
    prefix: String,
    shape: EventShape,
    deadline: Instant,
    bookmark: Interval,
    bookmarks: bool,
    /// After what is there comes a bookmark that says so.
    marks_initial_end: bool,
    /// The last bookmark is still to come.
    final_due: bool,
    /// What is there is still to be told first.
    initial: bool,
    /// The head of the answer has gone out.
    has_begun: bool,
    has_ended: bool,
    /// The revision up to which the client knows everything.
    reached: u64,
    shutdown: plimsoll_client::shutdown::Shutdown,
    /// Not before the store has got here.
    wait_for: Option<u64>,
}

/// How events look on the wire.
struct EventShape {
    kind: String,
    api_version: String,
    shaper: Shaper,
}

pub fn watch(call: &Call<'_>) -> Result<Answer, StatusError> {
    if call.format.encoding == Encoding::Yaml {
        return Err(only_accepted(STREAMS));
    }
    let selector = call.selector()?;
    let bookmarks = call.query.flag("allowWatchBookmarks");
    let initial_events = call
        .query
        .get("sendInitialEvents")
        .map(|_| call.query.flag("sendInitialEvents"));
    check_watch_options(call, initial_events)?;
    let from = match call.query.get("resourceVersion") {
        None => None,
        Some(text) => {
            Some(revision(text).map_err(StatusError::server_error)?).filter(|from| *from > 0)
        }
    };
    let timeout = match integer(call.query, "timeoutSeconds")? {
        Some(seconds @ 1..) => Duration::from_secs(seconds.unsigned_abs()).min(LONGEST),
        _ => Duration::from_secs(60 * DEFAULT_MINUTES).mul_f64(1.0 + fastrand::f64()),
    };
    call.check_watched()?;
    let prefix = call.served.prefix(&call.path.namespace);
    let store = call.server.store();
    let current = store.revision();
    let wants_present = initial_events.unwrap_or(from.is_none());
    let start = match from {
        Some(from) if !wants_present => Some(from.min(current)),
        None if !wants_present => Some(current),
        _ => None,
    };
    let subscription = match store.watch(&call.served.shelf, &prefix, start) {
        Ok(subscription) => subscription,
        Err(RevisionError::Expired { oldest }) => {
            return Ok(only_an_error(call, &expired(from.unwrap_or(0), oldest)));
        }
        Err(RevisionError::Future { .. }) => {
            return Err(StatusError::internal("a watch cannot be from the future"));
        }
    };
    let too_new = from.filter(|from| *from > current && initial_events == Some(true));
    if let Some(wanted) = too_new {
        let failure = super::read::too_large(wanted, current);
        let told = async move {
            tokio::time::sleep(Duration::from_secs(3)).await;
            error_line(&failure)
        };
        let body = answer::stream(futures::stream::once(told));
        return Ok(answer::answer(StatusCode::OK, "application/json", body));
    }
    let now = Instant::now();
    let deadline = now + timeout;
    let bookmarks_at_all = bookmarks && timeout >= NO_BOOKMARK_UNDER;
    let selectors = ["labelSelector", "fieldSelector"].map(|name| call.query.get(name));
    let selected: usize = selectors.into_iter().flatten().map(str::len).sum();
    let follower = Follower {
        reached: start.unwrap_or(subscription.revision),
        tail: subscription.follow(),
        selector,
        looks_long: selected > LONG_SELECTOR,
        prefix,
        shape: EventShape {
            kind: call.served.resource.kind.clone(),
            api_version: call.served.resource.api_version(),
            shaper: call.shaper()?,
        },
        deadline,
        bookmark: interval_at(now + BOOKMARK_EVERY, BOOKMARK_EVERY),
        bookmarks: bookmarks_at_all,
        marks_initial_end: bookmarks && wants_present,
        final_due: bookmarks_at_all,
        initial: wants_present,
        has_begun: false,
        has_ended: false,
        shutdown: call.server.shutdown(),
        wait_for: from.filter(|from| *from > current && initial_events != Some(true)),
    };
    // Made as the client takes it: of a client that takes nothing, nothing but what the store has waits.
    let chunks = futures::stream::unfold(follower, |mut follower| async move {
        let chunk = follower.next_chunk().await?;
        Some((chunk, follower))
    });
    let body = answer::stream(chunks);
    Ok(answer::answer(StatusCode::OK, "application/json", body))
}

fn check_watch_options(call: &Call<'_>, initial_events: Option<bool>) -> Result<(), StatusError> {
    let matching = call.query.get("resourceVersionMatch");
    let path = Path::new("resourceVersionMatch");
    let mut errors = Vec::new();
    if initial_events.is_none() && matching.is_some() {
        errors.push(FieldError::forbidden(
            &path,
            "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided",
        ));
    }
    if initial_events.is_some() && matching != Some("NotOlderThan") {
        errors.push(FieldError::forbidden(
            &path,
            "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
        ));
    }
    if let Some(other) = matching.filter(|matching| *matching != "NotOlderThan") {
        errors.push(FieldError::not_supported(&path, other, &["NotOlderThan"]));
    }
    if call.query.get("continue").is_some() {
        errors.push(FieldError::forbidden(
            &path,
            "resourceVersionMatch is forbidden when continue is provided",
        ));
    }
    if errors.is_empty() {
        return Ok(());
    }
    Err(invalid_options("ListOptions", &errors))
}

fn expired(asked: u64, oldest: u64) -> StatusError {
    StatusError::gone(
        "Expired",
        format!("too old resource version: {asked} ({oldest})"),
    )
}

/// A watch that cannot begin says so in an event.
fn only_an_error(_call: &Call<'_>, failure: &StatusError) -> Answer {
    answer::answer(
        StatusCode::OK,
        "application/json",
        answer::full(error_line(failure)),
    )
}

fn error_line(failure: &StatusError) -> Bytes {
    let event = json!({"type": "ERROR", "object": failure.to_value()});
    format!("{event}\n").into()
}

impl Follower {
    /// `None`: the watch is over.
    async fn next_chunk(&mut self) -> Option<Bytes> {
        let mut out = BytesMut::new();
        if self.initial {
            self.put_present(&mut out).await;
            if out.len() > CHUNK {
                return Some(out.freeze());
            }
        }
        self.put_waiting(&mut out).await;
        // The head of the answer goes out at once, even if nothing happens for long.
        if !out.is_empty() || !std::mem::replace(&mut self.has_begun, true) {
            return Some(out.freeze());
        }
        while out.is_empty() && !self.has_ended {
            self.wait(&mut out).await;
        }
        (!out.is_empty()).then(|| out.freeze())
    }

    /// What was there when the watch began, until a chunk is full.
    async fn put_present(&mut self, out: &mut BytesMut) {
        while out.len() <= CHUNK {
            let Some(stored) = self.tail.next_present() else {
                self.initial = false;
                // Whoever was cut off has not got everything.
                if self.marks_initial_end && !self.tail.has_ended() {
                    self.shape.put_bookmark(out, self.reached, true);
                }
                return;
            };
            if stored.is_selected_by(&self.selector) {
                self.shape.put(out, "ADDED", &stored.bytes());
            }
            self.let_others_on().await;
        }
    }

    async fn let_others_on(&self) {
        match self.looks_long {
            true => tokio::task::yield_now().await,
            false => tokio::task::coop::consume_budget().await,
        }
    }

    /// What can be told without waiting, until a chunk is full.
    async fn put_waiting(&mut self, out: &mut BytesMut) {
        while !self.has_ended
            && out.len() < CHUNK
            && let Some(event) = self.tail.try_next()
        {
            self.has_ended = !self.put_event(out, &event);
            self.let_others_on().await;
        }
    }

    async fn wait(&mut self, out: &mut BytesMut) {
        let final_bookmark = self.deadline.checked_sub(Duration::from_secs(2));
        let before_the_end = tokio::time::sleep_until(final_bookmark.unwrap_or(self.deadline));
        tokio::select! {
            biased;
            () = self.shutdown.begins() => self.has_ended = true,
            () = tokio::time::sleep_until(self.deadline) => self.has_ended = true,
            event = self.tail.next() => match event {
                None => self.has_ended = true,
                Some(event) => {
                    self.has_ended = !self.put_event(out, &event);
                    self.put_waiting(out).await;
                }
            },
            _ = self.bookmark.tick(), if self.bookmarks => {
                self.shape.put_bookmark(out, self.reached, false);
            }
            () = before_the_end, if self.final_due => {
                self.final_due = false;
                self.shape.put_bookmark(out, self.reached, false);
            }
        }
    }

    /// False: the watch ends here, because nobody can convert the object. A real server's cache begins anew.
    fn put_event(&mut self, out: &mut BytesMut, event: &Event) -> bool {
        self.reached = event.revision;
        if !self.shape.shaper.can_show(&event.object.bytes()) {
            return false;
        }
        if self.wait_for.is_some_and(|wanted| event.revision <= wanted)
            || !event.object.key.starts_with(&self.prefix)
        {
            return true;
        }
        let matches = |stored: &Arc<Stored>| stored.is_selected_by(&self.selector);
        let is_in = event.change != Change::Deleted && matches(&event.object);
        let was_in = event.before.as_ref().is_some_and(matches);
        match (was_in, is_in) {
            (false, false) => {}
            (false, true) => self.shape.put(out, "ADDED", &event.object.bytes()),
            (true, true) => self.shape.put(out, "MODIFIED", &event.object.bytes()),
            // The client gets the object as it last knew it, with the version at which it left.
            (true, false) if event.change == Change::Deleted => {
                self.shape.put(out, "DELETED", &event.object.bytes());
            }
            (true, false) => {
                if let Some(before) = &event.before {
                    let mut last = before.value();
                    last["metadata"]["resourceVersion"] = event.revision.to_string().into();
                    let bytes = serde_json::to_vec(&last).unwrap_or_default().into();
                    self.shape.put(out, "DELETED", &bytes);
                }
            }
        }
        true
    }
}

impl EventShape {
    fn put(&mut self, out: &mut BytesMut, change: &str, object: &Bytes) {
        out.put_slice(b"{\"type\":\"");
        out.put_slice(change.as_bytes());
        out.put_slice(b"\",\"object\":");
        out.put_slice(&self.shaper.one(object));
        out.put_slice(b"}\n");
        self.shaper.head_was_sent();
    }

    /// A bookmark is an object of which nothing but the version is known. What kind it is of is told as of those that are
    /// stored, which do not say it themselves.
    fn put_bookmark(&mut self, out: &mut BytesMut, revision: u64, initial_end: bool) {
        let mut object = json!({"metadata": {"resourceVersion": revision.to_string()}});
        if initial_end {
            object["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        self.fill(&mut object);
        let object = serde_json::to_vec(&object).unwrap_or_default();
        self.put(out, "BOOKMARK", &object.into());
    }

    /// Go writes the empty struct of a kind with its empty parts.
    fn fill(&self, object: &mut Value) {
        let (group, version) = self
            .api_version
            .split_once('/')
            .unwrap_or(("", &self.api_version));
        let Some(id) = crate::resource::builtin_type(group, version, &self.kind) else {
            return;
        };
        let zero = crate::codec::decode::zero_struct(crate::schema::Types::builtin(), id);
        if let (Some(object), Value::Object(zero)) = (object.as_object_mut(), zero) {
            for (key, value) in zero {
                object.entry(key).or_insert(value);
            }
        }
    }
}
