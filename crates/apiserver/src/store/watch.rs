//! Those who follow a shelf.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::mpsc;

use super::{Event, Shelf, Stored};

/// A follower that lags so many bytes behind is cut off: it will list again, which is cheaper for everybody.
const MAX_LAG: usize = 64 << 20;

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
pub struct Tail {
    events: mpsc::UnboundedReceiver<Arc<Event>>,
    /// What the events that wait weigh.
    waiting: Arc<AtomicUsize>,
}

#[derive(Debug)]
pub(super) struct Watcher {
    events: mpsc::UnboundedSender<Arc<Event>>,
    waiting: Arc<AtomicUsize>,
}

impl Tail {
    /// `None`: the follower was too slow, or the resource is gone.
    pub async fn next(&mut self) -> Option<Arc<Event>> {
        let event = self.events.recv().await?;
        self.waiting.fetch_sub(event.weight(), Ordering::Relaxed);
        Some(event)
    }

    /// What can be had without waiting.
    pub fn try_next(&mut self) -> Option<Arc<Event>> {
        let event = self.events.try_recv().ok()?;
        self.waiting.fetch_sub(event.weight(), Ordering::Relaxed);
        Some(event)
    }
}

impl Shelf {
    pub(super) fn subscribe(&mut self) -> Tail {
        // Where nothing happens, nobody else notices that followers have left.
        self.watchers.retain(|watcher| !watcher.events.is_closed());
        let (sender, events) = mpsc::unbounded_channel();
        let waiting = Arc::new(AtomicUsize::new(0));
        self.watchers.push(Watcher {
            events: sender,
            waiting: waiting.clone(),
        });
        Tail { events, waiting }
    }

    /// Under the store's lock, so that all followers see the same order.
    pub(super) fn tell(&mut self, event: &Arc<Event>) {
        let weight = event.weight();
        self.watchers.retain(|watcher| {
            watcher.waiting.fetch_add(weight, Ordering::Relaxed) < MAX_LAG
                && watcher.events.send(event.clone()).is_ok()
        });
    }
}
