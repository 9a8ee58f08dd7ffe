//! The cluster as the core knows it: nodes as columns, pods in classes, counts kept up to date.
//!
//! There is no snapshot to take: nothing changes while a cycle runs, because the cycle runs in the same thread as
//! everything that changes it. What-if questions ([`Cluster::place`], [`Cluster::unplace`]) are asked by doing and
//! undoing.

pub mod bits;
pub mod census;
pub mod devices;
pub mod ids;
pub mod images;
pub mod nodes;
pub mod owners;
pub mod pods;
pub mod storage;
pub mod topology;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use census::{Census, EligibilityRule, Matcher, Namespaces, Source, Tally, tolerated};
pub use ids::{ClassId, LabelClassId, LocalClassId, MatcherId, NodeId, PodId, TallyId, TopologyId};
pub use nodes::Nodes;
pub use pods::{Class, Classes, PodRecord, Pods};

use self::census::TallyKey;
use self::devices::Devices;
use self::images::Images;
use self::nodes::Load;
use self::owners::Owners;
use self::storage::Storage;
use crate::features::Features;
use crate::model::symbol::Known;
use crate::model::{
    DisruptionBudget, Key, Labels, Names, Namespace, Node, NodeMetric, Pod, PodGroup, PodMatcher,
    PodSpec, Symbol,
};

#[derive(Debug)]
pub struct Cluster {
    pub names: Names,
    pub nodes: Nodes,
    pub pods: Pods,
    pub classes: Classes,
    pub census: Census,
    pub namespaces: Namespaces,
    pub owners: Owners,
    pub images: Images,
    pub storage: Storage,
    pub devices: Devices,
    pub budgets: BTreeMap<Key, DisruptionBudget>,
    pub groups: BTreeMap<Key, PodGroup>,
    pub metrics: rustc_hash::FxHashMap<Symbol, NodeMetric>,
    pub features: Features,
    /// Counts rebuilds of the classes: numbers of classes and tallies from before mean nothing any more.
    epoch: u64,
}

impl Default for Cluster {
    fn default() -> Self {
        Self::new(Names::default())
    }
}

impl Cluster {
    pub fn new(mut names: Names) -> Self {
        Self {
            devices: Devices::new(&mut names),
            names,
            nodes: Nodes::default(),
            pods: Pods::default(),
            classes: Classes::default(),
            census: Census::default(),
            namespaces: Namespaces::default(),
            owners: Owners::default(),
            images: Images::default(),
            storage: Storage::default(),
            budgets: BTreeMap::new(),
            groups: BTreeMap::new(),
            metrics: rustc_hash::FxHashMap::default(),
            features: Features::default(),
            epoch: 0,
        }
    }

    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    pub fn class_of(&self, pod: PodId) -> Option<&Class> {
        Some(self.classes.get(self.pods.get(pod)?.class))
    }

    /// The node's name as text.
    pub fn node_name(&self, id: NodeId) -> &str {
        self.names.text(self.nodes.name(id))
    }

    // === nodes ===

    /// Adds or replaces a node. Gives back the object it had.
    pub fn set_node(&mut self, node: Node) -> Option<Box<Node>> {
        let id = self.nodes.row(node.name);
        let counts_change = self
            .nodes
            .object(id)
            .is_none_or(|old| old.labels != node.labels || old.taints != node.taints);
        if counts_change {
            self.leave(id);
        }
        if let Some(old) = self.nodes.object(id) {
            self.images.leave(id, old);
        }
        let known = self.names.known;
        let old = self
            .nodes
            .set_object(id, Some(Box::new(node)), |node| zone(node, &known));
        if let Some(node) = self.nodes.object(id) {
            self.images.enter(id, node);
        }
        if counts_change {
            self.enter(id);
        }
        old
    }

    /// The node has gone; pods on it may outlive it for a while.
    pub fn remove_node(&mut self, name: Symbol) -> Option<Box<Node>> {
        let id = self.nodes.find(name)?;
        self.leave(id);
        if let Some(node) = self.nodes.object(id) {
            self.images.leave(id, node);
        }
        let known = self.names.known;
        let old = self.nodes.set_object(id, None, |node| zone(node, &known));
        self.nodes.release(id);
        old
    }

    /// A node and its pods begin to count.
    fn enter(&mut self, id: NodeId) {
        let Some(node) = self.nodes.object(id) else {
            return;
        };
        self.census.enter(id, node, &self.names);
        self.count_pods_of(id, 1);
    }

