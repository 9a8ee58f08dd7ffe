//! The scheduling queue: who is next, who waits for a while, who waits for something to happen.

mod counters;
mod entry;
mod missed;
pub mod nominations;
mod rooms;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

pub use counters::Counters;
pub use entry::{Entry, Room};

use self::missed::Missed;
use crate::cluster::PodId;
use crate::framework::events::ClusterEvent;
use crate::framework::plugin::{Plugin, PluginSet};
use crate::plugins::priority_sort::Rank;
use crate::time::Time;

#[derive(Debug, Clone)]
pub struct QueueConfig {
    pub initial_backoff: Duration,
    pub max_backoff: Duration,
    /// Nobody waits longer than that for something to happen.
    pub max_unschedulable: Duration,
}

impl Default for QueueConfig {
    fn default() -> Self {
        Self {
            initial_backoff: Duration::from_secs(1),
            max_backoff: Duration::from_secs(10),
            max_unschedulable: Duration::from_secs(300),
        }
    }
}

/// What an event means for a pod that waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Strategy {
    Stay,
    AfterBackoff,
    Immediately,
}

/// How often those that have waited too long are looked for.
const LEFTOVER_PERIOD: Duration = Duration::from_secs(30);

#[derive(Debug, Default)]
pub struct Queue {
    config: QueueConfig,
    entries: Vec<Option<Entry>>,
    active: BTreeSet<(Rank, u64, PodId)>,
    backoff: BTreeSet<(Time, Rank, u64, PodId)>,
    error_backoff: BTreeSet<(Time, Rank, u64, PodId)>,
    /// By the plugins that refused: an event is of interest to few of them.
    unschedulable: BTreeMap<u64, (PluginSet, BTreeSet<PodId>)>,
    next_sequence: u64,
    last_leftover_flush: Option<Time>,
    /// What has happened while some pod was being scheduled, for it to catch up with.
    missed: Missed,
    in_flight: usize,
    /// Those that back off are not tried early, even if there is nobody else.
    pub waits_out_backoff: bool,
    pub counters: Counters,
}

/// How many pods are in each room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lengths {
    pub active: usize,
    pub backoff: usize,
    pub unschedulable: usize,
    pub gated: usize,
}

/// Says which plugin holds a pod back before it is queued.
pub type Gate<'a> = &'a dyn Fn(PodId) -> Option<Plugin>;

impl Queue {
    pub fn new(config: QueueConfig) -> Self {
        Self {
            config,
            ..Self::default()
        }
    }

    pub fn get(&self, id: PodId) -> Option<&Entry> {
        self.entries.get(id.index())?.as_ref()
    }

    pub fn contains(&self, id: PodId) -> bool {
        self.get(id).is_some()
    }

    /// Is being scheduled.
    pub fn is_in_flight(&self, id: PodId) -> bool {
        self.get(id)
            .is_some_and(|entry| entry.room == Room::InFlight)
    }

    pub fn lengths(&self) -> Lengths {
        let waiting = self
            .entries
            .iter()
            .flatten()
            .filter(|entry| entry.room == Room::Unschedulable);
        let gated = waiting.filter(|entry| entry.gated_by.is_some()).count();
        let all: usize = self
            .unschedulable
            .values()
            .map(|(_, pods)| pods.len())
            .sum();
        Lengths {
            active: self.active.len(),
            backoff: self.backoff.len() + self.error_backoff.len(),
            unschedulable: all - gated,
            gated,
        }
    }

    /// A pod to be scheduled that was not known before.
    pub fn add(&mut self, id: PodId, priority: i32, now: Time, gate: Gate<'_>) {
        self.next_sequence += 1;
        if id.index() >= self.entries.len() {
            self.entries.resize_with(id.index() + 1, || None);
        }
        self.entries[id.index()] = Some(Entry::new(priority, now, self.next_sequence));
        self.enter(id, Room::Active, "UnschedulablePodAdd", now, gate);
    }

    pub fn remove(&mut self, id: PodId) {
        self.leave_room(id);
        let Some(entry) = self.entries.get_mut(id.index()).and_then(Option::take) else {
            return;
        };
        if entry.room == Room::InFlight {
            self.landed();
        }
    }

    /// The pod's priority may have changed.
    pub fn set_priority(&mut self, id: PodId, priority: i32) {
        let Some(entry) = self.get(id).filter(|entry| entry.priority != priority) else {
            return;
        };
        let room = entry.room;
        if matches!(room, Room::Unschedulable | Room::InFlight | Room::Settled) {
            self.change(id, |entry| entry.priority = priority);
            return;
        }
        self.leave_room(id);
        self.change(id, |entry| entry.priority = priority);
        self.insert(id, room);
    }

