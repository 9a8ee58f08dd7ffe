//! How long writes take, by the kind of value and by how they ended.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use plimsoll_host::Clock;
use plimsoll_plan::Target;

use crate::place::kind_of;

/// Upper bounds in milliseconds: koordlet's, each four times the last.
pub const BOUNDS: [f64; 8] = [0.01, 0.04, 0.16, 0.64, 2.56, 10.24, 40.96, 163.84];

/// Writes of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Took {
    /// Writes that took no longer than each bound, and longer than the one before.
    pub buckets: [u64; BOUNDS.len()],
    pub count: u64,
    pub milliseconds: f64,
}

impl Took {
    fn add(&mut self, time: Duration) {
        let milliseconds = time.as_secs_f64() * 1000.0;
        let bucket = BOUNDS.iter().position(|bound| milliseconds <= *bound);
        if let Some(bucket) = bucket {
            self.buckets[bucket] = self.buckets[bucket].saturating_add(1);
        }
        self.count = self.count.saturating_add(1);
        self.milliseconds += milliseconds;
    }
}

/// Shared by all threads that write; clones are the same. The key is koordlet's name of the value, and whether the write
/// succeeded.
#[derive(Debug, Clone, Default)]
pub struct Durations(Arc<Mutex<BTreeMap<(&'static str, bool), Took>>>);

impl Durations {
    /// Carries out a write and notes how long it took.
    pub fn time<T, E>(
        &self,
        target: &Target,
        write: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        let before = Clock::Real.monotonic();
        let outcome = write();
        let took = Clock::Real.monotonic().saturating_sub(before);
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let of = all.entry((kind_of(target), outcome.is_ok())).or_default();
        of.add(took);
        outcome
    }

    pub fn all(&self) -> Vec<((&'static str, bool), Took)> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().map(|(key, took)| (*key, *took)).collect()
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_plan::Knob;

    use super::*;

    #[test]
    fn writes_by_kind_and_outcome() {
        let durations = Durations::default();
        let target = Target::cgroup(&"/kubepods".into(), Knob::CpuQuota);
        let _: Result<(), ()> = durations.time(&target, || Ok(()));
        let _: Result<(), ()> = durations.time(&target, || Err(()));
        let _: Result<(), ()> = durations.time(&target, || Err(()));
        let all: Vec<_> = durations.all();
        let all: Vec<_> = all.iter().map(|(key, took)| (*key, took.count)).collect();
        let kind = "cpu.cfs_quota_us";
        assert_eq!(all, [((kind, false), 2), ((kind, true), 1)]);
    }

    #[test]
    fn a_time_is_in_one_bucket() {
        let mut took = Took::default();
        for microseconds in [10, 11, 40, 200_000] {
            took.add(Duration::from_micros(microseconds));
        }
        assert_eq!(took.buckets, [1, 2, 0, 0, 0, 0, 0, 0]);
        assert_eq!(took.count, 4);
        assert!((took.milliseconds - 200.061).abs() < 1e-9);
    }
}
