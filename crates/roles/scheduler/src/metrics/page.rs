//! The page of metrics.

use std::collections::BTreeMap;

use plimsoll_client::leader_election::Leadership;
use plimsoll_metrics::{Exposition, Histogram};
use plimsoll_serving::process_metrics;

use super::{CoreFigures, Counts, Metrics};

impl Metrics {
    pub fn render(&self, core: Option<&CoreFigures>, leadership: Option<&Leadership>) -> String {
        let mut page = Exposition::default();
        {
            let counts = self.0.counts.lock();
            counts.attempts(&mut page);
            counts.preemption(&mut page);
            counts.framework(&mut page);
            counts.events(&mut page);
            counts.volumes_and_claims(&mut page);
            if let Some(batches) = &counts.batches {
                batches.write(&mut page);
            }
        }
        if let Some(core) = core {
            core.write(&mut page);
        }
        let name = "kubernetes_build_info";
        page.family(
            name,
            "gauge",
            "[ALPHA] What this is, and like which Kubernetes.",
        );
        let version = format!("v{}", crate::zpages::binary_version());
        let labels = [
            ("git_version", version.as_str()),
            ("major", "1"),
            ("minor", "36"),
            ("platform", "linux/amd64"),
        ];
        page.sample(name, &labels, 1.0);
        let name = "kubernetes_feature_enabled";
        page.family(
            name,
            "gauge",
            "[BETA] Whether a feature is on, by name and stage.",
        );
        for (gate, stage, on) in self.0.gates.all() {
            let stage = if stage == "GA" { "" } else { stage };
            let labels = [("name", gate), ("stage", stage)];
            page.sample(name, &labels, f64::from(u8::from(on)));
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
        process_metrics::write(&mut page);
        page.finish()
    }
}

fn counter(page: &mut Exposition, name: &str, help: &str, number: u64) {
    page.family(name, "counter", help);
    page.sample(name, &[], number as f64);
}

fn histogram(page: &mut Exposition, name: &str, help: &str, histogram: &Histogram) {
    page.family(name, "histogram", help);
    page.histogram(name, &[], histogram);
}

impl Counts {
    fn attempts(&self, page: &mut Exposition) {
        let name = "scheduler_schedule_attempts_total";
        page.family(
            name,
            "counter",
            "[STABLE] Attempts to schedule pods, by result.",
        );
        for ((result, profile), (number, _)) in &self.attempts {
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
        for ((result, profile), (number, histogram)) in &self.attempts {
            if *number > 0 {
                page.histogram(name, &[("profile", profile), ("result", result)], histogram);
            }
        }
        histogram(
            page,
            "scheduler_scheduling_algorithm_duration_seconds",
            "[ALPHA] Time that finding a node took.",
            &self.algorithm,
        );
        let name = "scheduler_pod_scheduling_sli_duration_seconds";
        page.family(
            name,
            "histogram",
            "[BETA] Time from when a pod could be scheduled until it was.",
        );
        for (attempts, histogram) in &self.sli {
            page.histogram(name, &[("attempts", attempts)], histogram);
        }
        histogram(
            page,
            "scheduler_pod_scheduling_attempts",
            "[STABLE] Attempts that pods took.",
            &self.attempts_of_pods,
        );
        counter(
            page,
            "scheduler_pod_scheduled_after_flush_total",
            "[ALPHA] Pods that were scheduled only because they had waited too long.",
            self.after_flush,
        );
    }

    fn preemption(&self, page: &mut Exposition) {
        counter(
            page,
            "scheduler_preemption_attempts_total",
            "[STABLE] Attempts to make room by evicting pods.",
            self.preemptions,
        );
        histogram(
            page,
            "scheduler_preemption_victims",
            "[STABLE] Pods chosen to be evicted at once.",
            &self.victims,
        );
        let name = "scheduler_preemption_goroutines_duration_seconds";
        page.family(
            name,
            "histogram",
            "[ALPHA] Time of all evictions for one pod.",
        );
        for (result, histogram) in &self.evictions {
            page.histogram(name, &[("result", result)], histogram);
        }
        let name = "scheduler_preemption_goroutines_execution_total";
        page.family(
            name,
            "counter",
            "[ALPHA] Pods for which others were evicted.",
        );
        for (result, histogram) in &self.evictions {
            page.sample(name, &[("result", result)], histogram.count() as f64);
        }
    }

    fn framework(&self, page: &mut Exposition) {
        let name = "scheduler_framework_extension_point_duration_seconds";
        page.family(
            name,
            "histogram",
            "[STABLE] Time of all plugins at an extension point.",
        );
        for ((point, ending, profile), histogram) in &self.points {
            let labels = [
                ("extension_point", point.name()),
                ("profile", profile),
                ("status", ending.name()),
            ];
            page.histogram(name, &labels, histogram);
        }
        let name = "scheduler_plugin_execution_duration_seconds";
        page.family(
            name,
            "histogram",
            "[ALPHA] Time of a plugin at an extension point, in one cycle of ten.",
        );
        for ((plugin, point, ending), histogram) in &self.plugins {
            let labels = [
                ("extension_point", point.name()),
                ("plugin", plugin.name()),
                ("status", ending.name()),
            ];
            page.histogram(name, &labels, histogram);
        }
        let name = "scheduler_plugin_evaluation_total";
        page.family(
            name,
            "counter",
            "[BETA] How often plugins were asked about a pod or a node.",
        );
        for ((plugin, point, profile), times) in &self.evaluations {
            let labels = [
                ("extension_point", point.name()),
                ("plugin", plugin.name()),
                ("profile", profile),
            ];
            page.sample(name, &labels, *times as f64);
        }
    }

    fn events(&self, page: &mut Exposition) {
        let name = "scheduler_event_handling_duration_seconds";
        page.family(
            name,
            "histogram",
            "[ALPHA] Time of taking in what has happened, by event.",
        );
        let sorted = self.events.iter().map(|(event, one)| (event.label(), one));
        for (event, histogram) in sorted.collect::<BTreeMap<_, _>>() {
            page.histogram(name, &[("event", &event)], histogram);
        }
        let name = "scheduler_queueing_hint_execution_duration_seconds";
        page.family(
            name,
            "histogram",
            "[ALPHA] Time of asking a plugin whether an event helps, once in ten times.",
        );
        let sorted = self.hints.iter().map(|((plugin, event, helps), one)| {
            let hint = if *helps { "Queue" } else { "QueueSkip" };
            ((event.label(), hint, plugin.name()), one)
        });
        for ((event, hint, plugin), histogram) in sorted.collect::<BTreeMap<_, _>>() {
            let labels = [
                ("event", event.as_str()),
                ("hint", hint),
                ("plugin", plugin),
            ];
            page.histogram(name, &labels, histogram);
        }
    }

    fn volumes_and_claims(&self, page: &mut Exposition) {
        let name = "scheduler_resourceclaim_creates_total";
        page.family(
            name,
            "counter",
            "[ALPHA] Claims asked for because of extended resources.",
        );
        for (status, number) in &self.claims {
            page.sample(name, &[("status", status)], *number as f64);
        }
        let name = "scheduler_volume_scheduling_stage_error_total";
        page.family(
            name,
            "counter",
            "[ALPHA] Failures with volumes, by what was being done.",
        );
        if self.volume_errors > 0 {
            page.sample(name, &[("operation", "bind")], self.volume_errors as f64);
        }
    }
}
