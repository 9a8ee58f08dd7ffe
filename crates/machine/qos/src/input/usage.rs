//! What is used, as last measured. CPU is in cores, memory in bytes.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Figures that are older than two intervals are left out by whoever makes it.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct UsageSnapshot {
    pub node_cpu: Option<f64>,
    pub node_memory: Option<f64>,
    /// Of the best-effort tier as a whole.
    pub best_effort_cpu: Option<f64>,
    /// What best-effort pods may use together by their CPUs and their quota, in thousandths of a core.
    pub best_effort_real_limit: Option<f64>,
    /// By UID; also of pods that are gone from the list.
    pub pods: BTreeMap<Arc<str>, PodUsage>,
    /// By identity, without the runtime's scheme.
    pub containers: BTreeMap<Arc<str>, ContainerUsage>,
    /// CPU of programs of the host by their names.
    pub host_applications: BTreeMap<Box<str>, f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct PodUsage {
    pub cpu: Option<f64>,
    pub memory: Option<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ContainerUsage {
    pub cpu: Option<f64>,
    /// The share of its periods in which it was throttled, from 0 to 1.
    pub throttled: Option<f64>,
}

/// What is no number is not known.
pub fn finite(figure: Option<f64>) -> Option<f64> {
    figure.filter(|figure| figure.is_finite() && *figure >= 0.0)
}

impl UsageSnapshot {
    pub fn pod_cpu(&self, uid: &str) -> Option<f64> {
        finite(self.pods.get(uid)?.cpu)
    }

    pub fn pod_memory(&self, uid: &str) -> Option<f64> {
        finite(self.pods.get(uid)?.memory)
    }
}
