//! Cycles and instructions of containers: each is counted for a while now and then.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_containers::CgroupPath;
use plimsoll_host::ReadBuf;
use plimsoll_host::cgroup::Controller;
use plimsoll_host::machine::CpuFacts;
use plimsoll_host::perf::{CgroupCounters, EventGroup, EventSet, Reading};
use plimsoll_observe::usage::Window;

use super::keeper::{Due, Tools};
use super::places::{Place, Role};
use super::round::Batch;
use super::{Cpi as Config, Memory, catalogue as c};

/// Opening counters takes long on machines with many CPUs: so many containers a round, not all at once.
const AT_ONCE: usize = 16;

/// Counters that run.
pub trait Counts: Debug + Send {
    /// Where they stand. `false`: they cannot be read.
    fn read(&self, readings: &mut Vec<Reading>) -> bool;
}

impl Counts for CgroupCounters {
    fn read(&self, readings: &mut Vec<Reading>) -> bool {
        CgroupCounters::read(self, readings).is_ok()
    }
}

/// Has the kernel count.
#[derive(Debug)]
pub struct Kernel {
    events: EventSet,
    refusal_said: bool,
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
            refusal_said: false,
        }
    }
}

impl Kernel {
    /// `None`: there is nothing to count, or the kernel will not.
    pub fn open(
        &mut self,
        path: &CgroupPath,
        cpus: &[u32],
        tools: &Tools,
        buf: &mut ReadBuf,
    ) -> Option<Box<dyn Counts>> {
        let dir = tools.hierarchies.dir(Controller::PerfEvent, path)?;
        // One that ended meanwhile has nothing to count.
        let opened = CgroupCounters::open(
            &tools.root,
            &dir,
            &self.events,
            cpus,
            &tools.descriptors,
            buf,
        )
        .ok()?;
        if let Some(refused) = opened.refused.first()
            && !std::mem::replace(&mut self.refusal_said, true)
        {
            tracing::warn!(error = %refused.why, "cycles and instructions cannot be counted");
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
    due: Due,
    waiting: Vec<Who>,
    counting: Vec<Counting>,
    readings: Vec<Reading>,
}

/// The counts of one container's last window, for pages.
#[derive(Debug, Clone)]
pub struct CpiGauge {
    pub id: Box<str>,
    pub cycles: u64,
    pub instructions: u64,
}

impl CpiCollector {
    pub fn new(config: Config) -> Self {
        Self {
            due: Due::now(config.every),
            config,
            waiting: Vec::new(),
            counting: Vec::new(),
            readings: Vec::new(),
        }
    }

    /// Begins to count whom it is time for; `open` gives a container's counters.
    pub fn step<'a>(
        &mut self,
        now: Duration,
        memory: &Memory,
        places: impl Iterator<Item = &'a Place>,
        mut open: impl FnMut(&CgroupPath) -> Option<Box<dyn Counts>>,
    ) {
        if self.due.is_due(now) {
            self.waiting = places
                .filter_map(|place| match &place.role {
                    Role::Container { pod, id, .. } => Some(Who {
                        path: Arc::clone(place.container.path()),
                        pod: Arc::clone(pod),
                        id: id.clone(),
                    }),
                    _ => None,
                })
                .collect();
            // What has gone is not shown any more.
            let there = &self.waiting;
            let mut gauges = memory.gauges().lock();
            gauges
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

    /// Notes the windows that are over.
    pub fn note(&mut self, now: Duration, batch: &mut Batch, memory: &Memory) {
        let (over, counting): (Vec<Counting>, Vec<Counting>) = std::mem::take(&mut self.counting)
            .into_iter()
            .partition(|one| now.saturating_sub(one.began) >= self.config.window);
        self.counting = counting;
        if over.is_empty() {
            return;
        }
        let mut gauges = memory.gauges().lock();
        for one in over {
            if !one.counters.read(&mut self.readings) {
                continue;
            }
            let Some(cpi) = one.window.end(&self.readings) else {
                continue;
            };
            let Who { pod, id, .. } = one.who;
            for (resource, value) in [("cycle", cpi.cycles), ("instruction", cpi.instructions)] {
                let properties = [&*pod, &*id, resource];
                batch.put(memory, c::CONTAINER_CPI, &properties, value as f64);
            }
            gauges.cpi.retain(|known| known.id != id);
            gauges.cpi.push(CpiGauge {
                id,
                cycles: cpi.cycles,
                instructions: cpi.instructions,
            });
        }
    }
}
