//! Koordinator's families: its agent's names, labels and types, so that dashboards carry over.
//!
//! As there, what concerns the agent itself is one page and what users look for is another.

mod pressure;
mod protection;
#[cfg(test)]
mod tests;

pub use protection::updates;

use std::time::Duration;

use plimsoll_api::cpus::CpuSet;
use plimsoll_api::names::{BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY};
use plimsoll_api::priority::PriorityClass;
use plimsoll_api::quantity::Quantity;
use plimsoll_cadvisor::exposition::Kind::{Counter, Gauge};
use plimsoll_cadvisor::exposition::number::Number::{Float, Whole};
use plimsoll_cadvisor::exposition::{Kind, Text};
use plimsoll_predict::Amount;
use plimsoll_predict::reclaim::Reclaimable;

use crate::reports;
use crate::states::{ClusterState, Container, Pod};
use plimsoll_history::{Metric, UsageHistory, metrics as c};

/// UsageSource older than this are not shown.
const FRESH: Duration = Duration::from_secs(60);
/// What is lent, and in what it is counted.
const LENT: [(&str, &str); 4] = [
    (BATCH_CPU, "integer"),
    (BATCH_MEMORY, "byte"),
    (MID_CPU, "integer"),
    (MID_MEMORY, "byte"),
];

/// What the pages are made of.
#[derive(Debug)]
pub struct Page<'a> {
    pub history: &'a UsageHistory,
    pub cluster: ClusterState,
    pub node: &'a str,
    pub started: plimsoll_host::Timestamp,
    pub now: jiff::Timestamp,
}

