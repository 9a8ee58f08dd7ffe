//! The sampler's few writes, made by the crate that may write.

use std::path::{Path, PathBuf};

use plimsoll_actuate::{Monitor, MonitorError};
use plimsoll_host::resctrl::Resctrl;
use plimsoll_host::{HostError, HostRoot};
use plimsoll_observe::MonitorWrites;

#[derive(Debug)]
pub struct SamplerWrites(Monitor);

impl SamplerWrites {
    pub fn new(root: HostRoot) -> Self {
        Self(Monitor::new(root))
    }
}

fn told(error: MonitorError) -> HostError {
    HostError::io(error.operation, &error.path, error.cause)
}

impl MonitorWrites for SamplerWrites {
    fn clear_refs(&self, pid: u32) -> Result<bool, HostError> {
        self.0.clear_refs(pid).map_err(told)
    }

    fn scan_cold_pages(&self) -> Result<(), HostError> {
        self.0.scan_cold_pages().map_err(told)
    }

    fn create_group(
        &self,
        resctrl: &Resctrl,
        control: &Path,
        cgroup: &str,
        threads: &[u32],
    ) -> Result<PathBuf, HostError> {
        let group = self.0.create_group(resctrl, control, cgroup, threads);
        group.map_err(told)
    }

    fn remove_group(&self, resctrl: &Resctrl, group: &Path) -> Result<bool, HostError> {
        self.0.remove_group(resctrl, group).map_err(told)
    }
}
