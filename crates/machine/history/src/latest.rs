//! The latest values that metrics pages show beside the series.

use plimsoll_observe::collect::resctrl::ResctrlValue;

use super::cpi::LatestCpi;
use super::forecast::Predictions;

#[derive(Debug, Default)]
pub struct Latest {
    pub node_cpu: Option<f64>,
    pub node_memory: Option<f64>,
    pub forecast: Option<Predictions>,
    pub cpu_info: CollectStatus,
    pub numa_info: CollectStatus,
    pub storage_info: CollectStatus,
    pub cpi: Vec<LatestCpi>,
    pub resctrl: Vec<ResctrlValue>,
}

/// Outcomes of collecting something.
#[derive(Debug, Clone, Copy, Default)]
pub struct CollectStatus {
    pub succeeded: u64,
    pub failed: u64,
}

impl CollectStatus {
    pub fn count<T, E>(&mut self, outcome: &Result<T, E>) {
        match outcome {
            Ok(_) => self.succeeded += 1,
            Err(_) => self.failed += 1,
        }
    }
}
