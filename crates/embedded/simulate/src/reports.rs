//! What the agents of simulated nodes would report: the status of a `NodeMetric`, by the same models that the pages are
//! written from. Nothing is measured, so nothing has to be remembered: the past is asked of the models as well.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use plimsoll_api::node_metric::{
    AggregatedUsage, NodeMetricStatus, NodeUsage, PodUsage, Reclaimable, Resources,
};
use plimsoll_api::priority::{PriorityClass, QosClass};
use plimsoll_api::quantity::Quantity;

use crate::usage::Model;

/// Plain figures are averages over this long.
const WINDOW: SignedDuration = SignedDuration::from_mins(5);
const AGGREGATES: [(&str, SignedDuration); 3] = [
    ("5m0s", SignedDuration::from_mins(5)),
    ("10m0s", SignedDuration::from_mins(10)),
    ("30m0s", SignedDuration::from_mins(30)),
];
/// Percentiles are of so many moments of a time.
const MOMENTS: i32 = 60;
/// What a forecast adds to the highest that a model can reach.
const MARGIN: f64 = 1.1;

/// Cores and bytes.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Amount {
    pub cpu: f64,
    pub memory: f64,
}

/// A running pod.
#[derive(Debug)]
pub struct Pod<'a> {
    pub namespace: &'a str,
    pub name: &'a str,
    pub since: Timestamp,
    pub model: &'a Model,
    pub priority: PriorityClass,
    pub qos: QosClass,
    pub request: Amount,
}

/// `system` is what the node uses beside its pods.
pub fn status(pods: &[Pod<'_>], system: Amount, now: Timestamp) -> NodeMetricStatus {
    let used: Vec<Amount> = pods.iter().map(|pod| pod.mean(now)).collect();
    let node = used.iter().fold(system, |sum, pod| sum.plus(*pod));
    let mut peak = system;
    let mut reclaimable = Amount::default();
    for pod in pods.iter().filter(|pod| pod.priority.is_production()) {
        let needs = pod.model.peak().times(MARGIN);
        peak = peak.plus(needs);
        reclaimable = reclaimable.plus(Amount {
            cpu: (pod.request.cpu - needs.cpu).max(0.0),
            memory: (pod.request.memory - needs.memory).max(0.0),
        });
    }
    let aggregated = |usage: &dyn Fn(Timestamp) -> Amount| {
        let over = AGGREGATES.iter();
        over.map(|(text, window)| aggregated(text, *window, now, usage))
            .collect()
    };
    NodeMetricStatus {
        update_time: Some(now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()),
        node_metric: Some(NodeUsage {
            node_usage: resources(node),
            aggregated_node_usages: aggregated(&|at| {
                let running = pods.iter().filter(|pod| pod.since <= at);
                running.fold(system, |sum, pod| sum.plus(pod.at(at)))
            }),
            system_usage: resources(system),
            aggregated_system_usages: aggregated(&|_| system),
            numa_usages: Vec::new(),
        }),
        pods_metric: pods
            .iter()
            .zip(used)
            .map(|(pod, used)| PodUsage {
                name: pod.name.to_owned(),
                namespace: pod.namespace.to_owned(),
                pod_usage: resources(used),
                priority: pod.priority,
                qos: pod.qos,
                extensions: None,
            })
            .collect(),
        host_application_metric: Vec::new(),
        prod_reclaimable_metric: Some(Reclaimable {
            resource: resources(reclaimable),
        }),
        prod_peak_metric: Some(Reclaimable {
            resource: resources(peak),
        }),
    }
}

impl Pod<'_> {
    fn at(&self, at: Timestamp) -> Amount {
        let usage = self.model.usage(self.since, at);
        Amount {
            cpu: usage.cpu,
            memory: usage.memory_bytes as f64,
        }
    }

    fn mean(&self, now: Timestamp) -> Amount {
        let from = self.since.max(now - WINDOW);
        let seconds = now.duration_since(from).as_secs_f64();
        let usage = self.at(now);
        if seconds <= 0.0 {
            return usage;
        }
        Amount {
            cpu: self.model.cpu_time(from, now).as_secs_f64() / seconds,
            ..usage
        }
    }
}

