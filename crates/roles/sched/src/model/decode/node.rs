//! Nodes, and what they report to use.

use plimsoll_api::quantity::Quantity;
use serde::Deserialize;

use super::meta::{Amount, Meta, Place, ResourceList, labels, symbols};
use super::{Result, parse};
use crate::model::node::Node;
use crate::model::objects::{NodeMetric, PodUsage, UsageAggregate};
use crate::model::pod::{Effect, Taint};
use crate::model::symbol::Names;
use crate::time::Time;
use plimsoll_golang::GoDuration;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireNode {
    metadata: Meta,
    spec: WireSpec,
    status: WireStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireSpec {
    taints: Option<Vec<WireTaint>>,
    unschedulable: bool,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireTaint {
    key: String,
    value: String,
    effect: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireStatus {
    allocatable: Option<ResourceList>,
    images: Option<Vec<WireImage>>,
    conditions: Option<Vec<WireCondition>>,
    declared_features: Option<Vec<String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireImage {
    names: Option<Vec<String>>,
    size_bytes: i64,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireCondition {
    r#type: String,
    status: String,
}

pub(super) fn effect(text: &str) -> Option<Effect> {
    match text {
        "NoSchedule" => Some(Effect::NoSchedule),
        "PreferNoSchedule" => Some(Effect::PreferNoSchedule),
        "NoExecute" => Some(Effect::NoExecute),
        _ => None,
    }
}

pub fn node(json: &[u8], names: &mut Names) -> Result<Node> {
    let wire: WireNode = parse("Node", json)?;
    let place = Place {
        kind: "Node",
        object: &wire.metadata.name,
    };
    let pods = match wire
        .status
        .allocatable
        .as_ref()
        .and_then(|list| list.get("pods"))
    {
        Some(amount) => place.quantity("pods", amount)?.value(),
        None => 0,
    };
    let taints = wire
        .spec
        .taints
        .iter()
        .flatten()
        .filter_map(|taint| {
            Some(Taint {
                key: names.intern(&taint.key),
                value: names.intern(&taint.value),
                effect: effect(&taint.effect)?,
            })
        })
        .collect();
    let images = wire
        .status
        .images
        .iter()
        .flatten()
        .flat_map(|image| {
            image
                .names
                .iter()
                .flatten()
                .map(|name| (name, image.size_bytes))
        })
        .map(|(name, size)| (names.intern(name), size))
        .collect();
    let conditions = wire
        .status
        .conditions
        .iter()
        .flatten()
        .map(|condition| {
            (
                names.intern(&condition.r#type),
                names.intern(&condition.status),
            )
        })
        .collect();
    Ok(Node {
        name: names.intern(&wire.metadata.name),
        uid: wire.metadata.uid.as_str().into(),
        labels: labels(wire.metadata.labels.as_ref(), names),
        annotations: labels(wire.metadata.annotations.as_ref(), names),
        taints,
        unschedulable: wire.spec.unschedulable,
        allocatable: place.amounts(wire.status.allocatable.as_ref(), names)?,
        pods,
        images,
        conditions,
        features: symbols(wire.status.declared_features.as_ref(), names),
    })
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireMetric {
    metadata: Meta,
    spec: WireMetricSpec,
    status: WireMetricStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireMetricSpec {
    metric_collect_policy: Option<WirePolicy>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WirePolicy {
    report_interval_seconds: Option<i64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireMetricStatus {
    update_time: Option<String>,
    node_metric: Option<WireNodeUsage>,
    pods_metric: Option<Vec<WirePodUsage>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireNodeUsage {
    node_usage: WireUsage,
    system_usage: WireUsage,
    aggregated_node_usages: Option<Vec<WireAggregate>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireUsage {
    resources: Option<ResourceList>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct WireAggregate {
    usage: Option<std::collections::BTreeMap<String, WireUsage>>,
    duration: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WirePodUsage {
    name: String,
    namespace: String,
    priority: String,
    pod_usage: WireUsage,
}

fn usage(wire: &WireUsage, place: Place<'_>) -> Result<[i64; 2]> {
    let amount = |name: &str| -> Result<Option<Quantity>> {
        let found: Option<&Amount> = wire.resources.as_ref().and_then(|list| list.get(name));
        found.map(|amount| place.quantity(name, amount)).transpose()
    };
    Ok([
        amount("cpu")?.map_or(0, |cpu| cpu.milli()),
        amount("memory")?.map_or(0, |memory| memory.value()),
    ])
}

pub fn node_metric(json: &[u8], names: &mut Names) -> Result<NodeMetric> {
    let wire: WireMetric = parse("NodeMetric", json)?;
    let place = Place {
        kind: "NodeMetric",
        object: &wire.metadata.name,
    };
    let totals = wire.status.node_metric.unwrap_or_default();
    let mut aggregates = Vec::new();
    for aggregate in totals.aggregated_node_usages.iter().flatten() {
        let window = match aggregate.duration.as_str() {
            "" => GoDuration::default(),
            text => match GoDuration::parse(text) {
                Ok(window) => window,
                // Nobody can ask for a window that cannot be read.
                Err(_) => continue,
            },
        };
        let mut kinds = Vec::new();
        for (kind, wire) in aggregate.usage.iter().flatten() {
            kinds.push((kind.as_str().into(), usage(wire, place)?));
        }
        aggregates.push(UsageAggregate {
            window,
            usage: kinds.into(),
        });
    }
    let mut pods = Vec::new();
    for pod in wire.status.pods_metric.iter().flatten() {
        pods.push(PodUsage {
            namespace: names.intern(&pod.namespace),
            name: pod.name.as_str().into(),
            prod: pod.priority == "koord-prod",
            usage: usage(&pod.pod_usage, place)?,
        });
    }
    Ok(NodeMetric {
        node: names.intern(&wire.metadata.name),
        updated: wire.status.update_time.as_deref().and_then(Time::parse),
        report_interval: wire
            .spec
            .metric_collect_policy
            .and_then(|policy| policy.report_interval_seconds)
            .unwrap_or(60),
        usage: usage(&totals.node_usage, place)?,
        system: usage(&totals.system_usage, place)?,
        aggregates: aggregates.into(),
        pods: pods.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::symbol::ResourceId;

    #[test]
    fn a_node() {
        let mut names = Names::default();
        let json = br#"{"metadata":{"name":"n1","uid":"u","labels":{"zone":"a"}},
            "spec":{"unschedulable":true,"taints":[{"key":"k","effect":"NoExecute"},{"key":"x","effect":"odd"}]},
            "status":{"allocatable":{"cpu":"1500m","memory":"2Gi","pods":"110","example.com/gpu":"2","odd":"1"},
              "images":[{"names":["a:1","a@sha"],"sizeBytes":7}],
              "conditions":[{"type":"Ready","status":"True","lastHeartbeatTime":"x"}]}}"#;
        let node = node(json, &mut names).unwrap();
        assert_eq!(node.allocatable.get(ResourceId::CPU), 1500);
        assert_eq!(node.allocatable.get(ResourceId::MEMORY), 2 << 30);
        let gpu = names.find_resource("example.com/gpu").unwrap();
        assert_eq!(node.allocatable.get(gpu), 2);
        assert_eq!((node.pods, node.unschedulable), (110, true));
        assert_eq!(node.taints.len(), 1);
        assert_eq!(node.images.len(), 2);
        assert_eq!(names.find_resource("odd"), None);
    }

    #[test]
    fn bad_objects_are_named() {
        let mut names = Names::default();
        let json = br#"{"metadata":{"name":"n1"},"status":{"allocatable":{"cpu":"many"}}}"#;
        let error = node(json, &mut names).unwrap_err();
        assert_eq!(error.to_string(), "Node n1: cpu: bad quantity \"many\"");
        assert!(node(b"{", &mut names).is_err());
    }

    #[test]
    fn windows_of_aggregates() {
        let aggregate = |window: &str| format!(r#"{{"duration":"{window}","usage":{{}}}}"#);
        let windows = ["5m0s", "1h30m", "300ms", "1.5h30m", "soon", ""].map(aggregate);
        let json = format!(
            r#"{{"metadata":{{"name":"n"}},"status":{{"nodeMetric":{{"aggregatedNodeUsages":[{}]}}}}}}"#,
            windows.join(",")
        );
        let metric = node_metric(json.as_bytes(), &mut Names::default()).unwrap();
        let millis: Vec<_> = metric
            .aggregates
            .iter()
            .map(|one| one.window.0 / 1_000_000)
            .collect();
        assert_eq!(millis, [300_000, 5_400_000, 300, 7_200_000, 0]);
    }
}