    fn leave(&mut self, id: NodeId) {
        if self.nodes.object(id).is_none() {
            return;
        }
        self.count_pods_of(id, -1);
        if let Some(node) = self.nodes.object(id) {
            self.census.leave(id, node);
        }
    }

    fn count_pods_of(&mut self, id: NodeId, by: i32) {
        for pod in self.nodes.pods(id) {
            let Some(record) = self.pods.get(*pod) else {
                continue;
            };
            let class = self.classes.get(record.class);
            let labels = label_class(class, &record.pod);
            self.census.count(labels, &class.owned, id, by);
        }
    }

    // === pods ===

    /// Makes a pod known. It takes no room yet.
    pub fn insert_pod(&mut self, mut pod: Pod) -> PodId {
        let class = self.classify(&pod.spec);
        pod.spec = Arc::clone(&self.classes.get(class).spec);
        self.classes.join(class);
        self.pods.insert(PodRecord {
            pod: Arc::new(pod),
            class,
            place: None,
            assumed: false,
        })
    }

    /// Replaces the object of a known pod; where it takes room, it does so with its new measures.
    pub fn replace_pod(&mut self, id: PodId, mut pod: Pod) {
        let Some(record) = self.pods.get(id) else {
            return;
        };
        let (place, old_class) = (record.place, record.class);
        let class = if record.pod.spec == pod.spec {
            old_class
        } else {
            self.classify(&pod.spec)
        };
        pod.spec = Arc::clone(&self.classes.get(class).spec);
        if place.is_some() {
            self.unplace(id);
        }
        if class != old_class {
            self.classes.join(class);
            self.classes.part(old_class);
        }
        if let Some(record) = self.pods.get_mut(id) {
            record.pod = Arc::new(pod);
            record.class = class;
        }
        if let Some(node) = place {
            self.place(id, node);
        }
    }

    /// Gives back what was known of it, with the place that it had.
    pub fn remove_pod(&mut self, id: PodId) -> Option<PodRecord> {
        let node = self.unplace(id);
        let mut record = self.pods.remove(id)?;
        record.place = node;
        self.classes.part(record.class);
        if let Some(node) = node {
            self.nodes.release(node);
        }
        if self.classes.is_worth_rebuilding() {
            self.rebuild();
        }
        Some(record)
    }

    /// The row of a node that pods are on, whether its object is known or not.
    pub fn node_row(&mut self, name: Symbol) -> NodeId {
        self.nodes.row(name)
    }

    /// The pod takes room on the node from now on.
    pub fn place(&mut self, id: PodId, node: NodeId) {
        let Some(record) = self.pods.get_mut(id) else {
            return;
        };
        debug_assert!(record.place.is_none(), "a pod is on one node only");
        record.place = Some(node);
        let load = Load {
            charge: record.pod.charge(),
            ports: &record.pod.spec.local.ports,
        };
        self.nodes.add_pod(node, id, &load);
        if self.nodes.object(node).is_some() {
            let class = self.classes.get(record.class);
            let labels = label_class(class, &record.pod);
            self.census.count(labels, &class.owned, node, 1);
        }
        if !record.pod.spec.volumes.is_empty() {
            self.storage.use_claims(&record.pod, 1);
        }
    }

    /// The pod takes no room any more. Where it did.
    pub fn unplace(&mut self, id: PodId) -> Option<NodeId> {
        let record = self.pods.get_mut(id)?;
        let node = record.place.take()?;
        let load = Load {
            charge: record.pod.charge(),
            ports: &record.pod.spec.local.ports,
        };
        self.nodes.remove_pod(node, id, &load);
        if self.nodes.object(node).is_some() {
            let class = self.classes.get(record.class);
            let labels = label_class(class, &record.pod);
            self.census.count(labels, &class.owned, node, -1);
        }
        if !record.pod.spec.volumes.is_empty() {
            self.storage.use_claims(&record.pod, -1);
        }
        Some(node)
    }

    pub fn set_assumed(&mut self, id: PodId, assumed: bool) {
        if let Some(record) = self.pods.get_mut(id) {
            record.assumed = assumed;
        }
    }

    // === classes and tallies ===