impl Amount {
    fn plus(self, other: Self) -> Self {
        Self {
            cpu: self.cpu + other.cpu,
            memory: self.memory + other.memory,
        }
    }

    pub fn times(self, factor: f64) -> Self {
        Self {
            cpu: self.cpu * factor,
            memory: self.memory * factor,
        }
    }
}

fn aggregated(
    text: &str,
    window: SignedDuration,
    now: Timestamp,
    usage: &dyn Fn(Timestamp) -> Amount,
) -> AggregatedUsage {
    let moments = (0..MOMENTS).map(|step| usage(now - window * step / MOMENTS));
    let (mut cpu, mut memory): (Vec<f64>, Vec<f64>) =
        moments.map(|one| (one.cpu, one.memory)).unzip();
    cpu.sort_by(f64::total_cmp);
    memory.sort_by(f64::total_cmp);
    let mean = |sorted: &[f64]| sorted.iter().sum::<f64>() / sorted.len() as f64;
    let percentile = |sorted: &[f64], share: f64| {
        let place = (sorted.len() as f64 * share) as usize;
        sorted[place.saturating_sub(1)]
    };
    let mut found = BTreeMap::from([("avg".to_owned(), (mean(&cpu), mean(&memory)))]);
    for (name, share) in [("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99)] {
        let both = (percentile(&cpu, share), percentile(&memory, share));
        found.insert(name.to_owned(), both);
    }
    let usage = found
        .into_iter()
        .map(|(name, (cpu, memory))| (name, resources(Amount { cpu, memory })));
    AggregatedUsage {
        usage: usage.collect(),
        duration: text.to_owned(),
    }
}

fn resources(amount: Amount) -> Resources {
    let amounts = [
        ("cpu", Quantity::from_milli((amount.cpu * 1000.0) as i64)),
        ("memory", Quantity::from_bytes(amount.memory as u64)),
    ];
    let amounts = amounts.map(|(name, amount)| (name.to_owned(), amount.to_string()));
    Resources {
        resources: amounts.into(),
        devices: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pods::BoundPod;
    use serde_json::json;

    fn milli(resources: &Resources) -> i64 {
        let cpu: Quantity = resources.resources["cpu"].parse().unwrap();
        cpu.milli()
    }

    #[test]
    fn a_node_with_two_pods() {
        let now = Timestamp::constant(1_700_010_000, 0);
        let bound: BoundPod = serde_json::from_value(json!({
            "metadata": {"name": "a", "uid": "u", "annotations": {"plimsoll.dev/simulated-cpu": "1±50%", "plimsoll.dev/simulated-memory": "1Gi"}},
            "spec": {"nodeName": "sim-0001"},
        }))
        .unwrap();
        let model = Model::of_bound(&bound);
        let pod = |name, minutes: i64, priority| Pod {
            namespace: "default",
            name,
            since: now - SignedDuration::from_mins(minutes),
            model: &model,
            priority,
            qos: QosClass::Ls,
            request: Amount {
                cpu: 4.0,
                memory: 0.0,
            },
        };
        let pods = [
            pod("old", 600, PriorityClass::Prod),
            pod("new", 0, PriorityClass::Batch),
        ];
        let system = Amount {
            cpu: 0.25,
            memory: 1024.0,
        };
        let status = status(&pods, system, now);
        let node = status.node_metric.as_ref().unwrap();
        let of_pods: i64 = status
            .pods_metric
            .iter()
            .map(|pod| milli(&pod.pod_usage))
            .sum();
        assert!((milli(&node.node_usage) - of_pods - 250).abs() <= 2);
        assert_eq!(milli(&node.system_usage), 250);
        for aggregated in &node.aggregated_node_usages {
            let of = |name: &str| milli(&aggregated.usage[name]);
            assert!(of("p50") <= of("p90") && of("p90") <= of("p99"));
            // The old one alone, for all but the last moment.
            assert!((750..=1750).contains(&of("p50")), "{}", of("p50"));
        }
        // It never needs more than one and a half cores.
        let reclaimable = status.prod_reclaimable_metric.unwrap().resource;
        assert!((2349..=2350).contains(&milli(&reclaimable)));
        let peak = status.prod_peak_metric.unwrap().resource;
        assert!((1900..=1901).contains(&milli(&peak)));
    }
}
