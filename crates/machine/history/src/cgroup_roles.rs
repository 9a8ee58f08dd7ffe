//! Which cgroups are recorded, and what each is: a pod, a container, the best-effort tier, a host application.

use std::sync::Arc;

use plimsoll_api::priority::KubeQos;
use plimsoll_containers::names;
use plimsoll_host::Timestamp;
use plimsoll_observe::store::{Container, Marked, Store};
use plimsoll_observe::usage::{Rate, ThrottleRatio, TimedValue};
use plimsoll_tsdb::SeriesId;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::{HostApplication, Pod, Workloads};

/// What a cgroup is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum CgroupRole {
    Pod {
        uid: Arc<str>,
        qos: names::Qos,
    },
    Container {
        pod: Arc<str>,
        id: Arc<str>,
        qos: names::Qos,
    },
    /// All best-effort pods.
    BestEffort,
    HostApplication {
        name: Box<str>,
    },
}

/// A recorded cgroup, its role, and the state of its rates.
#[derive(Debug)]
pub struct TrackedCgroup {
    /// Keeps the sampler reading its usage.
    pub container: Marked,
    pub role: CgroupRole,
    pub sampled: Option<Timestamp>,
    pub rate: Rate,
    pub throttling: ThrottleRatio,
    /// The newest share of throttled periods.
    pub throttled: Option<TimedValue>,
    pub cpu: Option<TimedValue>,
    pub memory: Option<TimedValue>,
    pub with_page_cache: Option<u64>,
    /// By position of the metric.
    pub series: Vec<Option<SeriesId>>,
}

/// All of them. Searched again only when cgroups, pods or host applications have changed.
#[derive(Debug, Default)]
pub struct TrackedCgroups {
    generation: Option<u64>,
    pods: Option<Arc<[Pod]>>,
    host_applications: Arc<[HostApplication]>,
    list: Vec<TrackedCgroup>,
}

impl TrackedCgroups {
    pub fn update(&mut self, store: &Store, workloads: &Workloads) {
        let generation = store.generation();
        let same_pods = match (&self.pods, &workloads.pods) {
            (Some(before), Some(now)) => Arc::ptr_eq(before, now),
            (before, now) => before.is_none() && now.is_none(),
        };
        let same_applications = Arc::ptr_eq(&self.host_applications, &workloads.host_applications);
        if same_pods && same_applications && self.generation == Some(generation) {
            return;
        }
        let mut before: FxHashMap<(Arc<str>, CgroupRole), TrackedCgroup> =
            std::mem::take(&mut self.list)
                .into_iter()
                .map(|cgroup| {
                    (
                        (Arc::clone(cgroup.container.path()), cgroup.role.clone()),
                        cgroup,
                    )
                })
                .collect();
        self.list = found(store, workloads)
            .into_iter()
            .map(|(container, role)| {
                // A new container at the path of an old one starts with new state.
                before
                    .remove(&(Arc::clone(container.path()), role.clone()))
                    .filter(|cgroup| Arc::ptr_eq(&cgroup.container, &container))
                    .unwrap_or_else(|| TrackedCgroup::new(container, role))
            })
            .collect();
        self.generation = Some(generation);
        self.pods.clone_from(&workloads.pods);
        self.host_applications = Arc::clone(&workloads.host_applications);
    }

    pub fn iter(&self) -> impl Iterator<Item = &TrackedCgroup> {
        self.list.iter()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut TrackedCgroup> {
        self.list.iter_mut()
    }

    /// All series ids are looked up again.
    pub fn forget_series(&mut self) {
        for cgroup in &mut self.list {
            cgroup.series.clear();
        }
    }
}

impl TrackedCgroup {
    fn new(container: Arc<Container>, role: CgroupRole) -> Self {
        Self {
            container: Marked::new(container),
            role,
            sampled: None,
            rate: Rate::default(),
            throttling: ThrottleRatio::default(),
            throttled: None,
            cpu: None,
            memory: None,
            with_page_cache: None,
            series: Vec::new(),
        }
    }
}

fn found(store: &Store, workloads: &Workloads) -> Vec<(Arc<Container>, CgroupRole)> {
    let pods = PodIndex::new(workloads);
    let mut found = Vec::new();
    for container in store.all() {
        let path = Arc::clone(container.path());
        if is_best_effort(&path) {
            found.push((container, CgroupRole::BestEffort));
            continue;
        }
        let Some(pod) = names::pod(&path) else {
            continue;
        };
        let uid = pods.uid(&pod.uid);
        if pod.is_self {
            found.push((container, CgroupRole::Pod { uid, qos: pod.qos }));
            continue;
        }
        // Cgroups that a container makes inside itself are part of it.
        if names::parent(&path) != Some(pod.path) {
            continue;
        }
        let Some(id) = names::container_id(&path) else {
            continue;
        };
        if pods.is_container(&uid, id, &container) {
            let role = CgroupRole::Container {
                pod: uid,
                id: id.into(),
                qos: pod.qos,
            };
            found.push((container, role));
        }
    }
    for application in workloads.host_applications.iter() {
        let mut paths = application.cgroups.iter().map(|path| format!("/{path}"));
        if let Some(container) = paths.find_map(|path| store.get(&path)) {
            let name = application.name.clone();
            found.push((container, CgroupRole::HostApplication { name }));
        }
    }
    found
}

/// Whether this is the kubelet's cgroup of best-effort pods, with either cgroup driver.
fn is_best_effort(path: &str) -> bool {
    let base = names::base_name(path);
    base.ends_with("kubepods-besteffort.slice")
        || (base == "besteffort"
            && names::parent(path).is_some_and(|above| names::base_name(above) == "kubepods"))
}

/// The cluster's pods by the id in their cgroup path.
struct PodIndex<'a> {
    has_list: bool,
    by_cgroup: FxHashMap<&'a str, &'a Pod>,
    containers: FxHashSet<&'a str>,
}

impl<'a> PodIndex<'a> {
    fn new(workloads: &'a Workloads) -> Self {
        let pods = || workloads.pods.iter().flat_map(|pods| pods.iter());
        let by_hash = pods().filter_map(|pod| Some((pod.config_hash.as_deref()?, pod)));
        let by_uid = pods().map(|pod| (&*pod.uid, pod));
        let containers = pods().flat_map(|pod| pod.containers.iter());
        Self {
            has_list: workloads.pods.is_some(),
            by_cgroup: by_hash.chain(by_uid).collect(),
            containers: containers.map(|id| &**id).collect(),
        }
    }

    fn uid(&self, cgroup: &str) -> Arc<str> {
        match self.by_cgroup.get(cgroup) {
            Some(pod) => Arc::clone(&pod.uid),
            None => cgroup.into(),
        }
    }

    /// False for pod sandboxes: the cluster does not list them, and runtimes mark them.
    fn is_container(&self, uid: &str, id: &str, container: &Container) -> bool {
        if self.has_list && self.by_cgroup.contains_key(uid) {
            return self.containers.contains(id);
        }
        let state = container.lock();
        let Some(identity) = &state.identity else {
            return true;
        };
        let name = identity.label("io.kubernetes.container.name");
        identity.label("io.cri-containerd.kind") != "sandbox" && !matches!(name, "" | "POD")
    }
}

/// The QoS class that a cgroup path tells.
pub fn kube_qos(qos: names::Qos) -> KubeQos {
    match qos {
        names::Qos::Guaranteed => KubeQos::Guaranteed,
        names::Qos::Burstable => KubeQos::Burstable,
        names::Qos::BestEffort => KubeQos::BestEffort,
    }
}