    /// Who is next. Those that back off come when there is nobody else.
    pub fn pop(&mut self) -> Option<PodId> {
        let id = match self.active.pop_first() {
            Some((_, _, id)) => id,
            None if self.waits_out_backoff => return None,
            None => {
                let (_, _, _, id) = self.backoff.pop_first()?;
                self.counters.count(Room::Active, "PopFromBackoffQ");
                id
            }
        };
        self.in_flight += 1;
        self.attempted(id);
        Some(id)
    }

    fn attempted(&mut self, id: PodId) {
        let since = self.missed.now();
        self.change(id, |entry| {
            entry.room = Room::InFlight;
            entry.attempts += 1;
            entry.rejectors = PluginSet::EMPTY;
            entry.pending = PluginSet::EMPTY;
            entry.gated_by = None;
            entry.in_flight_since = since;
        });
    }

    /// A pod that waits, wherever it does, is tried now.
    pub fn take(&mut self, id: PodId) {
        self.leave_room(id);
        self.in_flight += 1;
        self.attempted(id);
    }

    /// A node has been chosen: what happens from now on cannot make the pod's attempt look different. Should binding
    /// fail, it comes back with the count of its attempts.
    pub fn settle(&mut self, id: PodId) {
        if self
            .get(id)
            .is_some_and(|entry| entry.room == Room::InFlight)
        {
            self.landed();
            self.change(id, |entry| entry.room = Room::Settled);
        }
    }

    /// The attempt is over, the pod is placed or gone.
    pub fn done(&mut self, id: PodId) {
        self.remove(id);
    }

    /// The pod has been refused, or something went wrong (no rejectors). What has happened since it was popped counts.
    pub fn put_back(
        &mut self,
        id: PodId,
        rejectors: PluginSet,
        pending: PluginSet,
        now: Time,
        gate: Gate<'_>,
    ) {
        let Some(entry) = self.get(id) else {
            return;
        };
        let missed: Vec<ClusterEvent> = match entry.room {
            Room::InFlight => self.missed.since(entry.in_flight_since).collect(),
            _ => Vec::new(),
        };
        if entry.room == Room::InFlight {
            self.landed();
        } else {
            self.leave_room(id);
        }
        let failed = rejectors.union(pending).is_empty();
        self.change(id, |entry| {
            entry.room = Room::Unschedulable;
            entry.rejectors = rejectors;
            entry.pending = pending;
            entry.timestamp = now;
            if failed {
                entry.consecutive_errors += 1;
            } else {
                entry.unschedulable_count += 1;
                entry.consecutive_errors = 0;
            }
        });
        if failed {
            self.enter(id, Room::ErrorBackoff, "ScheduleAttemptFailure", now, gate);
            return;
        }
        // The objects are gone by now, so plugins cannot be asked; whoever waits for such an event is woken.
        let strategy = missed.iter().fold(Strategy::Stay, |strategy, event| {
            let woken = |set: PluginSet| set.iter().any(|plugin| waits_for(plugin, *event));
            match strategy {
                _ if woken(pending) => Strategy::Immediately,
                Strategy::Stay if woken(rejectors) => Strategy::AfterBackoff,
                other => other,
            }
        });
        self.apply(id, strategy, "ScheduleAttemptFailure", now, gate);
    }

    /// Something happened: says of each pod that waits for such a thing what that means, and moves those it helps.
    pub fn move_all(
        &mut self,
        event: ClusterEvent,
        now: Time,
        gate: Gate<'_>,
        judge: &mut dyn FnMut(PodId, &Entry) -> Strategy,
    ) -> usize {
        if self.in_flight > 0 {
            self.missed.add(event);
        }
        let interested: PluginSet = Plugin::ALL
            .iter()
            .copied()
            .filter(|plugin| waits_for(*plugin, event))
            .collect();
        let mut moves = Vec::new();
        for (set, pods) in self.unschedulable.values() {
            if !set.intersects(interested) {
                continue;
            }
            for id in pods {
                let Some(entry) = self.entries[id.index()].as_ref() else {
                    continue;
                };
                let listens = entry.gated_by.is_none_or(|plugin| waits_for(plugin, event));
                if !listens {
                    continue;
                }
                match judge(*id, entry) {
                    Strategy::Stay => {}
                    strategy => moves.push((*id, strategy)),
                }
            }
        }
        let moved = moves.len();
        if moved > 0 {
            let label = event.label();
            for (id, strategy) in moves {
                self.apply(id, strategy, &label, now, gate);
            }
        }
        moved
    }

