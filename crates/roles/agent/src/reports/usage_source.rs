//! The source of usage and forecasts for reports.

use std::time::Duration;

use jiff::Timestamp;
use plimsoll_host::gpu::Device;
use plimsoll_predict::reclaim::Reclaimable;

use crate::states::ClusterState;
use crate::workloads::workloads;
use plimsoll_history::{Series, Summary, UsageHistory, machine_facts};

/// Usage, forecasts and GPUs.
pub trait UsageSource: Send + Sync {
    /// `None`: there is not a single sample in that time.
    fn summary(&self, series: &Series, window: Duration, end: Timestamp) -> Option<Summary>;

    /// From the pods that were noted in the window. `None`: nothing can be foreseen.
    fn forecast(
        &self,
        cluster: &ClusterState,
        window: Duration,
        now: Timestamp,
    ) -> Option<Reclaimable>;

    /// The GPUs that were found, if any were looked for.
    fn gpus(&self) -> Vec<Device>;
}

impl UsageSource for UsageHistory {
    fn summary(&self, series: &Series, window: Duration, end: Timestamp) -> Option<Summary> {
        self.summary(series, window, end)
    }

    fn forecast(
        &self,
        cluster: &ClusterState,
        window: Duration,
        now: Timestamp,
    ) -> Option<Reclaimable> {
        // Without a pod list there is no forecast.
        cluster.pods.as_ref()?;
        Some(self.forecast(&workloads(cluster), window, now))
    }

    fn gpus(&self) -> Vec<Device> {
        let found = self.facts().get::<Vec<Device>>(machine_facts::GPU_DEVICES);
        found.map(|found| found.to_vec()).unwrap_or_default()
    }
}
