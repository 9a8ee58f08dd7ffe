//! The scheduler's figures, under the names that dashboards know.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use plimsoll_ground::leader::Leadership;
use plimsoll_ground::metrics::{Histogram, Page, process};
use plimsoll_sched::action::{ActionKind, ActionResult};
use plimsoll_sched::queue::Lengths;
use plimsoll_sched::{Cycle, Outcome, Scheduler};

use crate::actions::Done;

const RESULTS: [&str; 3] = ["scheduled", "unschedulable", "error"];

/// Bounds that grow by a factor.
fn exponential(first: f64, factor: f64, count: usize) -> Arc<[f64]> {
    (0..count)
        .map(|power| first * factor.powi(power as i32))
        .collect()
}

/// Counts; clones count the same.
#[derive(Debug, Clone)]
pub struct Metrics(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    profiles: Mutex<Vec<Arc<str>>>,
    counts: Mutex<Counts>,
}

#[derive(Debug)]
struct Counts {
    /// By result and profile.
    attempts: BTreeMap<(&'static str, Arc<str>), (u64, Histogram)>,
    algorithm: Histogram,
    /// By the number of attempts it took.
    sli: BTreeMap<String, Histogram>,
    attempts_of_pods: Histogram,
    preemptions: u64,
    victims: Histogram,
    /// Of what is written, by extension point and result.
    points: BTreeMap<(&'static str, &'static str), Histogram>,
}

impl Metrics {
    /// For profiles of these names.
    pub fn new(profiles: Vec<Arc<str>>) -> Self {
        let seconds = exponential(0.001, 2.0, 15);
        let mut attempts = BTreeMap::new();
        for profile in &profiles {
            for result in RESULTS {
                let empty = (0, Histogram::new(Arc::clone(&seconds)));
                attempts.insert((result, Arc::clone(profile)), empty);
            }
        }
        Self(Arc::new(Shared {
            profiles: Mutex::new(profiles),
            counts: Mutex::new(Counts {
                attempts,
                algorithm: Histogram::new(seconds),
                sli: BTreeMap::new(),
                attempts_of_pods: Histogram::new(exponential(1.0, 2.0, 5)),
                preemptions: 0,
                victims: Histogram::new(exponential(1.0, 2.0, 7)),
                points: BTreeMap::new(),
            }),
        }))
    }

    /// A profile's name.
    pub fn profile(&self, index: Option<usize>) -> Arc<str> {
        let profiles = self.0.profiles.lock();
        let name = index.and_then(|index| profiles.get(index));
        name.map_or_else(|| Arc::from(""), Arc::clone)
    }

    /// A new configuration has others.
    pub fn set_profiles(&self, profiles: Vec<Arc<str>>) {
        *self.0.profiles.lock() = profiles;
    }

    /// One cycle. One that found a node counts when that is bound.
    pub fn cycle(&self, cycle: &Cycle, profile: &Arc<str>, took: Duration) {
        let mut counts = self.0.counts.lock();
        let victims = cycle
            .actions
            .iter()
            .filter(|action| matches!(action.kind, ActionKind::Evict { .. }))
            .count();
        if victims > 0 {
            counts.preemptions += 1;
            counts.victims.observe(victims as f64);
        }
        match cycle.outcome {
            Outcome::Scheduled { .. } => counts.algorithm.observe(took.as_secs_f64()),
            Outcome::Unschedulable { .. } => counts.attempt("unschedulable", profile, took),
            Outcome::Error { .. } => counts.attempt("error", profile, took),
            Outcome::Skipped | Outcome::Asking(_) => {}
        }
    }

    /// A pod has its node. `waited`: since it was first ready to be scheduled.
    pub fn bound(&self, profile: &Arc<str>, attempts: u32, took: Duration, waited: Duration) {
        let mut counts = self.0.counts.lock();
        counts.attempt("scheduled", profile, took);
        let label = match attempts {
            0..15 => attempts.to_string(),
            _ => "15+".to_owned(),
        };
        counts
            .sli
            .entry(label)
            .or_insert_with(|| Histogram::new(exponential(0.01, 2.0, 20)))
            .observe(waited.as_secs_f64());
        counts.attempts_of_pods.observe(f64::from(attempts));
    }

    /// A pod had a node, and could not be bound.
    pub fn failed(&self, profile: &Arc<str>, took: Duration) {
        self.0.counts.lock().attempt("error", profile, took);
    }

    pub fn action(&self, what: Done, took: Duration, result: &ActionResult) {
        let point = match what {
            Done::Bind => "Bind",
            Done::Write => "PreBind",
            Done::Patch | Done::Evict => return,
        };
        let status = match result {
            ActionResult::Done => "Success",
            ActionResult::Gone | ActionResult::Failed(_) => "Error",
        };
        let mut counts = self.0.counts.lock();
        counts
            .points
            .entry((point, status))
            .or_insert_with(|| Histogram::new(exponential(0.0001, 2.0, 12)))
            .observe(took.as_secs_f64());
    }

    pub fn render(&self, core: Option<&CoreFigures>, leadership: Option<&Leadership>) -> String {
        let mut page = Page::default();
        self.attempts(&mut page);
        if let Some(core) = core {
            core.write(&mut page);
        }
        if let Some(leadership) = leadership {
            let name = "leader_election_master_status";
            page.family(name, "gauge", "[ALPHA] Whether this is the leader.");
            let labels = [("name", leadership.name())];
            page.sample(name, &labels, f64::from(u8::from(leadership.is_leader())));
            let name = "leader_election_slowpath_total";
            page.family(
                name,
                "counter",
                "[ALPHA] Renewals that had to read the lease first.",
            );
            page.sample(name, &labels, leadership.slow_paths() as f64);
        }
        process::write(&mut page);
        page.finish()
    }