impl Page<'_> {
    /// What the agent did, and what it foresees.
    pub fn internal(&self, text: &mut Text) {
        let start = self.started.secs() as f64;
        self.family(text, "start_time", Gauge, "When the agent was started.");
        self.series(text, &[], start);
        let latest = self.history.latest().lock();
        let attempts = [
            ("collect_node_cpu_info_status", latest.cpu_info),
            ("collect_node_numa_info_status", latest.numa_info),
            (
                "collect_node_local_storage_info_status",
                latest.storage_info,
            ),
        ];
        for (name, attempts) in attempts {
            if attempts.succeeded + attempts.failed == 0 {
                continue;
            }
            let help = "How often these facts were read, by outcome.";
            self.family(text, name, Counter, help);
            let outcomes = [
                ("failed", attempts.failed),
                ("succeeded", attempts.succeeded),
            ];
            for (status, count) in outcomes.into_iter().filter(|(_, count)| *count > 0) {
                self.labelled(text, &[("status", status)], Whole(count));
            }
        }
        if let Some(cpu) = latest.node_cpu {
            let help = "Cores that the node uses.";
            self.family(text, "node_used_cpu_cores", Gauge, help);
            self.series(text, &[], cpu);
        }
        if let Some(bytes) = latest.node_memory {
            let help = "Bytes that the node uses.";
            self.family(text, "node_used_memory_bytes", Gauge, help);
            self.series(text, &[], bytes);
        }
        if let Some(forecast) = latest.forecast {
            let predictors = [
                ("minPredictor", forecast.min()),
                ("podReclaimablePredictor", forecast.by_pod),
                ("priorityReclaimablePredictor", forecast.by_class),
            ];
            self.predicted(text, "reclaimable", &predictors, |of| of.amount);
            self.predicted(text, "peak", &predictors, |of| of.peak);
        }
        drop(latest);
        if let Some(milli) = self.last(c::NODE_BE, &["cpu", "usage"]) {
            let help = "Cores that best-effort pods use.";
            self.family(text, "be_suppress_be_used_cpu_cores", Gauge, help);
            self.series(text, &[], milli / 1000.0);
        }
        self.cpu_pools(text);
        self.host_applications(text);
    }

    /// The CPUs that pods without ones of their own share.
    fn cpu_pools(&self, text: &mut Text) {
        let Some(shares) = &self.cluster.cpu_pools else {
            return;
        };
        let pools = [
            ("cpuset_share_pool", &shares.shared, "latency-sensitive"),
            ("cpuset_be_share_pool", &shares.best_effort, "best-effort"),
        ];
        for (name, pools, whose) in pools {
            let mut cpus = CpuSet::default();
            for pool in pools.iter().filter_map(|pool| pool.cpuset.parse().ok()) {
                cpus.add(&pool);
            }
            let help = format!("CPUs that {whose} pods share.");
            self.family(text, &format!("{name}_cpu_cores"), Gauge, &help);
            self.series(text, &[], cpus.0.len() as f64);
            let help = format!("One for each CPU that {whose} pods share.");
            self.family(text, &format!("{name}_info"), Gauge, &help);
            for cpu in cpus.0 {
                self.series(text, &[("cpu", &cpu.to_string())], 1.0);
            }
        }
    }

    fn predicted(
        &self,
        text: &mut Text,
        what: &str,
        predictors: &[(&str, Reclaimable)],
        amount: fn(&Reclaimable) -> Amount,
    ) {
        let name = format!("node_predicted_resource_{what}");
        let help = "What production will leave, or need, by the way of looking at it.";
        self.family(text, &name, Gauge, help);
        for (predictor, of) in predictors {
            for (resource, unit, value) in resources(amount(of)) {
                let labels = [
                    ("predictor", *predictor),
                    ("resource", resource),
                    ("unit", unit),
                ];
                self.series(text, &labels, value);
            }
        }
    }

    fn host_applications(&self, text: &mut Text) {
        let applications = &self.cluster.node_slo.host_applications;
        if applications.is_empty() {
            return;
        }
        let help = "What applications of the host use.";
        self.family(text, "host_application_resource_usage", Gauge, help);
        for application in applications {
            let figures = [
                ("cpu", c::HOST_APPLICATION_CPU_USAGE),
                ("memory", c::HOST_APPLICATION_MEMORY_USAGE),
            ];
            for (resource, metric) in figures {
                if let Some(value) = self.last(metric, &[&application.name]) {
                    let labels = [
                        ("host_application_name", &*application.name),
                        ("priority_class", application.priority.name()),
                        ("qos", application.qos.name()),
                        ("resource", resource),
                    ];
                    self.series(text, &labels, value);
                }
            }
        }
    }

    /// What users look for: what may be used, and how pods fare.
    pub fn external(&self, text: &mut Text) {
        self.allocatable(text);
        self.reclaimable(text);
        self.container_resources(text);
        self.cpi(text);
        self.resctrl(text);
        if self.history.config().collect.report_gauges {
            self.reported(text);
        }
    }

    fn allocatable(&self, text: &mut Text) {
        let node = self.cluster.node.as_deref();
        let Some(node) = node.filter(|node| !node.allocatable.is_empty()) else {
            return;
        };
        let help = "What of the node may be lent.";
        self.family(text, "node_resource_allocatable", Gauge, help);
        for (resource, unit) in LENT {
            // A node that does not have it lends none of it.
            let amount = node.allocatable.get(resource).map_or(0, Quantity::value);
            let labels = [("resource", resource), ("unit", unit)];
            self.series(text, &labels, amount as f64);
        }
    }

    fn reclaimable(&self, text: &mut Text) {
        let forecast = self.history.latest().lock().forecast;
        let priority = PriorityClass::Prod.name();
        let help = "0: what production will leave is known; 1: it is not.";
        self.family(
            text,
            "node_resource_priority_reclaimable_status",
            Gauge,
            help,
        );
        let unknown = u64::from(forecast.is_none());
        self.labelled(text, &[("priority", priority)], Whole(unknown));
        let amount = forecast.map_or_else(Amount::default, |forecast| forecast.min().amount);
        let help = "What production will leave of its requests.";
        self.family(text, "node_priority_resource_reclaimable", Gauge, help);
        for (resource, unit, value) in resources(amount) {
            let labels = [
                ("priority", priority),
                ("resource", resource),
                ("unit", unit),
            ];
            self.series(text, &labels, value);
        }
    }

    /// Those that have been started, with their ids: bare, as cgroups have them, and as others know them.
    fn containers(&self) -> impl Iterator<Item = (&Pod, &Container, [&str; 2])> {
        let pods = self.cluster.pods.iter().flat_map(|pods| pods.iter());
        pods.flat_map(|pod| {
            let containers = pod.containers.iter();
            containers.filter_map(move |one| {
                let ids = [one.id.as_deref()?, one.full_id.as_deref()?];
                Some((pod, one, ids))
            })
        })
    }

    fn container_resources(&self, text: &mut Text) {
        for (name, help) in [
            (
                "container_resource_requests",
                "What containers were promised of what is lent.",
            ),
            (
                "container_resource_limits",
                "What containers may use of what is lent.",
            ),
        ] {
            self.family(text, name, Gauge, help);
            for (pod, container, [_, id]) in self.containers() {
                let of = match name {
                    "container_resource_requests" => &container.requests,
                    _ => &container.limits,
                };
                for (resource, unit) in LENT {
                    let Some(quantity) = of.get(resource) else {
                        continue;
                    };
                    let labels = [
                        ("container_id", id),
                        ("container_name", &*container.name),
                        ("pod_name", &*pod.name),
                        ("pod_namespace", &*pod.namespace),
                        ("pod_uid", &*pod.uid),
                        ("resource", resource),
                        ("unit", unit),
                    ];
                    self.series(text, &labels, quantity.value() as f64);
                }
            }
        }
    }

    fn cpi(&self, text: &mut Text) {
        if self.history.config().collect.cpi.is_none() {
            return;
        }
        let help = "Cycles and instructions of a container during its last window.";
        self.family(text, "container_cpi", Gauge, help);
        let latest = self.history.latest().lock();
        for (pod, container, [bare, id]) in self.containers() {
            let Some(cpi) = latest.cpi.iter().find(|cpi| *cpi.id == *bare) else {
                continue;
            };
            for (field, count) in [("cycles", cpi.cycles), ("instructions", cpi.instructions)] {
                let labels = [
                    ("container_id", id),
                    ("container_name", &*container.name),
                    ("cpi_field", field),
                    ("pod_name", &*pod.name),
                    ("pod_namespace", &*pod.namespace),
                    ("pod_uid", &*pod.uid),
                ];
                self.labelled(text, &labels, Whole(count));
            }
        }
    }

    fn resctrl(&self, text: &mut Text) {
        if self.history.config().collect.resctrl_every.is_none() {
            return;
        }
        let figures = self.history.latest().lock().resctrl.clone();
        let help = "Bytes of the last-level cache that a class holds.";
        self.family(text, "resctrl_llc_occupancy", Gauge, help);
        for figure in figures.iter().filter(|one| one.bandwidth.is_none()) {
            let cache = figure.cache.to_string();
            let labels = [("cache_id", &*cache), ("qos", figure.qos)];
            self.labelled(text, &labels, Whole(figure.value));
        }
        let help = "Bytes that a class has moved to and from memory.";
        self.family(text, "resctrl_memory_bandwidth", Gauge, help);
        for figure in &figures {
            if let Some(kind) = figure.bandwidth {
                let cache = figure.cache.to_string();
                let labels = [
                    ("cache_id", &*cache),
                    ("mb_type", kind),
                    ("qos", figure.qos),
                ];
                self.labelled(text, &labels, Whole(figure.value));
            }
        }
    }

    /// The averages that reports are made of.
    fn reported(&self, text: &mut Text) {
        let collect = self.cluster.collect_policy.as_deref().cloned();
        let window = reports::window(&collect.unwrap_or_default());
        let average = |metric: Metric, of: &[&str]| {
            let summary = self.history.summary(&metric.of(of), window, self.now)?;
            Some(summary.avg)
        };
        for (name, cpu, bytes) in [
            (
                "node_metric_node_usage",
                c::NODE_CPU_USAGE,
                c::NODE_MEMORY_USAGE,
            ),
            (
                "node_metric_system_usage",
                c::SYS_CPU_USAGE,
                c::SYS_MEMORY_USAGE,
            ),
        ] {
            self.family(text, name, Gauge, "What reports say is used.");
            for (resource, unit, metric) in [("cpu", "core", cpu), ("memory", "byte", bytes)] {
                if let Some(value) = average(metric, &[]) {
                    self.series(text, &[("resource", resource), ("unit", unit)], value);
                }
            }
        }
        let nodes = self
            .history
            .facts()
            .get::<plimsoll_host::machine::NodeNumaInfo>(
                plimsoll_history::machine_facts::NODE_NUMA_INFO,
            );
        let nodes = nodes.map_or(0, |facts| facts.nodes.len());
        for (name, cpu, bytes) in [
            (
                "node_metric_numa_node_usage",
                c::NODE_NUMA_CPU_USAGE,
                c::NODE_NUMA_MEMORY_USAGE,
            ),
            (
                "node_metric_numa_system_usage",
                c::SYS_NUMA_CPU_USAGE,
                c::SYS_NUMA_MEMORY_USAGE,
            ),
        ] {
            self.family(
                text,
                name,
                Gauge,
                "What reports say is used on a NUMA node.",
            );
            for node in 0..nodes {
                let node = node.to_string();
                for (resource, unit, metric) in [("cpu", "core", cpu), ("memory", "byte", bytes)] {
                    if let Some(value) = average(metric, &[&node]) {
                        let labels = [
                            ("numa_node_id", &*node),
                            ("resource", resource),
                            ("unit", unit),
                        ];
                        self.series(text, &labels, value);
                    }
                }
            }
        }
    }

    fn last(&self, metric: Metric, of: &[&str]) -> Option<f64> {
        let since = self.now.checked_sub(FRESH).ok()?;
        self.history.last(&metric.of(of), since)
    }

    fn family(&self, text: &mut Text, name: &str, kind: Kind, help: &str) {
        text.family(&format!("koordlet_{name}"), kind, help);
    }

    fn series(&self, text: &mut Text, labels: &[(&str, &str)], value: f64) {
        self.labelled(text, labels, Float(value));
    }

    /// With the node's name among the labels, where the alphabet has it.
    fn labelled(
        &self,
        text: &mut Text,
        labels: &[(&str, &str)],
        value: plimsoll_cadvisor::exposition::number::Number,
    ) {
        let mut all = labels.to_vec();
        let place = all.partition_point(|(name, _)| *name < "node");
        all.insert(place, ("node", self.node));
        text.series(&all, value, None);
    }
}

/// Gates that are on without anything behind them. Without the node's name: what is built is the same everywhere.
pub fn unavailable(text: &mut Text, gates: &[&str]) {
    if gates.is_empty() {
        return;
    }
    let help = "1 for each feature gate that is on, and whose feature is not built here.";
    text.family("koordlet_feature_unavailable", Gauge, help);
    for gate in gates {
        text.series(&[("gate", gate)], Whole(1), None);
    }
}

fn resources(amount: Amount) -> [(&'static str, &'static str, f64); 2] {
    [
        ("cpu", "core", amount.cpu),
        ("memory", "byte", amount.memory),
    ]
}
