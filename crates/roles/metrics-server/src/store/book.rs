//! The book itself, and how it is written.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxBuildHasher;
use tokio::time::Instant;

use super::pods::{Pod, PodKey};
use crate::decode::{ContainerPoint, Page};
use crate::history::{Sample, Workload};
use crate::intern::Interner;
use crate::labels::Labels;
use crate::points::Track;
use crate::view::Points;

#[derive(Debug, Default)]
pub(crate) struct Book {
    pub nodes: BTreeMap<Arc<str>, Node>,
    pub order: BTreeMap<PodKey, Slot>,
    pods: Vec<Pod>,
    free: Vec<Slot>,
    names: Interner,
    labels: Interner,
    points: Points,
    pub rivals: u64,
    workloads: HashSet<Arc<Workload>, FxBuildHasher>,
    /// What is new of pods whose workload is known.
    samples: Vec<Sample>,
    /// The list of pods that is being fetched, or was last.
    list: u32,
}

/// Where a pod is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slot(u32);

#[derive(Debug)]
pub(crate) struct Node {
    pub labels: Labels,
    pub selected: bool,
    pub track: Option<Track>,
    /// Exactly the pods whose `node` is this one, in their order.
    pods: Vec<Slot>,
    /// When it was last scraped well; `None`: nothing is kept of it.
    good: Option<Instant>,
}

impl Node {
    fn points(&self) -> usize {
        let previous = self.track.as_ref().and_then(|track| track.previous);
        usize::from(previous.is_some())
    }
}

impl Book {
    pub fn points(&self) -> Points {
        self.points
    }

    pub fn pod(&self, slot: Slot) -> &Pod {
        &self.pods[slot.0 as usize]
    }

    fn pod_mut(&mut self, slot: Slot) -> &mut Pod {
        &mut self.pods[slot.0 as usize]
    }

    pub fn find(&self, namespace: &str, name: &str) -> Option<&Pod> {
        let key = PodKey::new(namespace, name);
        self.order.get(&key).map(|slot| self.pod(*slot))
    }

    fn place(&mut self, namespace: &str, name: &str) -> Slot {
        let key = PodKey::new(namespace, name);
        if let Some(slot) = self.order.get(&key) {
            return *slot;
        }
        let pod = Pod::new(key.clone());
        let slot = match self.free.pop() {
            Some(slot) => {
                *self.pod_mut(slot) = pod;
                slot
            }
            None => {
                self.pods.push(pod);
                Slot(u32::try_from(self.pods.len() - 1).unwrap_or(u32::MAX))
            }
        };
        self.order.insert(key, slot);
        slot
    }

    /// Gives up the place of a pod that neither the API server nor a node has.
    fn tidy(&mut self, slot: Slot) {
        let pod = self.pod_mut(slot);
        if pod.labels.is_some() || pod.node.is_some() {
            return;
        }
        let empty = Pod::new(PodKey::new("", ""));
        let pod = std::mem::replace(pod, empty);
        self.order.remove(&pod.key);
        self.free.push(slot);
    }

    pub fn put_node(&mut self, name: &str, labels: Labels, selected: bool) {
        let labels = labels.shared(&mut self.labels);
        if let Some(node) = self.nodes.get_mut(name) {
            (node.labels, node.selected) = (labels, selected);
            if !selected {
                self.forget(name);
            }
            return;
        }
        let node = Node {
            labels,
            selected,
            track: None,
            pods: Vec::new(),
            good: None,
        };
        self.nodes.insert(name.into(), node);
    }

    pub fn remove_node(&mut self, name: &str) {
        self.forget(name);
        self.nodes.remove(name);
    }

    pub fn put_pod(
        &mut self,
        namespace: &str,
        name: &str,
        labels: Labels,
        workload: Option<Workload>,
    ) {
        let labels = labels.shared(&mut self.labels);
        let workload = workload.map(|workload| self.share(workload));
        let slot = self.place(namespace, name);
        let list = self.list;
        let pod = self.pod_mut(slot);
        (pod.labels, pod.listed, pod.workload) = (Some(labels), list, workload);
    }

    fn share(&mut self, workload: Workload) -> Arc<Workload> {
        if let Some(known) = self.workloads.get(&workload) {
            return Arc::clone(known);
        }
        let new = Arc::new(workload);
        self.workloads.insert(Arc::clone(&new));
        new
    }

    /// What is new since this was last asked.
    pub fn take_samples(&mut self) -> Vec<Sample> {
        std::mem::take(&mut self.samples)
    }

    pub fn remove_pod(&mut self, namespace: &str, name: &str) {
        if let Some(slot) = self.order.get(&PodKey::new(namespace, name)).copied() {
            self.unlist(slot);
        }
    }

    /// The API server has it no more.
    fn unlist(&mut self, slot: Slot) {
        let pod = self.pod_mut(slot);
        (pod.labels, pod.workload) = (None, None);
        self.tidy(slot);
    }