    /// The pod itself has changed in a way that its rejectors judge so.
    pub fn apply(&mut self, id: PodId, strategy: Strategy, event: &str, now: Time, gate: Gate<'_>) {
        let Some(entry) = self.get(id) else {
            return;
        };
        let room = match strategy {
            Strategy::Stay => Room::Unschedulable,
            Strategy::Immediately => Room::Active,
            Strategy::AfterBackoff if entry.is_backing_off(&self.config, now) => Room::Backoff,
            Strategy::AfterBackoff => Room::Active,
        };
        self.enter(id, room, event, now, gate);
    }

    /// Somebody wants the pod to be tried now.
    pub fn activate(&mut self, id: PodId, now: Time, gate: Gate<'_>) {
        match self.get(id).map(|entry| entry.room) {
            Some(Room::Unschedulable | Room::Backoff | Room::ErrorBackoff) => {
                self.enter(id, Room::Active, "ForceActivate", now, gate);
            }
            Some(Room::InFlight) => self.missed.add(ClusterEvent::ANYTHING),
            Some(Room::Active | Room::Settled) | None => {}
        }
    }

    /// Moves what time alone moves.
    pub fn flush(&mut self, now: Time, gate: Gate<'_>) {
        for error in [false, true] {
            loop {
                let heap = if error {
                    &mut self.error_backoff
                } else {
                    &mut self.backoff
                };
                let Some((expiry, _, _, id)) = heap.first().copied() else {
                    break;
                };
                if expiry >= now.truncate_to_second() {
                    break;
                }
                self.leave_room(id);
                self.insert(id, Room::Active);
                self.counters.count(Room::Active, "BackoffComplete");
            }
        }
        let due = self
            .last_leftover_flush
            .is_none_or(|last| now >= last.after(LEFTOVER_PERIOD));
        if !due {
            return;
        }
        self.last_leftover_flush = Some(now);
        let limit = self.config.max_unschedulable;
        let mut waited_too_long = Vec::new();
        for (_, pods) in self.unschedulable.values() {
            for id in pods {
                let entry = self.entries[id.index()].as_ref();
                if entry.is_some_and(|entry| now.since(entry.waiting_since()) > limit) {
                    waited_too_long.push(*id);
                }
            }
        }
        for id in waited_too_long {
            self.change(id, |entry| entry.flushed = Some(now));
            self.apply(
                id,
                Strategy::AfterBackoff,
                "UnschedulableTimeout",
                now,
                gate,
            );
        }
    }

    /// When [`Queue::flush`] would do something; `None`: never, as things are.
    pub fn next_wakeup(&self) -> Option<Time> {
        let second = Duration::from_secs(1);
        let heads = [self.backoff.first(), self.error_backoff.first()];
        let backoff = heads
            .into_iter()
            .flatten()
            .map(|(expiry, ..)| expiry.after(second))
            .min();
        let waiting = !self.unschedulable.is_empty();
        let leftovers = self
            .last_leftover_flush
            .filter(|_| waiting)
            .map(|last| last.after(LEFTOVER_PERIOD));
        backoff.into_iter().chain(leftovers).min()
    }

    /// What is kept for pods that are being scheduled: how many of those there are, and what has happened since.
    pub fn in_flight(&self) -> (usize, impl Iterator<Item = (ClusterEvent, u64)> + '_) {
        (self.in_flight, self.missed.counts())
    }

    /// Whether there is anybody whom an event could concern.
    pub fn listens(&self) -> bool {
        self.in_flight > 0 || !self.unschedulable.is_empty()
    }

    /// Nobody is ready, not even among those that back off.
    pub fn is_idle(&self) -> bool {
        self.active.is_empty() && self.backoff.is_empty()
    }

    fn change(&mut self, id: PodId, change: impl FnOnce(&mut Entry)) {
        if let Some(Some(entry)) = self.entries.get_mut(id.index()) {
            change(entry);
        }
    }

    fn landed(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
        if self.in_flight == 0 {
            self.missed.clear();
        }
    }
}

fn waits_for(plugin: Plugin, event: ClusterEvent) -> bool {
    event.is_anything() || crate::plugins::waits_for(plugin, event)
}

#[cfg(test)]
mod tests;
