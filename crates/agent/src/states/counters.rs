//! How following the cluster goes.

use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    pub fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[derive(Debug, Default)]
pub struct Counters {
    /// Answers of the kubelet.
    pub pod_lists: Counter,
    pub pod_list_failures: Counter,
    pub kubelet_settings_failures: Counter,
    pub volume_failures: Counter,
}
