//! Which cgroup is whose: pods, their containers, best-effort pods together, applications of the host.

use std::sync::Arc;

use plimsoll_api::priority::KubeQos;
use plimsoll_containers::names;
use plimsoll_host::Timestamp;
use plimsoll_observe::store::{Container, Marked, Store};
use plimsoll_observe::usage::{Dated, Rate, Throttling};
use plimsoll_tsdb::SeriesId;
use rustc_hash::{FxHashMap, FxHashSet};

use crate::states::{Known, NodeSlo, Pod};

/// A static pod's cgroup goes by the hash of its manifest, the cluster's copy of it by a UID of its own.
const CONFIG_HASH: &str = "kubernetes.io/config.hash";

/// Whose a cgroup is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Role {
    Pod {
        uid: Arc<str>,
        qos: names::Qos,
    },
    Container {
        pod: Arc<str>,
        id: Box<str>,
        qos: names::Qos,
    },
    /// All best-effort pods.
    BestEffort,
    HostApplication {
        name: Box<str>,
    },
}

/// A cgroup, its role, and where its counters stood when they were last looked at.
#[derive(Debug)]
pub struct Place {
    /// Its usage is what is remembered.
    pub container: Marked,
    pub role: Role,
    pub sampled: Option<Timestamp>,
    pub rate: Rate,
    pub throttling: Throttling,
    pub cpu: Option<Dated>,
    pub memory: Option<Dated>,
    pub with_page_cache: Option<u64>,
    /// By the position of the figure among the role's.
    pub series: Vec<Option<SeriesId>>,
}

/// All of them. Looked up again only when cgroups, pods or applications have come or gone.
#[derive(Debug, Default)]
pub struct Places {
    generation: Option<u64>,
    pods: Option<Arc<[Pod]>>,
    slo: Option<Arc<NodeSlo>>,
    list: Vec<Place>,
}

impl Places {
    pub fn update(&mut self, store: &Store, known: &Known) {
        let generation = store.generation();
        let same_pods = match (&self.pods, &known.pods) {
            (Some(before), Some(now)) => Arc::ptr_eq(before, now),
            (before, now) => before.is_none() && now.is_none(),
        };
        let same_slo = self
            .slo
            .as_ref()
            .is_some_and(|slo| Arc::ptr_eq(slo, &known.slo));
        if same_pods && same_slo && self.generation == Some(generation) {
            return;
        }
        let mut before: FxHashMap<(Arc<str>, Role), Place> = std::mem::take(&mut self.list)
            .into_iter()
            .map(|place| {
                (
                    (Arc::clone(place.container.path()), place.role.clone()),
                    place,
                )
            })
            .collect();
        self.list = found(store, known)
            .into_iter()
            .map(|(container, role)| {
                // A container that went and came again under its name is another one.
                before
                    .remove(&(Arc::clone(container.path()), role.clone()))
                    .filter(|place| Arc::ptr_eq(&place.container, &container))
                    .unwrap_or_else(|| Place::new(container, role))
            })
            .collect();
        self.generation = Some(generation);
        self.pods.clone_from(&known.pods);
        self.slo = Some(Arc::clone(&known.slo));
    }

    pub fn iter(&self) -> impl Iterator<Item = &Place> {
        self.list.iter()
    }

    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Place> {
        self.list.iter_mut()
    }

    /// All series are asked for anew.
    pub fn forget_series(&mut self) {
        for place in &mut self.list {
            place.series.clear();
        }
    }
}

impl Place {
    fn new(container: Arc<Container>, role: Role) -> Self {
        Self {
            container: Marked::new(container),
            role,
            sampled: None,
            rate: Rate::default(),
            throttling: Throttling::default(),
            cpu: None,
            memory: None,
            with_page_cache: None,
            series: Vec::new(),
        }
    }
}

fn found(store: &Store, known: &Known) -> Vec<(Arc<Container>, Role)> {
    let pods = PodIndex::new(known);
    let mut found = Vec::new();
    for container in store.all() {
        let path = Arc::clone(container.path());
        if is_best_effort(&path) {
            found.push((container, Role::BestEffort));
            continue;
        }
        let Some(pod) = names::pod(&path) else {
            continue;
        };
        let uid = pods.uid(&pod.uid);
        if pod.is_self {
            found.push((container, Role::Pod { uid, qos: pod.qos }));
            continue;
        }
        // What a container makes inside itself is part of it.
        if names::parent(&path) != Some(pod.path) {
            continue;
        }
        let Some(id) = names::container_id(&path) else {
            continue;
        };
        if pods.is_container(&uid, id, &container) {
            let role = Role::Container {
                pod: uid,
                id: id.into(),
                qos: pod.qos,
            };
            found.push((container, role));
        }
    }
    for application in &known.slo.host_applications {
        let mut paths = application.cgroups.iter().map(|path| format!("/{path}"));
        if let Some(container) = paths.find_map(|path| store.get(&path)) {
            let name = application.name.clone();
            found.push((container, Role::HostApplication { name }));
        }
    }
    found
}

/// The kubelet's directory of best-effort pods, by either of its drivers.
fn is_best_effort(path: &str) -> bool {
    let base = names::base_name(path);
    base.ends_with("kubepods-besteffort.slice")
        || (base == "besteffort"
            && names::parent(path).is_some_and(|above| names::base_name(above) == "kubepods"))
}

/// The cluster's pods by what cgroups call them.
struct PodIndex<'a> {
    told: bool,
    by_cgroup: FxHashMap<&'a str, &'a Pod>,
    containers: FxHashSet<&'a str>,
}

impl<'a> PodIndex<'a> {
    fn new(known: &'a Known) -> Self {
        let pods = || known.pods.iter().flat_map(|pods| pods.iter());
        let by_hash = pods().filter_map(|pod| Some((&**pod.annotations.get(CONFIG_HASH)?, pod)));
        let by_uid = pods().map(|pod| (&*pod.uid, pod));
        let containers = pods().flat_map(|pod| pod.containers.iter());
        Self {
            told: known.pods.is_some(),
            by_cgroup: by_hash.chain(by_uid).collect(),
            containers: containers.filter_map(|one| one.id.as_deref()).collect(),
        }
    }

    fn uid(&self, cgroup: &str) -> Arc<str> {
        match self.by_cgroup.get(cgroup) {
            Some(pod) => Arc::clone(&pod.uid),
            None => cgroup.into(),
        }
    }

    /// Sandboxes are none: the cluster does not list them, and runtimes mark them.
    fn is_container(&self, uid: &str, id: &str, container: &Container) -> bool {
        if self.told && self.by_cgroup.contains_key(uid) {
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

/// What the kubelet's directories say about a pod, where nobody else does.
pub fn kube_qos(qos: names::Qos) -> KubeQos {
    match qos {
        names::Qos::Guaranteed => KubeQos::Guaranteed,
        names::Qos::Burstable => KubeQos::Burstable,
        names::Qos::BestEffort => KubeQos::BestEffort,
    }
}
