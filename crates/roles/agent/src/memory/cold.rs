//! Cold pages, on kernels that scan for them, and what is in use without them.

use plimsoll_actuate::Monitor;
use plimsoll_containers::CgroupPath;
use plimsoll_host::cgroup::Controller;
use plimsoll_host::{HostRoot, ReadBuf, kidled, parse_file};
use plimsoll_observe::Observer;
use plimsoll_observe::usage::{hot_use, machine_memory};

use super::keeper::Tools;
use super::places::{Place, Role};
use super::round::Batch;
use super::{Memory, Metric, catalogue as c};

/// Has the kernel scan. `false`: it cannot.
pub fn start(root: &HostRoot) -> bool {
    if !kidled::is_supported(root) {
        tracing::warn!("this kernel does not look for cold pages; memory is told without them");
        return false;
    }
    match Monitor::new(root.clone()).scan_cold_pages() {
        Ok(()) => true,
        Err(error) => {
            tracing::warn!(%error, "cold pages cannot be looked for; memory is told without them");
            false
        }
    }
}

pub fn note<'a>(
    batch: &mut Batch,
    memory: &Memory,
    places: impl Iterator<Item = &'a Place>,
    observer: &Observer,
    tools: &Tools,
    buf: &mut ReadBuf,
) {
    if let Some(cold) = cold_bytes(tools, &"/".into(), buf) {
        let used = observer
            .machine
            .look(|figures| machine_memory(&figures.memory));
        let metrics = [
            c::NODE_MEMORY_COLD_PAGE_SIZE,
            c::NODE_MEMORY_WITH_HOT_PAGE_USAGE,
        ];
        put(batch, memory, metrics, &[], cold, used.with_page_cache);
    }
    for place in places {
        let (metrics, name) = match &place.role {
            Role::Pod { uid, .. } => (
                [
                    c::POD_MEMORY_COLD_PAGE_SIZE,
                    c::POD_MEMORY_WITH_HOT_PAGE_USAGE,
                ],
                &**uid,
            ),
            Role::Container { id, .. } => (
                [
                    c::CONTAINER_MEMORY_COLD_PAGE_SIZE,
                    c::CONTAINER_MEMORY_WITH_HOT_PAGE_USAGE,
                ],
                &**id,
            ),
            Role::HostApplication { name } => (
                [
                    c::HOST_APPLICATION_MEMORY_COLD_PAGE_SIZE,
                    c::HOST_APPLICATION_MEMORY_WITH_HOT_PAGE_USAGE,
                ],
                &**name,
            ),
            Role::BestEffort => continue,
        };
        let cold = cold_bytes(tools, place.container.path(), buf);
        if let Some((cold, used)) = cold.zip(place.with_page_cache) {
            put(batch, memory, metrics, &[name], cold, used);
        }
    }
}

fn put(
    batch: &mut Batch,
    memory: &Memory,
    [size, hot]: [Metric; 2],
    properties: &[&str],
    cold: u64,
    with_page_cache: u64,
) {
    batch.put(memory, size, properties, cold as f64);
    let value = hot_use(with_page_cache, cold) as f64;
    batch.put(memory, hot, properties, value);
}

/// `None`: the cgroup has gone, or has no such file.
fn cold_bytes(tools: &Tools, path: &CgroupPath, buf: &mut ReadBuf) -> Option<u64> {
    let dir = tools.hierarchies.dir(Controller::Memory, path)?;
    match parse_file(&dir.join(kidled::FILE), buf, kidled::parse_cold_bytes) {
        Ok(cold) => cold,
        Err(error) => {
            tracing::debug!(%error, "cold pages of a cgroup cannot be read");
            None
        }
    }
}
