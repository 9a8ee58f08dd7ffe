//! Which pods there are, and which cgroup is whose, from what the runtimes say.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_containers::{Identity, names};
use plimsoll_host::Timestamp;

use crate::rest::{CpuInst, Range, Snapshot, cpu_inst};
use plimsoll_observe::disk_usage::PodKey;
use plimsoll_observe::store::{Container, Store};
use plimsoll_observe::{Group, Sample};

/// Which cgroups are a pod's.
#[derive(Debug)]
pub struct Members {
    pub key: PodKey,
    cgroup: Option<Found>,
    sandbox: Option<Found>,
    containers: BTreeMap<String, Found>,
}

#[derive(Debug)]
struct Found {
    container: Arc<Container>,
    created: Timestamp,
}

/// One pod with what is known of it.
#[derive(Debug)]
pub struct Pod {
    pub key: PodKey,
    /// The pod's own cgroup.
    pub cgroup: Option<Snapshot>,
    /// The container that holds the pod's network.
    pub sandbox: Option<Snapshot>,
    /// By name.
    pub containers: BTreeMap<String, Snapshot>,
}

/// Two samples tell a rate.
pub fn snapshot(store: &Store, path: &str) -> Option<Snapshot> {
    let container = store.get(path)?;
    Some(Snapshot::take(&container, &Range::newest(2)))
}

/// The newest sample, and the rate since the one before.
pub fn latest(snapshot: &Snapshot) -> Option<(&Sample, Option<CpuInst>)> {
    match snapshot.samples.as_slice() {
        [] => None,
        [newest] => Some((newest, None)),
        [.., last, newest] => Some((newest, cpu_inst(Some(last), newest))),
    }
}

/// All pods, by namespace and name. What is known of them is [taken](Members::take) one at a time: two samples of every
/// container at once are megabytes.
///
/// The kubelet goes by running containers: a pod between two attempts has a sandbox and is not told of.
pub fn pods(store: &Store) -> Vec<Members> {
    let mut pods: BTreeMap<PodKey, Members> = BTreeMap::new();
    let mut cgroups: BTreeMap<String, Found> = BTreeMap::new();
    for container in store.all() {
        let identity = container.lock().identity.clone();
        let Some(identity) = identity else {
            if let Some(pod) = names::pod(container.path()).filter(|pod| pod.is_self) {
                cgroups.insert(pod.uid, Found::new(container));
            }
            continue;
        };
        let Some(key) = PodKey::of(&identity) else {
            continue;
        };
        let pod = pods.entry(key).or_insert_with_key(|key| Members {
            key: key.clone(),
            cgroup: None,
            sandbox: None,
            containers: BTreeMap::new(),
        });
        pod.add(container, &identity);
    }
    pods.retain(|_, pod| !pod.containers.is_empty());
    for pod in pods.values_mut() {
        pod.cgroup = cgroups.remove(&pod.key.uid);
    }
    without_doubles(pods.into_values().collect())
}

impl Found {
    fn new(container: Arc<Container>) -> Self {
        let created = container.lock().created();
        Self { container, created }
    }

    fn take(&self) -> Snapshot {
        Snapshot::take(&self.container, &Range::newest(2))
    }
}

/// containerd's sandboxes have no container name, CRI-O's and Docker's are called `POD`.
fn is_sandbox(identity: &Identity) -> bool {
    identity.label("io.cri-containerd.kind") == "sandbox"
        || matches!(identity.label("io.kubernetes.container.name"), "" | "POD")
}

impl Members {
    fn add(&mut self, container: Arc<Container>, identity: &Identity) {
        let found = Found::new(container);
        if is_sandbox(identity) {
            self.sandbox = Some(found);
            return;
        }
        if is_over(&found.take()) {
            return;
        }
        let name = identity.label("io.kubernetes.container.name").to_owned();
        // A restarted container's cgroup may outlive it for a while.
        match self.containers.get(&name) {
            Some(known) if known.created > found.created => {}
            _ => {
                self.containers.insert(name, found);
            }
        }
    }

    fn created(&self) -> Option<Timestamp> {
        let of = self.sandbox.as_ref().or(self.cgroup.as_ref());
        of.map(|found| found.created)
    }

    pub fn take(&self) -> Pod {
        let containers = self.containers.iter();
        Pod {
            key: self.key.clone(),
            cgroup: self.cgroup.as_ref().map(Found::take),
            sandbox: self.sandbox.as_ref().map(Found::take),
            containers: containers
                .map(|(name, found)| (name.clone(), found.take()))
                .collect(),
        }
    }
}

impl Pod {
    pub fn created(&self) -> Option<Timestamp> {
        let of = self.sandbox.as_ref().or(self.cgroup.as_ref());
        of.map(|snapshot| snapshot.created)
    }
}

/// The leftover cgroup of a container that has ended: it holds nothing and does nothing.
fn is_over(snapshot: &Snapshot) -> bool {
    let Some((sample, rate)) = latest(snapshot) else {
        return true;
    };
    let idle = rate.is_none_or(|rate| rate.usage.total == 0);
    sample.has(Group::Memory) && idle && sample.memory.rss == 0 && sample.memory.working_set == 0
}

/// Of two pods of one name (a static pod made anew), the newer: the page may not hold a series twice.
fn without_doubles(pods: Vec<Members>) -> Vec<Members> {
    let mut kept: Vec<Members> = Vec::with_capacity(pods.len());
    for pod in pods {
        match kept.last_mut() {
            Some(last) if last.key.is_namesake(&pod.key) => {
                if pod.created() > last.created() {
                    *last = pod;
                }
            }
            _ => kept.push(pod),
        }
    }
    kept
}
