//! Those who follow a shelf.
//!
//! What waits for them is shared with the log and with each other, so it is not counted for each: who is still to get
//! something older than the last so many bytes of changes is cut off, and all that waited is let go of at once. They
//! will list again, which is cheaper for everybody.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use super::{Event, Shelf, State, Stored};

/// Who lags behind by so many bytes of changes, of all shelves together, is cut off …
const MAX_LAG: usize = 64 << 20;
/// … or by so many events …
const MAX_EVENTS: usize = 16 << 10;
/// … and who has not got what was there at first after so many bytes of changes.
const MAX_FIRST_LAG: usize = 4 * MAX_LAG;
/// It is looked for such when so much has been written since the last time.
const LOOK_EVERY: usize = 1 << 20;
/// Changes are counted in portions of this size.
const PORTION: usize = 64 << 10;

/// What a new follower gets, in this order.
#[derive(Debug)]
pub struct Subscription {
    /// The revision at the moment of subscribing.
    pub revision: u64,
    /// What is there (for followers that start without a revision).
    pub present: Vec<Arc<Stored>>,
    /// What changed between the asked revision and now.
    pub backlog: Vec<Arc<Event>>,
    pub tail: Tail,
}

/// The changes from now on.
#[derive(Debug)]
pub struct Tail(Arc<Queue>);

#[derive(Debug)]
pub(super) struct Watcher(Arc<Queue>);

#[derive(Debug, Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    arrived: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    /// Of what was there at first, as of `since`.
    present: VecDeque<Arc<Stored>>,
    since: u64,
    events: VecDeque<Arc<Event>>,
    /// Nothing more comes.
    has_ended: bool,
    /// Nobody follows any more.
    has_left: bool,
}

impl Waiting {
    fn let_go(&mut self) {
        self.present = VecDeque::new();
        self.events = VecDeque::new();
    }

    fn lags(&self, floors: Floors) -> bool {
        let first = !self.present.is_empty() && self.since < floors.present;
        let events = self.events.front();
        first || events.is_some_and(|event| event.revision < floors.events)
    }
}

impl Subscription {
    /// Leaves it to the store what waits for this follower: it is let go of when the follower is cut off.
    pub fn follow(self) -> Tail {
        let Self {
            revision,
            present,
            backlog,
            tail,
        } = self;
        {
            let mut waiting = tail.0.waiting.lock();
            waiting.since = revision;
            waiting.present = present.into();
            for event in backlog.into_iter().rev() {
                waiting.events.push_front(event);
            }
        }
        tail
    }
}

impl Tail {
    /// Of what was there at first. `None`: that was all, or the follower was too slow.
    pub fn next_present(&mut self) -> Option<Arc<Stored>> {
        self.0.waiting.lock().present.pop_front()
    }

    /// `None`: the follower was too slow, or the resource is gone.
    pub async fn next(&mut self) -> Option<Arc<Event>> {
        loop {
            {
                let mut waiting = self.0.waiting.lock();
                if let Some(event) = waiting.events.pop_front() {
                    return Some(event);
                }
                if waiting.has_ended {
                    return None;
                }
                // What a rush needed is given back.
                waiting.events.shrink_to(PORTION / size_of::<usize>());
            }
            self.0.arrived.notified().await;
        }
    }

    /// What can be had without waiting.
    pub fn try_next(&mut self) -> Option<Arc<Event>> {
        self.0.waiting.lock().events.pop_front()
    }

    /// Whether nothing will come any more after what waits.
    pub fn has_ended(&self) -> bool {
        self.0.waiting.lock().has_ended
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        let mut waiting = self.0.waiting.lock();
        waiting.has_left = true;
        waiting.let_go();
    }
}

impl Watcher {
    /// False: there is nobody, or nobody who keeps up.
    fn tell(&self, event: &Arc<Event>) -> bool {
        let mut waiting = self.0.waiting.lock();
        if waiting.has_left {
            return false;
        }
        if waiting.events.len() >= MAX_EVENTS {
            waiting.let_go();
            return false;
        }
        waiting.events.push_back(event.clone());
        drop(waiting);
        self.0.arrived.notify_one();
        true
    }

    /// False: the follower lags behind, and what waited for it is let go of.
    fn keeps_up(&self, floors: Floors) -> bool {
        let mut waiting = self.0.waiting.lock();
        let lags = waiting.lags(floors);
        if lags {
            waiting.let_go();
        }
        !lags
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.0.waiting.lock().has_ended = true;
        self.0.arrived.notify_one();
    }
}

impl Shelf {
    pub(super) fn subscribe(&mut self) -> Tail {
        // Where nothing happens, nobody else notices that followers have left.
        let has_left = |watcher: &Watcher| watcher.0.waiting.lock().has_left;
        self.watchers.retain(|watcher| !has_left(watcher));
        let queue = Arc::new(Queue::default());
        self.watchers.push(Watcher(queue.clone()));
        Tail(queue)
    }

    /// Under the store's lock, so that all followers see the same order.
    pub(super) fn tell(&mut self, event: &Arc<Event>) {
        self.watchers.retain(|watcher| watcher.tell(event));
    }
}

/// What followers must have got: everything before these revisions.
#[derive(Debug, Clone, Copy)]
struct Floors {
    events: u64,
    present: u64,
}

/// How much was written lately, in portions with the last revision of each.
#[derive(Debug, Default)]
pub(super) struct Lately {
    portions: VecDeque<(u64, usize)>,
    total: usize,
    since_looked: usize,
}

impl Lately {
    /// True: it is time to look for those who lag behind.
    fn note(&mut self, revision: u64, weight: usize) -> bool {
        self.total += weight;
        match self.portions.back_mut() {
            Some((last, bytes)) if *bytes < PORTION => {
                *last = revision;
                *bytes += weight;
            }
            _ => self.portions.push_back((revision, weight)),
        }
        while let Some((_, oldest)) = self.portions.front()
            && self.total - oldest > MAX_FIRST_LAG + PORTION
        {
            self.total -= oldest;
            self.portions.pop_front();
        }
        self.since_looked += weight;
        let is_due = self.since_looked >= LOOK_EVERY;
        if is_due {
            self.since_looked = 0;
        }
        is_due
    }

    fn floors(&self) -> Floors {
        let before = |most: usize| {
            let mut bytes = 0;
            let mut newest_first = self.portions.iter().rev();
            let beyond = newest_first.find(|(_, portion)| {
                bytes += portion;
                bytes > most
            });
            beyond.map_or(0, |(revision, _)| *revision)
        };
        Floors {
            events: before(MAX_LAG),
            present: before(MAX_FIRST_LAG),
        }
    }
}

impl State {
    /// Cuts off those who would keep in memory what everybody else has forgotten.
    pub(super) fn tell_lag(&mut self, revision: u64, weight: usize) {
        if !self.lately.note(revision, weight) {
            return;
        }
        let floors = self.lately.floors();
        for shelf in self.shelves.values_mut() {
            shelf.watchers.retain(|watcher| watcher.keeps_up(floors));
        }
    }
}
