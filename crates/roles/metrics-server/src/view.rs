//! The read side of everything: what the API shows.

use std::ops::Bound;

use plimsoll_apimachinery::selector::Selector;

use crate::labels::Labels;
use crate::rows::{NodeRow, PodRow};
use crate::store::{Pod, PodKey, Store};

/// Looks at the store. Clones look at the same.
#[derive(Debug, Clone)]
pub struct View(Store);

/// What became of a question for one node or pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Found<T> {
    /// The API server has no such node, or no such running pod.
    Unknown,
    /// It is there, but there are no figures of it.
    NoMetrics,
    Found(T),
}

/// How many points have one before them, so that there is a rate to show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Points {
    pub node: usize,
    pub container: usize,
}

/// Which of the two halves there are figures of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ready {
    pub nodes: bool,
    pub pods: bool,
}

impl View {
    pub fn new(store: Store) -> Self {
        Self(store)
    }

    /// `show` is called with the row if there is one. `--node-selector` does not matter here.
    pub fn node<T>(&self, name: &str, show: impl FnOnce(NodeRow<'_>) -> T) -> Found<T> {
        let book = self.0.read();
        let Some(node) = book.nodes.get(name) else {
            return Found::Unknown;
        };
        match node.track.and_then(|track| track.usage()?.ok()) {
            Some(usage) => Found::Found(show(NodeRow {
                name,
                labels: &node.labels,
                usage,
            })),
            None => Found::NoMetrics,
        }
    }

    /// All that have figures and are selected, here and by `--node-selector`, by name.
    pub fn visit_nodes(&self, selector: &Selector, show: &mut dyn FnMut(NodeRow<'_>)) {
        let book = self.0.read();
        for (name, node) in &book.nodes {
            let usage = node.track.and_then(|track| track.usage()?.ok());
            let Some(usage) = usage.filter(|_| node.selected) else {
                continue;
            };
            if selects(selector, &node.labels, "", name) {
                show(NodeRow {
                    name,
                    labels: &node.labels,
                    usage,
                });
            }
        }
    }

    pub fn pod<T>(
        &self,
        namespace: &str,
        name: &str,
        show: impl FnOnce(PodRow<'_>) -> T,
    ) -> Found<T> {
        let book = self.0.read();
        let Some((pod, labels)) = book
            .find(namespace, name)
            .and_then(|pod| Some((pod, pod.labels.as_ref()?)))
        else {
            return Found::Unknown;
        };
        let mut containers = Vec::new();
        if !pod.usage(self.0.settings().lenient_pods, &mut containers) {
            return Found::NoMetrics;
        }
        Found::Found(show(PodRow {
            namespace,
            name,
            labels,
            containers: &containers,
        }))
    }

    /// Some of the pods that have figures and are selected, by namespace and name in byte order: those after `after` and
    /// up to `until`, until `at_most` have been looked at. What is returned is where to go on, `None` at the end.
    ///
    /// Nothing can be written meanwhile: a long list is to be had in pieces, of a thousand or so.
    pub fn visit_pods(
        &self,
        namespace: Option<&str>,
        selector: &Selector,
        after: Option<&PodKey>,
        until: Option<&PodKey>,
        at_most: usize,
        show: &mut dyn FnMut(PodRow<'_>),
    ) -> Option<PodKey> {
        let book = self.0.read();
        let lenient = self.0.settings().lenient_pods;
        let first = namespace.map(PodKey::first_of);
        let from = match (after, &first) {
            (Some(after), _) => Bound::Excluded(std::borrow::Borrow::borrow(after)),
            (None, Some(first)) => Bound::Included(first.as_str()),
            (None, None) => Bound::Unbounded,
        };
        let to = match until {
            Some(until) => Bound::Included(std::borrow::Borrow::borrow(until)),
            None => Bound::Unbounded,
        };
        // Whoever asks for what is between a later one and an earlier one asks for nothing.
        if after
            .zip(until)
            .is_some_and(|(after, until)| after >= until)
        {
            return None;
        }
        let pods = book.order.range::<str, _>((from, to));
        let pods =
            pods.take_while(|(key, _)| namespace.is_none_or(|wanted| key.namespace() == wanted));
        let mut containers = Vec::new();
        let mut last: Option<&PodKey> = None;
        for (looked_at, (key, slot)) in pods.enumerate() {
            if looked_at == at_most.max(1) {
                return last.cloned();
            }
            last = Some(key);
            containers.clear();
            let pod = book.pod(*slot);
            if let Some(row) = row(pod, selector, lenient, &mut containers) {
                show(row);
            }
        }
        None
    }

    /// Every so manieth pod of all there are, so that a long list can be had in shares.
    pub fn milestones(&self, every: usize) -> Vec<PodKey> {
        let book = self.0.read();
        let keys = book.order.keys().skip(every).step_by(every.max(1));
        keys.cloned().collect()
    }

    pub fn points(&self) -> Points {
        self.0.read().points()
    }

    /// How often a node told of a pod of which another one has newer figures.
    pub fn rivals(&self) -> u64 {
        self.0.read().rivals
    }

    pub fn ready(&self) -> Ready {
        let points = self.points();
        Ready {
            nodes: points.node > 0,
            pods: points.container > 0,
        }
    }
}

fn row<'a, 'c>(
    pod: &'a Pod,
    selector: &Selector,
    lenient: bool,
    containers: &'c mut Vec<(&'a str, crate::points::Usage)>,
) -> Option<PodRow<'c>>
where
    'a: 'c,
{
    let labels = pod.labels.as_ref()?;
    let (namespace, name) = pod.key.parts();
    let shown = selects(selector, labels, namespace, name) && pod.usage(lenient, containers);
    shown.then_some(PodRow {
        namespace,
        name,
        labels,
        containers,
    })
}

fn selects(selector: &Selector, labels: &Labels, namespace: &str, name: &str) -> bool {
    selector.is_empty()
        || selector.matches(
            |key| labels.get(key),
            |field| match field {
                "metadata.name" => name,
                "metadata.namespace" => namespace,
                _ => "",
            },
        )
}
