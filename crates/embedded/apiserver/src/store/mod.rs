//! The objects: in memory, ordered by key, with one revision counter over everything, as etcd has it, and a bounded
//! log of changes from which watches resume and past states are rebuilt. Objects are kept as the JSON that clients get.
//!
//! A write is first only a plan: it has a revision, and other writes are held against it, but nobody reads it. It is
//! published when it is on disk. Readers thus never see what was not kept.

mod follow;
mod moments;
mod overlay;
mod persist;
mod record;
mod rescue;
mod roll;
mod spill;
mod ties;
mod watch;
mod write;

use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use serde_json::Value;

use crate::selector::Selector;

pub use follow::{Follower, Item, News};
use moments::Moments;
pub use persist::PersistError;
use persist::{Contents, Journal};
pub use rescue::{Dropped, Rescue};
use spill::{Slip, Spill};
pub use ties::{Chores, Place};
use ties::{Kinship, Ties};
pub use watch::{Subscription, Tail};
pub use write::{Durable, NewError, Refusal, WriteError};

/// An object at one revision.
#[derive(Debug)]
pub struct Stored {
    /// `namespace/name`, or `name` for what has no namespace.
    pub key: Arc<str>,
    pub revision: u64,
    body: Body,
    /// `None`: it has none, or is not in memory.
    attributes: Option<Box<Attributes>>,
    ties: Option<Box<Ties>>,
}

/// The JSON that clients get.
#[derive(Debug)]
enum Body {
    Here(Bytes),
    Away(Slip),
}

impl Stored {
    fn new(key: Arc<str>, revision: u64, object: &Value, attributes: Attributes) -> Self {
        Self {
            key,
            revision,
            body: Body::Here(to_bytes(object)),
            attributes: (attributes != Attributes::default()).then(|| Box::new(attributes)),
            ties: Ties::of(object),
        }
    }

