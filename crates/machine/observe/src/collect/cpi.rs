//! Cycles and instructions of containers, counted for a short window.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_containers::CgroupPath;
use plimsoll_host::cgroup::{Controller, Hierarchies};
use plimsoll_host::perf::{CgroupCounters, EventGroup, EventSet, Reading};
use plimsoll_host::{Descriptors, HostRoot, ReadBuf};

use crate::usage::{Cpi, Window};

/// Containers whose counters are opened in one call: opening takes long on machines with many CPUs.
const AT_ONCE: usize = 16;

/// Counters that run.
pub trait Counts: Debug + Send {
    /// Reads the counters. `false`: they cannot be read.
    fn read(&self, readings: &mut Vec<Reading>) -> bool;
}

impl Counts for CgroupCounters {
    fn read(&self, readings: &mut Vec<Reading>) -> bool {
        CgroupCounters::read(self, readings).is_ok()
    }
}

/// Opens the kernel's perf counters.
#[derive(Debug)]
pub struct Kernel {
    root: HostRoot,
    hierarchies: Arc<Hierarchies>,
    descriptors: Arc<Descriptors>,
    events: EventSet,
    refusal_logged: bool,
}

impl Kernel {
    pub fn new(
        root: HostRoot,
        hierarchies: Arc<Hierarchies>,
        descriptors: Arc<Descriptors>,
    ) -> Self {
        let group = EventGroup {
            events: Window::events(),
        };
        Self {
            root,
            hierarchies,
            descriptors,
            events: EventSet {
                groups: vec![group],
                custom: Vec::new(),
            },
            refusal_logged: false,
        }
    }

    /// `None`: there is nothing to count, or the kernel refuses.
    pub fn open(
        &mut self,
        path: &CgroupPath,
        cpus: &[u32],
        buf: &mut ReadBuf,
    ) -> Option<Box<dyn Counts>> {
        let dir = self.hierarchies.dir(Controller::PerfEvent, path)?;
        // A container that has ended has nothing to count.
        let opened =
            CgroupCounters::open(&self.root, &dir, &self.events, cpus, &self.descriptors, buf)
                .ok()?;
        if let Some(refused) = opened.refused.first()
            && !std::mem::replace(&mut self.refusal_logged, true)
        {
            tracing::warn!(error = %refused.why, "cannot count cycles and instructions");
        }
        (!opened.counters.is_empty()).then(|| Box::new(opened.counters) as Box<dyn Counts>)
    }
}

/// One container's window. `K` is what its owner knows the container by.
#[derive(Debug)]
struct Counting<K> {
    key: K,
    counters: Box<dyn Counts>,
    began: Duration,
    window: Window,
}

#[derive(Debug)]
pub struct CpiCollector<K> {
    length: Duration,
    waiting: Vec<(K, CgroupPath)>,
    counting: Vec<Counting<K>>,
    readings: Vec<Reading>,
}

impl<K> CpiCollector<K> {
    /// `length`: of a window.
    pub fn new(length: Duration) -> Self {
        Self {
            length,
            waiting: Vec::new(),
            counting: Vec::new(),
            readings: Vec::new(),
        }
    }

    /// Has a window counted for each of these, in place of those that still wait.
    pub fn schedule(&mut self, containers: Vec<(K, CgroupPath)>) {
        self.waiting = containers;
    }

    /// Starts the windows of some of those that wait; `open` gives a container's counters.
    pub fn start_windows(
        &mut self,
        now: Duration,
        mut open: impl FnMut(&CgroupPath) -> Option<Box<dyn Counts>>,
    ) {
        let from = self.waiting.len().saturating_sub(AT_ONCE);
        for (key, path) in self.waiting.split_off(from) {
            let Some(counters) = open(&path) else {
                continue;
            };
            if !counters.read(&mut self.readings) {
                continue;
            }
            self.counting.push(Counting {
                key,
                counters,
                began: now,
                window: Window::begin(&self.readings),
            });
        }
    }

    /// The counts of windows that are over. A container in which nothing ran has none.
    pub fn finish_windows(&mut self, now: Duration) -> Vec<(K, Cpi)> {
        let (over, counting): (Vec<_>, Vec<_>) = std::mem::take(&mut self.counting)
            .into_iter()
            .partition(|one| now.saturating_sub(one.began) >= self.length);
        self.counting = counting;
        let counted = over.into_iter().filter_map(|one| {
            let readable = one.counters.read(&mut self.readings);
            let cpi = readable.then(|| one.window.end(&self.readings)).flatten()?;
            Some((one.key, cpi))
        });
        counted.collect()
    }
}
