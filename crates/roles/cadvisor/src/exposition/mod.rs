//! Pages for Prometheus, made from the store alone: no kernel read, no allocation a series.
//!
//! A page is first [`Gathered`], then written by a [`Writer`], in pieces.

mod bounds;
mod families;
#[cfg(test)]
pub(crate) mod fixture;
mod gathered;
mod labels;
mod machine;
pub mod number;
mod page;
mod record;
#[cfg(test)]
mod tests;
mod text;
mod written;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use parking_lot::Mutex;
use plimsoll_containers::{CgroupPath, Identity, names};
use rustc_hash::FxHashMap;

pub use bounds::LeftOut;
pub use families::{Kind, TCP_STATES};
pub use gathered::{Extras, Family, Gathered, Labels, Line, Writer};
pub use labels::{LabelNames, Rendered};
pub use machine::{Version, machine_families};
pub use page::Containers;
pub use text::Text;
pub use written::TextWriter;

use labels::sanitize;
use page::{ContainerView, Gathering};
use plimsoll_observe::store::{Container, State};
use plimsoll_observe::{Group, GroupSet, Observer};

/// Which container labels become metric labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LabelPolicy {
    /// All of them, or only those named below.
    pub store_all: bool,
    pub whitelist: BTreeSet<String>,
}

impl Default for LabelPolicy {
    fn default() -> Self {
        Self {
            store_all: true,
            whitelist: BTreeSet::new(),
        }
    }
}

/// The two pages people scrape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// cAdvisor's own: `id`, `name`, `image`, and every container label.
    Cadvisor,
    /// The kubelet's: `container`, `id`, `image`, `name`, `namespace`, `pod`.
    Kubelet,
}

/// Gathers pages, keeping each container's label text from one scrape to the next.
#[derive(Debug)]
pub struct Exporter {
    observer: Arc<Observer>,
    policy: LabelPolicy,
    cadvisor: Mutex<LabelView>,
    kubelet: Mutex<LabelView>,
    left_out: bounds::Said,
}

#[derive(Debug, Default)]
struct LabelView {
    generation: Option<u64>,
    names: Arc<LabelNames>,
    rendered: FxHashMap<CgroupPath, Entry>,
}

#[derive(Debug)]
struct Entry {
    /// To see whether the labels may have changed.
    identity: Option<Arc<Identity>>,
    text: Arc<Rendered>,
}

impl Exporter {
    pub fn new(observer: Arc<Observer>, policy: LabelPolicy) -> Self {
        Self {
            observer,
            policy,
            cadvisor: Mutex::default(),
            kubelet: Mutex::default(),
            left_out: bounds::Said::default(),
        }
    }

    /// Of containers' labels, on cAdvisor's page.
    pub fn left_out(&self) -> LeftOut {
        self.left_out.now()
    }

    /// What the page says of `containers`.
    pub fn containers(&self, dialect: Dialect, containers: &[Arc<Container>]) -> Containers {
        let mut view = match dialect {
            Dialect::Cadvisor => self.cadvisor.lock(),
            Dialect::Kubelet => self.kubelet.lock(),
        };
        self.refresh(dialect, &mut view);
        let groups = self.groups(dialect);
        let now = self.observer.clock.now();
        let devices = self.observer.store.devices();
        let mut page = Gathering::new(&view.names, groups, now, containers.len());
        for container in containers {
            let Some(entry) = view.rendered.get(container.path()) else {
                continue;
            };
            let state = container.lock();
            let identity = state.identity.as_deref();
            let created = state.created();
            let shown = ContainerView {
                sample: &state.latest,
                spec: &state.spec,
                created,
                started: state.started().unwrap_or(created),
                health: identity.map_or("", |i| i.health.0.as_str()),
                oom_events: self.observer.oom_events(container.path(), &state),
                now,
                per_cpu: dialect == Dialect::Cadvisor && groups.has(Group::PerCpu),
                devices: &devices,
            };
            page.add(&shown, &entry.text, state.sampled);
        }
        page.finish()
    }

    /// The groups on a page.
    pub fn groups(&self, dialect: Dialect) -> GroupSet {
        match dialect {
            Dialect::Cadvisor => self.observer.groups,
            Dialect::Kubelet => {
                let mut groups = GroupSet::of(&[
                    Group::Cpu,
                    // Constant zeros on some kubelets, absent on others: present suits both kinds of client.
                    Group::CpuLoad,
                    Group::Memory,
                    Group::DiskIo,
                    Group::Disk,
                    Group::Network,
                    Group::Process,
                    Group::OomEvent,
                ]);
                if self.observer.is_v2 {
                    groups = groups.with(Group::Pressure);
                }
                groups
            }
        }
    }

