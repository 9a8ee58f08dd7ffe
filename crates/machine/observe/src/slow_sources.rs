//! Reads slow sources (statfs, mount table, machine info) on their own threads and publishes the last result. The sampler
//! takes that and never waits. Disk usage of containers and pods is found on a thread of its own ([`crate::disk_usage`]).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use plimsoll_containers::runtime;
use plimsoll_host::fs::{
    DiskRow, DockerStorage, FsUsage, ImageStorage, MountTable, Partitions, StatfsWorker,
    filesystem_uuids, find_disk, read_diskstats,
};
use plimsoll_host::machine::{self, IdFiles, MachineInfo};
use plimsoll_host::{HostRoot, ReadBuf};

use crate::disk_usage::DiskUsageCollector;
use crate::machine::{MachineState, Storage};
use crate::sample::Filesystem;
use crate::store::{DeviceNames, Store};
use crate::{Group, GroupSet, Symbol};

/// Largest share of time spent in statfs: with many mounts the interval grows.
const SHARE: u32 = 100;

/// Paths on the machine.
#[derive(Debug, Clone)]
pub struct Paths {
    pub root: HostRoot,
    pub id_files: IdFiles,
    pub kubelet_dir: PathBuf,
}

#[derive(Debug)]
pub struct SlowSources {
    root: HostRoot,
    mounts: Arc<MountTable>,
    machine: Arc<MachineState>,
    store: Arc<Store>,
    groups: GroupSet,
    id_files: IdFiles,
    kubelet_dir: PathBuf,
    runtimes: Vec<Arc<runtime::Counters>>,
    /// Image directories and version of the mount table, as of the last update.
    storage: ImageStorage,
    version: Option<u64>,
    failed: bool,
    prober: StatfsWorker,
    partitions: Partitions,
    /// Devices by uuid.
    uuids: BTreeMap<String, String>,
    disks: Vec<DiskRow>,
    disks_failed: bool,
    buf: ReadBuf,
}

impl SlowSources {
    pub fn new(
        places: Paths,
        mounts: Arc<MountTable>,
        machine: Arc<MachineState>,
        store: Arc<Store>,
        groups: GroupSet,
        runtimes: Vec<Arc<runtime::Counters>>,
    ) -> Self {
        let Paths {
            root,
            id_files,
            kubelet_dir,
        } = places;
        Self {
            kubelet_dir,
            runtimes,
            id_files,
            root,
            mounts,
            machine,
            store,
            groups,
            version: None,
            failed: false,
            storage: ImageStorage::default(),
            prober: StatfsWorker::default(),
            partitions: Partitions::default(),
            uuids: BTreeMap::new(),
            disks: Vec::new(),
            disks_failed: false,
            buf: ReadBuf::default(),
        }
    }

    /// Image directories that runtimes have reported by now.
    fn image_storage(&self) -> ImageStorage {
        let mut roots = self.runtimes.iter().filter_map(|runtime| {
            let root = runtime.docker_root.lock();
            root.as_ref()?.to_str().map(str::to_owned)
        });
        ImageStorage {
            docker: roots.next().map(|root| DockerStorage { root, pool: None }),
            crio: None,
        }
    }

    /// Updates the mounts if the mount table or the image directories have changed.
    pub fn refresh_mounts(&mut self) {
        let storage = self.image_storage();
        let mounts = match self.mounts.current() {
            Ok(mounts) => mounts,
            Err(error) => {
                if !std::mem::replace(&mut self.failed, true) {
                    tracing::warn!(%error, "cannot read the mount table, keeping the last one");
                }
                return;
            }
        };
        self.failed = false;
        if self.version == Some(mounts.version) && self.storage == storage {
            return;
        }
        self.partitions = Partitions::new(&self.root, &mounts.list, &storage);
        // What could not be read is kept, and looked at again next time.
        let uuids = filesystem_uuids(&self.root);
        let version = uuids.is_ok().then_some(mounts.version);
        if let Ok(uuids) = uuids {
            self.uuids = uuids;
        }
        (self.version, self.storage) = (version, storage);
    }

    /// Reads the machine info again: disks, memory and network cards can be added while it runs.
    pub fn refresh_machine(&mut self) {
        let now = self.machine.now();
        match MachineInfo::read(&self.root, &self.id_files, now, &mut self.buf) {
            Ok(mut info) => {
                info.filesystems =
                    machine::filesystems(&self.root, &self.partitions, &mut self.prober);
                self.machine.set_info(info);
            }
            Err(error) => {
                tracing::warn!(%error, "cannot read the machine info, keeping the last one");
            }
        }
    }

