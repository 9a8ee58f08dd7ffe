//! What protection did: koordlet's families of its QoS manager.

use plimsoll_actuate::{BOUNDS, Durations};
use plimsoll_cadvisor::exposition::Kind::{Counter, Gauge};
use plimsoll_cadvisor::exposition::Text;
use plimsoll_cadvisor::exposition::number::Number::Whole;
use plimsoll_metrics::Exposition;
use plimsoll_qos::{ContainerFigure, Metrics};

use super::Page;
use crate::protect::EvictionCounters;

/// The only reason that koordlet gives.
const EVICTED: &str = "evicted";

/// The family of koordlet's resource executor; empty where nothing was written.
pub fn updates(durations: &Durations) -> String {
    let all = durations.all();
    let mut page = Exposition::default();
    if all.is_empty() {
        return page.finish();
    }
    let name = "koordlet_resource_update_duration_milliseconds";
    let bucket = format!("{name}_bucket");
    page.family(name, "histogram", "How long writes to kernel files took.");
    for ((kind, succeeded), took) in all {
        let status = match succeeded {
            true => "success",
            false => "failed",
        };
        let [status, kind] = [("status", status), ("type", kind)];
        let mut so_far = 0;
        for (bound, count) in BOUNDS.iter().zip(took.buckets) {
            so_far += count;
            let labels = [status, kind, ("le", &bound.to_string())];
            page.sample(&bucket, &labels, so_far as f64);
        }
        let count = took.count as f64;
        page.sample(&bucket, &[status, kind, ("le", "+Inf")], count);
        page.sample(&format!("{name}_sum"), &[status, kind], took.milliseconds);
        page.sample(&format!("{name}_count"), &[status, kind], count);
    }
    page.finish()
}

impl Page<'_> {
    pub fn protection(&self, text: &mut Text, metrics: &Metrics, evictions: &EvictionCounters) {
        if !metrics.be_suppress_cpu_cores.is_empty() {
            let help = "Cores that suppression leaves to best-effort pods, by policy.";
            self.family(text, "be_suppress_cpu_cores", Gauge, help);
            for (policy, cores) in &metrics.be_suppress_cpu_cores {
                self.series(text, &[("type", policy)], *cores);
            }
        }
        if let Some(cores) = metrics.be_suppress_ls_used_cpu_cores {
            let help = "Cores that pods use which are not best effort.";
            self.family(text, "be_suppress_ls_used_cpu_cores", Gauge, help);
            self.series(text, &[], cores);
        }
        self.scaled(
            text,
            "container_scaled_cfs_burst_us",
            "Burst that the container was given, in microseconds.",
            &metrics.container_scaled_cfs_burst_us,
        );
        self.scaled(
            text,
            "container_scaled_cfs_quota_us",
            "Quota that the container was given for each period, in microseconds.",
            &metrics.container_scaled_cfs_quota_us,
        );
        self.evictions(text, evictions);
    }

    fn scaled(&self, text: &mut Text, name: &str, help: &str, figures: &[ContainerFigure]) {
        if figures.is_empty() {
            return;
        }
        self.family(text, name, Gauge, help);
        for one in figures {
            let labels = [
                ("container_id", &*one.container_id),
                ("container_name", &*one.container_name),
                ("pod_name", &*one.pod_name),
                ("pod_namespace", &*one.pod_namespace),
            ];
            self.series(text, &labels, one.value);
        }
    }

    fn evictions(&self, text: &mut Text, evictions: &EvictionCounters) {
        let details = evictions.details();
        if details.is_empty() {
            return;
        }
        self.family(text, "pod_eviction", Counter, "Pods that were evicted.");
        self.labelled(text, &[("reason", EVICTED)], Whole(evictions.succeeded()));
        let help = "Pods that were evicted of late.";
        self.family(text, "pod_eviction_detail", Counter, help);
        for ((namespace, name), times) in details {
            let labels = [
                ("pod_name", &*name),
                ("pod_namespace", &*namespace),
                ("reason", EVICTED),
            ];
            self.labelled(text, &labels, Whole(times));
        }
    }
}
