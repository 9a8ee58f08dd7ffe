//! All containers, each with its latest sample and its recent samples.
//!
//! The sampler is the only writer of samples; requests only read. A container is locked for the copy of one sample,
//! never across a kernel read.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use plimsoll_containers::{CgroupPath, Identity, Namespace};
use plimsoll_host::Timestamp;
use plimsoll_host::cgroup::{Cfs, Memory, NumaPages, Psi, Spec};
use rustc_hash::FxHashMap;

use crate::derived::Derived;
use crate::timed_store::TimedStore;
use crate::{Group, GroupSet, Sample};

#[derive(Debug)]
pub struct Store {
    containers: RwLock<BTreeMap<CgroupPath, Arc<Container>>>,
    /// Moves whenever a container comes, goes or gets another identity: label sets depend on nothing else.
    generation: AtomicU64,
    devices: RwLock<Arc<DeviceNames>>,
    keep: Duration,
}

#[derive(Debug)]
pub struct Container {
    path: CgroupPath,
    state: Mutex<State>,
    /// How many want its usage more often than all the rest.
    marks: AtomicUsize,
}

/// A container with a consumer for its usage: as long as this is held, its usage is read at the interval of usage.
#[derive(Debug)]
pub struct Marked(Arc<Container>);

impl Marked {
    pub fn new(container: Arc<Container>) -> Self {
        container.marks.fetch_add(1, Ordering::Relaxed);
        Self(container)
    }
}

impl Drop for Marked {
    fn drop(&mut self) {
        self.0.marks.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Deref for Marked {
    type Target = Arc<Container>;

    fn deref(&self) -> &Arc<Container> {
        &self.0
    }
}

/// The sample that the usage history reads.
#[derive(Debug, Clone, Default)]
pub struct UsageSample {
    pub at: Timestamp,
    /// Of CPU and memory, those that were read.
    pub groups: GroupSet,
    pub cpu_ns: u64,
    pub cfs: Cfs,
    /// Some of it: the lists of pages.
    pub memory: Memory,
    pub numa: NumaPages,
    /// CPU, memory, I/O; as of the last time that they were read.
    pub psi: [Psi; 3],
}

impl UsageSample {
    pub fn has(&self, group: Group) -> bool {
        self.groups.has(group)
    }
}

/// Everything about one container that a request may want.
#[derive(Debug)]
pub struct State {
    pub identity: Option<Arc<Identity>>,
    /// False while a runtime is queried for its identity: its series would change their labels.
    pub visible: bool,
    pub spec: Spec,
    /// When the cgroup was made, as the file system remembers it.
    pub created: Timestamp,
    /// The newest sample; meaningless until `sampled`.
    pub latest: Sample,
    pub sampled: bool,
    /// The newest reading of its usage, which may be newer than `latest`.
    pub usage: UsageSample,
    pub history: TimedStore,
    pub derived: Derived,
}

impl State {
    pub fn new(keep: Duration) -> Self {
        Self {
            identity: None,
            visible: true,
            spec: Spec::default(),
            created: Timestamp::ZERO,
            latest: Sample::default(),
            sampled: false,
            usage: UsageSample::default(),
            history: TimedStore::new(keep),
            derived: Derived::default(),
        }
    }

    /// From the runtime if it tells, else from the file system.
    pub fn created(&self) -> Timestamp {
        let told = self.identity.as_ref().and_then(|i| i.created);
        told.unwrap_or(self.created)
    }

    /// When it was started, where that is known.
    pub fn started(&self) -> Option<Timestamp> {
        self.identity.as_ref().and_then(|i| i.started)
    }

    /// Network, health and file systems belong to containers that a runtime knows, and to the machine itself.
    pub fn owns_network(&self) -> bool {
        self.identity.as_ref().is_some_and(|i| i.owns_network)
    }
}

impl Container {
    pub fn new(path: CgroupPath, keep: Duration) -> Self {
        Self {
            path,
            state: Mutex::new(State::new(keep)),
            marks: AtomicUsize::new(0),
        }
    }

    pub fn path(&self) -> &CgroupPath {
        &self.path
    }

    /// Whether anybody wants its usage.
    pub fn is_marked(&self) -> bool {
        self.marks.load(Ordering::Relaxed) > 0
    }

    pub fn lock(&self) -> parking_lot::MutexGuard<'_, State> {
        self.state.lock()
    }
}

impl Store {
    /// `keep`: how much history each container has.
    pub fn new(keep: Duration) -> Self {
        Self {
            containers: RwLock::default(),
            generation: AtomicU64::new(0),
            devices: RwLock::default(),
            keep,
        }
    }

