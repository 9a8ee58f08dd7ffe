//! Where figures come from.

use std::time::Duration;

use jiff::Timestamp;
use plimsoll_predict::reclaim::Reclaimable;

use crate::memory::{Memory, Series, Summary};
use crate::states::Known;

/// What has been remembered, and what it lets us foresee.
pub trait Figures: Send + Sync {
    /// `None`: there is not a single sample in that time.
    fn summary(&self, series: &Series, window: Duration, end: Timestamp) -> Option<Summary>;

    /// `None`: nothing can be foreseen.
    fn forecast(&self, known: &Known, now: Timestamp) -> Option<Reclaimable>;
}

impl Figures for Memory {
    fn summary(&self, series: &Series, window: Duration, end: Timestamp) -> Option<Summary> {
        self.summary(series, window, end)
    }

    fn forecast(&self, known: &Known, now: Timestamp) -> Option<Reclaimable> {
        Some(self.forecast(known, now))
    }
}

/// A GPU as its driver tells it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Gpu {
    pub minor: u32,
    pub uuid: String,
    /// `NVIDIA A100-SXM4-80GB`.
    pub model: String,
    pub driver: String,
    /// Bytes.
    pub memory: u64,
    /// `None`: the machine has no NUMA nodes.
    pub numa_node: Option<i32>,
    /// The root it hangs below, `pci0000:3a`, and its own address, `0000:3b:00.0`.
    pub pcie: String,
    pub bus: String,
    /// The fatal error that it had, if it had one: a code and what it means.
    pub fault: Option<(String, String)>,
}
