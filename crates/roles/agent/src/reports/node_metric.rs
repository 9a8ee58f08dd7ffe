//! The status of a `NodeMetric`.

use std::collections::BTreeMap;
use std::time::Duration;

use jiff::Timestamp;
use plimsoll_api::node_metric::{
    AggregatedUsage, CollectPolicy, HostApplicationUsage, MemoryCollectPolicy, NodeMetricStatus,
    NodeUsage, NumaUsage, PodUsage, Reclaimable, Resources,
};
use plimsoll_api::quantity::{Notation, Quantity};
use plimsoll_host::gpu::Device;
use plimsoll_predict::Amount;
use serde_json::{Value, json};

use super::usage_source::UsageSource;
use crate::states::ClusterState;
use plimsoll_golang::GoDuration;
use plimsoll_history::metrics::{
    HOST_APPLICATION_CPU_USAGE, HOST_APPLICATION_MEMORY_USAGE,
    HOST_APPLICATION_MEMORY_USAGE_WITH_PAGE_CACHE, HOST_APPLICATION_MEMORY_WITH_HOT_PAGE_USAGE,
    NODE_CPU_USAGE, NODE_GPU_CORE_USAGE, NODE_GPU_MEMORY_USAGE, NODE_MEMORY_USAGE,
    NODE_MEMORY_USAGE_WITH_PAGE_CACHE, NODE_MEMORY_WITH_HOT_PAGE_USAGE, NODE_NUMA_CPU_USAGE,
    NODE_NUMA_MEMORY_USAGE, POD_CPU_USAGE, POD_GPU_CORE_USAGE, POD_GPU_MEMORY_USAGE,
    POD_MEMORY_USAGE, POD_MEMORY_USAGE_WITH_PAGE_CACHE, POD_MEMORY_WITH_HOT_PAGE_USAGE,
    SYS_CPU_USAGE, SYS_MEMORY_USAGE, SYS_NUMA_CPU_USAGE, SYS_NUMA_MEMORY_USAGE,
};
use plimsoll_history::{Metric, Series, Summary};

/// What plain figures are averages over, unless the manager says otherwise, and the least it can say.
const AGGREGATE: Duration = Duration::from_secs(300);
const LEAST_AGGREGATE: Duration = Duration::from_secs(60);
const DURATIONS: [&str; 3] = ["5m0s", "10m0s", "30m0s"];
/// A percentile needs samples for at least this share of its time span.
const SEEN_SHARE: f64 = 0.5;

pub const GPU_CORE: &str = "koordinator.sh/gpu-core";
pub const GPU_MEMORY: &str = "koordinator.sh/gpu-memory";
pub const GPU_MEMORY_RATIO: &str = "koordinator.sh/gpu-memory-ratio";

/// Everything that a report is made of.
#[derive(Clone, Copy)]
pub struct Input<'a> {
    pub cluster: &'a ClusterState,
    pub figures: &'a dyn UsageSource,
    /// How many there are; they are numbered from 0.
    pub numa_nodes: usize,
    pub gpus: &'a [Device],
    pub now: Timestamp,
}

impl std::fmt::Debug for Input<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Input")
            .field("cluster", &self.cluster)
            .field("now", &self.now)
            .finish_non_exhaustive()
    }
}

/// `None`: there is no usage of the node yet.
pub fn status(input: &Input<'_>) -> Option<NodeMetricStatus> {
    let collect = input
        .cluster
        .collect_policy
        .as_deref()
        .cloned()
        .unwrap_or_default();
    let report = Report {
        input,
        window: window(&collect),
        policy: collect.node_memory_collect_policy.unwrap_or_default(),
    };
    let forecast = input
        .figures
        .forecast(input.cluster, report.window, input.now);
    let foreseen = |pick: fn(&plimsoll_predict::reclaim::Reclaimable) -> Amount| {
        let resource = forecast.as_ref().map(|forecast| {
            let amount = pick(forecast);
            resources(amount.cpu, amount.memory)
        });
        Some(Reclaimable {
            resource: resource.unwrap_or_default(),
        })
    };
    Some(NodeMetricStatus {
        update_time: Some(input.now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()),
        node_metric: Some(report.node(&collect)?),
        pods_metric: report.pods(),
        host_application_metric: report.host_applications(),
        prod_reclaimable_metric: foreseen(|forecast| forecast.amount),
        prod_peak_metric: foreseen(|forecast| forecast.peak),
    })
}

/// What plain figures are averages over.
pub fn window(collect: &CollectPolicy) -> Duration {
    let seconds = collect.aggregate_duration_seconds;
    let asked = seconds.and_then(|seconds| u64::try_from(seconds).ok());
    asked.map_or(AGGREGATE, |seconds| {
        Duration::from_secs(seconds).max(LEAST_AGGREGATE)
    })
}