    pub fn insert(&self, path: CgroupPath) -> Arc<Container> {
        let container = Arc::new(Container::new(Arc::clone(&path), self.keep));
        self.containers.write().insert(path, Arc::clone(&container));
        self.touch();
        container
    }

    pub fn remove(&self, path: &str) -> Option<Arc<Container>> {
        let removed = self.containers.write().remove(path);
        self.touch();
        removed
    }

    /// To be called after a container's identity or visibility changed.
    pub fn touch(&self) {
        self.generation.fetch_add(1, Ordering::AcqRel);
    }

    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    pub fn get(&self, path: &str) -> Option<Arc<Container>> {
        self.containers.read().get(path).cloned()
    }

    pub fn len(&self) -> usize {
        self.containers.read().len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Every visible container, sorted by path.
    pub fn all(&self) -> Vec<Arc<Container>> {
        let all: Vec<Arc<Container>> = self.containers.read().values().cloned().collect();
        all.into_iter().filter(|c| c.lock().visible).collect()
    }

    /// The visible containers at and below `path`, sorted.
    pub fn subtree(&self, path: &str) -> Vec<Arc<Container>> {
        let prefix = below(path);
        let map = self.containers.read();
        let found: Vec<Arc<Container>> = map
            .iter()
            .filter(|(p, _)| p.as_ref() == path || p.starts_with(&prefix))
            .map(|(_, c)| Arc::clone(c))
            .collect();
        drop(map);
        found.into_iter().filter(|c| c.lock().visible).collect()
    }

    /// The visible containers directly below `path`, sorted.
    pub fn children(&self, path: &str) -> Vec<Arc<Container>> {
        let prefix = below(path);
        self.subtree(path)
            .into_iter()
            .filter(|c| {
                c.path()
                    .strip_prefix(prefix.as_str())
                    .is_some_and(|rest| !rest.is_empty() && !rest.contains('/'))
            })
            .collect()
    }

    /// Every container of one runtime, sorted by path.
    pub fn of_namespace(&self, namespace: Namespace) -> Vec<Arc<Container>> {
        self.all()
            .into_iter()
            .filter(|c| {
                let state = c.lock();
                state
                    .identity
                    .as_ref()
                    .is_some_and(|i| i.namespace == namespace)
            })
            .collect()
    }

    /// The container that has this alias in this runtime.
    pub fn by_alias(&self, namespace: Namespace, alias: &str) -> Option<Arc<Container>> {
        self.of_namespace(namespace).into_iter().find(|c| {
            let state = c.lock();
            state
                .identity
                .as_ref()
                .is_some_and(|i| i.aliases.iter().any(|a| a == alias))
        })
    }

    pub fn devices(&self) -> Arc<DeviceNames> {
        Arc::clone(&self.devices.read())
    }

    pub fn set_devices(&self, devices: DeviceNames) {
        *self.devices.write() = Arc::new(devices);
    }
}

fn below(path: &str) -> String {
    if path.ends_with('/') {
        path.to_owned()
    } else {
        format!("{path}/")
    }
}

/// Block devices by number: `8:0` is `/dev/sda`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceNames(FxHashMap<(u64, u64), String>);

impl DeviceNames {
    pub fn new(names: impl IntoIterator<Item = ((u64, u64), String)>) -> Self {
        Self(names.into_iter().collect())
    }

    pub fn get(&self, major: u64, minor: u64) -> Option<&str> {
        self.0.get(&(major, minor)).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(found: &[Arc<Container>]) -> Vec<&str> {
        found.iter().map(|c| c.path().as_ref()).collect()
    }

    #[test]
    fn subtrees_and_children() {
        let store = Store::new(Duration::from_secs(1));
        for path in ["/", "/a", "/a/b", "/a/b/c", "/ab", "/hidden"] {
            store.insert(path.into());
        }
        store.get("/hidden").unwrap().lock().visible = false;
        assert_eq!(paths(&store.subtree("/a")), ["/a", "/a/b", "/a/b/c"]);
        assert_eq!(paths(&store.children("/")), ["/a", "/ab"]);
        assert_eq!(paths(&store.children("/a")), ["/a/b"]);
        assert_eq!(store.all().len(), 5);
        store.remove("/a");
        assert!(store.get("/a").is_none());
    }
}
