//! What is known: the last points of everything, and which nodes and pods there are to show them of.
//!
//! One lock over a [`Book`]. Scrapes and watches write to it, a node or a pod at a time; [`crate::view::View`] reads. A
//! node's figures are there for all to see when its scrape has ended, whatever other nodes do.

mod book;
mod pods;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use parking_lot::{RwLock, RwLockReadGuard};
use plimsoll_apimachinery::selector::Requirement;
use tokio::time::Instant;

use crate::decode::{Page, Reading};
use crate::history::{History, Workload};
use crate::labels::Labels;

pub(crate) use book::Book;
pub(crate) use pods::Pod;
pub use pods::PodKey;

#[derive(Debug, Clone)]
pub struct Settings {
    /// The time between two scrapes of a node.
    pub resolution: Duration,
    /// How long the figures of a node are shown that cannot be scraped any more; zero: not at all.
    pub keep: Duration,
    /// A container without figures withholds itself only, not its pod.
    pub lenient_pods: bool,
    /// How much swap is used is shown, too.
    pub swap: bool,
    /// Which nodes are scraped and listed.
    pub node_selector: Vec<Requirement>,
    /// Where samples go beside, of pods whose workload is known.
    pub history: Option<History>,
}

impl Settings {
    /// Figures outlive this many scrapes that fail.
    pub const KEPT_ROUNDS: u32 = 4;

    pub fn new(resolution: Duration) -> Self {
        Self {
            resolution,
            keep: resolution * Self::KEPT_ROUNDS,
            lenient_pods: false,
            swap: false,
            node_selector: Vec::new(),
            history: None,
        }
    }

    /// What is to be read off a page.
    pub fn reading(&self) -> Reading {
        Reading {
            lenient: self.lenient_pods,
            swap: self.swap,
        }
    }

    /// Is a node with these labels ours to scrape?
    pub fn selects(&self, labels: &Labels) -> bool {
        let mut requirements = self.node_selector.iter();
        requirements.all(|one| one.matches(|key| labels.get(key)))
    }
}

/// Clones are the same store.
#[derive(Debug, Clone)]
pub struct Store(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    settings: Settings,
    book: RwLock<Book>,
}

impl Store {
    pub fn new(settings: Settings) -> Self {
        Self(Arc::new(Shared {
            settings,
            book: RwLock::default(),
        }))
    }

    pub fn settings(&self) -> &Settings {
        &self.0.settings
    }

    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Book> {
        self.0.book.read()
    }

    /// A scrape of this node has ended well; says whether there is a rate to show of it now. A node that nobody knows of
    /// any more is passed over.
    pub fn publish(&self, node: &str, page: &Page<'_>, now: Instant) -> bool {
        let resolution = nanos(self.0.settings.resolution);
        let Some(history) = &self.0.settings.history else {
            return self.0.book.write().publish(node, page, resolution, now);
        };
        let (has_rate, samples) = {
            let mut book = self.0.book.write();
            let has_rate = book.publish(node, page, resolution, now);
            (has_rate, book.take_samples())
        };
        history.record(&samples);
        has_rate
    }

    /// A scrape of this node has failed: its figures go if they are too old to be shown.
    pub fn failed(&self, node: &str, now: Instant) {
        self.0.book.write().expire(node, self.0.settings.keep, now);
    }

    /// Lets go of what is too old, and of room that is not needed any more. To be called now and then.
    pub fn sweep(&self, now: Instant) {
        let Settings {
            keep, resolution, ..
        } = self.0.settings;
        // A node that is well is never older than that, and one that is not is dealt with when its scrape has failed.
        let keep = keep.max(2 * resolution);
        self.0.book.write().sweep(keep, now);
    }

    pub fn put_node(&self, name: &str, labels: Labels) {
        let selected = self.0.settings.selects(&labels);
        self.0.book.write().put_node(name, labels, selected);
    }

    pub fn remove_node(&self, name: &str) {
        self.0.book.write().remove_node(name);
    }

    /// A running pod.
    pub fn put_pod(&self, namespace: &str, name: &str, labels: Labels) {
        self.0.book.write().put_pod(namespace, name, labels, None);
    }

    /// A running pod, and whose it is.
    pub fn put_owned_pod(&self, name: &str, labels: Labels, workload: Workload) {
        let namespace = workload.namespace.clone();
        let mut book = self.0.book.write();
        book.put_pod(&namespace, name, labels, Some(workload));
    }

    /// It is gone, or does not run any more. Its figures stay until its node has none of it.
    pub fn remove_pod(&self, namespace: &str, name: &str) {
        self.0.book.write().remove_pod(namespace, name);
    }

    /// Everything is listed anew: what is not put before the end of it is gone.
    pub fn begin_pods(&self) {
        self.0.book.write().begin_pods();
    }

    pub fn end_pods(&self) {
        self.0.book.write().end_pods();
    }
}

fn nanos(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}
