//! Whose turn it is: a state machine that is told the time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxBuildHasher;
use tokio::time::Instant;

use super::connection::Connection;
use super::target::{NoAddress, Target};

/// Turns fall on as many moments of the interval, so that one awakening serves several nodes.
const MOMENTS: u32 = 20;
/// A node without a rate is asked again this soon: kubelets take figures every ten seconds or so.
const WARM_UP: Duration = Duration::from_secs(10);
/// And then this soon, if there was nothing new.
const WARM_UP_AGAIN: Duration = Duration::from_secs(5);
const WARM_UPS: u32 = 3;
/// Who fails again and again is asked less often, every so many rounds at worst.
const SELDOM: u32 = 4;

#[derive(Debug)]
pub(super) struct Fleet {
    resolution: Duration,
    began: Instant,
    members: HashMap<Arc<str>, Member, FxBuildHasher>,
    /// When each is due, soonest first. An entry that is not its member's is void.
    queue: BinaryHeap<Reverse<(Instant, u64)>>,
    turns: HashMap<u64, Arc<str>, FxBuildHasher>,
    next_turn: u64,
    /// The longest that any scrape took from when it was due, since that was last asked.
    slowest: Duration,
}

#[derive(Debug)]
struct Member {
    target: Arc<Result<Target, NoAddress>>,
    ready: bool,
    connection: Option<Connection>,
    /// Its entry in the queue, or the scrape that is on its way.
    turn: u64,
    due: Instant,
    on_its_way: bool,
    failures: u32,
    /// Scrapes that did not bring a rate yet.
    warm_ups: u32,
}

/// A scrape to be made.
#[derive(Debug)]
pub(super) struct Job {
    pub name: Arc<str>,
    pub target: Arc<Result<Target, NoAddress>>,
    pub connection: Option<Connection>,
    pub ready: bool,
    /// It failed the last time.
    pub doubtful: bool,
    turn: u64,
}

/// What became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// There is a rate now.
    Rate,
    /// One point is not enough.
    NoRate,
    Failed,
}

/// Identifies a job when it has ended.
#[derive(Debug)]
pub(super) struct Ticket {
    name: Arc<str>,
    turn: u64,
    target: Arc<Result<Target, NoAddress>>,
}

impl Job {
    pub fn ticket(&self) -> Ticket {
        Ticket {
            name: Arc::clone(&self.name),
            turn: self.turn,
            target: Arc::clone(&self.target),
        }
    }
}

impl Fleet {
    pub fn new(resolution: Duration, began: Instant) -> Self {
        Self {
            resolution,
            began,
            members: HashMap::default(),
            queue: BinaryHeap::new(),
            turns: HashMap::default(),
            next_turn: 0,
            slowest: Duration::ZERO,
        }
    }

    /// A new node, or one of which something is different: it is due at once.
    pub fn put(
        &mut self,
        name: Arc<str>,
        target: Result<Target, NoAddress>,
        ready: bool,
        now: Instant,
    ) {
        let Some(member) = self.members.get_mut(&name) else {
            let member = Member {
                target: Arc::new(target),
                ready,
                connection: None,
                turn: 0,
                due: now,
                on_its_way: false,
                failures: 0,
                warm_ups: 0,
            };
            self.members.insert(Arc::clone(&name), member);
            self.enqueue(name, now);
            return;
        };
        let recovered = ready && !member.ready;
        member.ready = ready;
        let moved = *member.target != target;
        if moved {
            (member.target, member.connection) = (Arc::new(target), None);
        }
        // One that waits because it failed has a reason to be tried again.
        let waits = member.failures > 0 && !member.on_its_way;
        if moved || recovered {
            member.failures = 0;
        }
        if waits && (moved || recovered) {
            self.enqueue(name, now);
        }
    }

    pub fn remove(&mut self, name: &str) {
        if let Some(member) = self.members.remove(name) {
            self.turns.remove(&member.turn);
        }
    }