struct Report<'a> {
    input: &'a Input<'a>,
    window: Duration,
    policy: MemoryCollectPolicy,
}

/// The same figure without page cache, with hot pages of it, and with all of it.
type MemoryMetrics = [Metric; 3];

const NODE_MEMORY: MemoryMetrics = [
    NODE_MEMORY_USAGE,
    NODE_MEMORY_WITH_HOT_PAGE_USAGE,
    NODE_MEMORY_USAGE_WITH_PAGE_CACHE,
];
const POD_MEMORY: MemoryMetrics = [
    POD_MEMORY_USAGE,
    POD_MEMORY_WITH_HOT_PAGE_USAGE,
    POD_MEMORY_USAGE_WITH_PAGE_CACHE,
];
const HOST_APPLICATION_MEMORY: MemoryMetrics = [
    HOST_APPLICATION_MEMORY_USAGE,
    HOST_APPLICATION_MEMORY_WITH_HOT_PAGE_USAGE,
    HOST_APPLICATION_MEMORY_USAGE_WITH_PAGE_CACHE,
];

impl Report<'_> {
    fn during(&self, series: &Series, window: Duration) -> Option<Summary> {
        self.input.figures.summary(series, window, self.input.now)
    }

    fn average(&self, series: &Series) -> Option<f64> {
        Some(self.during(series, self.window)?.avg)
    }

    /// As the policy has it; what is not collected falls back to what always is.
    fn memory(&self, metrics: &MemoryMetrics, of: &[&str], window: Duration) -> Option<Summary> {
        let [plain, hot, all] = metrics;
        let wanted = match self.policy {
            MemoryCollectPolicy::UsageWithoutPageCache => None,
            MemoryCollectPolicy::UsageWithHotPageCache => self.during(&hot.of(of), window),
            MemoryCollectPolicy::UsageWithPageCache => self.during(&all.of(of), window),
        };
        wanted.or_else(|| self.during(&plain.of(of), window))
    }

    fn node(&self, collect: &CollectPolicy) -> Option<NodeUsage> {
        let cpu = self.average(&NODE_CPU_USAGE.of(&[]))?;
        let memory = self.memory(&NODE_MEMORY, &[], self.window)?.avg;
        let devices = self.gpu_usage(&[], NODE_GPU_CORE_USAGE, NODE_GPU_MEMORY_USAGE);
        let of_system = (
            self.average(&SYS_CPU_USAGE.of(&[])),
            self.average(&SYS_MEMORY_USAGE.of(&[])),
        );
        let system = match of_system {
            (Some(cpu), Some(memory)) => resources(cpu, memory),
            _ => Resources::default(),
        };
        let durations = durations(collect);
        let over = |of: fn(&Self, Duration) -> Option<(Summary, Summary)>| {
            let durations = durations.iter();
            let usages =
                durations.map(|(text, duration)| aggregated(text, *duration, of(self, *duration)));
            usages.collect::<Vec<_>>()
        };
        Some(NodeUsage {
            node_usage: Resources {
                devices,
                ..resources(cpu, memory)
            },
            aggregated_node_usages: over(|this, window| {
                let cpu = this.during(&NODE_CPU_USAGE.of(&[]), window)?;
                Some((cpu, this.memory(&NODE_MEMORY, &[], window)?))
            }),
            system_usage: system,
            aggregated_system_usages: over(|this, window| {
                let cpu = this.during(&SYS_CPU_USAGE.of(&[]), window)?;
                Some((cpu, this.during(&SYS_MEMORY_USAGE.of(&[]), window)?))
            }),
            numa_usages: self.numa(),
        })
    }

    fn numa(&self) -> Vec<NumaUsage> {
        let usage = |cpu: &Metric, memory: &Metric, node: &str| {
            let cpu = self.average(&cpu.of(&[node]))?;
            Some(resources(cpu, self.average(&memory.of(&[node]))?))
        };
        let nodes = (0..self.input.numa_nodes).filter_map(|id| {
            let node = id.to_string();
            Some(NumaUsage {
                numa_node_id: i32::try_from(id).ok()?,
                node_usage: usage(&NODE_NUMA_CPU_USAGE, &NODE_NUMA_MEMORY_USAGE, &node)?,
                system_usage: usage(&SYS_NUMA_CPU_USAGE, &SYS_NUMA_MEMORY_USAGE, &node)
                    .unwrap_or_default(),
            })
        });
        nodes.collect()
    }

    /// By namespace and name; pods without figures in that time are left out.
    fn pods(&self) -> Vec<PodUsage> {
        let pods = self.input.cluster.pods.as_deref().unwrap_or_default();
        let usages = pods.iter().filter_map(|pod| {
            let cpu = self.average(&POD_CPU_USAGE.of(&[&pod.uid]))?;
            let memory = self.memory(&POD_MEMORY, &[&pod.uid], self.window)?.avg;
            Some(PodUsage {
                name: pod.name.to_string(),
                namespace: pod.namespace.to_string(),
                pod_usage: Resources {
                    devices: self.gpu_usage(&[&pod.uid], POD_GPU_CORE_USAGE, POD_GPU_MEMORY_USAGE),
                    ..resources(cpu, memory)
                },
                priority: pod.classes.effective_priority(),
                qos: pod.classes.effective_qos(),
                extensions: None,
            })
        });
        let mut usages: Vec<PodUsage> = usages.collect();
        usages.sort_by(|a, b| (&a.namespace, &a.name).cmp(&(&b.namespace, &b.name)));
        usages
    }

    /// By name.
    fn host_applications(&self) -> Vec<HostApplicationUsage> {
        let applications = self.input.cluster.node_slo.host_applications.iter();
        let usages = applications.filter_map(|one| {
            let cpu = self.average(&HOST_APPLICATION_CPU_USAGE.of(&[&one.name]))?;
            let memory = self.memory(&HOST_APPLICATION_MEMORY, &[&one.name], self.window)?;
            Some(HostApplicationUsage {
                name: one.name.to_string(),
                usage: resources(cpu, memory.avg),
                priority: one.priority,
                qos: one.qos,
            })
        });
        let mut usages: Vec<HostApplicationUsage> = usages.collect();
        usages.sort_by(|a, b| a.name.cmp(&b.name));
        usages
    }

    fn gpu_usage(&self, of: &[&str], core: Metric, memory: Metric) -> Vec<Value> {
        let used = self.input.gpus.iter().filter_map(|gpu| {
            let minor = gpu.minor.to_string();
            let mut of = of.to_vec();
            of.extend([minor.as_str(), gpu.uuid.as_str()]);
            let core = self.average(&core.of(&of))?;
            let bytes = self.average(&memory.of(&of))?;
            let ratio = match gpu.memory {
                0 => 0.0,
                all => bytes * 100.0 / all as f64,
            };
            Some(json!({
                "type": "gpu",
                "id": gpu.uuid,
                "minor": gpu.minor,
                "health": gpu.fault.is_none(),
                "resources": {
                    GPU_CORE: whole(core).to_string(),
                    GPU_MEMORY: bytes_of(bytes).to_string(),
                    GPU_MEMORY_RATIO: whole(ratio).to_string(),
                },
            }))
        });
        used.collect()
    }
}