    /// Brings label texts up to date with the store: all of them when the set of label names changed, else only those
    /// of new or renamed containers. Labels are made twice rather than kept: as text they are needed all the time, apart
    /// only here.
    fn refresh(&self, dialect: Dialect, view: &mut LabelView) {
        let generation = self.observer.store.generation();
        if view.generation == Some(generation) {
            return;
        }
        let containers = self.observer.store.all();
        let pods = match dialect {
            Dialect::Kubelet => pod_names(&containers),
            Dialect::Cadvisor => FxHashMap::default(),
        };
        let labels = |container: &Container| {
            let (path, state) = (container.path(), container.lock());
            match dialect {
                Dialect::Cadvisor => self.cadvisor_labels(path, &state),
                Dialect::Kubelet => kubelet_labels(path, &state, &pods),
            }
        };
        let mut names = bounds::Names::default();
        for container in &containers {
            names.add(&labels(container));
        }
        let (names, left_out) = names.chosen();
        // The other page has names of its own.
        if dialect == Dialect::Cadvisor {
            self.left_out.set(left_out);
        }
        let names = LabelNames::new(names);
        let others = names != *view.names;
        if others {
            view.names = Arc::new(names);
        }
        let mut kept = std::mem::take(&mut view.rendered);
        for container in &containers {
            let path = Arc::clone(container.path());
            let identity = container.lock().identity.clone();
            let entry = match kept.remove(&path) {
                Some(entry) if !others && pods.is_empty() && same(&entry.identity, &identity) => {
                    entry
                }
                _ => Entry {
                    identity,
                    text: Arc::new(view.names.render(&labels(container))),
                },
            };
            view.rendered.insert(path, entry);
        }
        view.generation = Some(generation);
    }

    fn cadvisor_labels(&self, path: &str, state: &State) -> BTreeMap<String, String> {
        let mut labels = BTreeMap::from([("id".to_owned(), path.to_owned())]);
        let Some(identity) = &state.identity else {
            return labels;
        };
        // As in the original, a page has these keys once some container has a value for them.
        for (key, value) in [
            ("image", identity.image.as_str()),
            ("name", identity.name()),
        ] {
            if !value.is_empty() {
                labels.insert(key.to_owned(), value.to_owned());
            }
        }
        for (key, value) in &identity.labels {
            if self.policy.store_all || self.policy.whitelist.contains(key) {
                let name = sanitize(&format!("container_label_{key}"));
                labels.entry(name).or_insert_with(|| value.clone());
            }
        }
        for (key, value) in &identity.envs {
            let name = sanitize(&format!("container_env_{key}"));
            labels.entry(name).or_insert_with(|| value.clone());
        }
        labels
    }
}

fn same(a: &Option<Arc<Identity>>, b: &Option<Arc<Identity>>) -> bool {
    match (a, b) {
        (None, None) => true,
        (Some(a), Some(b)) => Arc::ptr_eq(a, b),
        _ => false,
    }
}

/// (pod name, namespace) by pod uid, from whatever container of the pod the runtime has named.
fn pod_names(containers: &[Arc<Container>]) -> FxHashMap<String, (String, String)> {
    let mut pods = FxHashMap::default();
    for container in containers {
        let state = container.lock();
        let Some(identity) = &state.identity else {
            continue;
        };
        let uid = identity.label("io.kubernetes.pod.uid");
        if !uid.is_empty() {
            let name = identity.label("io.kubernetes.pod.name").to_owned();
            let namespace = identity.label("io.kubernetes.pod.namespace").to_owned();
            pods.insert(uid.to_owned(), (name, namespace));
        }
    }
    pods
}

fn kubelet_labels(
    path: &str,
    state: &State,
    pods: &FxHashMap<String, (String, String)>,
) -> BTreeMap<String, String> {
    let identity = state.identity.as_deref();
    let label = |key| identity.map_or("", |i| i.label(key)).to_owned();
    let mut pod = label("io.kubernetes.pod.name");
    let mut namespace = label("io.kubernetes.pod.namespace");
    if pod.is_empty()
        && let Some(of_path) = names::pod(path).filter(|p| p.is_self)
        && let Some((name, space)) = pods.get(&of_path.uid)
    {
        pod.clone_from(name);
        namespace.clone_from(space);
    }
    BTreeMap::from([
        (
            "container".to_owned(),
            label("io.kubernetes.container.name"),
        ),
        ("id".to_owned(), path.to_owned()),
        (
            "image".to_owned(),
            identity.map_or("", |i| &i.image).to_owned(),
        ),
        (
            "name".to_owned(),
            identity.map_or("", |i| i.name()).to_owned(),
        ),
        ("namespace".to_owned(), namespace),
        ("pod".to_owned(), pod),
    ])
}

/// Whether the kubelet would show this cgroup: the machine, everything of pods, and the node's own services.
pub fn kubelet_shows(path: &str, state: &State) -> bool {
    const SERVICES: [&str; 4] = [
        "/system.slice/kubelet.service",
        "/system.slice/containerd.service",
        "/system.slice/crio.service",
        "/system.slice/docker.service",
    ];
    path == "/"
        || path.starts_with("/kubepods")
        // Below a --cgroup-root of the kubelet's own.
        || path.split('/').any(|part| part == "kubepods" || part == "kubepods.slice")
        || state.identity.is_some()
        || SERVICES.contains(&path)
}
