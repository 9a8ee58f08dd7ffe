//! Opportunistic batching, as the original counts it. Here equal pods share their verdicts on every node, whoever was
//! scheduled in between: no list of nodes is kept from one pod to the next, no node is hinted at, and what is not done
//! takes no time.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_metrics::{Exposition, Histogram};

use super::exponential;

#[derive(Debug)]
pub(super) struct Batches {
    /// By profile: how often a hint was looked for.
    looked: BTreeMap<Arc<str>, Histogram>,
    /// By profile: how often nodes were chosen, whose list was let go of.
    stored: BTreeMap<Arc<str>, Histogram>,
    flushed: BTreeMap<(Arc<str>, &'static str), u64>,
    bounds: Arc<[f64]>,
}

impl Default for Batches {
    fn default() -> Self {
        Self {
            looked: BTreeMap::new(),
            stored: BTreeMap::new(),
            flushed: BTreeMap::new(),
            bounds: exponential(0.000_01, 2.0, 12),
        }
    }
}

impl Batches {
    /// A pod is about to be filtered for.
    pub fn looked(&mut self, profile: &Arc<str>) {
        let bounds = &self.bounds;
        let histogram = self.looked.entry(Arc::clone(profile));
        histogram
            .or_insert_with(|| Histogram::new(Arc::clone(bounds)))
            .observe(0.0);
    }

    /// A node was chosen among so many.
    pub fn chosen(&mut self, profile: &Arc<str>, feasible: usize) {
        let reason = match feasible {
            0 | 1 => "empty_list",
            _ => "pod_not_batchable",
        };
        *self
            .flushed
            .entry((Arc::clone(profile), reason))
            .or_default() += 1;
        let bounds = &self.bounds;
        let histogram = self.stored.entry(Arc::clone(profile));
        histogram
            .or_insert_with(|| Histogram::new(Arc::clone(bounds)))
            .observe(0.0);
    }

    pub fn write(&self, page: &mut Exposition) {
        let name = "scheduler_batch_attempts_total";
        page.family(name, "counter", "[ALPHA] Hints looked for, by result.");
        for (profile, histogram) in &self.looked {
            let labels = [("profile", &**profile), ("result", "no_hint")];
            page.sample(name, &labels, histogram.count() as f64);
        }
        let name = "scheduler_batch_cache_flushed_total";
        page.family(name, "counter", "[ALPHA] Lists let go of, by reason.");
        for ((profile, reason), times) in &self.flushed {
            let labels = [("profile", &**profile), ("reason", reason)];
            page.sample(name, &labels, *times as f64);
        }
        let name = "scheduler_get_node_hint_duration_seconds";
        page.family(name, "histogram", "[ALPHA] Time of looking for a hint.");
        for (profile, histogram) in &self.looked {
            page.histogram(
                name,
                &[("hinted", "no_hint"), ("profile", profile)],
                histogram,
            );
        }
        let name = "scheduler_store_schedule_results_duration_seconds";
        page.family(
            name,
            "histogram",
            "[ALPHA] Time of keeping a list of nodes.",
        );
        for (profile, histogram) in &self.stored {
            page.histogram(name, &[("profile", profile)], histogram);
        }
    }
}
