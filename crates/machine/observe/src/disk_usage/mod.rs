//! Disk usage of containers (writable layer, logs) and pods (volumes), found by walking directories. A large walk takes
//! minutes, so this has its own thread.

mod pod_volumes;
mod walk_queue;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use plimsoll_containers::{CgroupPath, Identity};
use plimsoll_host::fs::{
    ImageStorage, MountTable, Partitions, StatfsWorker, Walk, Walked, overlay_upper_dir,
    vfs_directory,
};
use plimsoll_host::{HostRoot, ReadBuf, Timestamp, read_file};
use rustc_hash::{FxHashMap, FxHashSet};

pub use self::pod_volumes::{PodDisk, PodKey, Volume};

use self::pod_volumes::{PodDisks, PodPlan, is_name, log_files};
use self::walk_queue::{Done, WalkQueue};
use crate::Symbol;
use crate::machine::{Layer, MachineState};
use crate::sample::Filesystem;
use crate::store::Store;

/// A writable layer or a pod's volumes are walked this often, or less if walking takes long.
const EVERY: Duration = Duration::from_secs(60);
const MOST_ENTRIES: u64 = 5_000_000;

/// Interval of checking for new containers and for the stop signal.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct DiskUsageCollector {
    root: HostRoot,
    mounts: Arc<MountTable>,
    machine: Arc<MachineState>,
    store: Arc<Store>,
    prober: StatfsWorker,
    /// Those of the mount table with this version.
    partitions: (Option<u64>, Partitions),
    /// Where a container writes never changes; found out once for each of its first processes.
    found: FxHashMap<CgroupPath, (u32, PathBuf)>,
    pods: PodDisks,
    /// `None`: being walked.
    due: FxHashMap<WalkTarget, Option<Instant>>,
    queue: WalkQueue<Purpose>,
    /// Nothing to walk before this time, as long as the containers are those of this generation.
    rest: Option<(Instant, u64)>,
    buf: ReadBuf,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum WalkTarget {
    Container(CgroupPath),
    Pod(PodKey),
}

/// What a walk is for, and what is known before it.
#[derive(Debug)]
enum Purpose {
    Layer {
        path: CgroupPath,
        dir: PathBuf,
        logs: Option<PathBuf>,
    },
    Pod {
        pod: PodKey,
        plan: PodPlan,
        at: Timestamp,
    },
}

impl DiskUsageCollector {
    pub fn new(
        root: HostRoot,
        mounts: Arc<MountTable>,
        machine: Arc<MachineState>,
        store: Arc<Store>,
        kubelet_dir: PathBuf,
    ) -> Self {
        Self {
            pods: PodDisks::new(root.clone(), kubelet_dir),
            root,
            mounts,
            machine,
            store,
            prober: StatfsWorker::default(),
            partitions: (None, Partitions::default()),
            found: FxHashMap::default(),
            due: FxHashMap::default(),
            queue: WalkQueue::default(),
            rest: None,
            buf: ReadBuf::default(),
        }
    }

