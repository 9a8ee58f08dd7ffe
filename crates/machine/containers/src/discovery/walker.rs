//! Connects inotify and the cgroup tree: walks, watches, rescans.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::Counters;
use super::inotify::{Drained, Inotify, Listed, Watched};
use super::tree::{CgroupTree, InotifyEvent, TreeDir, TreeEvent, WatchId};

/// After this many inotify events, results are handed on before more are read, so that a storm delays nothing.
const BATCH: usize = 1024;

#[derive(Debug)]
pub(super) struct Walker {
    kernel: Inotify,
    known: CgroupTree,
    /// Directories that the kernel refused to watch; they are polled.
    unwatched: BTreeSet<TreeDir>,
    warned: bool,
    names: Vec<String>,
    counters: Arc<Counters>,
}

impl Walker {
    pub fn new(kernel: Inotify, counters: Arc<Counters>) -> Self {
        Self {
            kernel,
            known: CgroupTree::default(),
            unwatched: BTreeSet::new(),
            warned: false,
            names: Vec::new(),
            counters,
        }
    }

    pub fn kernel(&self) -> &Inotify {
        &self.kernel
    }

    /// Some directories must be polled.
    pub fn needs_polling(&self) -> bool {
        !self.unwatched.is_empty()
    }

    pub fn take_events(&mut self) -> Vec<TreeEvent> {
        let counters = &self.counters;
        counters.cgroups.store(self.known.len() as u64, Relaxed);
        counters
            .watches
            .store(self.known.watched_dirs() as u64, Relaxed);
        counters
            .unwatched
            .store(self.unwatched.len() as u64, Relaxed);
        let nameless = self.kernel.take_nameless();
        counters.nameless.fetch_add(nameless, Relaxed);
        self.known.take_events()
    }

    /// Confirms everything from the roots down; the first walk is the same thing with nothing known yet.
    pub fn rescan(&mut self) {
        self.counters.rescans.fetch_add(1, Relaxed);
        let roots = (0..self.kernel.trees()).map(|tree| self.known.enter(tree, "/"));
        let roots: Vec<TreeDir> = roots.collect();
        self.visit(roots, true);
    }

    /// Lists again what the kernel does not watch.
    pub fn poll_unwatched(&mut self) {
        self.counters.polls.fetch_add(1, Relaxed);
        self.unwatched.retain(|place| self.known.contains(place));
        let places: Vec<TreeDir> = self.unwatched.iter().cloned().collect();
        self.visit(places, false);
    }

    /// Reads inotify events; returns whether there may be more.
    pub fn drain(&mut self) -> bool {
        let mut notices: Vec<(WatchId, Owned)> = Vec::new();
        let drained = self.kernel.drain(BATCH, |watch, notice| {
            notices.push((watch, notice.into()));
        });
        self.counters
            .events
            .fetch_add(notices.len() as u64, Relaxed);
        for (watch, notice) in &notices {
            self.apply(*watch, notice.as_notice());
        }
        if drained == Drained::Overflowed {
            self.overflowed();
        }
        drained == Drained::More
    }

    pub fn apply(&mut self, watch: WatchId, notice: InotifyEvent<'_>) {
        if let Some(place) = self.known.notice(watch, notice) {
            self.visit(vec![place], false);
        } else {
            self.give_back();
        }
    }

    /// Events were lost: only a full rescan can tell which.
    pub fn overflowed(&mut self) {
        self.counters.overflows.fetch_add(1, Relaxed);
        tracing::debug!("inotify queue overflowed, rescanning all cgroups");
        self.rescan();
    }

    /// Looks into directories and whatever is found new inside them. Each is watched *before* it is listed: what is
    /// made in between is then seen twice, which is harmless, and never missed.
    fn visit(&mut self, mut stack: Vec<TreeDir>, deep: bool) {
        stack.reverse();
        // One refusal is enough: asking for thousands of watches that are not to be had costs a syscall each.
        let mut full = false;
        while let Some(place) = stack.pop() {
            // A watch that is due to go must go before the same directory is watched under another name.
            self.give_back();
            if !self.known.contains(&place) {
                continue;
            }
            if !self.watch(&place, &mut full) {
                self.gone(&place);
                continue;
            }
            match self.kernel.list(&place, &mut self.names) {
                Listed::Done => {
                    let children = self.known.listed(&place, &mut self.names, deep);
                    stack.extend(children.into_iter().rev());
                }
                Listed::Gone => self.gone(&place),
                Listed::Failed(error) => {
                    self.counters.failures.fetch_add(1, Relaxed);
                    tracing::debug!(path = %place.path, %error, "cannot list a cgroup directory");
                    self.unwatched.insert(place);
                }
            }
        }
        self.give_back();
    }

    /// False: the directory is gone.
    fn watch(&mut self, place: &TreeDir, full: &mut bool) -> bool {
        let outcome = match *full {
            true if self.known.is_watched(place) => return true,
            true => Watched::NoRoom,
            false => self.kernel.watch(place),
        };
        match outcome {
            Watched::As(watch) => {
                self.known.watched(place, watch);
                self.unwatched.remove(place);
                return true;
            }
            Watched::Gone => return false,
            Watched::NoRoom => {
                if !*full {
                    self.counters.watch_limit_hits.fetch_add(1, Relaxed);
                }
                *full = true;
                if !self.warned {
                    self.warned = true;
                    tracing::warn!(
                        watches = self.known.watched_dirs(),
                        "no more inotify watches: further cgroups are found by rescans; raise fs.inotify.max_user_watches"
                    );
                }
            }
            Watched::Failed(error) => {
                self.counters.failures.fetch_add(1, Relaxed);
                tracing::debug!(path = %place.path, %error, "cannot watch a cgroup directory");
            }
        }
        self.unwatched.insert(place.clone());
        true
    }

    fn gone(&mut self, place: &TreeDir) {
        // A tree's root is the machine: it stays even while its mount is away.
        if &*place.path == "/" {
            self.unwatched.insert(place.clone());
            self.names.clear();
            self.known.listed(place, &mut self.names, false);
        } else {
            self.known.leave(place.tree, &place.path);
        }
    }

    fn give_back(&mut self) {
        for watch in self.known.take_freed() {
            self.kernel.unwatch(watch);
        }
    }
}

/// A notice outlives the read buffer, because acting on it needs that buffer for listings.
#[derive(Debug)]
enum Owned {
    Arrived(Box<str>),
    Left(Box<str>),
    Unwatched,
}

impl From<InotifyEvent<'_>> for Owned {
    fn from(notice: InotifyEvent<'_>) -> Self {
        match notice {
            InotifyEvent::Arrived(name) => Self::Arrived(name.into()),
            InotifyEvent::Left(name) => Self::Left(name.into()),
            InotifyEvent::Unwatched => Self::Unwatched,
        }
    }
}

impl Owned {
    fn as_notice(&self) -> InotifyEvent<'_> {
        match self {
            Self::Arrived(name) => InotifyEvent::Arrived(name),
            Self::Left(name) => InotifyEvent::Left(name),
            Self::Unwatched => InotifyEvent::Unwatched,
        }
    }
}

#[cfg(test)]
mod tests;
