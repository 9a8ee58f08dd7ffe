//! The event store: what happened to containers, kept within limits, and handed to whoever listens.

use std::collections::VecDeque;
use std::fmt;
use std::time::Duration;

use parking_lot::Mutex;
use plimsoll_containers::CgroupPath;
use plimsoll_host::Timestamp;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum EventType {
    Oom,
    OomKill,
    ContainerCreation,
    ContainerDeletion,
}

impl EventType {
    pub const ALL: [Self; 4] = [
        Self::Oom,
        Self::OomKill,
        Self::ContainerCreation,
        Self::ContainerDeletion,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Oom => "oom",
            Self::OomKill => "oomKill",
            Self::ContainerCreation => "containerCreation",
            Self::ContainerDeletion => "containerDeletion",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub container: CgroupPath,
    pub at: Timestamp,
    pub detail: Detail,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Detail {
    /// A process of this container was chosen by the OOM killer.
    Oom,
    /// This cgroup's limit (or the machine's memory) was the reason.
    OomKill {
        pid: i64,
        process_name: String,
        constraint: String,
    },
    ContainerCreation,
    /// −1 where nobody knows the exit code.
    ContainerDeletion {
        exit_code: i32,
    },
}

impl Event {
    /// About what it takes in memory.
    fn bytes(&self) -> usize {
        let words = match &self.detail {
            Detail::OomKill {
                process_name,
                constraint,
                ..
            } => process_name.len() + constraint.len(),
            _ => 0,
        };
        size_of::<Self>() + self.container.len() + words
    }

    pub fn kind(&self) -> EventType {
        match self.detail {
            Detail::Oom => EventType::Oom,
            Detail::OomKill { .. } => EventType::OomKill,
            Detail::ContainerCreation => EventType::ContainerCreation,
            Detail::ContainerDeletion { .. } => EventType::ContainerDeletion,
        }
    }
}

/// Which events a client asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    pub types: Vec<EventType>,
    pub container: String,
    pub subcontainers: bool,
    pub start: Option<Timestamp>,
    pub end: Option<Timestamp>,
    /// The newest so many, of all types together; `None`: all.
    pub most: Option<usize>,
}

impl Query {
    pub fn matches(&self, event: &Event) -> bool {
        self.types.contains(&event.kind())
            && self.covers(&event.container)
            && self.start.is_none_or(|start| event.at >= start)
            && self.end.is_none_or(|end| event.at <= end)
    }

    fn covers(&self, container: &str) -> bool {
        if container == self.container {
            return true;
        }
        let below = container.strip_prefix(self.container.trim_end_matches('/'));
        self.subcontainers && below.is_some_and(|rest| rest.starts_with('/'))
    }
}

/// How long and how many, by type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    pub age: [Duration; EventType::ALL.len()],
    pub count: [usize; EventType::ALL.len()],
    /// Memory that all of them together may take; the original has no such limit.
    pub bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            age: [Duration::from_secs(24 * 3600); 4],
            count: [100_000; 4],
            bytes: 8 << 20,
        }
    }
}

/// Called with each new event that matches; `false` ends the subscription. Must not block.
type Listener = Box<dyn FnMut(&Event) -> bool + Send>;

pub struct EventStore {
    limits: Limits,
    inner: Mutex<Inner>,
}

/// The events of one type, oldest first.
#[derive(Default)]
struct Kept {
    events: VecDeque<Event>,
    bytes: usize,
}

impl Kept {
    fn insert(&mut self, event: Event) {
        self.bytes += event.bytes();
        // Nearly always the newest; a kill replayed from the kernel's log may be older.
        let at = self.events.partition_point(|e| e.at <= event.at);
        self.events.insert(at, event);
    }

    fn forget_oldest(&mut self) {
        if let Some(event) = self.events.pop_front() {
            self.bytes -= event.bytes();
        }
    }
}

#[derive(Default)]
struct Inner {
    by_type: [Kept; EventType::ALL.len()],
    listeners: Vec<(Query, Listener)>,
    added: u64,
}

impl fmt::Debug for EventStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventStore")
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