    fn classify(&mut self, spec: &Arc<PodSpec>) -> ClassId {
        if let Some(id) = self.classes.find(spec) {
            return id;
        }
        let local = self.classes.local_class(&spec.local);
        let spec = Arc::new(PodSpec {
            local: Arc::clone(self.classes.local(local)),
            ..PodSpec::clone(spec)
        });
        let labels = [false, true].map(|terminating| {
            self.census.label_class_of(
                spec.namespace,
                &spec.labels,
                terminating,
                &self.namespaces,
                &self.names,
            )
        });
        let affinity = &spec.affinity;
        let required = affinity
            .required
            .iter()
            .map(|term| (Source::Attached, 1, term));
        let repelled = affinity
            .required_anti
            .iter()
            .map(|term| (Source::Repelling, 1, term));
        let preferred = affinity
            .preferred
            .iter()
            .map(|(weight, term)| (Source::Preferring, *weight, term));
        let owned = required
            .chain(repelled)
            .chain(preferred)
            .map(|(source, weight, term)| {
                let parts = std::slice::from_ref(&term.pods);
                let tally = self.follow(source, parts, false, Some(term.key), None);
                (tally, weight)
            })
            .collect();
        self.classes.add(spec, local, labels, owned)
    }

    /// Starts to count pods, unless that was done before.
    pub fn follow(
        &mut self,
        source: Source,
        parts: &[PodMatcher],
        live_only: bool,
        key: Option<Symbol>,
        rule: Option<EligibilityRule>,
    ) -> TallyId {
        let nodes = self.nodes.iter().map(|(id, node)| (id, &node.labels));
        let topology = self.census.topologies.follow(key, nodes);
        let eligibility = rule.map(|rule| {
            self.census
                .eligibility(rule, self.nodes.iter(), &self.names)
        });
        let matcher = self.census.matcher(Matcher {
            parts: parts.into(),
            live_only,
        });
        let key = TallyKey {
            matcher,
            source,
            topology,
            eligibility,
        };
        let nodes = self.nodes.iter().map(|(id, _)| id);
        self.census
            .follow(key, nodes, &self.namespaces, &self.names)
    }

    /// Whether a pod of the class would be counted by a tally of matching pods.
    pub fn is_matched(&self, class: &Class, tally: TallyId) -> bool {
        let matcher = self.census.tally(tally).key.matcher;
        self.census
            .matches(matcher, class.live, &self.namespaces, &self.names)
    }

    /// Adds or changes a namespace, whose labels may decide what terms match.
    pub fn set_namespace(&mut self, namespace: Namespace) {
        let old = self.namespaces.insert(namespace.name, namespace.labels);
        let labels = self.namespaces.get(&namespace.name);
        if old.as_ref() != labels && !(old.is_none() && labels.is_none_or(Labels::is_empty)) {
            self.namespaces_changed();
        }
    }

    pub fn remove_namespace(&mut self, name: Symbol) {
        if self
            .namespaces
            .remove(&name)
            .is_some_and(|labels| !labels.is_empty())
        {
            self.namespaces_changed();
        }
    }

    /// What nodes by themselves say about pods has changed.
    pub fn forget_verdicts(&mut self) {
        self.epoch += 1;
    }

    fn namespaces_changed(&mut self) {
        if self.census.asks_for_namespace_labels() {
            self.rebuild();
        }
    }

    /// Builds classes and counts anew from pods and nodes: matches have changed, or most classes are of no use.
    fn rebuild(&mut self) {
        self.epoch += 1;
        self.census = Census::default();
        self.classes = Classes::default();
        let pods: Vec<(PodId, Arc<PodSpec>)> = self
            .pods
            .iter()
            .map(|(id, record)| (id, Arc::clone(&record.pod.spec)))
            .collect();
        for (id, spec) in pods {
            let class = self.classify(&spec);
            self.classes.join(class);
            if let Some(record) = self.pods.get_mut(id) {
                record.class = class;
            }
        }
        let nodes: Vec<NodeId> = self.nodes.iter().map(|(id, _)| id).collect();
        for id in nodes {
            self.count_pods_of(id, 1);
        }
    }
}

/// Region and zone, by their old labels first.
fn zone(node: &Node, known: &Known) -> (Option<Symbol>, Option<Symbol>) {
    let first = |beta: Symbol, key: Symbol| node.labels.get(beta).or(node.labels.get(key));
    (
        first(known.region_beta, known.region),
        first(known.zone_beta, known.zone),
    )
}

fn label_class(class: &Class, pod: &Pod) -> LabelClassId {
    if pod.terminating {
        class.terminating
    } else {
        class.live
    }
}
