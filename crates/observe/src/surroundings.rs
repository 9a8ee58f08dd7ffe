//! The slow sources, on a thread of their own: file systems that may hang, directory walks that take minutes, facts
//! about the machine that hardly change. The sampler only ever takes what is there.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use plimsoll_containers::{CgroupPath, Identity};
use plimsoll_host::fs::{
    DiskRow, FsUsage, ImageStorage, Partitions, Prober, Walk, dir_usage, filesystem_uuids,
    find_disk, overlay_upper_dir, read_diskstats, statfs,
};
use plimsoll_host::machine::{self, IdFiles, MachineInfo};
use plimsoll_host::{HostRoot, ReadBuf, read_file};
use rustc_hash::FxHashMap;

use crate::machine::{Layer, Logs, MachineState, Storage};
use crate::sample::Filesystem;
use crate::store::{DeviceNames, Store};
use crate::{Group, GroupSet, Symbol};

/// Mounts come and go seldom; the table of a busy node is long.
const MOUNTS_EVERY: Duration = Duration::from_secs(30);
/// A writable layer is walked this often, or less if walking takes long.
const LAYERS_EVERY: Duration = Duration::from_secs(60);
/// At most this share of the time is spent asking for usage: many mounts are asked less often.
const SHARE: u32 = 100;
const MOST_ENTRIES: u64 = 5_000_000;

#[derive(Debug)]
pub struct Surroundings {
    root: HostRoot,
    machine: Arc<MachineState>,
    store: Arc<Store>,
    groups: GroupSet,
    id_files: IdFiles,
    storage: ImageStorage,
    prober: Prober,
    partitions: Partitions,
    /// Devices by uuid.
    uuids: BTreeMap<String, String>,
    disks: Vec<DiskRow>,
    disks_failed: bool,
    layers_due: FxHashMap<CgroupPath, Instant>,
    /// Nothing to walk before this time, as long as the containers are those of this generation.
    layers_rest: Option<(Instant, u64)>,
    buf: ReadBuf,
}

impl Surroundings {
    pub fn new(
        root: HostRoot,
        machine: Arc<MachineState>,
        store: Arc<Store>,
        groups: GroupSet,
        id_files: IdFiles,
    ) -> Self {
        Self {
            id_files,
            root,
            machine,
            store,
            groups,
            storage: ImageStorage::default(),
            prober: Prober::default(),
            partitions: Partitions::default(),
            uuids: BTreeMap::new(),
            disks: Vec::new(),
            disks_failed: false,
            layers_due: FxHashMap::default(),
            layers_rest: None,
            buf: ReadBuf::default(),
        }
    }

    /// Reads the mount table again.
    pub fn refresh_mounts(&mut self) {
        match Partitions::read(&self.root, &self.storage, &mut self.buf) {
            Ok(partitions) => self.partitions = partitions,
            Err(error) => {
                tracing::warn!(%error, "cannot read the mount table, keeping the last one")
            }
        }
        self.uuids = filesystem_uuids(&self.root).unwrap_or_default();
    }

    /// Reads the machine's facts again: disks, memory and network cards can be added while it runs.
    pub fn refresh_machine(&mut self) {
        let now = self.machine.now();
        match MachineInfo::read(&self.root, &self.id_files, now, &mut self.buf) {
            Ok(mut info) => {
                info.filesystems =
                    machine::filesystems(&self.root, &self.partitions, &mut self.prober);
                self.machine.set_info(info);
            }
            Err(error) => {
                tracing::warn!(%error, "cannot read the machine's facts, keeping the last ones");
            }
        }
    }

