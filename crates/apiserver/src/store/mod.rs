//! The objects: in memory, ordered by key, with one revision counter over everything, as etcd has it, and a bounded
//! log of changes from which watches resume and past states are rebuilt. Objects are kept as the JSON that clients get.

mod persist;
mod watch;

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use serde_json::Value;

use crate::selector::Selector;

pub use persist::PersistError;
use persist::{Durable, Journal};
pub use watch::{Subscription, Tail};

/// An object at one revision.
#[derive(Debug)]
pub struct Stored {
    /// `namespace/name`, or `name` for what has no namespace.
    pub key: Box<str>,
    pub revision: u64,
    pub bytes: Bytes,
    pub attributes: Attributes,
}

impl Stored {
    pub fn value(&self) -> Value {
        serde_json::from_slice(&self.bytes).unwrap_or_default()
    }

    pub fn name(&self) -> &str {
        self.key.rsplit('/').next().unwrap_or_default()
    }

    pub fn namespace(&self) -> &str {
        self.key
            .split_once('/')
            .map_or("", |(namespace, _)| namespace)
    }

    pub fn is_selected_by(&self, selector: &Selector) -> bool {
        let label = |name: &str| value_of(&self.attributes.labels, name);
        selector.matches(label, |field| match field {
            "metadata.name" => self.name(),
            "metadata.namespace" => self.namespace(),
            field => value_of(&self.attributes.fields, field).unwrap_or_default(),
        })
    }
}

fn value_of<'a, K: AsRef<str>, V: AsRef<str>>(pairs: &'a [(K, V)], name: &str) -> Option<&'a str> {
    let (_, value) = pairs.iter().find(|(key, _)| key.as_ref() == name)?;
    Some(value.as_ref())
}

/// What selectors ask about, taken out once so that lists and watches parse nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Attributes {
    pub labels: Vec<(Box<str>, Box<str>)>,
    pub fields: Vec<(Cow<'static, str>, Box<str>)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    Added,
    Modified,
    Deleted,
}

/// One change. `object` of a deletion is the last state, with the deletion's revision.
#[derive(Debug)]
pub struct Event {
    pub change: Change,
    pub revision: u64,
    pub object: Arc<Stored>,
    pub before: Option<Arc<Stored>>,
}

/// What must be true of the key for a write to happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    Absent,
    Revision(u64),
}

/// The key was not as expected; here is how it is.
#[derive(Debug)]
pub struct Mismatch(pub Option<Arc<Stored>>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RevisionError {
    /// The log does not reach back so far.
    Expired { oldest: u64 },
    /// Not there yet.
    Future { current: u64 },
}

/// The log is cut when the objects in it take more than this.
const LOG_BYTES: usize = 24 << 20;
/// … but never shorter than this.
const LOG_EVENTS: usize = 1_000;

#[derive(Debug)]
pub struct Store {
    state: Mutex<State>,
    journal: Option<Journal>,
    /// The revision of the last change that may have left something to clean up.
    disturbed: tokio::sync::watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    revision: u64,
    shelves: FxHashMap<Box<str>, Shelf>,
    /// Shelves in the order of the log's events, to find the oldest.
    order: VecDeque<(Box<str>, usize)>,
    log_bytes: usize,
}

/// All objects of one resource.
#[derive(Debug, Default)]
struct Shelf {
    objects: BTreeMap<Box<str>, Arc<Stored>>,
    log: VecDeque<Arc<Event>>,
    /// Changes up to here are no longer in the log.
    forgotten: u64,
    watchers: Vec<watch::Watcher>,
}

/// A page of a list, and whether more follows.
#[derive(Debug)]
pub struct Page {
    pub revision: u64,
    pub items: Vec<Arc<Stored>>,
    /// How many more there are behind the page, wanted or not.
    pub remaining: usize,
}

impl Page {
    fn of<'a>(
        revision: u64,
        mut found: impl Iterator<Item = &'a Arc<Stored>>,
        limit: usize,
        wanted: impl Fn(&Stored) -> bool,
    ) -> Self {
        let items = found
            .by_ref()
            .filter(|stored| wanted(stored))
            .take(limit)
            .cloned()
            .collect();
        Self {
            revision,
            items,
            remaining: found.count(),
        }
    }
}

impl Store {
    pub fn in_memory() -> Self {
        Self {
            // As in etcd, the first write is revision 2: 0 and 1 mean something else to clients.
            state: Mutex::new(State {
                revision: 1,
                ..State::default()
            }),
            journal: None,
            disturbed: tokio::sync::watch::Sender::new(0),
        }
    }

