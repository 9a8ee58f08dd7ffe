//! What was noted last, for pages that show it.

use super::cpi::CpiGauge;
use super::forecast::Forecasted;
use super::resctrl::ResctrlGauge;

#[derive(Debug, Default)]
pub struct Gauges {
    pub node_cpu: Option<f64>,
    pub node_memory: Option<f64>,
    pub forecast: Option<Forecasted>,
    pub cpu_info: Attempts,
    pub numa_info: Attempts,
    pub storage_info: Attempts,
    pub cpi: Vec<CpiGauge>,
    pub resctrl: Vec<ResctrlGauge>,
}

/// How often something was tried.
#[derive(Debug, Clone, Copy, Default)]
pub struct Attempts {
    pub succeeded: u64,
    pub failed: u64,
}

impl Attempts {
    pub fn count<T, E>(&mut self, outcome: &Result<T, E>) {
        match outcome {
            Ok(_) => self.succeeded += 1,
            Err(_) => self.failed += 1,
        }
    }
}
