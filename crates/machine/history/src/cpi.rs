//! Records cycles and instructions of containers, counted for a short window at an interval.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_containers::CgroupPath;
use plimsoll_host::machine::NodeCpuInfo;
use plimsoll_observe::collect::cpi::{Counts, CpiCollector};

use super::cgroup_roles::{CgroupRole, TrackedCgroup};
use super::collect::SampleBatch;
use super::recorder::Periodic;
use super::{Cpi as Config, UsageHistory, metrics as c};

/// The numbers of the machine's CPUs.
pub fn numbers(cpus: &NodeCpuInfo) -> Vec<u32> {
    cpus.processors.iter().map(|one| one.cpu).collect()
}

#[derive(Debug, Clone)]
struct Owner {
    pod: Arc<str>,
    id: Box<str>,
}

#[derive(Debug)]
pub struct CpiRecorder {
    due: Periodic,
    collector: CpiCollector<Owner>,
}

/// The counts of one container's last window.
#[derive(Debug, Clone)]
pub struct LatestCpi {
    pub id: Box<str>,
    pub cycles: u64,
    pub instructions: u64,
}

impl CpiRecorder {
    pub fn new(config: Config) -> Self {
        Self {
            due: Periodic::now(config.every),
            collector: CpiCollector::new(config.window),
        }
    }

    /// Starts windows that are due; `open` gives a container's counters.
    pub fn start_windows<'a>(
        &mut self,
        now: Duration,
        history: &UsageHistory,
        cgroups: impl Iterator<Item = &'a TrackedCgroup>,
        open: impl FnMut(&CgroupPath) -> Option<Box<dyn Counts>>,
    ) {
        if self.due.is_due(now) {
            let containers: Vec<(Owner, CgroupPath)> = cgroups
                .filter_map(|cgroup| match &cgroup.role {
                    CgroupRole::Container { pod, id, .. } => {
                        let owner = Owner {
                            pod: Arc::clone(pod),
                            id: (&**id).into(),
                        };
                        Some((owner, Arc::clone(cgroup.container.path())))
                    }
                    _ => None,
                })
                .collect();
            // Containers that have gone are not shown any more.
            let mut latest = history.latest().lock();
            latest
                .cpi
                .retain(|of| containers.iter().any(|(owner, _)| owner.id == of.id));
            drop(latest);
            self.collector.schedule(containers);
        }
        self.collector.start_windows(now, open);
    }

    /// Records the windows that are over.
    pub fn finish_windows(
        &mut self,
        now: Duration,
        batch: &mut SampleBatch,
        history: &UsageHistory,
    ) {
        for (Owner { pod, id }, cpi) in self.collector.finish_windows(now) {
            for (resource, value) in [("cycle", cpi.cycles), ("instruction", cpi.instructions)] {
                let labels = [&*pod, &*id, resource];
                batch.put(history, c::CONTAINER_CPI, &labels, value as f64);
            }
            let mut latest = history.latest().lock();
            latest.cpi.retain(|known| known.id != id);
            latest.cpi.push(LatestCpi {
                id,
                cycles: cpi.cycles,
                instructions: cpi.instructions,
            });
        }
    }
}