    pub fn begin_pods(&mut self) {
        self.list = self.list.wrapping_add(1);
    }

    pub fn end_pods(&mut self) {
        let list = self.list;
        let slots: Vec<Slot> = self.order.values().copied().collect();
        for slot in slots {
            let pod = self.pod_mut(slot);
            if pod.labels.is_some() && pod.listed != list {
                self.unlist(slot);
            }
        }
        self.labels.tidy();
    }

    pub fn publish(&mut self, name: &str, page: &Page<'_>, resolution: i64, now: Instant) -> bool {
        let Some(name) = self.nodes.get_key_value(name).map(|(name, _)| name.clone()) else {
            return false;
        };
        let Some(node) = self.nodes.get_mut(&name).filter(|node| node.selected) else {
            return false;
        };
        self.points.node -= node.points();
        node.track = page.node.map(|point| {
            let track = match node.track {
                Some(track) => track.follow(point, resolution),
                None => Track::begin(point, resolution),
            };
            track.with_swap(page.node_swap)
        });
        self.points.node += node.points();
        node.good = Some(now);
        let before = std::mem::take(&mut node.pods);
        let after = self.publish_pods(&name, page, &before, resolution);
        let Some(node) = self.nodes.get_mut(&name) else {
            return false;
        };
        node.pods = after;
        node.points() > 0
    }

    /// Walks along what the node had before: both are in the same order, and mostly the same.
    fn publish_pods(
        &mut self,
        node: &Arc<str>,
        page: &Page<'_>,
        before: &[Slot],
        resolution: i64,
    ) -> Vec<Slot> {
        let mut before = before.iter().copied().peekable();
        let mut after = Vec::with_capacity(before.len());
        for points in page.pods() {
            let [first, ..] = points else { continue };
            let (namespace, name) = (first.namespace, first.pod);
            let mut found = None;
            while let Some(slot) = before.peek().copied() {
                let order = self.pod(slot).key.compare(namespace, name);
                if order == Ordering::Greater {
                    break;
                }
                before.next();
                if order == Ordering::Equal {
                    found = Some(slot);
                    break;
                }
                self.release(slot);
            }
            let slot = match found {
                Some(slot) => slot,
                None => match self.claim(namespace, name, node, points) {
                    Some(slot) => slot,
                    None => continue,
                },
            };
            let pod = &mut self.pods[slot.0 as usize];
            let since = pod.newest();
            self.points.container -= pod.points();
            pod.follow(points, &mut self.names, resolution);
            self.points.container += pod.points();
            if pod.workload.is_some() {
                self.samples.extend(pod.samples(since));
            }
            after.push(slot);
        }
        for slot in before {
            self.release(slot);
        }
        after
    }

    /// A pod that this node has not had. `None`: it is another node's, and that one has the newer of the two, as after a
    /// pod of a StatefulSet has moved and its old node still tells of what was left behind.
    fn claim(
        &mut self,
        namespace: &str,
        name: &str,
        node: &Arc<str>,
        points: &[ContainerPoint<'_>],
    ) -> Option<Slot> {
        let slot = self.place(namespace, name);
        let pod = self.pod(slot);
        if let Some(other) = pod.node.clone() {
            let began = points.iter().map(|new| new.point.start).max().unwrap_or(0);
            if began <= pod.began() {
                self.rivals += 1;
                return None;
            }
            if let Some(other) = self.nodes.get_mut(&other) {
                other.pods.retain(|one| *one != slot);
            }
            self.release(slot);
            // Releasing may have given up the place.
            let slot = self.place(namespace, name);
            self.pod_mut(slot).node = Some(Arc::clone(node));
            return Some(slot);
        }
        self.pod_mut(slot).node = Some(Arc::clone(node));
        Some(slot)
    }

    /// Its node has it no more.
    fn release(&mut self, slot: Slot) {
        self.points.container -= self.pod(slot).points();
        let pod = self.pod_mut(slot);
        pod.node = None;
        pod.containers = Box::default();
        self.tidy(slot);
    }

    /// Drops all figures of a node and its pods.
    fn forget(&mut self, name: &str) {
        let Some(node) = self.nodes.get_mut(name) else {
            return;
        };
        self.points.node -= node.points();
        (node.track, node.good) = (None, None);
        for slot in std::mem::take(&mut node.pods) {
            self.release(slot);
        }
    }

    pub fn expire(&mut self, name: &str, keep: Duration, now: Instant) {
        let good = self.nodes.get(name).and_then(|node| node.good);
        if good.is_some_and(|good| now.saturating_duration_since(good) >= keep) {
            self.forget(name);
        }
    }

    pub fn sweep(&mut self, keep: Duration, now: Instant) {
        let names: Vec<Arc<str>> = self.nodes.keys().cloned().collect();
        for name in names {
            self.expire(&name, keep, now);
        }
        self.names.tidy();
        self.labels.tidy();
        self.workloads.retain(|one| Arc::strong_count(one) > 1);
    }
}
