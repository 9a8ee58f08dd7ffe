//! Pods that have been promised a node, and take room there in the eyes of pods that are not more important.

use rustc_hash::FxHashMap;

use crate::cluster::{Cluster, NodeId, PodId};
use crate::model::Symbol;

#[derive(Debug, Default)]
pub struct Nominations {
    by_pod: FxHashMap<PodId, Symbol>,
    by_node: FxHashMap<Symbol, Vec<PodId>>,
}

impl Nominations {
    /// Replaces what the pod was promised before.
    pub fn set(&mut self, pod: PodId, node: Option<Symbol>) {
        if self.by_pod.get(&pod).copied() == node {
            return;
        }
        if let Some(old) = self.by_pod.remove(&pod)
            && let Some(list) = self.by_node.get_mut(&old)
        {
            list.retain(|other| *other != pod);
            if list.is_empty() {
                self.by_node.remove(&old);
            }
        }
        if let Some(node) = node {
            self.by_pod.insert(pod, node);
            self.by_node.entry(node).or_default().push(pod);
        }
    }

    pub fn of(&self, pod: PodId) -> Option<Symbol> {
        self.by_pod.get(&pod).copied()
    }

    pub fn on(&self, node: Symbol) -> &[PodId] {
        self.by_node.get(&node).map_or(&[], Vec::as_slice)
    }

    /// The nominated pods that a pod has to leave room for, by node.
    pub fn rivals(&self, cluster: &Cluster, pod: PodId, priority: i32) -> Rivals {
        let mut rivals = Rivals::default();
        if self.by_node.is_empty() {
            return rivals;
        }
        for (node, pods) in &self.by_node {
            let Some(id) = cluster.nodes.find(*node) else {
                continue;
            };
            let mut list: Vec<PodId> = pods
                .iter()
                .copied()
                .filter(|other| *other != pod)
                .filter(|other| {
                    let record = cluster.pods.get(*other);
                    record.is_some_and(|record| record.place.is_none() && record.pod.priority >= priority)
                })
                .collect();
            if !list.is_empty() {
                list.sort_unstable();
                rivals.0.insert(id, list);
            }
        }
        rivals
    }
}

/// Pods to leave room for, by node.
#[derive(Debug, Default)]
pub struct Rivals(FxHashMap<NodeId, Vec<PodId>>);

impl Rivals {
    pub fn is_on(&self, node: NodeId) -> bool {
        !self.0.is_empty() && self.0.contains_key(&node)
    }

    pub fn on(&self, node: NodeId) -> &[PodId] {
        self.0.get(&node).map_or(&[], Vec::as_slice)
    }
}