    /// Opens or creates the file; everything that was ever acknowledged is there again.
    pub fn open(
        file: &Path,
        attributes: impl Fn(&str, &Value) -> Attributes,
    ) -> Result<Self, PersistError> {
        let (journal, contents) = Journal::open(file)?;
        let mut state = State {
            revision: contents.next_revision,
            ..State::default()
        };
        for record in contents.records {
            let value: Value = serde_json::from_slice(&record.bytes)
                .map_err(|error| PersistError::Corrupt(format!("{}: {error}", record.key)))?;
            let stored = Stored {
                attributes: attributes(&record.shelf, &value),
                key: record.key.into(),
                revision: record.revision,
                bytes: record.bytes,
            };
            let shelf = state.shelves.entry(record.shelf.into()).or_default();
            shelf.objects.insert(stored.key.clone(), Arc::new(stored));
        }
        let revision = state.revision;
        for shelf in state.shelves.values_mut() {
            shelf.forgotten = revision;
        }
        Ok(Self {
            state: Mutex::new(state),
            journal: Some(journal),
            disturbed: tokio::sync::watch::Sender::new(0),
        })
    }

    pub fn revision(&self) -> u64 {
        self.state.lock().revision
    }

    pub fn get(&self, shelf: &str, key: &str) -> Option<Arc<Stored>> {
        let state = self.state.lock();
        state.shelves.get(shelf)?.objects.get(key).cloned()
    }

    pub fn count(&self, shelf: &str) -> usize {
        let state = self.state.lock();
        state
            .shelves
            .get(shelf)
            .map_or(0, |shelf| shelf.objects.len())
    }

    /// Writes `object`, whose `metadata.resourceVersion` becomes that of the write, if the key is as expected.
    pub fn put(
        &self,
        shelf: &str,
        key: &str,
        expect: Expect,
        object: &mut Value,
        attributes: Attributes,
    ) -> Result<(Arc<Stored>, Durable), Mismatch> {
        let mut state = self.state.lock();
        let revision = state.revision + 1;
        let current = state.shelf(shelf).check(key, expect)?;
        object["metadata"]["resourceVersion"] = revision.to_string().into();
        let stored = Arc::new(Stored {
            key: key.into(),
            revision,
            bytes: to_bytes(object),
            attributes,
        });
        state
            .shelf(shelf)
            .objects
            .insert(key.into(), stored.clone());
        if unsettles(object, current.as_deref()) {
            self.disturbed.send_replace(revision);
        }
        let event = Event {
            change: if current.is_some() {
                Change::Modified
            } else {
                Change::Added
            },
            revision,
            object: stored.clone(),
            before: current,
        };
        state.publish(shelf, event);
        let durable = self
            .journal
            .as_ref()
            .map_or(Durable::already(), |journal| journal.put(shelf, &stored));
        Ok((stored, durable))
    }

    /// Removes the key. Returns the last state, with the deletion's revision in it.
    pub fn delete(
        &self,
        shelf: &str,
        key: &str,
        expect: Expect,
    ) -> Result<(Arc<Stored>, Durable), Mismatch> {
        let mut state = self.state.lock();
        let revision = state.revision + 1;
        let Some(current) = state.shelf(shelf).check(key, expect)? else {
            return Err(Mismatch(None));
        };
        let mut object = current.value();
        object["metadata"]["resourceVersion"] = revision.to_string().into();
        let last = Arc::new(Stored {
            key: key.into(),
            revision,
            bytes: to_bytes(&object),
            attributes: current.attributes.clone(),
        });
        state.shelf(shelf).objects.remove(key);
        let event = Event {
            change: Change::Deleted,
            revision,
            object: last.clone(),
            before: Some(current),
        };
        state.publish(shelf, event);
        self.disturbed.send_replace(revision);
        let durable = self.journal.as_ref().map_or(Durable::already(), |journal| {
            journal.delete(shelf, key, revision)
        });
        Ok((last, durable))
    }

    /// Up to `limit` objects that `wanted` says yes to, whose keys start with `prefix`, behind the key `after`, as of
    /// revision `at` (`None`: now).
    pub fn list(
        &self,
        shelf: &str,
        prefix: &str,
        after: Option<&str>,
        at: Option<u64>,
        limit: usize,
        wanted: impl Fn(&Stored) -> bool,
    ) -> Result<Page, RevisionError> {
        let mut state = self.state.lock();
        let current = state.revision;
        let at = at.unwrap_or(current);
        if at > current {
            return Err(RevisionError::Future { current });
        }
        let shelf = state.shelf(shelf);
        let start = match after {
            Some(after) => Bound::Excluded(after),
            None => Bound::Included(prefix),
        };
        let now = shelf
            .objects
            .range::<str, _>((start, Bound::Unbounded))
            .map(|(_, stored)| stored)
            .take_while(|stored| stored.key.starts_with(prefix));
        if at < shelf.forgotten {
            return Err(RevisionError::Expired {
                oldest: shelf.forgotten,
            });
        }
        if at == current || shelf.log.back().is_none_or(|last| last.revision <= at) {
            return Ok(Page::of(at, now, limit, wanted));
        }
        let mut past: BTreeMap<&str, &Arc<Stored>> =
            now.map(|stored| (stored.key.as_ref(), stored)).collect();
        for event in shelf.log.iter().rev().take_while(|e| e.revision > at) {
            let key = event.object.key.as_ref();
            if !key.starts_with(prefix) || after.is_some_and(|after| key <= after) {
                continue;
            }
            match &event.before {
                Some(before) => past.insert(key, before),
                None => past.remove(key),
            };
        }
        Ok(Page::of(at, past.into_values(), limit, wanted))
    }

