//! What only the core knows, at one moment.

use std::collections::BTreeMap;

use plimsoll_metrics::Exposition;
use plimsoll_sched::Scheduler;
use plimsoll_sched::queue::Lengths;

#[derive(Debug, Clone, Default)]
pub struct CoreFigures {
    lengths: Lengths,
    /// Queue, event, number.
    incoming: Vec<(&'static str, String, u64)>,
    /// By plugin and profile: pods that it has refused and that wait.
    refused: BTreeMap<(&'static str, String), u64>,
    /// By what happened while pods are being scheduled; the pods themselves are `PodPopped`.
    in_flight: BTreeMap<String, u64>,
    nodes: usize,
    pods: usize,
    assumed: usize,
    pub writes: usize,
}

impl CoreFigures {
    pub fn of(core: &Scheduler) -> Self {
        let cluster = core.cluster();
        let mut refused: BTreeMap<(&'static str, String), u64> = BTreeMap::new();
        let (mut placed, mut assumed) = (0, 0);
        for (id, record) in cluster.pods.iter() {
            placed += usize::from(record.place.is_some());
            assumed += usize::from(record.assumed);
            let Some(entry) = core.queue().get(id) else {
                continue;
            };
            let profile = cluster.names.text(record.pod.spec.scheduler_name);
            for plugin in entry.rejectors.iter() {
                let key = (plugin.name(), profile.to_owned());
                *refused.entry(key).or_default() += 1;
            }
        }
        let counters = core.queue().counters.iter();
        let (popped, happened) = core.queue().in_flight();
        let mut in_flight: BTreeMap<String, u64> = BTreeMap::new();
        in_flight.insert("PodPopped".to_owned(), popped as u64);
        for (event, times) in happened {
            *in_flight.entry(event.label()).or_default() += times;
        }
        Self {
            lengths: core.queue().lengths(),
            incoming: counters
                .map(|(queue, event, number)| (queue, event.to_owned(), number))
                .collect(),
            refused,
            in_flight,
            nodes: cluster.nodes.iter().count(),
            pods: placed,
            assumed,
            writes: 0,
        }
    }

    pub(super) fn write(&self, page: &mut Exposition) {
        let name = "scheduler_pending_pods";
        page.family(name, "gauge", "[STABLE] Pods that wait, by queue.");
        for (queue, number) in [
            ("active", self.lengths.active),
            ("backoff", self.lengths.backoff),
            ("gated", self.lengths.gated),
            ("unschedulable", self.lengths.unschedulable),
        ] {
            page.sample(name, &[("queue", queue)], number as f64);
        }
        let name = "scheduler_queue_incoming_pods_total";
        page.family(
            name,
            "counter",
            "[STABLE] Pods that came into a queue, by event.",
        );
        for (queue, event, number) in &self.incoming {
            page.sample(name, &[("event", event), ("queue", queue)], *number as f64);
        }
        let name = "scheduler_unschedulable_pods";
        page.family(name, "gauge", "[BETA] Pods that a plugin has refused.");
        for ((plugin, profile), number) in &self.refused {
            page.sample(
                name,
                &[("plugin", plugin), ("profile", profile)],
                *number as f64,
            );
        }
        let name = "scheduler_inflight_events";
        page.family(
            name,
            "gauge",
            "[ALPHA] What is kept for pods that are being scheduled.",
        );
        for (event, number) in &self.in_flight {
            page.sample(name, &[("event", event)], *number as f64);
        }
        let name = "scheduler_cache_size";
        page.family(name, "gauge", "[ALPHA] Nodes and pods that are known.");
        for (kind, number) in [
            ("assumed_pods", self.assumed),
            ("nodes", self.nodes),
            ("pods", self.pods),
        ] {
            page.sample(name, &[("type", kind)], number as f64);
        }
        let name = "scheduler_goroutines";
        page.family(name, "gauge", "[BETA] What is being done at once.");
        page.sample(name, &[("operation", "binding")], self.writes as f64);
    }
}
