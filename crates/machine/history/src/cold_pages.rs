//! Cold pages by kidled, and memory usage without them.

use plimsoll_containers::CgroupPath;
use plimsoll_host::cgroup::Controller;
use plimsoll_host::{HostRoot, ReadBuf, kidled, parse_file};
use plimsoll_observe::Observer;
use plimsoll_observe::usage::{hot_use, machine_memory};

use super::cgroup_roles::{CgroupRole, TrackedCgroup};
use super::collect::SampleBatch;
use super::recorder::KernelSources;
use super::{Metric, UsageHistory, metrics as c};

/// Turns kidled on. `false`: the kernel has none, or it cannot be turned on.
pub fn start(root: &HostRoot) -> bool {
    if !kidled::is_supported(root) {
        tracing::warn!(
            "ColdPageCollector is on, but the kernel has no kidled (/sys/kernel/mm/kidled); cold-page metrics are off"
        );
        return false;
    }
    match kidled::write_settings(root) {
        Ok(()) => true,
        Err(error) => {
            tracing::warn!(%error, "cannot set up kidled; cold-page metrics are off");
            false
        }
    }
}

pub fn collect<'a>(
    batch: &mut SampleBatch,
    history: &UsageHistory,
    cgroups: impl Iterator<Item = &'a TrackedCgroup>,
    observer: &Observer,
    sources: &KernelSources,
    buf: &mut ReadBuf,
) {
    if let Some(cold) = cold_bytes(sources, &"/".into(), buf) {
        let used = observer
            .machine
            .look(|figures| machine_memory(&figures.memory));
        let metrics = [
            c::NODE_MEMORY_COLD_PAGE_SIZE,
            c::NODE_MEMORY_WITH_HOT_PAGE_USAGE,
        ];
        put(batch, history, metrics, &[], cold, used.with_page_cache);
    }
    for cgroup in cgroups {
        let (metrics, name) = match &cgroup.role {
            CgroupRole::Pod { uid, .. } => (
                [
                    c::POD_MEMORY_COLD_PAGE_SIZE,
                    c::POD_MEMORY_WITH_HOT_PAGE_USAGE,
                ],
                &**uid,
            ),
            CgroupRole::Container { id, .. } => (
                [
                    c::CONTAINER_MEMORY_COLD_PAGE_SIZE,
                    c::CONTAINER_MEMORY_WITH_HOT_PAGE_USAGE,
                ],
                &**id,
            ),
            CgroupRole::HostApplication { name } => (
                [
                    c::HOST_APPLICATION_MEMORY_COLD_PAGE_SIZE,
                    c::HOST_APPLICATION_MEMORY_WITH_HOT_PAGE_USAGE,
                ],
                &**name,
            ),
            CgroupRole::BestEffort => continue,
        };
        let cold = cold_bytes(sources, cgroup.container.path(), buf);
        if let Some((cold, used)) = cold.zip(cgroup.with_page_cache) {
            put(batch, history, metrics, &[name], cold, used);
        }
    }
}

fn put(
    batch: &mut SampleBatch,
    history: &UsageHistory,
    [size, hot]: [Metric; 2],
    labels: &[&str],
    cold: u64,
    with_page_cache: u64,
) {
    batch.put(history, size, labels, cold as f64);
    let value = hot_use(with_page_cache, cold) as f64;
    batch.put(history, hot, labels, value);
}

/// `None`: the cgroup has gone, or has no such file.
fn cold_bytes(sources: &KernelSources, path: &CgroupPath, buf: &mut ReadBuf) -> Option<u64> {
    let dir = sources.hierarchies.dir(Controller::Memory, path)?;
    match parse_file(&dir.join(kidled::FILE), buf, kidled::parse_cold_bytes) {
        Ok(cold) => cold,
        Err(error) => {
            tracing::debug!(%error, "cannot read the cold pages of a cgroup");
            None
        }
    }
}
