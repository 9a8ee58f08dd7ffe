//! State of the machine as a whole, as last read.

use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use plimsoll_containers::CgroupPath;
use plimsoll_host::machine::MachineInfo;
use plimsoll_host::proc::meminfo::Meminfo;
use plimsoll_host::proc::stat::ProcStat;
use plimsoll_host::{Clock, Timestamp};
use rustc_hash::FxHashMap;

use crate::disk_usage::PodDisk;
use crate::sample::Filesystem;

/// Written by the [slow_sources](crate::slow_sources) thread, read by the sampler and by requests.
#[derive(Debug)]
pub struct MachineState {
    clock: Clock,
    fixed: StaticInfo,
    info: RwLock<Arc<MachineInfo>>,
    filesystems: RwLock<Vec<Filesystem>>,
    storage: RwLock<Arc<Vec<Storage>>>,
    layers: RwLock<FxHashMap<CgroupPath, Layer>>,
    /// By the pod's uid.
    pod_disks: RwLock<FxHashMap<String, Arc<PodDisk>>>,
    figures: Mutex<NodeUsage>,
}

/// Usage of the whole node, read together with the root's sample if asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeUsage {
    /// `Timestamp::ZERO`: nothing was read yet.
    pub at: Timestamp,
    pub cpu: ProcStat,
    pub memory: Meminfo,
    /// By NUMA node; empty on machines without.
    pub numa: Vec<(u32, Meminfo)>,
}

/// What a container has written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Layer {
    pub usage: Filesystem,
    /// Where it has a log directory: the files in it.
    pub logs: Option<Written>,
}

/// What files take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Written {
    pub bytes: u64,
    pub inodes: u64,
}

impl std::ops::AddAssign for Written {
    fn add_assign(&mut self, more: Self) {
        self.bytes = self.bytes.saturating_add(more.bytes);
        self.inodes = self.inodes.saturating_add(more.inodes);
    }
}

/// One file system as the storage API tells it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Storage {
    pub at: Timestamp,
    pub device: String,
    pub mount_point: String,
    pub capacity: u64,
    pub available: u64,
    pub usage: u64,
    pub labels: Vec<&'static str>,
    /// (total, free), where the file system has them.
    pub inodes: Option<(u64, u64)>,
    pub uuid: Option<String>,
}

/// What does not change while the machine is up.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StaticInfo {
    /// When the machine was started.
    pub started: Timestamp,
    /// The same to the minute: the original gives no cgroup an earlier birth.
    pub boot: Timestamp,
    /// Every CPU as a list, `0-3`.
    pub all_cpus: String,
    pub kernel_version: String,
    pub os_version: String,
}

impl MachineState {
    pub fn new(clock: Clock, fixed: StaticInfo, info: MachineInfo) -> Self {
        Self {
            clock,
            fixed,
            info: RwLock::new(Arc::new(info)),
            filesystems: RwLock::default(),
            storage: RwLock::default(),
            layers: RwLock::default(),
            pod_disks: RwLock::default(),
            figures: Mutex::default(),
        }
    }

    /// Reads the node's usage without a copy.
    pub fn with_usage<T>(&self, look: impl FnOnce(&NodeUsage) -> T) -> T {
        look(&self.figures.lock())
    }

    /// Swaps in new usage; the caller gets the old buffers.
    pub fn replace_usage(&self, figures: &mut NodeUsage) {
        std::mem::swap(&mut *self.figures.lock(), figures);
    }

    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub fn fixed(&self) -> &StaticInfo {
        &self.fixed
    }

    pub fn info(&self) -> Arc<MachineInfo> {
        Arc::clone(&self.info.read())
    }

    pub fn set_info(&self, info: MachineInfo) {
        *self.info.write() = Arc::new(info);
    }

    /// The machine's file systems, as rows of the root container's sample.
    pub fn filesystems(&self, out: &mut Vec<Filesystem>) {
        out.extend_from_slice(&self.filesystems.read());
    }

    pub fn storage(&self) -> Arc<Vec<Storage>> {
        Arc::clone(&self.storage.read())
    }

    pub fn set_filesystems(&self, rows: Vec<Filesystem>, storage: Vec<Storage>) {
        *self.filesystems.write() = rows;
        *self.storage.write() = Arc::new(storage);
    }

    /// What a container's writable layer takes, where that has been counted.
    pub fn layer(&self, path: &str) -> Option<Layer> {
        self.layers.read().get(path).copied()
    }

    /// The layer as a row of the container's sample: with what the disk below it did, for everybody on it.
    pub fn layer_row(&self, path: &str) -> Option<Filesystem> {
        let mut row = self.layer(path)?.usage;
        let all = self.filesystems.read();
        if let Some(below) = all.iter().find(|below| below.device == row.device) {
            row.disk = below.disk;
        }
        Some(row)
    }

    pub fn set_layer(&self, path: CgroupPath, layer: Layer) {
        self.layers.write().insert(path, layer);
    }

    pub fn retain_layers(&self, keep: impl Fn(&str) -> bool) {
        self.layers.write().retain(|path, _| keep(path));
    }

    /// What a pod keeps besides its containers' layers, where that has been counted.
    pub fn pod_disk(&self, uid: &str) -> Option<Arc<PodDisk>> {
        self.pod_disks.read().get(uid).cloned()
    }

    pub fn set_pod_disk(&self, uid: String, disk: PodDisk) {
        self.pod_disks.write().insert(uid, Arc::new(disk));
    }

    pub fn retain_pod_disks(&self, keep: impl Fn(&str) -> bool) {
        self.pod_disks.write().retain(|uid, _| keep(uid));
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_host::fs::DiskCounters;

    use super::*;
    use crate::Symbol;

    #[test]
    fn a_layer_shows_the_disk_that_it_lies_on() {
        let state = MachineState::new(Clock::Real, StaticInfo::default(), MachineInfo::default());
        let on = |device: &str, usage, reads_completed| Filesystem {
            device: Symbol::new(device),
            usage,
            disk: DiskCounters {
                reads_completed,
                ..DiskCounters::default()
            },
            ..Filesystem::default()
        };
        let disks = vec![on("/dev/sda", 100, 7), on("/dev/sdb", 200, 8)];
        state.set_filesystems(disks, Vec::new());
        let layer = Layer {
            usage: on("/dev/sdb", 5, 0),
            logs: None,
        };
        state.set_layer("/docker/a".into(), layer);
        assert_eq!(state.layer_row("/docker/a"), Some(on("/dev/sdb", 5, 8)));
        assert_eq!(state.layer_row("/docker/b"), None);
    }
}
