//! Events that pods in flight have missed.

use rustc_hash::FxHashMap;

use crate::framework::events::ClusterEvent;

/// Pods may be in flight for minutes, as those of a gang that wait on Permit. An event's objects are not kept, so the same
/// event is the same however often it happens: what is kept does not grow with the time.
#[derive(Debug, Default)]
pub(super) struct Missed {
    events: FxHashMap<ClusterEvent, Times>,
    /// How many there have been. Never goes back, so that a number that a pod has kept stays right.
    number: u64,
}

#[derive(Debug, Clone, Copy)]
struct Times {
    /// Which number the last one had.
    last: u64,
    count: u64,
}

impl Missed {
    pub fn add(&mut self, event: ClusterEvent) {
        self.number += 1;
        let last = self.number;
        let times = self.events.entry(event).or_insert(Times { last, count: 0 });
        times.last = last;
        times.count += 1;
    }

    /// To be asked for what has happened from now on.
    pub fn now(&self) -> u64 {
        self.number
    }

    /// Each event once, in no particular order.
    pub fn since(&self, then: u64) -> impl Iterator<Item = ClusterEvent> + '_ {
        let events = self.events.iter();
        events
            .filter(move |(_, times)| times.last > then)
            .map(|(event, _)| *event)
    }

    /// How often each has happened since nobody was in flight.
    pub fn counts(&self) -> impl Iterator<Item = (ClusterEvent, u64)> + '_ {
        self.events
            .iter()
            .map(|(event, times)| (*event, times.count))
    }

    pub fn clear(&mut self) {
        self.events.clear();
    }
}
