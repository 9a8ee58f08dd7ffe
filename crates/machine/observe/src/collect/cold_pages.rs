//! Cold pages of cgroups, counted by kidled.

use plimsoll_containers::CgroupPath;
use plimsoll_host::cgroup::{Controller, Hierarchies};
use plimsoll_host::{HostRoot, ReadBuf, kidled, parse_file};

use crate::MonitorWrites;

/// Turns kidled on. `false`: the kernel has none, or it cannot be turned on.
pub fn enable(root: &HostRoot, writes: &dyn MonitorWrites) -> bool {
    if !kidled::is_supported(root) {
        tracing::warn!(
            "ColdPageCollector is on, but the kernel has no kidled (/sys/kernel/mm/kidled); cold-page metrics are off"
        );
        return false;
    }
    match writes.scan_cold_pages() {
        Ok(()) => true,
        Err(error) => {
            tracing::warn!(%error, "cannot set up kidled; cold-page metrics are off");
            false
        }
    }
}

/// `None`: the cgroup has gone, or has no such file.
pub fn cold_bytes(hierarchies: &Hierarchies, path: &CgroupPath, buf: &mut ReadBuf) -> Option<u64> {
    let dir = hierarchies.dir(Controller::Memory, path)?;
    match parse_file(&dir.join(kidled::FILE), buf, kidled::parse_cold_bytes) {
        Ok(cold) => cold,
        Err(error) => {
            tracing::debug!(%error, "cannot read the cold pages of a cgroup");
            None
        }
    }
}