impl EventStore {
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            inner: Mutex::default(),
        }
    }

    pub fn add(&self, event: Event) {
        let mut inner = self.inner.lock();
        inner.added += 1;
        inner
            .listeners
            .retain_mut(|(query, listener)| !query.matches(&event) || listener(&event));
        let kind = event.kind() as usize;
        let oldest = event.at.minus(self.limits.age[kind]);
        let most = self.limits.count[kind];
        let kept = &mut inner.by_type[kind];
        kept.insert(event);
        while kept.events.len() > most || kept.events.front().is_some_and(|e| e.at < oldest) {
            kept.forget_oldest();
        }
        while inner.by_type.iter().map(|kept| kept.bytes).sum::<usize>() > self.limits.bytes {
            // Of the type that has most: containers that come and go must not crowd out the rare kills.
            let largest = inner.by_type.iter_mut().max_by_key(|kept| kept.bytes);
            largest.into_iter().for_each(Kept::forget_oldest);
        }
    }

    /// The matching events, oldest first. The limit applies after the filter, so a quiet container is not crowded
    /// out by a busy one.
    pub fn query(&self, query: &Query) -> Vec<Event> {
        let inner = self.inner.lock();
        let mut found: Vec<Event> = inner
            .by_type
            .iter()
            .flat_map(|kept| &kept.events)
            .filter(|e| query.matches(e))
            .cloned()
            .collect();
        drop(inner);
        found.sort_by_key(|e| e.at);
        if let Some(most) = query.most {
            found.drain(..found.len().saturating_sub(most));
        }
        found
    }

    /// Hands every matching event from now on to `listener`, on the thread where it happens.
    pub fn subscribe(&self, query: Query, listener: impl FnMut(&Event) -> bool + Send + 'static) {
        self.inner
            .lock()
            .listeners
            .push((query, Box::new(listener)));
    }

    pub fn added(&self) -> u64 {
        self.inner.lock().added
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(container: &str, secs: i64, detail: Detail) -> Event {
        Event {
            container: container.into(),
            at: Timestamp::from_secs(secs),
            detail,
        }
    }

    fn query(container: &str, subcontainers: bool) -> Query {
        Query {
            types: EventType::ALL.to_vec(),
            container: container.into(),
            subcontainers,
            start: None,
            end: None,
            most: Some(2),
        }
    }

    #[test]
    fn a_quiet_container_is_not_crowded_out() {
        let store = EventStore::new(Limits::default());
        store.add(event("/quiet", 1, Detail::ContainerCreation));
        for second in 2..50 {
            store.add(event("/busy", second, Detail::ContainerCreation));
        }
        assert_eq!(store.query(&query("/quiet", false)).len(), 1);
        let newest = store.query(&query("/", true));
        assert_eq!(
            newest.iter().map(|e| e.at.secs()).collect::<Vec<_>>(),
            [48, 49]
        );
        assert_eq!(store.query(&query("/", false)), []);
        assert_eq!(store.query(&query("/qui", true)), []);
    }

    #[test]
    fn limits_by_count_and_age() {
        let mut limits = Limits::default();
        limits.count[EventType::Oom as usize] = 3;
        limits.age[EventType::ContainerCreation as usize] = Duration::from_secs(10);
        let store = EventStore::new(limits);
        for second in 0..20 {
            store.add(event("/a", second, Detail::Oom));
            store.add(event("/a", second, Detail::ContainerCreation));
        }
        let all = Query {
            most: None,
            ..query("/a", false)
        };
        let found = store.query(&all);
        assert_eq!(found.iter().filter(|e| e.detail == Detail::Oom).count(), 3);
        assert_eq!(found.len(), 3 + 11);
    }

    #[test]
    fn memory_is_bounded_and_rare_events_outlive_frequent_ones() {
        let store = EventStore::new(Limits {
            bytes: 100 << 10,
            ..Limits::default()
        });
        store.add(event("/a", 0, Detail::Oom));
        for second in 0..10_000 {
            let container = format!("/kubepods/burstable/{second:064}");
            store.add(event(&container, second, Detail::ContainerCreation));
        }
        let all = store.query(&Query {
            most: None,
            ..query("/", true)
        });
        assert_eq!(all.iter().filter(|e| e.detail == Detail::Oom).count(), 1);
        assert_eq!(all.last().map(|e| e.at.secs()), Some(9_999));
        let bytes: usize = all.iter().map(Event::bytes).sum();
        assert!((90 << 10..=100 << 10).contains(&bytes), "{bytes}");
    }

    #[test]
    fn listeners_hear_what_they_asked_for_until_they_stop() {
        let store = EventStore::new(Limits::default());
        let (send, receive) = std::sync::mpsc::channel();
        store.subscribe(query("/a", true), move |e| send.send(e.clone()).is_ok());
        store.add(event("/b", 1, Detail::Oom));
        store.add(event("/a/x", 2, Detail::Oom));
        assert_eq!(receive.try_recv().unwrap().container.as_ref(), "/a/x");
        drop(receive);
        store.add(event("/a", 3, Detail::Oom));
        assert!(store.inner.lock().listeners.is_empty());
    }
}