    /// Reads usage of every file system and statistics of every disk.
    pub fn refresh_filesystems(&mut self) {
        let mut disks = Vec::with_capacity(self.disks.len());
        match read_diskstats(&self.root, &mut self.buf, &mut disks) {
            Ok(_) => {
                self.disks = disks;
                self.disks_failed = false;
            }
            // Half a table would be counters that fall back to zero.
            Err(error) => {
                if !std::mem::replace(&mut self.disks_failed, true) {
                    tracing::warn!(%error, "cannot read disk statistics, keeping the last ones");
                }
            }
        }
        self.name_devices();
        if !self.groups.has(Group::Disk) {
            return;
        }
        let mut rows = Vec::new();
        let mut storage = Vec::new();
        for (device, partition) in self.partitions.iter() {
            // Asking on another thread costs more than the question: only where a server may be dead.
            let may_hang = self.partitions.may_hang(&partition.mount_point);
            let prober = may_hang.then_some(&mut self.prober);
            // A mount that does not answer, or that has gone since the table was read, is left out.
            let Ok(usage) = partition.usage(&self.root, prober) else {
                continue;
            };
            let disk = find_disk(&self.disks, device, partition.major, partition.minor);
            rows.push(row(device, partition.kind.name(), usage, disk));
            storage.push(Storage {
                at: self.machine.now(),
                device: device.to_owned(),
                mount_point: partition.mount_point.clone(),
                capacity: usage.capacity,
                available: usage.available,
                usage: usage.used(),
                labels: self
                    .partitions
                    .labels_of(device)
                    .map(|label| label.name())
                    .collect(),
                inodes: usage.inodes,
                uuid: self
                    .uuids
                    .iter()
                    .find(|(_, named)| *named == device)
                    .map(|(uuid, _)| uuid.clone()),
            });
        }
        self.machine.set_filesystems(rows, storage);
    }

    fn name_devices(&self) {
        let names = DeviceNames::new(self.disks.iter().map(|disk| {
            let number = (u64::from(disk.major), u64::from(disk.minor));
            (number, format!("/dev/{}", disk.name.as_str()))
        }));
        if *self.store.devices() != names {
            self.store.set_devices(names);
        }
    }
}

fn row(device: &str, kind: &str, usage: FsUsage, disk: Option<&DiskRow>) -> Filesystem {
    let (inodes, inodes_free) = usage.inodes.unwrap_or((0, 0));
    Filesystem {
        device: Symbol::new(device),
        kind: Symbol::new(kind),
        capacity: usage.capacity,
        usage: usage.used(),
        available: usage.available,
        has_inodes: u64::from(usage.has_inodes()),
        inodes,
        inodes_free,
        disk: disk.map(|disk| disk.counters).unwrap_or_default(),
        ..Filesystem::default()
    }
}

