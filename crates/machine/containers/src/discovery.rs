//! Finds every cgroup directory in every tree, and sees within milliseconds when one is added or removed.
//!
//! One plain thread owns everything here. It waits for inotify and for its wake-up descriptor, nothing else. inotify is
//! the fast path and is never trusted alone: directories without a watch are polled, lost events cause a rescan, and
//! everything is rescanned once a minute.
//!
//! [`tree`] holds the state and is pure, [`inotify`] makes the system calls, [`walker`] connects them.

mod inotify;
mod tree;
mod walker;

use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use plimsoll_host::Clock;
use plimsoll_host::cgroup::Hierarchies;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

use crate::ContainerEvent;
use crate::identity_join::{IdentityJoin, Query, Reply};
use inotify::Inotify;
use tree::{CgroupTree, TreeEvent};
use walker::Walker;

/// Counters of discovery, for the program's own metrics.
#[derive(Debug, Default)]
pub struct Counters {
    /// inotify events read.
    pub events: AtomicU64,
    /// Walks over everything: the first one, periodic ones, and those after an overflow.
    pub rescans: AtomicU64,
    /// Passes over the polled directories.
    pub polls: AtomicU64,
    /// Overflows of the kernel's inotify queue.
    pub overflows: AtomicU64,
    /// Passes in which the kernel refused a watch for want of room.
    pub watch_limit_hits: AtomicU64,
    /// Directories that could be neither read nor watched for another reason than being gone.
    pub failures: AtomicU64,
    /// Times a directory was left out because its name is no UTF-8.
    pub nameless: AtomicU64,
    /// Now: known cgroups, watched directories, unwatched directories.
    pub cgroups: AtomicU64,
    pub watches: AtomicU64,
    pub unwatched: AtomicU64,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Intervals {
    /// Interval of full rescans.
    pub rescan: Duration,
    /// Interval of polling directories without a watch.
    pub poll: Duration,
}

/// A poll pass may take at most this share of the time: one part in so many.
const POLL_SHARE: u32 = 10;

/// Wakes the discovery thread.
#[derive(Debug, Clone)]
pub(crate) struct Wake {
    fd: Arc<OwnedFd>,
    stop: Arc<AtomicBool>,
}

impl Wake {
    pub fn new() -> Result<Self, Errno> {
        Ok(Self {
            fd: Arc::new(eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?),
            stop: Arc::default(),
        })
    }

    pub fn wake(&self) {
        // Fails only where the counter is full, and then the thread is being woken anyway.
        let _ = rustix::io::write(&self.fd, &1u64.to_ne_bytes());
    }

    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.wake();
    }

    fn clear(&self) {
        let _ = rustix::io::read(&self.fd, &mut [0u8; 8]);
    }
}

/// Access to the runtimes; without it containers have no identity.
pub(crate) trait RuntimeQueries: Send {
    /// At least one runtime may answer now.
    fn reachable(&self) -> bool;
    /// Never blocks.
    fn query(&self, query: Query);
}

/// No runtime is configured.
#[derive(Debug)]
pub(crate) struct NoRuntimes;

impl RuntimeQueries for NoRuntimes {
    fn reachable(&self) -> bool {
        false
    }

    fn query(&self, _: Query) {}
}

pub(crate) struct Discovery<R> {
    walker: Walker,
    join: IdentityJoin,
    intervals: Intervals,
    clock: Clock,
    wake: Wake,
    runtimes: R,
    replies: Receiver<Reply>,
    changes: Sender<ContainerEvent>,
}

/// The consumer has dropped the receiver.
struct NobodyListens;

/// What discovery needs besides its trees and the runtimes.
pub(crate) struct Parts {
    pub intervals: Intervals,
    pub clock: Clock,
    pub counters: Arc<Counters>,
    pub wake: Wake,
    pub replies: Receiver<Reply>,
    pub changes: Sender<ContainerEvent>,
}

impl<R: RuntimeQueries + 'static> Discovery<R> {
    pub fn new(hierarchies: &Hierarchies, parts: Parts, runtimes: R) -> Self {
        let mut trees: Vec<PathBuf> = hierarchies.trees().into_iter().map(Into::into).collect();
        // There are fewer controllers than bits; the limit is a guard, not a feature.
        trees.truncate(CgroupTree::MOST_TREES);
        let (kernel, error) = Inotify::new(trees);
        if let Some(error) = error {
            tracing::warn!(%error, "no inotify instance: cgroups are found by rescans; raise fs.inotify.max_user_instances");
        }
        Self {
            walker: Walker::new(kernel, parts.counters),
            join: IdentityJoin::default(),
            intervals: parts.intervals,
            clock: parts.clock,
            wake: parts.wake,
            runtimes,
            replies: parts.replies,
            changes: parts.changes,
        }
    }

    pub fn spawn(self) -> std::io::Result<JoinHandle<()>> {
        std::thread::Builder::new()
            .name("discovery".to_owned())
            .spawn(move || self.run())
    }

    fn run(mut self) {
        self.walker.rescan();
        let mut next_rescan = self.clock.monotonic() + self.intervals.rescan;
        let mut next_poll = self.clock.monotonic() + self.intervals.poll;
        let mut more = false;
        loop {
            if self.publish().is_err() || self.wake.stop.load(Ordering::Acquire) {
                return;
            }
            let mut until = next_rescan;
            if self.walker.needs_polling() {
                until = until.min(next_poll);
            }
            if let Some(deadline) = self.join.deadline() {
                until = until.min(deadline);
            }
            let wait = match more {
                true => Duration::ZERO,
                false => until.saturating_sub(self.clock.monotonic()),
            };
            self.wait(wait);
            more = self.walker.drain();

            let now = self.clock.monotonic();
            if now >= next_rescan {
                self.walker.rescan();
                next_rescan = self.clock.monotonic() + self.intervals.rescan;
            } else if now >= next_poll && self.walker.needs_polling() {
                self.walker.poll_unwatched();
                let after = self.clock.monotonic();
                next_poll = after + self.intervals.poll.max((after - now) * POLL_SHARE);
            }
        }
    }

    fn wait(&self, timeout: Duration) {
        let timeout = Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(timeout.subsec_nanos()),
        };
        let mut fds = vec![PollFd::from_borrowed_fd(
            self.wake.fd.as_fd(),
            PollFlags::IN,
        )];
        if let Some(inotify) = self.walker.kernel().inotify() {
            fds.push(PollFd::from_borrowed_fd(inotify, PollFlags::IN));
        }
        // An interrupted or failed wait costs one more turn of the loop.
        if poll(&mut fds, Some(&timeout)).is_ok() && !fds[0].revents().is_empty() {
            self.wake.clear();
        }
    }

    /// Turns tree events and replies into container events and queries, and sends both.
    fn publish(&mut self) -> Result<(), NobodyListens> {
        let now = self.clock.monotonic();
        let reachable = self.runtimes.reachable();
        // Replies first: they belong to incarnations that the tree events may end.
        while let Ok(answer) = self.replies.try_recv() {
            self.join.answered(answer);
        }
        for news in self.walker.take_events() {
            match news {
                TreeEvent::Appeared(path) => self.join.appeared(path, reachable),
                TreeEvent::Vanished(path) => self.join.vanished(path, now),
            }
        }
        self.join.tick(now);
        for query in self.join.take_queries() {
            self.runtimes.query(query);
        }
        for change in self.join.take_changes() {
            self.changes.send(change).map_err(|_| NobodyListens)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
