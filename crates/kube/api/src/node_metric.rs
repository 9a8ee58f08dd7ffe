//! `NodeMetric` of `slo.koordinator.sh/v1alpha1`: what a node uses, as its agent reports it. One a node, of its name.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::priority::{PriorityClass, QosClass};

pub const GROUP: &str = "slo.koordinator.sh";
pub const VERSION: &str = "v1alpha1";
pub const API_VERSION: &str = "slo.koordinator.sh/v1alpha1";
pub const KIND: &str = "NodeMetric";
pub const PLURAL: &str = "nodemetrics";

/// What the manager asks of the agent.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeMetricSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metric_collect_policy: Option<CollectPolicy>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CollectPolicy {
    /// What plain figures are averages over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub aggregate_duration_seconds: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report_interval_seconds: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_aggregate_policy: Option<AggregatePolicy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_memory_collect_policy: Option<MemoryCollectPolicy>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct AggregatePolicy {
    /// As Go writes durations: `5m0s`.
    #[serde(default)]
    pub durations: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum MemoryCollectPolicy {
    #[default]
    UsageWithoutPageCache,
    UsageWithHotPageCache,
    UsageWithPageCache,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeMetricStatus {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub update_time: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_metric: Option<NodeUsage>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pods_metric: Vec<PodUsage>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub host_application_metric: Vec<HostApplicationUsage>,
    /// What may be lent of production pods' requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prod_reclaimable_metric: Option<Reclaimable>,
    /// What production pods are expected to need.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prod_peak_metric: Option<Reclaimable>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeUsage {
    #[serde(default)]
    pub node_usage: Resources,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aggregated_node_usages: Vec<AggregatedUsage>,
    #[serde(default)]
    pub system_usage: Resources,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub aggregated_system_usages: Vec<AggregatedUsage>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub numa_usages: Vec<NumaUsage>,
}

/// Quantities by resource name, and devices.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Resources {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub resources: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<Value>,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct AggregatedUsage {
    /// By `avg`, `p50`, `p90`, `p95` and `p99`; empty ones where too little is known.
    #[serde(default)]
    pub usage: BTreeMap<String, Resources>,
    pub duration: String,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NumaUsage {
    #[serde(rename = "numaNodeID")]
    pub numa_node_id: i32,
    #[serde(default)]
    pub node_usage: Resources,
    #[serde(default)]
    pub system_usage: Resources,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PodUsage {
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub namespace: String,
    #[serde(default)]
    pub pod_usage: Resources,
    #[serde(default = "no_priority", skip_serializing_if = "is_no_priority")]
    pub priority: PriorityClass,
    #[serde(default = "no_qos", skip_serializing_if = "is_no_qos")]
    pub qos: QosClass,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extensions: Option<Value>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct HostApplicationUsage {
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub usage: Resources,
    #[serde(default = "no_priority", skip_serializing_if = "is_no_priority")]
    pub priority: PriorityClass,
    #[serde(default = "no_qos", skip_serializing_if = "is_no_qos")]
    pub qos: QosClass,
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Reclaimable {
    #[serde(default)]
    pub resource: Resources,
}

fn no_priority() -> PriorityClass {
    PriorityClass::None
}

fn is_no_priority(class: &PriorityClass) -> bool {
    *class == PriorityClass::None
}

fn no_qos() -> QosClass {
    QosClass::None
}

fn is_no_qos(class: &QosClass) -> bool {
    *class == QosClass::None
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// As Koordinator's agent wrote it, shortened.
    fn foreign() -> Value {
        json!({
            "updateTime": "2026-11-15T19:43:49Z",
            "nodeMetric": {
                "nodeUsage": {"resources": {"cpu": "1303m", "memory": "1640744953"}},
                "aggregatedNodeUsages": [
                    {"duration": "5m0s", "usage": {"p50": {"resources": {"cpu": "1318m", "memory": "1574864Ki"}}}},
                    {"duration": "30m0s", "usage": {"avg": {}, "p50": {}}}
                ],
                "systemUsage": {"resources": {"cpu": "479m", "memory": "1623784647"}},
                "numaUsages": [{
                    "numaNodeID": 0,
                    "nodeUsage": {"resources": {"cpu": "1303m", "memory": "1289880209"}},
                    "systemUsage": {"resources": {"cpu": "479m", "memory": "1289432689"}}
                }]
            },
            "podsMetric": [{
                "name": "real-0",
                "namespace": "default",
                "podUsage": {"resources": {"cpu": "243m", "memory": "191171"}},
                "priority": "koord-prod",
                "qos": "LS"
            }],
            "prodReclaimableMetric": {"resource": {"resources": {"cpu": "0", "memory": "0"}}},
            "prodPeakMetric": {"resource": {"resources": {"cpu": "1500m", "memory": "1960528674"}}}
        })
    }

    #[test]
    fn what_others_write_is_read_and_written_alike() {
        let status: NodeMetricStatus = serde_json::from_value(foreign()).unwrap();
        assert_eq!(status.pods_metric[0].qos, QosClass::Ls);
        assert_eq!(serde_json::to_value(status).unwrap(), foreign());
    }

    #[test]
    fn a_spec_of_others() {
        let spec = json!({"metricCollectPolicy": {
            "aggregateDurationSeconds": 300,
            "nodeAggregatePolicy": {"durations": ["5m0s", "10m0s", "30m0s"]},
            "nodeMemoryCollectPolicy": "usageWithoutPageCache",
            "reportIntervalSeconds": 60
        }});
        let read: NodeMetricSpec = serde_json::from_value(spec.clone()).unwrap();
        assert_eq!(serde_json::to_value(read).unwrap(), spec);
    }
}