    /// Looks for new containers at this interval, until stopped.
    pub fn run(mut self, look_every: Duration, stopped: &Receiver<()>, cancel: &AtomicBool) {
        loop {
            let pause = match self.queue.is_empty() {
                true => look_every,
                false => Duration::ZERO,
            };
            match stopped.recv_timeout(pause) {
                Err(RecvTimeoutError::Timeout) => self.refresh(cancel),
                Ok(()) | Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Starts walks of writable layers and pod volumes that are due, and continues those under way.
    fn refresh(&mut self, cancel: &AtomicBool) {
        let generation = self.store.generation();
        let resting = |(until, of)| of == generation && Instant::now() < until;
        if !self.rest.is_some_and(resting) {
            self.begin(generation);
        }
        let walk = Walk {
            cancel,
            most_entries: MOST_ENTRIES,
        };
        let began = Instant::now();
        while !self.queue.is_empty() && began.elapsed() < LOOK_AGAIN {
            if let Some(done) = self.queue.take_a_turn(walk) {
                self.finish(done);
            }
        }
    }

    fn begin(&mut self, generation: u64) {
        let mut pods = BTreeSet::new();
        for container in &self.store.all() {
            let identity = container.lock().identity.clone();
            let Some(identity) = identity else { continue };
            pods.extend(PodKey::of(&identity).filter(|pod| !pod.uid.is_empty()));
            let path = container.path();
            if self.is_due(&WalkTarget::Container(Arc::clone(path))) {
                self.begin_layer(path, &identity);
            }
        }
        self.machine
            .retain_layers(|path| self.store.get(path).is_some());
        let uids: FxHashSet<&str> = pods.iter().map(|pod| pod.uid.as_str()).collect();
        self.machine.retain_pod_disks(|uid| uids.contains(uid));
        self.found.retain(|path, _| self.store.get(path).is_some());
        self.due.retain(|whose, _| match whose {
            WalkTarget::Container(path) => self.store.get(path).is_some(),
            WalkTarget::Pod(pod) => pods.contains(pod),
        });
        for pod in pods {
            if self.is_due(&WalkTarget::Pod(pod.clone())) {
                self.begin_pod(pod);
            }
        }
        let next = self.due.values().flatten().min().copied();
        let next = next.unwrap_or_else(|| Instant::now() + EVERY);
        self.rest = Some((next, generation));
    }

    fn is_due(&self, whose: &WalkTarget) -> bool {
        match self.due.get(whose) {
            Some(Some(due)) => *due <= Instant::now(),
            Some(None) => false,
            None => true,
        }
    }

    fn reschedule(&mut self, whose: WalkTarget, pause: Duration) {
        let due = Instant::now() + pause;
        // What begins to rest now may be due before all others.
        if let Some((until, _)) = &mut self.rest {
            *until = due.min(*until);
        }
        self.due.insert(whose, Some(due));
    }

    fn begin_layer(&mut self, path: &CgroupPath, identity: &Identity) {
        let whose = WalkTarget::Container(Arc::clone(path));
        let dir = match (&identity.writable_layer, identity.pid) {
            (Some(layer), _) => Some(layer.clone()),
            (None, Some(pid)) => self.layer_of(path, pid),
            (None, None) => None,
        };
        let Some(dir) = dir else {
            return self.reschedule(whose, EVERY);
        };
        let logs = log_dir(identity).map(|dir| self.root.path(dir));
        let places = [Some(self.root.path(&dir)), logs.clone()];
        let purpose = Purpose::Layer {
            path: Arc::clone(path),
            dir,
            logs,
        };
        self.queue
            .add(purpose, places.into_iter().flatten().collect());
        self.due.insert(whose, None);
    }

    fn begin_pod(&mut self, pod: PodKey) {
        let whose = WalkTarget::Pod(pod.clone());
        let Some(plan) = self.pods.plan(&pod) else {
            return self.reschedule(whose, EVERY);
        };
        let places = plan.places();
        let at = self.machine.now();
        self.queue.add(Purpose::Pod { pod, plan, at }, places);
        self.due.insert(whose, None);
    }

    fn finish(&mut self, done: Done<Purpose>) {
        let whose = match done.purpose {
            Purpose::Layer { path, dir, logs } => {
                if let [Some(base), ..] = done.walked[..] {
                    let all_logs = done.walked.get(1).copied().flatten();
                    let layer = self.layer(&dir, base, all_logs, logs);
                    self.machine.set_layer(Arc::clone(&path), layer);
                }
                WalkTarget::Container(path)
            }
            Purpose::Pod { pod, plan, at } => {
                let disk = plan.finish(&done.walked, at, &mut self.prober);
                self.machine.set_pod_disk(pod.uid.clone(), disk);
                WalkTarget::Pod(pod)
            }
        };
        self.reschedule(whose, EVERY.max(done.spent * 10));
    }

    fn layer(
        &mut self,
        dir: &Path,
        base: Walked,
        all_logs: Option<Walked>,
        logs: Option<PathBuf>,
    ) -> Layer {
        let (device, capacity) = self.device_of(dir);
        let usage = Filesystem {
            device: Symbol::new(&device),
            kind: Symbol::new("vfs"),
            capacity,
            usage: base
                .bytes
                .saturating_add(all_logs.map_or(0, |walked| walked.bytes)),
            base_usage: base.bytes,
            // The original says "inodes used" here, and clients read it so.
            inodes: base.inodes,
            ..Filesystem::default()
        };
        Layer {
            usage,
            logs: logs.and_then(|dir| log_files(&dir)),
        }
    }

    /// From the container's mount table, where the runtime does not report it.
    fn layer_of(&mut self, path: &CgroupPath, pid: u32) -> Option<PathBuf> {
        if let Some((_, dir)) = self.found.get(path).filter(|(of, _)| *of == pid) {
            return Some(dir.clone());
        }
        let table = self.root.proc(format!("{pid}/mountinfo"));
        let text = read_file(&table, &mut self.buf).ok().flatten()?;
        let dir = overlay_upper_dir(text).or_else(|| {
            let machine = self.mounts.current().unwrap_or_default();
            vfs_directory(text, &machine.list)
        })?;
        self.found.insert(Arc::clone(path), (pid, dir.clone()));
        Some(dir)
    }

    /// A mount table that cannot be read now leaves the last one.
    fn partitions(&mut self) -> &Partitions {
        let (version, partitions) = &mut self.partitions;
        if let Ok(mounts) = self.mounts.current()
            && *version != Some(mounts.version)
        {
            *partitions = Partitions::new(&self.root, &mounts.list, &ImageStorage::default());
            *version = Some(mounts.version);
        }
        partitions
    }

    fn device_of(&mut self, dir: &Path) -> (String, u64) {
        let root = self.root.clone();
        let partitions = self.partitions();
        let device = partitions.device_of_dir(&root, dir);
        let Some(device) = device.ok().flatten().map(str::to_owned) else {
            return (String::new(), 0);
        };
        let mount = partitions.get(&device).map(|p| root.path(&p.mount_point));
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
    let known = is_name(uid) && is_name(container);
    let known = known && [namespace, pod].into_iter().all(|name| !name.contains('/'));
    known.then(|| PathBuf::from(format!("/var/log/pods/{namespace}_{pod}_{uid}/{container}")))
}

#[cfg(test)]
mod tests {
    use plimsoll_host::Clock;
    use plimsoll_host::machine::MachineInfo;

    use super::*;
    use crate::machine::StaticInfo;

    #[test]
    fn where_a_container_writes_is_looked_up_once_for_each_of_its_first_processes() {
        let dir = tempfile::tempdir().unwrap();
        let root = HostRoot::new(dir.path());
        let table = |pid: u32, upper: &str| {
            let line = format!("51 27 0:42 / / rw - overlay overlay rw,upperdir={upper}\n");
            std::fs::create_dir_all(root.proc(pid.to_string())).unwrap();
            std::fs::write(root.proc(format!("{pid}/mountinfo")), line).unwrap();
        };
        table(5, "/one");
        let state = MachineState::new(Clock::Real, StaticInfo::default(), MachineInfo::default());
        let mut layers = DiskUsageCollector::new(
            root.clone(),
            Arc::new(MountTable::new(root.clone())),
            Arc::new(state),
            Arc::new(Store::new(Duration::from_secs(1))),
            PathBuf::new(),
        );
        let path: CgroupPath = "/a".into();
        assert_eq!(layers.layer_of(&path, 5), Some("/one".into()));
        std::fs::remove_file(root.proc("5/mountinfo")).unwrap();
        assert_eq!(
            layers.layer_of(&path, 5),
            Some("/one".into()),
            "not read again"
        );
        assert_eq!(layers.layer_of(&path, 6), None, "another process");
        table(6, "/two");
        assert_eq!(layers.layer_of(&path, 6), Some("/two".into()));
    }
}