    /// Everything that changes on a shelf after `from`. `None`: from now on, with what is there now.
    pub fn watch(
        &self,
        shelf: &str,
        prefix: &str,
        from: Option<u64>,
    ) -> Result<Subscription, RevisionError> {
        let mut state = self.state.lock();
        let revision = state.revision;
        let shelf = state.shelf(shelf);
        let mut subscription = Subscription {
            revision,
            present: Vec::new(),
            backlog: Vec::new(),
            tail: shelf.subscribe(),
        };
        match from {
            None => {
                subscription.present = shelf
                    .objects
                    .range::<str, _>((Bound::Included(prefix), Bound::Unbounded))
                    .map(|(_, stored)| stored)
                    .take_while(|stored| stored.key.starts_with(prefix))
                    .cloned()
                    .collect();
            }
            Some(from) if from < shelf.forgotten => {
                return Err(RevisionError::Expired {
                    oldest: shelf.forgotten,
                });
            }
            Some(from) => {
                subscription.backlog = shelf
                    .log
                    .iter()
                    .filter(|event| event.revision > from && event.object.key.starts_with(prefix))
                    .cloned()
                    .collect();
            }
        }
        Ok(subscription)
    }

    /// Forgets a shelf whose resource is gone; its watchers are ended.
    pub fn end_watches(&self, shelf: &str) {
        if let Some(shelf) = self.state.lock().shelves.get_mut(shelf) {
            shelf.watchers.clear();
        }
    }

    /// Waits for a change after `seen` that may have left something to clean up: something was deleted or marked for
    /// it, or has owners.
    pub async fn disturbed_since(&self, seen: u64) {
        let mut disturbed = self.disturbed.subscribe();
        // The sender lives as long as the store.
        let _ = disturbed.wait_for(|revision| *revision > seen).await;
    }

    /// Waits until everything written so far is on disk.
    pub async fn flush(&self) {
        if let Some(journal) = &self.journal {
            journal.flush().wait().await;
        }
    }
}

/// Whether somebody has to look after what is written: it is to go, or its owners are new.
fn unsettles(object: &Value, before: Option<&Stored>) -> bool {
    let metadata = &object["metadata"];
    if !metadata["deletionTimestamp"].is_null() {
        return true;
    }
    let owners = &metadata["ownerReferences"];
    if owners.as_array().is_none_or(Vec::is_empty) {
        return false;
    }
    // What is stored is written by the same writer, so the same owners are the same bytes.
    let owners = to_bytes(owners);
    before.is_none_or(|before| memchr::memmem::find(&before.bytes, &owners).is_none())
}

impl State {
    fn shelf(&mut self, name: &str) -> &mut Shelf {
        if !self.shelves.contains_key(name) {
            self.shelves.insert(name.into(), Shelf::default());
        }
        self.shelves.entry(name.into()).or_default()
    }

    fn publish(&mut self, shelf_name: &str, event: Event) {
        self.revision = event.revision;
        let weight = event.object.bytes.len();
        let event = Arc::new(event);
        let shelf = self.shelf(shelf_name);
        shelf.tell(&event);
        shelf.log.push_back(event);
        self.order.push_back((shelf_name.into(), weight));
        self.log_bytes += weight;
        while self.log_bytes > LOG_BYTES && self.order.len() > LOG_EVENTS {
            let Some((name, weight)) = self.order.pop_front() else {
                break;
            };
            self.log_bytes -= weight;
            if let Some(shelf) = self.shelves.get_mut(&name)
                && let Some(dropped) = shelf.log.pop_front()
            {
                shelf.forgotten = dropped.revision;
            }
        }
    }
}

impl Shelf {
    fn check(&self, key: &str, expect: Expect) -> Result<Option<Arc<Stored>>, Mismatch> {
        let current = self.objects.get(key).cloned();
        let fits = match (expect, &current) {
            (Expect::Absent, None) => true,
            (Expect::Revision(revision), Some(stored)) => stored.revision == revision,
            _ => false,
        };
        if fits {
            Ok(current)
        } else {
            Err(Mismatch(current))
        }
    }
}

fn to_bytes(object: &Value) -> Bytes {
    serde_json::to_vec(object).unwrap_or_default().into()
}

#[cfg(test)]
mod tests;
