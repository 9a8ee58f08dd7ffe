//! The newest usage of everything, for policies that act each second and must not wait for the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use plimsoll_host::Timestamp;
use plimsoll_observe::usage::TimedValue;

use super::cgroup_roles::{CgroupRole, TrackedCgroups};

/// CPU in cores, memory in bytes. A value that is older than two intervals is `None`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct UsageNow {
    /// Monotonic time.
    pub at: Duration,
    /// How often it is made.
    pub every: Duration,
    pub node_cpu: Option<f64>,
    pub node_memory: Option<f64>,
    /// Of the best-effort tier.
    pub best_effort_cpu: Option<f64>,
    /// What best-effort pods may use by CPU set and quota, in thousandths of a core.
    pub best_effort_real_limit: Option<f64>,
    pub pods: Vec<PodUsage>,
    pub containers: Vec<ContainerUsage>,
    pub host_applications: Vec<(Box<str>, Option<f64>)>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct PodUsage {
    pub uid: Arc<str>,
    pub cpu: Option<f64>,
    pub memory: Option<f64>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ContainerUsage {
    pub id: Arc<str>,
    pub cpu: Option<f64>,
    /// The share of periods in which the quota held it back, from 0 to 1.
    pub throttled: Option<f64>,
}

/// Where it is put. Nothing is made while nobody wants it.
#[derive(Debug, Default)]
pub struct UsageNowCell {
    wanted: AtomicBool,
    latest: Mutex<Option<Arc<UsageNow>>>,
}

impl UsageNowCell {
    pub fn want(&self) {
        self.wanted.store(true, Ordering::Relaxed);
    }

    pub fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::Relaxed)
    }

    pub fn latest(&self) -> Option<Arc<UsageNow>> {
        self.latest.lock().clone()
    }

    pub fn put(&self, usage: UsageNow) {
        *self.latest.lock() = Some(Arc::new(usage));
    }
}

/// What is still true of a value at `now`.
#[derive(Debug, Clone, Copy)]
pub struct Freshness {
    pub now: Timestamp,
    pub oldest: Duration,
}

impl Freshness {
    pub fn of(&self, value: Option<TimedValue>) -> Option<f64> {
        let value = value?;
        (self.now.since(value.at) <= self.oldest).then_some(value.value)
    }
}

impl UsageNow {
    pub(super) fn take_cgroups(&mut self, cgroups: &TrackedCgroups, fresh: Freshness) {
        for cgroup in cgroups.iter() {
            let (cpu, memory) = (fresh.of(cgroup.cpu), fresh.of(cgroup.memory));
            match &cgroup.role {
                CgroupRole::Pod { uid, .. } => {
                    let uid = Arc::clone(uid);
                    self.pods.push(PodUsage { uid, cpu, memory });
                }
                CgroupRole::Container { id, .. } => self.containers.push(ContainerUsage {
                    id: Arc::clone(id),
                    cpu,
                    throttled: fresh.of(cgroup.throttled),
                }),
                CgroupRole::BestEffort => self.best_effort_cpu = cpu,
                CgroupRole::HostApplication { name } => {
                    self.host_applications.push((name.clone(), cpu));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_values_are_not_known() {
        let at = Timestamp::from_secs(100);
        let fresh = |now| Freshness {
            now: Timestamp::from_secs(now),
            oldest: Duration::from_secs(2),
        };
        let value = Some(TimedValue { at, value: 1.5 });
        assert_eq!(fresh(102).of(value), Some(1.5));
        assert_eq!(fresh(103).of(value), None);
        // The clock was set back.
        assert_eq!(fresh(50).of(value), Some(1.5));
        assert_eq!(fresh(102).of(None), None);
    }

    #[test]
    fn nothing_is_made_for_nobody() {
        let cell = UsageNowCell::default();
        assert!(!cell.is_wanted() && cell.latest().is_none());
        cell.want();
        cell.put(UsageNow::default());
        assert!(cell.is_wanted() && cell.latest().is_some());
    }
}
