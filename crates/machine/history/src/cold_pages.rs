//! Records cold pages, and memory usage without them.

use plimsoll_host::ReadBuf;
use plimsoll_observe::Observer;
use plimsoll_observe::collect::cold_pages::cold_bytes;
use plimsoll_observe::usage::{hot_page_usage, machine_memory};

use super::cgroup_roles::{CgroupRole, TrackedCgroup};
use super::collect::SampleBatch;
use super::recorder::KernelSources;
use super::{Metric, UsageHistory, metrics as c};

pub fn collect<'a>(
    batch: &mut SampleBatch,
    history: &UsageHistory,
    cgroups: impl Iterator<Item = &'a TrackedCgroup>,
    observer: &Observer,
    sources: &KernelSources,
    buf: &mut ReadBuf,
) {
    if let Some(cold) = cold_bytes(&sources.hierarchies, &"/".into(), buf) {
        let used = observer
            .machine
            .with_usage(|figures| machine_memory(&figures.memory));
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
        let cold = cold_bytes(&sources.hierarchies, cgroup.container.path(), buf);
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
    let value = hot_page_usage(with_page_cache, cold) as f64;
    batch.put(history, hot, labels, value);
}