    fn attempts(&self, page: &mut Page) {
        let counts = self.0.counts.lock();
        let name = "scheduler_schedule_attempts_total";
        page.family(
            name,
            "counter",
            "[STABLE] Attempts to schedule pods, by result.",
        );
        for ((result, profile), (number, _)) in &counts.attempts {
            if *number == 0 {
                continue;
            }
            page.sample(
                name,
                &[("profile", profile), ("result", result)],
                *number as f64,
            );
        }
        let name = "scheduler_scheduling_attempt_duration_seconds";
        page.family(
            name,
            "histogram",
            "[STABLE] Time of an attempt, binding included.",
        );
        for ((result, profile), (number, histogram)) in &counts.attempts {
            if *number > 0 {
                page.histogram(name, &[("profile", profile), ("result", result)], histogram);
            }
        }
        let name = "scheduler_scheduling_algorithm_duration_seconds";
        page.family(name, "histogram", "[ALPHA] Time that finding a node took.");
        page.histogram(name, &[], &counts.algorithm);
        let name = "scheduler_pod_scheduling_sli_duration_seconds";
        page.family(
            name,
            "histogram",
            "[BETA] Time from when a pod could be scheduled until it was.",
        );
        for (attempts, histogram) in &counts.sli {
            page.histogram(name, &[("attempts", attempts)], histogram);
        }
        let name = "scheduler_pod_scheduling_attempts";
        page.family(name, "histogram", "[STABLE] Attempts that pods took.");
        page.histogram(name, &[], &counts.attempts_of_pods);
        let name = "scheduler_preemption_attempts_total";
        page.family(
            name,
            "counter",
            "[STABLE] Attempts to make room by evicting pods.",
        );
        page.sample(name, &[], counts.preemptions as f64);
        let name = "scheduler_preemption_victims";
        page.family(
            name,
            "histogram",
            "[STABLE] Pods chosen to be evicted at once.",
        );
        page.histogram(name, &[], &counts.victims);
        let name = "scheduler_framework_extension_point_duration_seconds";
        page.family(
            name,
            "histogram",
            "[STABLE] Time of what is written, by extension point.",
        );
        let first = self.profile(Some(0));
        for ((point, status), histogram) in &counts.points {
            let labels = [
                ("extension_point", *point),
                ("profile", &*first),
                ("status", *status),
            ];
            page.histogram(name, &labels, histogram);
        }
    }
}

impl Counts {
    fn attempt(&mut self, result: &'static str, profile: &Arc<str>, took: Duration) {
        let entry = self.attempts.entry((result, Arc::clone(profile)));
        let (number, histogram) =
            entry.or_insert_with(|| (0, Histogram::new(exponential(0.001, 2.0, 15))));
        *number += 1;
        histogram.observe(took.as_secs_f64());
    }
}

/// What only the core knows, at one moment.
#[derive(Debug, Clone, Default)]
pub struct CoreFigures {
    lengths: Lengths,
    /// Queue, event, number.
    incoming: Vec<(&'static str, String, u64)>,
    /// By plugin and profile: pods that it has refused and that wait.
    refused: BTreeMap<(&'static str, String), u64>,
    nodes: usize,
    pods: usize,
    assumed: usize,
    pub writes: usize,
}

impl CoreFigures {
    pub fn of(core: &Scheduler) -> Self {
        let cluster = core.cluster();
        let mut refused: BTreeMap<(&'static str, String), u64> = BTreeMap::new();
        let mut assumed = 0;
        for (id, record) in cluster.pods.iter() {
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
        Self {
            lengths: core.queue().lengths(),
            incoming: counters
                .map(|(queue, event, number)| (queue, event.to_owned(), number))
                .collect(),
            refused,
            nodes: cluster.nodes.iter().count(),
            pods: cluster.pods.len(),
            assumed,
            writes: 0,
        }
    }

    fn write(&self, page: &mut Page) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told() {
        let profile: Arc<str> = "default-scheduler".into();
        let metrics = Metrics::new(vec![Arc::clone(&profile)]);
        let (took, waited) = (Duration::from_millis(3), Duration::from_millis(30));
        metrics.bound(&profile, 1, took, waited);
        metrics.bound(&profile, 16, took, waited);
        metrics.action(Done::Bind, took, &ActionResult::Done);
        let page = metrics.render(None, None);
        for line in [
            "scheduler_schedule_attempts_total{profile=\"default-scheduler\",result=\"scheduled\"} 2\n",
            "scheduler_scheduling_attempt_duration_seconds_bucket{profile=\"default-scheduler\",result=\"scheduled\",le=\"0.004\"} 2\n",
            "scheduler_pod_scheduling_sli_duration_seconds_bucket{attempts=\"15+\",le=\"0.04\"} 1\n",
            "scheduler_pod_scheduling_attempts_bucket{le=\"16\"} 2\n",
            "scheduler_framework_extension_point_duration_seconds_bucket{extension_point=\"Bind\",profile=\"default-scheduler\",status=\"Success\",le=\"0.0032\"} 1\n",
        ] {
            assert!(page.contains(line), "{line}\n{page}");
        }
    }
}