/// The running threads.
#[derive(Debug)]
pub struct Handle {
    /// Dropping one ends its thread.
    stop: Vec<Sender<()>>,
    cancel: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Handle {
    /// Only a panic ends it before it is stopped.
    pub fn has_ended(&self) -> bool {
        self.threads.iter().any(JoinHandle::is_finished)
    }

    pub fn stop(self) {
        self.cancel.store(true, Ordering::Relaxed);
        drop(self.stop);
        // A mount that hangs must not hang the exit; the process takes the thread along.
        for thread in self.threads.into_iter().filter(JoinHandle::is_finished) {
            let _ = thread.join();
        }
    }

    fn spawn(
        &mut self,
        name: &str,
        work: impl FnOnce(&Receiver<()>, &AtomicBool) + Send + 'static,
    ) -> std::io::Result<()> {
        let (stop, stopped) = channel();
        let cancel = Arc::clone(&self.cancel);
        let thread = std::thread::Builder::new().name(name.into());
        let thread = thread.spawn(move || work(&stopped, &cancel))?;
        self.stop.push(stop);
        self.threads.push(thread);
        Ok(())
    }
}

/// Intervals of reading.
#[derive(Debug, Clone, Copy)]
pub struct Intervals {
    pub filesystems: Duration,
    pub machine: Duration,
}

/// Reads everything once, so that the first answer is complete, then starts the threads.
pub fn spawn(mut slow_sources: SlowSources, intervals: Intervals) -> std::io::Result<Handle> {
    slow_sources.refresh_mounts();
    slow_sources.refresh_machine();
    slow_sources.refresh_filesystems();
    let mut handle = Handle {
        stop: Vec::new(),
        cancel: Arc::default(),
        threads: Vec::new(),
    };
    if slow_sources.groups.has(Group::Disk) {
        let layers = DiskUsageCollector::new(
            slow_sources.root.clone(),
            Arc::clone(&slow_sources.mounts),
            Arc::clone(&slow_sources.machine),
            Arc::clone(&slow_sources.store),
            slow_sources.kubelet_dir.clone(),
        );
        let look_every = intervals.filesystems;
        handle.spawn("disk_usage", move |stopped, cancel| {
            layers.run(look_every, stopped, cancel);
        })?;
    }
    handle.spawn("slow_sources", move |stopped, _| {
        run(slow_sources, intervals, stopped);
    })?;
    Ok(handle)
}

fn run(mut slow_sources: SlowSources, intervals: Intervals, stopped: &Receiver<()>) {
    let mut machine_at = Instant::now();
    let mut pause = intervals.filesystems;
    loop {
        match stopped.recv_timeout(pause) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
        }
        slow_sources.refresh_mounts();
        if machine_at.elapsed() >= intervals.machine {
            slow_sources.refresh_machine();
            machine_at = Instant::now();
        }
        let started = Instant::now();
        slow_sources.refresh_filesystems();
        pause = intervals.filesystems.max(started.elapsed() * SHARE);
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_host::Clock;

    use super::*;
    use crate::machine::StaticInfo;

    /// With these mounts below a temporary directory, which is one file system.
    fn slow_sources(
        root: HostRoot,
        mounts: &str,
        runtimes: Vec<Arc<runtime::Counters>>,
    ) -> SlowSources {
        std::fs::create_dir_all(root.proc("1")).unwrap();
        std::fs::write(root.proc("1/mountinfo"), mounts).unwrap();
        let state = MachineState::new(Clock::Real, StaticInfo::default(), MachineInfo::default());
        let mut slow_sources = SlowSources::new(
            Paths {
                root: root.clone(),
                id_files: IdFiles::default(),
                kubelet_dir: PathBuf::new(),
            },
            Arc::new(MountTable::new(root)),
            Arc::new(state),
            Arc::new(Store::new(Duration::from_secs(1))),
            GroupSet::EMPTY.with(Group::Disk),
            runtimes,
        );
        slow_sources.refresh_mounts();
        slow_sources
    }

    #[test]
    fn a_mount_that_has_gone_is_not_shown_with_the_figures_of_what_is_around_it() {
        let dir = tempfile::tempdir().unwrap();
        let root = HostRoot::new(dir.path());
        std::fs::create_dir_all(root.path("/run/box/shm")).unwrap();
        let mounts = "27 1 254:0 / / rw - ext4 /dev/vda rw\n\
            90 27 0:4242 / /run/box/shm rw - tmpfs shm rw\n";
        let mut slow_sources = slow_sources(root, mounts, Vec::new());
        slow_sources.refresh_filesystems();
        let devices = |found: &[Storage]| -> Vec<String> {
            found.iter().map(|found| found.device.clone()).collect()
        };
        assert_eq!(devices(&slow_sources.machine.storage()), ["/dev/vda"]);
        let mut rows = Vec::new();
        slow_sources.machine.filesystems(&mut rows);
        assert_eq!(rows.len(), 1);
        slow_sources.refresh_machine();
        assert_eq!(slow_sources.machine.info().filesystems.len(), 1);
    }

    #[test]
    fn the_place_of_images_is_labelled_once_docker_has_told() {
        let dir = tempfile::tempdir().unwrap();
        let root = HostRoot::new(dir.path());
        let mounts = "27 1 254:0 / / rw - ext4 /dev/vda rw\n";
        let docker = Arc::new(runtime::Counters::default());
        let mut slow_sources = slow_sources(root, mounts, vec![Arc::clone(&docker)]);
        let labels = |slow_sources: &mut SlowSources| {
            slow_sources.refresh_mounts();
            slow_sources.refresh_filesystems();
            slow_sources.machine.storage()[0].labels.clone()
        };
        assert_eq!(labels(&mut slow_sources), ["root"]);
        *docker.docker_root.lock() = Some(PathBuf::from("/var/lib/docker"));
        assert_eq!(labels(&mut slow_sources), ["root", "docker-images"]);
    }
}