    /// Asks every file system how full it is, and every disk what it did.
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
            let mount_point = self.root.path(&partition.mount_point);
            // Asking on another thread costs more than the question: only where a server may be dead.
            let usage = match self.partitions.may_hang(&partition.mount_point) {
                true => self.prober.usage(&mount_point),
                false => statfs(&mount_point),
            };
            // A mount that does not answer is left out until it does.
            let Ok(usage) = usage else {
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

    /// Walks the writable layers that are due.
    pub fn refresh_layers(&mut self, cancel: &AtomicBool) {
        if !self.groups.has(Group::Disk) {
            return;
        }
        let generation = self.store.generation();
        let resting = |(until, of)| of == generation && Instant::now() < until;
        if self.layers_rest.is_some_and(resting) {
            return;
        }
        let containers = self.store.all();
        for container in &containers {
            let identity = container.lock().identity.clone();
            let Some(identity) = identity else { continue };
            let due = self.layers_due.get(container.path());
            if due.is_some_and(|due| *due > Instant::now()) {
                continue;
            }
            let started = Instant::now();
            if let Some(layer) = self.layer(&identity, cancel) {
                self.machine.set_layer(Arc::clone(container.path()), layer);
            }
            let pause = LAYERS_EVERY.max(started.elapsed() * 10);
            self.layers_due
                .insert(Arc::clone(container.path()), Instant::now() + pause);
        }
        self.machine
            .retain_layers(|path| self.store.get(path).is_some());
        self.layers_due
            .retain(|path, _| self.store.get(path).is_some());
        let next = self.layers_due.values().min().copied();
        let next = next.unwrap_or_else(|| Instant::now() + LAYERS_EVERY);
        self.layers_rest = Some((next, generation));
    }

    fn layer(&mut self, identity: &Identity, cancel: &AtomicBool) -> Option<Layer> {
        let dir = match &identity.writable_layer {
            Some(layer) => layer.clone(),
            None => self.overlay_of(identity.pid?)?,
        };
        let walk = Walk {
            cancel,
            most_entries: MOST_ENTRIES,
        };
        let base = dir_usage(&self.root.path(&dir), walk).ok()?;
        let logs = log_dir(identity).map(|dir| self.root.path(dir));
        let all_logs = logs.as_ref().and_then(|dir| dir_usage(dir, walk).ok());
        let (device, capacity) = self.device_of(&dir);
        let usage = Filesystem {
            device: Symbol::new(&device),
            kind: Symbol::new("vfs"),
            capacity,
            usage: base.bytes + all_logs.map_or(0, |walked| walked.bytes),
            base_usage: base.bytes,
            // The original says "inodes used" here, and clients read it so.
            inodes: base.inodes,
            has_inodes: 1,
            ..Filesystem::default()
        };
        Some(Layer {
            usage,
            logs: logs.and_then(|dir| log_files(&dir)),
        })
    }

    /// What the runtime does not tell, the container's own mount table does.
    fn overlay_of(&mut self, pid: u32) -> Option<PathBuf> {
        let table = self.root.proc(format!("{pid}/mountinfo"));
        let text = read_file(&table, &mut self.buf).ok().flatten()?;
        overlay_upper_dir(text)
    }

    fn device_of(&mut self, dir: &Path) -> (String, u64) {
        let device = self.partitions.device_of_dir(&self.root, dir);
        let Some(device) = device.ok().flatten().map(str::to_owned) else {
            return (String::new(), 0);
        };
        let mount = self
            .partitions
            .get(&device)
            .map(|p| self.root.path(&p.mount_point));
        let capacity = mount.and_then(|m| self.prober.usage(&m).ok());
        (device, capacity.map_or(0, |usage| usage.capacity))
    }
}

/// The files of a log directory, as the kubelet counts them: neither the directory itself nor what is below it.
fn log_files(dir: &Path) -> Option<Logs> {
    let mut logs = Logs::default();
    for entry in std::fs::read_dir(dir).ok()?.flatten() {
        // A file that was rotated away meanwhile takes nothing.
        if let Ok(found) = entry.metadata()
            && !found.is_dir()
        {
            logs.bytes += found.blocks() * 512;
            logs.inodes += 1;
        }
    }
    Some(logs)
}

/// Where a container's log files are: where its runtime says, or where the kubelet keeps those of pods.
fn log_dir(identity: &Identity) -> Option<PathBuf> {
    if let Some(dir) = &identity.log_dir {
        return Some(dir.clone());
    }
    let [namespace, pod, uid, container] = [
        "io.kubernetes.pod.namespace",
        "io.kubernetes.pod.name",
        "io.kubernetes.pod.uid",
        "io.kubernetes.container.name",
    ]
    .map(|key| identity.label(key));
    let known = !uid.is_empty() && !container.is_empty();
    known.then(|| PathBuf::from(format!("/var/log/pods/{namespace}_{pod}_{uid}/{container}")))
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

/// The running thread.
#[derive(Debug)]
pub struct Handle {
    stop: Sender<()>,
    cancel: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl Handle {
    pub fn stop(self) {
        self.cancel
            .store(true, std::sync::atomic::Ordering::Relaxed);
        drop(self.stop);
        // A mount that hangs must not hang the exit; the process takes the thread along.
        if self.thread.is_finished() {
            let _ = self.thread.join();
        }
    }
}

/// How often each thing is looked at.
#[derive(Debug, Clone, Copy)]
pub struct Intervals {
    pub filesystems: Duration,
    pub machine: Duration,
}

/// Reads everything once, so that the first answer is complete, then goes on in a thread.
pub fn spawn(mut surroundings: Surroundings, intervals: Intervals) -> std::io::Result<Handle> {
    surroundings.refresh_mounts();
    surroundings.refresh_machine();
    surroundings.refresh_filesystems();
    let (stop, stopped) = channel();
    let cancel = Arc::new(AtomicBool::new(false));
    let cancelled = Arc::clone(&cancel);
    let thread = std::thread::Builder::new()
        .name("surroundings".into())
        .spawn(move || run(surroundings, intervals, &stopped, &cancelled))?;
    Ok(Handle {
        stop,
        cancel,
        thread,
    })
}

fn run(
    mut surroundings: Surroundings,
    intervals: Intervals,
    stopped: &Receiver<()>,
    cancel: &AtomicBool,
) {
    let mut mounts_at = Instant::now();
    let mut machine_at = Instant::now();
    let mut pause = intervals.filesystems;
    loop {
        match stopped.recv_timeout(pause) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
        }
        if mounts_at.elapsed() >= MOUNTS_EVERY {
            surroundings.refresh_mounts();
            mounts_at = Instant::now();
        }
        if machine_at.elapsed() >= intervals.machine {
            surroundings.refresh_machine();
            machine_at = Instant::now();
        }
        let started = Instant::now();
        surroundings.refresh_filesystems();
        pause = intervals.filesystems.max(started.elapsed() * SHARE);
        surroundings.refresh_layers(cancel);
    }
}
