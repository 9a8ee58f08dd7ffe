//! Pods that have been promised a node, and take room there in the eyes of pods that are not more important.

use rustc_hash::FxHashMap;

use crate::cluster::{Cluster, NodeId, PodId};
use crate::model::Symbol;

#[derive(Debug, Default)]
pub struct Nominations {
    by_pod: FxHashMap<PodId, Symbol>,
    by_node: FxHashMap<Symbol, Promised>,
    changes: u64,
}

/// The pods that a node is promised to.
#[derive(Debug, Default)]
struct Promised {
    pods: Vec<PodId>,
    /// Another one after every change: what was derived before holds as long as it stays.
    stamp: u64,
}

impl Nominations {
    /// Replaces what the pod was promised before.
    pub fn set(&mut self, pod: PodId, node: Option<Symbol>) {
        if self.by_pod.get(&pod).copied() == node {
            return;
        }
        self.changes += 1;
        if let Some(old) = self.by_pod.remove(&pod)
            && let Some(promised) = self.by_node.get_mut(&old)
        {
            promised.stamp = self.changes;
            promised.pods.retain(|other| *other != pod);
            if promised.pods.is_empty() {
                self.by_node.remove(&old);
            }
        }
        if let Some(node) = node {
            self.by_pod.insert(pod, node);
            let promised = self.by_node.entry(node).or_default();
            promised.stamp = self.changes;
            promised.pods.push(pod);
        }
    }

    /// The pod is not what it was.
    pub fn changed(&mut self, pod: PodId) {
        if let Some(promised) = self
            .by_pod
            .get(&pod)
            .and_then(|node| self.by_node.get_mut(node))
        {
            self.changes += 1;
            promised.stamp = self.changes;
        }
    }

    pub fn of(&self, pod: PodId) -> Option<Symbol> {
        self.by_pod.get(&pod).copied()
    }

    pub fn on(&self, node: Symbol) -> &[PodId] {
        self.by_node
            .get(&node)
            .map_or(&[], |promised| &promised.pods)
    }

    /// For whom a pod has to leave room.
    pub fn rivals(&self, pod: PodId, priority: i32) -> Rivals<'_> {
        Rivals {
            nominations: self,
            pod,
            priority,
        }
    }
}

/// The nominated pods that a pod has to leave room for.
#[derive(Debug, Clone, Copy)]
pub struct Rivals<'a> {
    nominations: &'a Nominations,
    pod: PodId,
    priority: i32,
}

impl Rivals<'_> {
    /// `None`: nobody has been promised the node. Otherwise the stamp of what was.
    pub fn stamp(&self, cluster: &Cluster, node: NodeId) -> Option<u64> {
        if self.nominations.by_node.is_empty() {
            return None;
        }
        let promised = self.nominations.by_node.get(&cluster.nodes.name(node))?;
        Some(promised.stamp)
    }

    pub fn on(&self, cluster: &Cluster, node: NodeId) -> Vec<PodId> {
        if self.nominations.by_node.is_empty() {
            return Vec::new();
        }
        let matters = |other: &PodId| {
            *other != self.pod
                && cluster.pods.get(*other).is_some_and(|record| {
                    record.place.is_none() && record.pod.priority >= self.priority
                })
        };
        let pods = self.nominations.on(cluster.nodes.name(node)).iter();
        pods.copied().filter(matters).collect()
    }
}
