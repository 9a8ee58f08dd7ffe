//! What containers have written to their own layers and logs, and pods to their volumes, found by walking directories:
//! minutes for a big one, so it has a thread to itself.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use plimsoll_containers::{CgroupPath, Identity};
use plimsoll_host::fs::{ImageStorage, Partitions, Prober, Walk, dir_usage, overlay_upper_dir};
use plimsoll_host::{HostRoot, ReadBuf, read_file};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::Symbol;
use crate::machine::{Layer, MachineState};
use crate::pod_disks::{PodDisks, PodKey, log_files};
use crate::sample::Filesystem;
use crate::store::Store;

/// A writable layer or a pod's volumes are walked this often, or less if walking takes long.
const EVERY: Duration = Duration::from_secs(60);
const MOST_ENTRIES: u64 = 5_000_000;

#[derive(Debug)]
pub(crate) struct Layers {
    root: HostRoot,
    machine: Arc<MachineState>,
    store: Arc<Store>,
    prober: Prober,
    partitions: Partitions,
    pods: PodDisks,
    due: FxHashMap<CgroupPath, Instant>,
    pods_due: FxHashMap<PodKey, Instant>,
    /// Nothing to walk before this time, as long as the containers are those of this generation.
    rest: Option<(Instant, u64)>,
    buf: ReadBuf,
}

impl Layers {
    pub fn new(
        root: HostRoot,
        machine: Arc<MachineState>,
        store: Arc<Store>,
        kubelet_dir: PathBuf,
    ) -> Self {
        Self {
            pods: PodDisks::new(root.clone(), kubelet_dir),
            root,
            machine,
            store,
            prober: Prober::default(),
            partitions: Partitions::default(),
            due: FxHashMap::default(),
            pods_due: FxHashMap::default(),
            rest: None,
            buf: ReadBuf::default(),
        }
    }

    /// Looks for new containers so often, until told to stop.
    pub fn run(mut self, look_every: Duration, stopped: &Receiver<()>, cancel: &AtomicBool) {
        loop {
            match stopped.recv_timeout(look_every) {
                Err(RecvTimeoutError::Timeout) => self.refresh(cancel),
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Walks the writable layers and the pods' volumes that are due.
    fn refresh(&mut self, cancel: &AtomicBool) {
        let generation = self.store.generation();
        let resting = |(until, of)| of == generation && Instant::now() < until;
        if self.rest.is_some_and(resting) {
            return;
        }
        // A mount table that cannot be read now leaves the last one.
        if let Ok(partitions) =
            Partitions::read(&self.root, &ImageStorage::default(), &mut self.buf)
        {
            self.partitions = partitions;
        }
        let mut pods = BTreeSet::new();
        for container in &self.store.all() {
            let identity = container.lock().identity.clone();
            let Some(identity) = identity else { continue };
            pods.extend(PodKey::of(&identity).filter(|pod| !pod.uid.is_empty()));
            let due = self.due.get(container.path());
            if due.is_some_and(|due| *due > Instant::now()) {
                continue;
            }
            let started = Instant::now();
            if let Some(layer) = self.layer(&identity, cancel) {
                self.machine.set_layer(Arc::clone(container.path()), layer);
            }
            let pause = EVERY.max(started.elapsed() * 10);
            self.due
                .insert(Arc::clone(container.path()), Instant::now() + pause);
        }
        self.machine
            .retain_layers(|path| self.store.get(path).is_some());
        self.due.retain(|path, _| self.store.get(path).is_some());
        self.refresh_pods(pods, cancel);
        let next = self.due.values().chain(self.pods_due.values()).min();
        let next = next.copied();
        let next = next.unwrap_or_else(|| Instant::now() + EVERY);
        self.rest = Some((next, generation));
    }

    fn refresh_pods(&mut self, pods: BTreeSet<PodKey>, cancel: &AtomicBool) {
        self.pods_due.retain(|pod, _| pods.contains(pod));
        let uids: FxHashSet<&str> = pods.iter().map(|pod| pod.uid.as_str()).collect();
        self.machine.retain_pod_disks(|uid| uids.contains(uid));
        for pod in pods {
            let due = self.pods_due.get(&pod);
            if due.is_some_and(|due| *due > Instant::now()) {
                continue;
            }
            let started = Instant::now();
            let walk = Walk {
                cancel,
                most_entries: MOST_ENTRIES,
            };
            let at = self.machine.now();
            if let Some(disk) = self.pods.walk(&pod, at, &mut self.prober, walk) {
                self.machine.set_pod_disk(pod.uid.clone(), disk);
            }
            let pause = EVERY.max(started.elapsed() * 10);
            self.pods_due.insert(pod, Instant::now() + pause);
        }
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
