//! Who is waited for and who has been asked, as pure bookkeeping: time, questions and answers come in as arguments.
//!
//! An unnamed container is asked for in rounds. A round asks every runtime that is up; if none knows the container the
//! next round follows after a growing pause, because a cgroup is made well before its runtime says that the container
//! runs. When a runtime comes (back) everything is asked again in one listing, so no outcome is final.

mod hearing;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;

use super::Event;
use crate::herald::{Answer, Ask, Life};
use crate::{CgroupPath, Identity};

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// After this many rounds (three quarters of a second) a container counts as unclaimed, for now.
const QUICK_ROUNDS: u32 = 5;
/// A runtime that has not answered by then is not waited for before saying so.
const SAY_WITHIN: Duration = Duration::from_secs(3);
/// From so many due questions on, one listing costs a runtime less.
const BULK: usize = 16;
/// A container that ended is remembered this long for a late word about its exit code.
const REMEMBERED: Duration = Duration::from_secs(2);

/// A runtime by its place in the configuration.
pub(super) type RuntimeIndex = usize;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Call {
    Inspect {
        runtime: RuntimeIndex,
        path: CgroupPath,
        life: Life,
        id: Box<str>,
    },
    List {
        runtime: RuntimeIndex,
    },
    Exit {
        runtime: RuntimeIndex,
        path: CgroupPath,
        life: Life,
        id: Box<str>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// Not tried yet.
    Unknown,
    Down,
    Up,
}

#[derive(Debug)]
struct Entry {
    life: Life,
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
    /// Known, but without a process so far.
    starting: Option<(RuntimeIndex, Box<Identity>)>,
    unclaimed_said: bool,
    exit_code: Option<i32>,
}

#[derive(Debug)]
struct Gone {
    path: CgroupPath,
    life: Life,
    since: Duration,
}

/// May this runtime own a cgroup of this name?
pub(super) type MayOwn<'a> = dyn Fn(RuntimeIndex, &str) -> bool + 'a;

#[derive(Debug)]
pub(super) struct Desk {
    reach: Vec<Reach>,
    listing: Vec<bool>,
    /// The last listing failed: perhaps it is too large, so questions go one by one.
    unlistable: Vec<bool>,
    entries: FxHashMap<CgroupPath, Entry>,
    by_id: FxHashMap<Box<str>, Vec<CgroupPath>>,
    timers: BTreeSet<(Duration, CgroupPath)>,
    gone: BTreeMap<Box<str>, Gone>,
    answers: Vec<Answer>,
    calls: Vec<Call>,
}

impl Desk {
    pub fn new(runtimes: usize) -> Self {
        Self {
            reach: vec![Reach::Unknown; runtimes],
            listing: vec![false; runtimes],
            unlistable: vec![false; runtimes],
            entries: FxHashMap::default(),
            by_id: FxHashMap::default(),
            timers: BTreeSet::new(),
            gone: BTreeMap::new(),
            answers: Vec::new(),
            calls: Vec::new(),
        }
    }

    pub fn take_answers(&mut self) -> Vec<Answer> {
        std::mem::take(&mut self.answers)
    }

    pub fn take_calls(&mut self) -> Vec<Call> {
        std::mem::take(&mut self.calls)
    }

    /// Some runtime may answer: one is up, or has not been tried yet.
    pub fn reachable(&self) -> bool {
        self.reach.iter().any(|reach| *reach != Reach::Down)
    }

    pub fn next_due(&self) -> Option<Duration> {
        self.timers.first().map(|(due, _)| *due)
    }

    /// The cgroups of one container; podman makes two.
    pub fn paths_of(&self, id: &str) -> Vec<CgroupPath> {
        self.by_id.get(id).cloned().unwrap_or_default()
    }

    pub fn ask(&mut self, ask: Ask, now: Duration) {
        match ask {
            Ask::Name { path, life, id } => self.want(path, life, id, now),
            Ask::Forget { path, life, exit } => self.forget(&path, life, exit, now),
        }
    }

    fn want(&mut self, path: CgroupPath, life: Life, id: Box<str>, now: Duration) {
        self.drop_entry(&path);
        let paths = self.by_id.entry(id.clone()).or_default();
        paths.push(CgroupPath::clone(&path));
        let entry = Entry {
            life,
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

    fn forget(&mut self, path: &CgroupPath, life: Life, exit: bool, now: Duration) {
        if self
            .entries
            .get(path)
            .is_none_or(|entry| entry.life != life)
        {
            return;
        }
        let Some(entry) = self.drop_entry(path) else {
            return;
        };
        if !exit {
            return;
        }
        let owner = entry.owner.filter(|r| self.reach[*r] == Reach::Up);
        match (entry.exit_code, owner) {
            (None, Some(runtime)) => {
                self.calls.push(Call::Exit {
                    runtime,
                    path: CgroupPath::clone(path),
                    life,
                    id: entry.id.clone(),
                });
                let gone = Gone {
                    path: CgroupPath::clone(path),
                    life,
                    since: now,
                };
                self.gone.retain(|_, gone| now < gone.since + REMEMBERED);
                self.gone.insert(entry.id, gone);
            }
            (exit_code, _) => self.answers.push(Answer::Ended {
                path: CgroupPath::clone(path),
                life,
                exit_code,
            }),
        }
    }

    /// An exit code was asked for. Unknown is no answer: the event that says it may still be on its way.
    pub fn ended(&mut self, path: CgroupPath, life: Life, exit_code: Option<i32>) {
        if exit_code.is_some() {
            self.answers.push(Answer::Ended {
                path,
                life,
                exit_code,
            });
        }
    }

    pub fn up(&mut self, runtime: RuntimeIndex) {
        self.reach[runtime] = Reach::Up;
        self.list(runtime);
    }

    /// Asks a runtime for everything, about everyone it could concern.
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

    /// Nothing more will come of the questions that are under way there.
    pub fn down(&mut self, runtime: RuntimeIndex, now: Duration) {
        self.reach[runtime] = Reach::Down;
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
                    self.ended(gone.path, gone.life, Some(code));
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
    pub fn tick(&mut self, now: Duration, may_own: &MayOwn<'_>) {
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
                self.say_unclaimed(&path);
            }
        }
        for runtime in 0..self.reach.len() {
            if self.reach[runtime] == Reach::Up {
                self.ask_runtime(runtime, &due, may_own);
            }
        }
        // Nobody to ask: either someone may come, who will be given the whole list, or that is the answer.
        for path in &due {
            let entry = self.entries.get(path);
            if entry.is_some_and(|e| e.asked | e.listed == 0) && !self.undecided() {
                self.round_over(path, now);
            }
        }
    }

    fn undecided(&self) -> bool {
        self.reach.contains(&Reach::Unknown)
    }

    fn ask_runtime(&mut self, runtime: RuntimeIndex, due: &[CgroupPath], may_own: &MayOwn<'_>) {
        let wanted: Vec<&CgroupPath> = due
            .iter()
            .filter(|path| {
                self.entries.get(*path).is_some_and(|entry| {
                    entry.owner.is_none_or(|owner| owner == runtime)
                        && (entry.asked | entry.listed) & bit(runtime) == 0
                        && may_own(runtime, path)
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
                life: entry.life,
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
