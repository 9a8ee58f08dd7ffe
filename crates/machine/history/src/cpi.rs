//! Cycles and instructions of containers, counted for a short window at an interval.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_containers::CgroupPath;
use plimsoll_host::ReadBuf;
use plimsoll_host::cgroup::Controller;
use plimsoll_host::machine::CpuFacts;
use plimsoll_host::perf::{CgroupCounters, EventGroup, EventSet, Reading};
use plimsoll_observe::usage::Window;

use super::cgroup_roles::{CgroupRole, TrackedCgroup};
use super::collect::SampleBatch;
use super::recorder::{KernelSources, Periodic};
use super::{Cpi as Config, UsageHistory, metrics as c};

/// Containers whose counters are opened in one interval: opening takes long on machines with many CPUs.
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
    events: EventSet,
    refusal_logged: bool,
}

impl Default for Kernel {
    fn default() -> Self {
        let group = EventGroup {
            events: Window::events(),
        };
        Self {
            events: EventSet {
                groups: vec![group],
                custom: Vec::new(),
            },
            refusal_logged: false,
        }
    }
}

impl Kernel {
    /// `None`: there is nothing to count, or the kernel refuses.
    pub fn open(
        &mut self,
        path: &CgroupPath,
        cpus: &[u32],
        sources: &KernelSources,
        buf: &mut ReadBuf,
    ) -> Option<Box<dyn Counts>> {
        let dir = sources.hierarchies.dir(Controller::PerfEvent, path)?;
        // A container that has ended has nothing to count.
        let opened = CgroupCounters::open(
            &sources.root,
            &dir,
            &self.events,
            cpus,
            &sources.descriptors,
            buf,
        )
        .ok()?;
        if let Some(refused) = opened.refused.first()
            && !std::mem::replace(&mut self.refusal_logged, true)
        {
            tracing::warn!(error = %refused.why, "cannot count cycles and instructions");
        }
        (!opened.counters.is_empty()).then(|| Box::new(opened.counters) as Box<dyn Counts>)
    }
}

/// The numbers of the machine's CPUs.
pub fn numbers(cpus: &CpuFacts) -> Vec<u32> {
    cpus.processors.iter().map(|one| one.cpu).collect()
}

/// One container's window.
#[derive(Debug)]
struct Counting {
    who: Who,
    counters: Box<dyn Counts>,
    began: Duration,
    window: Window,
}

#[derive(Debug, Clone)]
struct Who {
    path: CgroupPath,
    pod: Arc<str>,
    id: Box<str>,
}

#[derive(Debug)]
pub struct CpiCollector {
    config: Config,
    due: Periodic,
    waiting: Vec<Who>,
    counting: Vec<Counting>,
    readings: Vec<Reading>,
}

/// The counts of one container's last window.
#[derive(Debug, Clone)]
pub struct CpiGauge {
    pub id: Box<str>,
    pub cycles: u64,
    pub instructions: u64,
}

impl CpiCollector {
    pub fn new(config: Config) -> Self {
        Self {
            due: Periodic::now(config.every),
            config,
            waiting: Vec::new(),
            counting: Vec::new(),
            readings: Vec::new(),
        }
    }

    /// Starts windows that are due; `open` gives a container's counters.
    pub fn start_windows<'a>(
        &mut self,
        now: Duration,
        history: &UsageHistory,
        cgroups: impl Iterator<Item = &'a TrackedCgroup>,
        mut open: impl FnMut(&CgroupPath) -> Option<Box<dyn Counts>>,
    ) {
        if self.due.is_due(now) {
            self.waiting = cgroups
                .filter_map(|cgroup| match &cgroup.role {
                    CgroupRole::Container { pod, id, .. } => Some(Who {
                        path: Arc::clone(cgroup.container.path()),
                        pod: Arc::clone(pod),
                        id: (&**id).into(),
                    }),
                    _ => None,
                })
                .collect();
            // Containers that have gone are not shown any more.
            let there = &self.waiting;
            let mut latest = history.latest().lock();
            latest
                .cpi
                .retain(|of| there.iter().any(|who| who.id == of.id));
        }
        let from = self.waiting.len().saturating_sub(AT_ONCE);
        for who in self.waiting.split_off(from) {
            let Some(counters) = open(&who.path) else {
                continue;
            };
            if !counters.read(&mut self.readings) {
                continue;
            }
            self.counting.push(Counting {
                who,
                counters,
                began: now,
                window: Window::begin(&self.readings),
            });
        }
    }

    /// Records the windows that are over.
    pub fn finish_windows(
        &mut self,
        now: Duration,
        batch: &mut SampleBatch,
        history: &UsageHistory,
    ) {
        let (over, counting): (Vec<Counting>, Vec<Counting>) = std::mem::take(&mut self.counting)
            .into_iter()
            .partition(|one| now.saturating_sub(one.began) >= self.config.window);
        self.counting = counting;
        if over.is_empty() {
            return;
        }
        let mut latest = history.latest().lock();
        for one in over {
            if !one.counters.read(&mut self.readings) {
                continue;
            }
            let Some(cpi) = one.window.end(&self.readings) else {
                continue;
            };
            let Who { pod, id, .. } = one.who;
            for (resource, value) in [("cycle", cpi.cycles), ("instruction", cpi.instructions)] {
                let labels = [&*pod, &*id, resource];
                batch.put(history, c::CONTAINER_CPI, &labels, value as f64);
            }
            latest.cpi.retain(|known| known.id != id);
            latest.cpi.push(CpiGauge {
                id,
                cycles: cpi.cycles,
                instructions: cpi.instructions,
            });
        }
    }
}
