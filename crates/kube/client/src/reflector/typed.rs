//! The task that keeps a typed local copy current.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt};
use kube::api::Api;
use kube::runtime::watcher;
use kube::{Client, Resource};
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::cache_sync::{CacheSync, SyncHandle};
use super::missing_kind::MissingKind;
use super::noted::{Answered, noted};
use super::store::{Change, Key, Reader, Writer, store};
use crate::backoff::Backoff;

use crate::shutdown::Shutdown;

type Handler<K> = Box<dyn FnMut(Change<K>) + Send>;

/// One kind of object to be followed.
pub struct Reflector<K> {
    name: String,
    api: Api<K>,
    config: watcher::Config,
    handler: Option<Handler<K>>,
    absence: Option<MissingKind>,
    answered: Option<Answered>,
}

impl<K> Debug for Reflector<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reflector")
            .field("name", &self.name)
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

impl<K> Reflector<K>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    /// `name` is how the log and the gate call it.
    pub fn new(name: impl Into<String>, api: Api<K>) -> Self {
        Self {
            name: name.into(),
            api,
            config: watcher::Config::default(),
            handler: None,
            absence: None,
            answered: None,
        }
    }

    /// Of all namespaces.
    pub fn all(name: impl Into<String>, client: Client) -> Self
    where
        K: Resource<DynamicType = ()>,
    {
        let (client, answered) = noted(client);
        let mut this = Self::new(name, Api::all(client));
        this.answered = Some(answered);
        this
    }

    /// Only these: selectors, page size and so on.
    pub fn with(mut self, config: watcher::Config) -> Self {
        self.config = config;
        self
    }

    /// The cluster may not define this kind at all: then that is said once, with what else is missing.
    pub fn if_defined(mut self, absence: &MissingKind) -> Self {
        self.absence = Some(absence.clone());
        self
    }

    /// Tells of each change, in order, after readers can see it. Must not take long: the next one waits.
    pub fn on_change(mut self, handler: impl FnMut(Change<K>) + Send + 'static) -> Self {
        self.handler = Some(Box::new(handler));
        self
    }

    /// Starts to follow; the gate waits for the first whole list.
    pub fn spawn(mut self, gate: &CacheSync, shutdown: Shutdown) -> (Reader<K>, ReflectorStatus) {
        let (writer, reader) = store();
        let copy = Copy {
            writer,
            handler: self.handler.take(),
            fresh: BTreeMap::new(),
        };
        (reader, self.feed(copy, gate, shutdown))
    }

    /// Starts to follow into something other than a copy.
    pub fn feed(self, sink: impl Sink<K>, gate: &CacheSync, shutdown: Shutdown) -> ReflectorStatus {
        let events = watcher(self.api, self.config);
        let rounds = ReflectorStatus::default();
        let task = Task {
            name: self.name.clone(),
            sink,
            ticket: gate.register(self.name.clone()),
            rounds: rounds.clone(),
            absence: self.absence,
            answered: self.answered,
        };
        let until = shutdown.clone();
        shutdown.keep(format!("following {}", self.name), async move {
            tokio::select! {
                () = until.begins() => {}
                () = task.run(events) => {}
            }
        });
        rounds
    }
}

/// How the following goes. Clones tell the same.
#[derive(Debug, Clone, Default)]
pub struct ReflectorStatus(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    lists: u64,
    failures: u64,
    failing_since: Option<Instant>,
}

impl ReflectorStatus {
    /// Whole lists fetched; more than one after the API server has forgotten where we were.
    pub fn lists(&self) -> u64 {
        self.0.lock().lists
    }

    pub fn failures(&self) -> u64 {
        self.0.lock().failures
    }

    pub(super) fn listed(&self) {
        self.0.lock().lists += 1;
    }

    pub(super) fn failed(&self) {
        let mut state = self.0.lock();
        state.failures += 1;
        state.failing_since.get_or_insert_with(Instant::now);
    }

    /// Whether there was trouble until now.
    pub(super) fn recovered(&self) -> bool {
        self.0.lock().failing_since.take().is_some()
    }

    /// How old the copy may be; zero while all is well.
    pub fn stale_for(&self) -> Duration {
        let since = self.0.lock().failing_since;
        since.map_or(Duration::ZERO, |since| since.elapsed())
    }
}

/// Takes what is followed, for those who keep so little of each object that even a slim copy would be too large.
pub trait Sink<K>: Send + 'static {
    /// A whole list follows; an attempt that failed is followed by another one, which begins anew.
    fn begin(&mut self);
    fn listed(&mut self, object: K);
    /// What was not listed since it began is gone.
    fn end(&mut self);
    fn apply(&mut self, object: K);
    fn delete(&mut self, object: K);
}