/// As they are spelled, and as they are; one that is none is left out.
fn durations(collect: &CollectPolicy) -> Vec<(String, Duration)> {
    let asked = collect.node_aggregate_policy.as_ref();
    let asked = asked.map(|policy| policy.durations.clone());
    let texts = asked.unwrap_or_else(|| DURATIONS.map(str::to_owned).into());
    texts
        .into_iter()
        .filter_map(|text| {
            let duration = GoDuration::parse(&text).ok()?.duration();
            (!duration.is_zero()).then_some((text, duration))
        })
        .collect()
}

fn aggregated(
    text: &str,
    duration: Duration,
    found: Option<(Summary, Summary)>,
) -> AggregatedUsage {
    type Pick = fn(&Summary) -> f64;
    let seen =
        |summary: &Summary| summary.span.as_secs_f64() >= duration.as_secs_f64() * SEEN_SHARE;
    let found = found.filter(|(cpu, memory)| seen(cpu) && seen(memory));
    let kinds: [(&str, Pick); 5] = [
        ("avg", |summary| summary.avg),
        ("p50", |summary| summary.p50),
        ("p90", |summary| summary.p90),
        ("p95", |summary| summary.p95),
        ("p99", |summary| summary.p99),
    ];
    let usage = kinds.map(|(name, of)| {
        let usage = found
            .as_ref()
            .map(|(cpu, memory)| resources(of(cpu), of(memory)));
        (name.to_owned(), usage.unwrap_or_default())
    });
    AggregatedUsage {
        usage: usage.into(),
        duration: text.to_owned(),
    }
}

/// Cores and bytes, cut to what the resource's notation can say.
fn resources(cpu: f64, memory: f64) -> Resources {
    let amounts = [
        ("cpu", Quantity::from_milli((cpu * 1000.0) as i64)),
        ("memory", bytes_of(memory)),
    ];
    let amounts = amounts.map(|(name, amount)| (name.to_owned(), amount.to_string()));
    Resources {
        resources: BTreeMap::from(amounts),
        devices: Vec::new(),
    }
}

fn bytes_of(bytes: f64) -> Quantity {
    Quantity::from_bytes(bytes.max(0.0) as u64)
}

fn whole(value: f64) -> Quantity {
    Quantity::from_nanos(value as i128 * 1_000_000_000, Notation::Decimal)
}

#[cfg(test)]
mod tests;
