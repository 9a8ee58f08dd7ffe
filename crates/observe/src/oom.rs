//! OOM kills by container, counted so that neither the end of a cgroup nor a restart of the agent loses one.

use parking_lot::Mutex;
use rustc_hash::FxHashMap;

/// Counts by the name under which a container lives on: a pod's container keeps its count when it is restarted with
/// another id, everything else goes by its cgroup path.
#[derive(Debug, Default)]
pub struct OomCounters {
    inner: Mutex<FxHashMap<String, u64>>,
}

impl OomCounters {
    pub fn count(&self, key: &str) -> u64 {
        self.inner.lock().get(key).copied().unwrap_or(0)
    }

    pub fn add(&self, key: &str) -> u64 {
        let mut inner = self.inner.lock();
        let count = inner.entry(key.to_owned()).or_insert(0);
        *count += 1;
        *count
    }
}
