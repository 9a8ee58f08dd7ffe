//! Schedules inspect and list calls to the runtimes, with retries. Pure: time and answers are arguments.
//!
//! A container without identity is queried in rounds. A round queries every runtime that is up. If none knows the
//! container, the next round follows after a growing pause: a cgroup is made well before its runtime reports the
//! container as running. When a runtime connects, one list call queries everything again, so no outcome is final.

mod replies;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;

use super::Event;
use crate::identity_join::{Incarnation, Query, Reply};
use crate::{CgroupPath, Identity};

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// After this many rounds (three quarters of a second) a container is reported as unclaimed, for now.
const QUICK_ROUNDS: u32 = 5;
/// `Unclaimed` is reported after this time even if a runtime has not answered.
const SAY_WITHIN: Duration = Duration::from_secs(3);
/// From this many due queries on, one list call is cheaper.
const BULK: usize = 16;
/// How long an ended container is kept for an exit code that comes late.
const REMEMBERED: Duration = Duration::from_secs(2);

/// Index of a runtime in the configuration.
pub(super) type RuntimeIndex = usize;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Call {
    Inspect {
        runtime: RuntimeIndex,
        path: CgroupPath,
        incarnation: Incarnation,
        id: Box<str>,
    },
    List {
        runtime: RuntimeIndex,
    },
    Exit {
        runtime: RuntimeIndex,
        path: CgroupPath,
        incarnation: Incarnation,
        id: Box<str>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reachability {
    /// Not tried yet.
    Unknown,
    Down,
    Up,
}

#[derive(Debug)]
struct Entry {
    incarnation: Incarnation,
    id: Box<str>,
    since: Duration,
    round: u32,
    due: Option<Duration>,
    /// One bit a runtime: asked, not answered yet.
    asked: u32,
    /// One bit a runtime: waits for the listing under way.
    listed: u32,
    identity: Option<Arc<Identity>>,
    owner: Option<RuntimeIndex>,
    /// Known to a runtime, but without a process so far.
    starting: Option<(RuntimeIndex, Box<Identity>)>,
    unclaimed_said: bool,
    exit_code: Option<i32>,
}

#[derive(Debug)]
struct Gone {
    path: CgroupPath,
    incarnation: Incarnation,
    since: Duration,
}

/// Whether this runtime could own a cgroup of this name.
pub(super) type CouldOwn<'a> = dyn Fn(RuntimeIndex, &str) -> bool + 'a;

#[derive(Debug)]
pub(super) struct QueryScheduler {
    reach: Vec<Reachability>,
    listing: Vec<bool>,
    /// The last list call failed, perhaps because the list is too large: inspect one by one.
    unlistable: Vec<bool>,
    entries: FxHashMap<CgroupPath, Entry>,
    by_id: FxHashMap<Box<str>, Vec<CgroupPath>>,
    timers: BTreeSet<(Duration, CgroupPath)>,
    gone: BTreeMap<Box<str>, Gone>,
    replies: Vec<Reply>,
    calls: Vec<Call>,
}

impl QueryScheduler {
    pub fn new(runtimes: usize) -> Self {
        Self {
            reach: vec![Reachability::Unknown; runtimes],
            listing: vec![false; runtimes],
            unlistable: vec![false; runtimes],
            entries: FxHashMap::default(),
            by_id: FxHashMap::default(),
            timers: BTreeSet::new(),
            gone: BTreeMap::new(),
            replies: Vec::new(),
            calls: Vec::new(),
        }
    }

    pub fn take_replies(&mut self) -> Vec<Reply> {
        std::mem::take(&mut self.replies)
    }

    pub fn take_calls(&mut self) -> Vec<Call> {
        std::mem::take(&mut self.calls)
    }

    /// Some runtime may answer: one is up, or has not been tried yet.
    pub fn reachable(&self) -> bool {
        self.reach.iter().any(|reach| *reach != Reachability::Down)
    }

    pub fn next_due(&self) -> Option<Duration> {
        self.timers.first().map(|(due, _)| *due)
    }

    /// The cgroups of one container; podman makes two.
    pub fn paths_of(&self, id: &str) -> Vec<CgroupPath> {
        self.by_id.get(id).cloned().unwrap_or_default()
    }

    pub fn query(&mut self, query: Query, now: Duration) {
        match query {
            Query::Name {
                path,
                incarnation,
                id,
            } => self.want(path, incarnation, id, now),
            Query::Forget {
                path,
                incarnation,
                exit,
            } => self.forget(&path, incarnation, exit, now),
        }
    }

    fn want(&mut self, path: CgroupPath, incarnation: Incarnation, id: Box<str>, now: Duration) {
        self.drop_entry(&path);
        let paths = self.by_id.entry(id.clone()).or_default();
        paths.push(CgroupPath::clone(&path));
        let entry = Entry {
            incarnation,
            id,
            since: now,
            round: 0,
            due: Some(now),
            asked: 0,
            listed: 0,
            identity: None,
            owner: None,
            starting: None,
            unclaimed_said: false,
            exit_code: None,
        };
        self.timers.insert((now, CgroupPath::clone(&path)));
        self.timers
            .insert((now + SAY_WITHIN, CgroupPath::clone(&path)));
        self.entries.insert(path, entry);
    }

    fn drop_entry(&mut self, path: &CgroupPath) -> Option<Entry> {
        let entry = self.entries.remove(path)?;
        if let Some(paths) = self.by_id.get_mut(&entry.id) {
            paths.retain(|other| other != path);
            if paths.is_empty() {
                self.by_id.remove(&entry.id);
            }
        }
        if let Some(due) = entry.due {
            self.timers.remove(&(due, CgroupPath::clone(path)));
        }
        self.timers
            .remove(&(entry.since + SAY_WITHIN, CgroupPath::clone(path)));
        Some(entry)
    }

    fn forget(&mut self, path: &CgroupPath, incarnation: Incarnation, exit: bool, now: Duration) {
        if self
            .entries
            .get(path)
            .is_none_or(|entry| entry.incarnation != incarnation)
        {
            return;
        }
        let Some(entry) = self.drop_entry(path) else {
            return;
        };
        if !exit {
            return;
        }
        let owner = entry.owner.filter(|r| self.reach[*r] == Reachability::Up);
        match (entry.exit_code, owner) {
            (None, Some(runtime)) => {
                self.calls.push(Call::Exit {
                    runtime,
                    path: CgroupPath::clone(path),
                    incarnation,
                    id: entry.id.clone(),
                });
                let gone = Gone {
                    path: CgroupPath::clone(path),
                    incarnation,
                    since: now,
                };
                self.gone.retain(|_, gone| now < gone.since + REMEMBERED);
                self.gone.insert(entry.id, gone);
            }
            (exit_code, _) => self.replies.push(Reply::Ended {
                path: CgroupPath::clone(path),
                incarnation,
                exit_code,
            }),
        }
    }

    /// The answer to a query for an exit code. `None` is not final: the event may still be on its way.
    pub fn ended(&mut self, path: CgroupPath, incarnation: Incarnation, exit_code: Option<i32>) {
        if exit_code.is_some() {
            self.replies.push(Reply::Ended {
                path,
                incarnation,
                exit_code,
            });
        }
    }

    pub fn up(&mut self, runtime: RuntimeIndex) {
        self.reach[runtime] = Reachability::Up;
        self.list(runtime);
    }

    /// Lists all containers of a runtime, for every cgroup that it could own.
    fn list(&mut self, runtime: RuntimeIndex) {
        for entry in self.entries.values_mut() {
            if entry.identity.is_none() || entry.owner == Some(runtime) {
                entry.listed |= bit(runtime);
            }
        }
        if !std::mem::replace(&mut self.listing[runtime], true) {
            self.calls.push(Call::List { runtime });
        }
    }

    /// Calls under way at this runtime will not be answered.
    pub fn down(&mut self, runtime: RuntimeIndex, now: Duration) {
        self.reach[runtime] = Reachability::Down;
        self.listing[runtime] = false;
        // With the last one gone nobody is left to wait for.
        let last = !self.reachable();
        let mut idle = Vec::new();
        for (path, entry) in &mut self.entries {
            let waited = (entry.asked | entry.listed) & bit(runtime) != 0;
            entry.asked &= !bit(runtime);
            entry.listed &= !bit(runtime);
            if entry.identity.is_none() && (waited || last || entry.due.is_none()) {
                idle.push(CgroupPath::clone(path));
            }
        }
        for path in idle {
            self.round_over(&path, now);
        }
    }

    pub fn event(&mut self, runtime: RuntimeIndex, event: Event, now: Duration) {
        match event {
            Event::Refresh => self.list(runtime),
            Event::Changed(id) => {
                for path in self.paths_of(&id) {
                    self.schedule(&path, now);
                }
            }
            Event::Exited(id, code) => {
                for path in self.by_id.get(id.as_str()).into_iter().flatten() {
                    if let Some(entry) = self.entries.get_mut(path) {
                        entry.exit_code = Some(code);
                    }
                }
                if let Some(gone) = self.gone.remove(id.as_str()) {
                    self.ended(gone.path, gone.incarnation, Some(code));
                }
            }
        }
    }

    fn schedule(&mut self, path: &CgroupPath, due: Duration) {
        let Some(entry) = self.entries.get_mut(path) else {
            return;
        };
        if let Some(before) = entry.due.replace(due) {
            self.timers.remove(&(before, CgroupPath::clone(path)));
        }
        self.timers.insert((due, CgroupPath::clone(path)));
    }

    /// Starts the rounds that are due.
    pub fn tick(&mut self, now: Duration, could_own: &CouldOwn<'_>) {
        let mut due = Vec::new();
        while let Some((at, _)) = self.timers.first() {
            if *at > now {
                break;
            }
            let Some((at, path)) = self.timers.pop_first() else {
                break;
            };
            let Some(entry) = self.entries.get_mut(&path) else {
                continue;
            };
            if entry.due == Some(at) {
                entry.due = None;
                due.push(CgroupPath::clone(&path));
            }
            if now >= entry.since + SAY_WITHIN {
                self.report_unclaimed(&path);
            }
        }
        for runtime in 0..self.reach.len() {
            if self.reach[runtime] == Reachability::Up {
                self.ask_runtime(runtime, &due, could_own);
            }
        }
        // There is nobody to query: either a runtime may still connect, which then lists everything, or this is final.
        for path in &due {
            let entry = self.entries.get(path);
            if entry.is_some_and(|e| e.asked | e.listed == 0) && !self.undecided() {
                self.round_over(path, now);
            }
        }
    }

    fn undecided(&self) -> bool {
        self.reach.contains(&Reachability::Unknown)
    }

    fn ask_runtime(&mut self, runtime: RuntimeIndex, due: &[CgroupPath], could_own: &CouldOwn<'_>) {
        let wanted: Vec<&CgroupPath> = due
            .iter()
            .filter(|path| {
                self.entries.get(*path).is_some_and(|entry| {
                    entry.owner.is_none_or(|owner| owner == runtime)
                        && (entry.asked | entry.listed) & bit(runtime) == 0
                        && could_own(runtime, path)
                })
            })
            .collect();
        let bulk = wanted.len() > BULK && !self.listing[runtime] && !self.unlistable[runtime];
        if bulk {
            self.listing[runtime] = true;
            self.calls.push(Call::List { runtime });
        }
        for path in wanted {
            let Some(entry) = self.entries.get_mut(path) else {
                continue;
            };
            if bulk {
                entry.listed |= bit(runtime);
                continue;
            }
            entry.asked |= bit(runtime);
            self.calls.push(Call::Inspect {
                runtime,
                path: CgroupPath::clone(path),
                incarnation: entry.incarnation,
                id: entry.id.clone(),
            });
        }
    }
}

fn bit(runtime: RuntimeIndex) -> u32 {
    1 << runtime
}

#[cfg(test)]
mod tests;