    /// The JSON that clients get.
    ///
    /// # Panics
    ///
    /// If it is on disk, and did not come back from there: whoever asks for it gets an error, not something else.
    pub fn bytes(&self) -> Cow<'_, Bytes> {
        match self.try_bytes() {
            Ok(bytes) => bytes,
            Err(why) => panic!("{} cannot be read: {why}", self.key),
        }
    }

    fn try_bytes(&self) -> Result<Cow<'_, Bytes>, spill::Lost> {
        match &self.body {
            Body::Here(bytes) => Ok(Cow::Borrowed(bytes)),
            Body::Away(slip) => slip.read().map(Cow::Owned),
        }
    }

    pub fn size(&self) -> usize {
        match &self.body {
            Body::Here(bytes) => bytes.len(),
            Body::Away(slip) => slip.len(),
        }
    }

    pub fn attributes(&self) -> Cow<'_, Attributes> {
        match (&self.attributes, &self.body) {
            (Some(attributes), _) => Cow::Borrowed(attributes),
            (None, Body::Here(_)) => Cow::Owned(Attributes::default()),
            (None, Body::Away(slip)) => Cow::Owned(slip.attributes(&self.remains())),
        }
    }

    /// # Panics
    ///
    /// If it cannot be read, as [`Self::bytes`].
    pub fn value(&self) -> Value {
        match serde_json::from_slice(&self.bytes()) {
            Ok(value) => value,
            Err(error) => panic!("{} cannot be read: {error}", self.key),
        }
    }

    /// The object, or what is known of one that cannot be read: enough to be rid of it.
    pub fn remains(&self) -> Value {
        let read = self.try_bytes().map_err(|error| error.to_string());
        let read = read
            .and_then(|bytes| serde_json::from_slice(&bytes).map_err(|error| error.to_string()));
        read.unwrap_or_else(|error| {
            tracing::error!(object = %self.key, error, "an object cannot be read");
            let mut metadata = serde_json::Map::new();
            metadata.insert("name".into(), self.name().into());
            if !self.namespace().is_empty() {
                metadata.insert("namespace".into(), self.namespace().into());
            }
            serde_json::json!({"metadata": metadata})
        })
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
        if selector.is_empty() {
            return true;
        }
        let attributes = self.attributes();
        let label = |name: &str| value_of(&attributes.labels, name);
        selector.matches(label, |field| match field {
            "metadata.name" => self.name(),
            "metadata.namespace" => self.namespace(),
            field => value_of(&attributes.fields, field).unwrap_or_default(),
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

/// The log is cut when what is in it takes more than this.
const LOG_BYTES: usize = 24 << 20;
/// So many objects leave memory together.
const COOLED: usize = 256;
/// What an event takes beside the bytes of its object.
const EVENT_BYTES: usize = 512;

#[derive(Debug, Clone)]
pub struct Options {
    pub clock: fn() -> Timestamp,
    pub expiry: Option<Expiry>,
    /// Whether a damaged store may be opened without what nobody can vouch for.
    pub restore: bool,
}

/// Objects of this shelf are forgotten when nobody has written them for this long.
#[derive(Debug, Clone, Copy)]
pub struct Expiry {
    pub shelf: &'static str,
    pub after: SignedDuration,
    /// What selectors ask about, for objects that have left memory.
    pub attributes: fn(&str, &Value) -> Attributes,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            clock: Timestamp::now,
            expiry: None,
            restore: false,
        }
    }
}

impl Options {
    /// How exactly ages are known. A real server's leases are shared for up to a minute, too.
    fn step(&self) -> SignedDuration {
        let minute = SignedDuration::from_mins(1);
        let after = self
            .expiry
            .map_or(SignedDuration::MAX, |expiry| expiry.after);
        (after / 60).min(minute)
    }
}

#[derive(Debug)]
pub struct Store {
    shared: Arc<Shared>,
    journal: Option<Journal>,
    rescue: Option<Rescue>,
    /// Objects of the file that are none, and why.
    unreadable: Vec<String>,
}

/// What the journal's thread has to do with as well.
#[derive(Debug)]
struct Shared {
    options: Options,
    state: Mutex<State>,
    /// The revision of the last change that may have left something to clean up.
    disturbed: tokio::sync::watch::Sender<u64>,
    /// Raised when writes were published or given up.
    settled: tokio::sync::watch::Sender<u64>,
    /// Why nothing can be written at the moment.
    trouble: Mutex<Option<String>>,
}

#[derive(Debug)]
struct State {
    /// Of the last change that readers see.
    revision: u64,
    shelves: FxHashMap<Arc<str>, Shelf>,
    /// Shelves and weights of the log's events, to find the oldest.
    order: VecDeque<(Arc<str>, usize)>,
    log_bytes: usize,
    lately: watch::Lately,
    /// The revision at which a shelf was last thrown away.
    removed: u64,
    plans: write::Plans,
    kinship: Kinship,
    moments: Moments,
    spill: Option<Spill>,
    /// Objects that can leave memory, until they are enough to do it for all of them.
    cooling: Vec<Arc<Stored>>,
}

/// All objects of one resource.
#[derive(Debug, Default)]
struct Shelf {
    objects: BTreeMap<Arc<str>, Arc<Stored>>,
    log: VecDeque<Arc<Event>>,
    /// Changes up to here are no longer in the log.
    forgotten: u64,
    watchers: Vec<watch::Watcher>,
    /// The revision of the last change, for those who follow it.
    changed: Arc<AtomicU64>,
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
    pub fn in_memory(options: Options) -> Self {
        // As in etcd, the first write is revision 2: 0 and 1 mean something else to clients.
        Self {
            shared: Arc::new(Shared::new(options, 1)),
            journal: None,
            rescue: None,
            unreadable: Vec::new(),
        }
    }

    /// Opens or creates the file; everything that was ever acknowledged is there again.
    pub fn open(
        file: &Path,
        options: Options,
        attributes: impl Fn(&str, &Value) -> Attributes,
    ) -> Result<Self, PersistError> {
        let dir = file.parent().unwrap_or(Path::new("."));
        Self::open_with(persist::file(file), dir, options, attributes)
    }

    fn open_with(
        mut open: persist::Opener,
        dir: &Path,
        options: Options,
        attributes: impl Fn(&str, &Value) -> Attributes,
    ) -> Result<Self, PersistError> {
        let (database, contents, rescue) = persist::open(&mut open, options.restore)?;
        let shared = Arc::new(Shared::new(options, contents.revision));
        let spill = |expiry| Spill::new(dir.to_owned(), expiry);
        shared.state.lock().spill = shared.options.expiry.map(spill);
        let unreadable = shared.state.lock().fill(contents, attributes);
        let journal = Journal::spawn(open, database, shared.clone())?;
        Ok(Self {
            shared,
            journal: Some(journal),
            rescue,
            unreadable,
        })
    }

    /// What was found damaged when the store was opened, and what was done about it.
    pub fn rescue(&self) -> Option<&Rescue> {
        self.rescue.as_ref()
    }

    /// Objects that are in the file as they were written and cannot be read. They are not shown, and stay there until
    /// others of their names are written.
    pub fn unreadable(&self) -> &[String] {
        &self.unreadable
    }

    pub fn revision(&self) -> u64 {
        self.shared.state.lock().revision
    }

    pub fn get(&self, shelf: &str, key: &str) -> Option<Arc<Stored>> {
        let state = self.shared.state.lock();
        state.shelves.get(shelf)?.objects.get(key).cloned()
    }

    pub fn count(&self, shelf: &str) -> usize {
        let state = self.shared.state.lock();
        state
            .shelves
            .get(shelf)
            .map_or(0, |shelf| shelf.objects.len())
    }

    /// Why nothing can be written at the moment; `None`: all is well.
    pub fn trouble(&self) -> Option<String> {
        self.shared.trouble.lock().clone()
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
        let mut state = self.shared.state.lock();
        let current = state.revision;
        let at = at.unwrap_or(current);
        if at > current {
            return Err(RevisionError::Future { current });
        }
        let shelf = state.shelf(shelf);
        if at < shelf.forgotten {
            return Err(RevisionError::Expired {
                oldest: shelf.forgotten,
            });
        }
        let is_now = at == current || shelf.log.back().is_none_or(|last| last.revision <= at);
        let found: Vec<Arc<Stored>> = if is_now {
            shelf.now(prefix, after).cloned().collect()
        } else {
            shelf
                .past(prefix, after, at)
                .into_values()
                .cloned()
                .collect()
        };
        // Looking at what is not in memory takes long, and so does a selector of a thousand requirements.
        drop(state);
        Ok(Page::of(at, found.iter(), limit, wanted))
    }

    /// Everything that changes on a shelf after `from`. `None`: from now on, with what is there now.
    pub fn watch(
        &self,
        shelf: &str,
        prefix: &str,
        from: Option<u64>,
    ) -> Result<Subscription, RevisionError> {
        let mut state = self.shared.state.lock();
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

    /// Ends the watches of a shelf whose resource is gone, and forgets it when it is empty.
    pub fn end_watches(&self, name: &str) {
        let mut state = self.shared.state.lock();
        let Some(shelf) = state.shelves.get_mut(name) else {
            return;
        };
        shelf.watchers.clear();
        let is_followed = Arc::strong_count(&shelf.changed) > 1;
        if shelf.objects.is_empty() && !is_followed && !state.plans.concern(name) {
            state.throw_away(name);
        }
    }

    #[cfg(test)]
    pub(crate) fn knows(&self, shelf: &str) -> bool {
        self.shared.state.lock().shelves.contains_key(shelf)
    }

    /// What the garbage collector has to look at since it was asked the last time.
    pub fn take_chores(&self) -> Chores {
        self.shared.state.lock().kinship.take_chores()
    }

    /// What could not be done is to be looked at again.
    pub fn give_back(&self, chores: Chores) {
        self.shared.state.lock().kinship.give_back(chores);
    }

    /// Where the objects are that name this uid among their owners.
    pub fn dependents(&self, uid: &str) -> Vec<Place> {
        self.shared.state.lock().kinship.dependents(uid)
    }

    /// Waits for a change after `seen` that may have left something to clean up: something was deleted or marked for
    /// it, or has owners.
    pub async fn disturbed_since(&self, seen: u64) {
        let mut disturbed = self.shared.disturbed.subscribe();
        // The sender lives as long as the store.
        let _ = disturbed.wait_for(|revision| *revision > seen).await;
    }

    /// Waits until everything written so far is on disk. False: it is not.
    pub async fn flush(&self) -> bool {
        match &self.journal {
            Some(journal) => match journal.flush() {
                Some(durable) => durable.wait().await,
                None => false,
            },
            None => true,
        }
    }
}

impl Shared {
    fn new(options: Options, revision: u64) -> Self {
        let state = State {
            revision,
            shelves: FxHashMap::default(),
            order: VecDeque::new(),
            log_bytes: 0,
            lately: watch::Lately::default(),
            removed: 0,
            plans: write::Plans::after(revision),
            kinship: Kinship::default(),
            moments: Moments::new(options.step()),
            spill: None,
            cooling: Vec::new(),
        };
        Self {
            options,
            state: Mutex::new(state),
            disturbed: tokio::sync::watch::Sender::new(0),
            settled: tokio::sync::watch::Sender::new(0),
            trouble: Mutex::new(None),
        }
    }

    fn now(&self) -> Timestamp {
        (self.options.clock)()
    }
}

impl State {
    /// What the file holds. Says what of it is no object.
    fn fill(
        &mut self,
        contents: Contents,
        attributes: impl Fn(&str, &Value) -> Attributes,
    ) -> Vec<String> {
        let mut unreadable = Vec::new();
        for record in contents.records {
            let value: Value = match serde_json::from_slice(&record.body) {
                Ok(value) => value,
                Err(error) => {
                    let name = record::spoken(&record.row);
                    tracing::error!(object = name, %error, "a stored object cannot be read and is left out");
                    unreadable.push(format!("{name}: {error}"));
                    continue;
                }
            };
            let (shelf, key) = record.row.split_once('\0').unwrap_or_default();
            let attributes = attributes(shelf, &value);
            let mut stored = Stored {
                key: key.into(),
                revision: record.seal.revision,
                body: Body::Here(record.body),
                attributes: (attributes != Attributes::default()).then(|| Box::new(attributes)),
                ties: Ties::of(&value),
            };
            if let Some(away) = self.put_away(shelf, &stored) {
                stored = away;
            }
            let stored = Arc::new(stored);
            let place = (self.shelf_name(shelf), stored.key.clone());
            self.kinship.written(&place, None, stored.ties.as_deref());
            let shelf = self.shelf(shelf);
            shelf.objects.insert(stored.key.clone(), stored);
        }
        let revision = self.revision;
        for shelf in self.shelves.values_mut() {
            shelf.forgotten = revision;
        }
        self.removed = revision;
        self.moments.restore(contents.moments, contents.last);
        unreadable
    }

    /// How many objects there are.
    fn objects(&self) -> usize {
        self.shelves.values().map(|shelf| shelf.objects.len()).sum()
    }

    fn shelf(&mut self, name: &str) -> &mut Shelf {
        if !self.shelves.contains_key(name) {
            let shelf = Shelf {
                forgotten: self.removed,
                ..Shelf::default()
            };
            self.shelves.insert(name.into(), shelf);
        }
        match self.shelves.get_mut(name) {
            Some(shelf) => shelf,
            None => unreachable!("it was just put there"),
        }
    }

    /// What all objects take.
    fn live_bytes(&self) -> u64 {
        let objects = self
            .shelves
            .values()
            .flat_map(|shelf| shelf.objects.values());
        objects.map(|stored| stored.size() as u64).sum()
    }

    /// The one copy of a shelf's name.
    fn shelf_name(&mut self, name: &str) -> Arc<str> {
        self.shelf(name);
        let found = self.shelves.get_key_value(name);
        found.map_or_else(|| name.into(), |(name, _)| name.clone())
    }

    /// Who asks later for what has been on it is told that this is too old.
    fn throw_away(&mut self, name: &str) {
        self.shelves.remove(name);
        self.removed = self.revision;
        let log_bytes = &mut self.log_bytes;
        self.order.retain(|(shelf, weight)| {
            let stays = shelf.as_ref() != name;
            if !stays {
                *log_bytes -= weight;
            }
            stays
        });
    }

    fn publish(&mut self, shelf_name: &Arc<str>, event: Event) {
        self.revision = event.revision;
        let (revision, weight) = (event.revision, event.weight());
        let event = Arc::new(event);
        let shelf = self.shelf(shelf_name);
        shelf.changed.store(event.revision, Ordering::Release);
        shelf.tell(&event);
        shelf.log.push_back(event);
        self.order.push_back((shelf_name.clone(), weight));
        self.log_bytes += weight;
        self.tell_lag(revision, weight);
        while self.log_bytes > LOG_BYTES {
            let Some((name, weight)) = self.order.pop_front() else {
                break;
            };
            self.log_bytes -= weight;
            if let Some(shelf) = self.shelves.get_mut(&name)
                && let Some(dropped) = shelf.log.pop_front()
            {
                shelf.forgotten = dropped.revision;
                if self.spill.as_ref().is_some_and(|spill| spill.is_for(&name)) {
                    self.cooling.push(dropped.object.clone());
                }
            }
        }
        if self.cooling.len() >= COOLED {
            self.cool();
        }
    }

    /// What the log no longer holds need not be in memory, if it is of those that are many. What stays of them is made
    /// in one go: small things that live long must not lie between large ones that do not, or memory frays.
    fn cool(&mut self) {
        let Some(shelf) = self.spill.as_ref().map(Spill::shelf) else {
            return;
        };
        for object in std::mem::take(&mut self.cooling) {
            let objects = &self.shelf(shelf).objects;
            let current = objects.get(&object.key);
            if current.is_none_or(|current| !Arc::ptr_eq(current, &object)) {
                continue;
            }
            if let Some(away) = self.put_away(shelf, &object) {
                let objects = &mut self.shelf(shelf).objects;
                objects.remove(&object.key);
                objects.insert(away.key.clone(), Arc::new(away));
            }
        }
    }

    /// The same object, out of memory.
    fn put_away(&mut self, shelf: &str, object: &Stored) -> Option<Stored> {
        let spill = self.spill.as_mut().filter(|spill| spill.is_for(shelf))?;
        let Body::Here(bytes) = &object.body else {
            return None;
        };
        Some(Stored {
            key: object.key.as_ref().into(),
            revision: object.revision,
            body: Body::Away(spill.take(bytes)?),
            attributes: None,
            ties: object.ties.clone(),
        })
    }
}

impl Shelf {
    fn now(&self, prefix: &str, after: Option<&str>) -> impl Iterator<Item = &Arc<Stored>> {
        let start = match after {
            Some(after) => Bound::Excluded(after),
            None => Bound::Included(prefix),
        };
        self.objects
            .range::<str, _>((start, Bound::Unbounded))
            .map(|(_, stored)| stored)
            .take_while(move |stored| stored.key.starts_with(prefix))
    }

    /// As it was at a revision that the log reaches.
    fn past(&self, prefix: &str, after: Option<&str>, at: u64) -> BTreeMap<&str, &Arc<Stored>> {
        let now = self.now(prefix, after);
        let mut past: BTreeMap<&str, &Arc<Stored>> =
            now.map(|stored| (stored.key.as_ref(), stored)).collect();
        for event in self.log.iter().rev().take_while(|e| e.revision > at) {
            let key = event.object.key.as_ref();
            if !key.starts_with(prefix) || after.is_some_and(|after| key <= after) {
                continue;
            }
            match &event.before {
                Some(before) => past.insert(key, before),
                None => past.remove(key),
            };
        }
        past
    }
}

impl Event {
    /// What it takes in memory, about. What was there before is mostly an event's of its own; the last state of what
    /// was deleted is there twice, with two revisions.
    fn weight(&self) -> usize {
        let last = self
            .before
            .as_ref()
            .filter(|_| self.change == Change::Deleted);
        self.object.size() + last.map_or(0, |last| last.size()) + EVENT_BYTES
    }
}

/// As it is kept: without the room that writing it needed.
fn to_bytes(object: &Value) -> Bytes {
    let written = serde_json::to_vec(object).unwrap_or_default();
    written.into_boxed_slice().into()
}

#[cfg(test)]
mod tests;