    fn enqueue(&mut self, name: Arc<str>, due: Instant) {
        let Some(member) = self.members.get_mut(&name) else {
            return;
        };
        self.turns.remove(&member.turn);
        self.next_turn += 1;
        (member.turn, member.due, member.on_its_way) = (self.next_turn, due, false);
        self.turns.insert(member.turn, name);
        self.queue.push(Reverse((due, self.next_turn)));
    }

    /// When somebody is due next.
    pub fn next_due(&mut self) -> Option<Instant> {
        while let Some(Reverse((due, turn))) = self.queue.peek() {
            if self.turns.contains_key(turn) {
                return Some(*due);
            }
            self.queue.pop();
        }
        None
    }

    pub fn take_due(&mut self, now: Instant) -> Option<Job> {
        if self.next_due()? > now {
            return None;
        }
        let Reverse((_, turn)) = self.queue.pop()?;
        let name = self.turns.remove(&turn)?;
        let member = self.members.get_mut(&name)?;
        member.on_its_way = true;
        Some(Job {
            target: Arc::clone(&member.target),
            connection: member.connection.take(),
            ready: member.ready,
            doubtful: member.failures > 0,
            turn,
            name,
        })
    }

    /// A scrape has ended. `false`: nobody waits for it any more.
    pub fn ended(
        &mut self,
        ticket: Ticket,
        outcome: Outcome,
        connection: Option<Connection>,
        now: Instant,
    ) -> bool {
        let Ticket { name, turn, target } = ticket;
        let resolution = self.resolution;
        let phase = self.phase(&name);
        let began = self.began;
        let Some(member) = self.members.get_mut(&name) else {
            return false;
        };
        if !member.on_its_way || member.turn != turn {
            return false;
        }
        let due = member.due;
        self.slowest = self.slowest.max(now.saturating_duration_since(due));
        let next = match outcome {
            Outcome::NoRate if member.warm_ups < WARM_UPS => {
                member.failures = 0;
                member.warm_ups += 1;
                let wait = match member.warm_ups {
                    1 => WARM_UP,
                    _ => WARM_UP_AGAIN,
                };
                now + wait.min(resolution)
            }
            Outcome::Rate | Outcome::NoRate => {
                member.failures = 0;
                if outcome == Outcome::Rate {
                    member.warm_ups = WARM_UPS;
                }
                slot(began + phase, resolution, due + resolution / 2, now)
            }
            Outcome::Failed => {
                member.failures += 1;
                member.warm_ups = 0;
                let rounds = 2_u32.saturating_pow(member.failures - 1).min(SELDOM);
                let after = due + resolution * (rounds - 1) + resolution / 2;
                slot(began + phase, resolution, after, now)
            }
        };
        // A connection to where it was before it moved is of no use.
        member.connection = connection.filter(|_| Arc::ptr_eq(&member.target, &target));
        self.enqueue(name, next);
        true
    }

    /// Each node's own moment of the interval.
    fn phase(&self, name: &str) -> Duration {
        let hash = FxBuildHasher.hash_one(name);
        // The upper bits are the good ones.
        let moment = (hash >> 32) % u64::from(MOMENTS);
        self.resolution * u32::try_from(moment).unwrap_or(0) / MOMENTS
    }

    /// When the oldest scrape was due that has not ended, of those who answered the last time: that others take long is
    /// not our doing.
    pub fn behind_since(&self, now: Instant) -> Option<Instant> {
        let late = |one: &&Member| one.failures == 0 && (one.on_its_way || one.due <= now);
        self.members.values().filter(late).map(|one| one.due).min()
    }

    /// How long the slowest took since this was last asked.
    pub fn slowest(&mut self) -> Duration {
        std::mem::take(&mut self.slowest)
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.members.len()
    }
}

/// The first moment not before `earliest`, nor before `now`, that is a whole number of steps after `from`.
fn slot(from: Instant, step: Duration, earliest: Instant, now: Instant) -> Instant {
    let earliest = earliest.max(now);
    let since = earliest.saturating_duration_since(from).as_nanos();
    let steps = since.div_ceil(step.as_nanos().max(1));
    from + step * u32::try_from(steps).unwrap_or(u32::MAX)
}

#[cfg(test)]
#[path = "fleet_tests.rs"]
mod tests;