/// Keeps the objects themselves.
pub(super) struct Copy<K> {
    pub writer: Writer<K>,
    pub handler: Option<Handler<K>>,
    /// The list that is being fetched.
    pub fresh: BTreeMap<Key, Arc<K>>,
}

impl<K> Copy<K> {
    fn tell(&mut self, change: Change<K>) {
        if let Some(handler) = &mut self.handler {
            handler(change);
        }
    }
}

impl<K: Resource + Send + Sync + 'static> Sink<K> for Copy<K> {
    fn begin(&mut self) {
        self.fresh.clear();
    }

    fn listed(&mut self, object: K) {
        self.fresh.insert(Key::of(&object), Arc::new(object));
    }

    fn end(&mut self) {
        let fresh = std::mem::take(&mut self.fresh);
        for change in self.writer.replace(fresh) {
            self.tell(change);
        }
    }

    fn apply(&mut self, object: K) {
        let change = self.writer.apply(object);
        self.tell(change);
    }

    fn delete(&mut self, object: K) {
        if let Some(change) = self.writer.delete(&object) {
            self.tell(change);
        }
    }
}

pub(super) struct Task<S> {
    pub name: String,
    pub sink: S,
    pub ticket: SyncHandle,
    pub rounds: ReflectorStatus,
    pub absence: Option<MissingKind>,
    pub answered: Option<Answered>,
}

impl<S> Task<S> {
    pub async fn run<K>(
        mut self,
        events: impl Stream<Item = Result<watcher::Event<K>, watcher::Error>>,
    ) where
        S: Sink<K>,
    {
        let mut events = std::pin::pin!(events);
        // Not kube's own, which begins anew whenever a list is merely attempted.
        let mut backoff = Backoff::default();
        loop {
            let event = tokio::select! {
                event = events.next() => event,
                () = answers(&mut self.answered) => {
                    self.recovered();
                    continue;
                }
            };
            let Some(event) = event else {
                return;
            };
            let error = match event {
                Ok(event) => {
                    self.take(event);
                    continue;
                }
                Err(error) => error,
            };
            // An API server forgets old versions: that is what listing again is for.
            let expired = is_expired(&error);
            let at_once = expired && backoff.is_fresh();
            match expired {
                true => tracing::debug!(name = self.name, "listing again, the version was too old"),
                false => self.failed(&error),
            }
            let wait = backoff.next_wait();
            if !at_once {
                tokio::time::sleep(wait).await;
            }
        }
    }

    fn take<K>(&mut self, event: watcher::Event<K>)
    where
        S: Sink<K>,
    {
        // What is asked for may come from a cache while nothing new does: only objects and whole lists count as news.
        if !matches!(event, watcher::Event::Init) {
            self.recovered();
        }
        match event {
            watcher::Event::Init => self.sink.begin(),
            watcher::Event::InitApply(object) => self.sink.listed(object),
            watcher::Event::InitDone => {
                self.sink.end();
                self.rounds.listed();
                tracing::debug!(name = self.name, "listed");
                self.ticket.ready();
            }
            watcher::Event::Apply(object) => self.sink.apply(object),
            watcher::Event::Delete(object) => self.sink.delete(object),
        }
    }

    fn recovered(&self) {
        if self.rounds.recovered() {
            self.ticket.recovered();
        }
    }

    fn failed(&mut self, error: &watcher::Error) {
        let trouble = explain(error);
        self.rounds.failed();
        if let Some(answered) = &mut self.answered {
            // Only watches that are answered from now on count.
            answered.mark_unchanged();
        }
        match &self.absence {
            Some(absence) if is_undefined(error) => {
                absence.tell(&self.name);
                self.ticket.trouble(trouble);
            }
            _ => self.ticket.failed(trouble),
        }
    }
}

/// Ends when another watch is answered.
async fn answers(answered: &mut Option<Answered>) {
    if let Some(answered) = answered
        && answered.changed().await.is_ok()
    {
        return;
    }
    std::future::pending().await
}

fn is_expired(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::WatchError(status) => status.code == 410,
        watcher::Error::WatchStartFailed(kube::Error::Api(status)) => status.code == 410,
        _ => false,
    }
}

/// A list of a kind that is defined may be empty or forbidden, but is found.
fn is_undefined(error: &watcher::Error) -> bool {
    matches!(error, watcher::Error::InitialListFailed(kube::Error::Api(status)) if status.code == 404)
}

/// An error of kube's own watches as a sentence.
pub fn explain(error: &watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => crate::explain(error),
        watcher::Error::WatchError(status) => crate::explain(&kube::Error::Api(status.clone())),
        other => other.to_string(),
    }
}
