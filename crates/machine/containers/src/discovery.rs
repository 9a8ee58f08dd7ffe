//! Finds every cgroup directory in every tree, and notices within milliseconds when one comes or goes.
//!
//! One plain thread owns everything here: it waits for inotify and for its wake-up descriptor, nothing else. inotify is
//! the fast path and is never trusted alone: where the kernel gives no more watches the rest is listed again and again,
//! where it drops notices everything is, and in any case everything is confirmed once a minute.
//!
//! [`known`] holds the state and is pure, [`kernel`] makes the system calls, [`walker`] joins them.

mod kernel;
mod known;
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

use crate::Change;
use crate::herald::{Answer, Ask, Herald};
use kernel::Kernel;
use known::{Known, News};
use walker::Walker;

/// What discovery does on its own account, for the program's own metrics.
#[derive(Debug, Default)]
pub struct Counters {
    /// Notices read from the kernel.
    pub events: AtomicU64,
    /// Walks over everything: the first one, periodic ones, and those after an overflow.
    pub rescans: AtomicU64,
    /// Passes over the unwatched part.
    pub polls: AtomicU64,
    /// Times the kernel's notice queue overflowed.
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
    /// Everything is confirmed this often.
    pub rescan: Duration,
    /// What the kernel does not watch is listed this often.
    pub poll: Duration,
}

/// A poll pass may take at most this share of the time: one part in so many.
const POLL_SHARE: u32 = 10;

/// Makes the discovery thread look at its inbox.
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

/// The way to the runtimes; without it containers keep their paths as their only names.
pub(crate) trait Registrar: Send {
    /// Some runtime may answer now.
    fn reachable(&self) -> bool;
    /// Never blocks.
    fn ask(&self, ask: Ask);
}

/// No runtime is configured.
#[derive(Debug)]
pub(crate) struct Nobody;

impl Registrar for Nobody {
    fn reachable(&self) -> bool {
        false
    }

    fn ask(&self, _: Ask) {}
}

pub(crate) struct Discovery<R> {
    walker: Walker,
    herald: Herald,
    intervals: Intervals,
    clock: Clock,
    wake: Wake,
    registrar: R,
    answers: Receiver<Answer>,
    changes: Sender<Change>,
}

/// The consumer has dropped its end: there is nobody to report to.
struct NobodyListens;

/// What a discovery is made of besides its trees and its way to the runtimes.
pub(crate) struct Parts {
    pub intervals: Intervals,
    pub clock: Clock,
    pub counters: Arc<Counters>,
    pub wake: Wake,
    pub answers: Receiver<Answer>,
    pub changes: Sender<Change>,
}

impl<R: Registrar + 'static> Discovery<R> {
    pub fn new(hierarchies: &Hierarchies, parts: Parts, registrar: R) -> Self {
        let mut trees: Vec<PathBuf> = hierarchies.trees().into_iter().map(Into::into).collect();
        // There are fewer controllers than bits; the limit is a guard, not a feature.
        trees.truncate(Known::MOST_TREES);
        let (kernel, error) = Kernel::new(trees);
        if let Some(error) = error {
            tracing::warn!(%error, "no inotify instance: cgroups are found by rescans; raise fs.inotify.max_user_instances");
        }
        Self {
            walker: Walker::new(kernel, parts.counters),
            herald: Herald::default(),
            intervals: parts.intervals,
            clock: parts.clock,
            wake: parts.wake,
            registrar,
            answers: parts.answers,
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
            if let Some(deadline) = self.herald.deadline() {
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

    /// Turns news and answers into changes and questions, and sends both on.
    fn publish(&mut self) -> Result<(), NobodyListens> {
        let now = self.clock.monotonic();
        let reachable = self.registrar.reachable();
        // Answers first: one that is here already belongs to a life that the news may end.
        while let Ok(answer) = self.answers.try_recv() {
            self.herald.answered(answer);
        }
        for news in self.walker.take_news() {
            match news {
                News::Appeared(path) => self.herald.appeared(path, reachable),
                News::Vanished(path) => self.herald.vanished(path, now),
            }
        }
        self.herald.tick(now);
        for ask in self.herald.take_asks() {
            self.registrar.ask(ask);
        }
        for change in self.herald.take_changes() {
            self.changes.send(change).map_err(|_| NobodyListens)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
