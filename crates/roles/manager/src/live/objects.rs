//! The cluster's objects, without what the manager does not look at.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use plimsoll_api::names;
use plimsoll_api::node_metric::{self, NodeMetricStatus};
use plimsoll_api::node_topology::{self, Zone};
use plimsoll_api::pod::{Classes, Spec};
use plimsoll_api::quantity::{Notation, Quantity};
use plimsoll_client::impl_resource;
use plimsoll_client::reflector::object_meta;
use serde::Deserialize;
use serde_json::Value;

use crate::amount::Amount;

#[derive(Debug, Clone, Deserialize)]
pub struct Node {
    #[serde(deserialize_with = "object_meta::metadata")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub status: NodeStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct NodeStatus {
    pub capacity: BTreeMap<String, String>,
    pub allocatable: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Pod {
    #[serde(deserialize_with = "object_meta::metadata")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: Spec,
    #[serde(default)]
    pub status: PodStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    pub phase: String,
    pub qos_class: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct NodeMetric {
    #[serde(deserialize_with = "object_meta::metadata")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: Value,
    #[serde(default)]
    pub status: NodeMetricStatus,
}

/// A node's NUMA nodes, as its agent tells them.
#[derive(Debug, Clone, Deserialize)]
pub struct Topology {
    #[serde(deserialize_with = "object_meta::metadata")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub zones: Vec<Zone>,
}

impl_resource!(Node, "", "v1", "v1", "Node", "nodes", ClusterResourceScope);
impl_resource!(Pod, "", "v1", "v1", "Pod", "pods", NamespaceResourceScope);
impl_resource!(
    NodeMetric,
    node_metric::GROUP,
    node_metric::VERSION,
    node_metric::API_VERSION,
    node_metric::KIND,
    node_metric::PLURAL,
    ClusterResourceScope
);
impl_resource!(
    Topology,
    node_topology::GROUP,
    node_topology::VERSION,
    node_topology::API_VERSION,
    node_topology::KIND,
    node_topology::PLURAL,
    ClusterResourceScope
);

impl Pod {
    /// The NUMA nodes that the scheduler has bound it to.
    pub fn zones(&self) -> Vec<usize> {
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "camelCase", default)]
        struct Status {
            numa_node_resources: Vec<Bound>,
        }
        #[derive(Deserialize)]
        struct Bound {
            node: i64,
        }
        let annotations = self.metadata.annotations.as_ref();
        let text = annotations.and_then(|all| all.get(names::ANNOTATION_RESOURCE_STATUS));
        let status = text.and_then(|text| serde_json::from_str::<Status>(text).ok());
        let bound = status.unwrap_or_default().numa_node_resources;
        let mut zones: Vec<usize> = bound
            .into_iter()
            .filter_map(|one| usize::try_from(one.node).ok())
            .collect();
        zones.sort_unstable();
        zones.dedup();
        zones
    }

    /// It holds, or is about to hold, resources of its node.
    pub fn is_alive(&self) -> bool {
        matches!(self.status.phase.as_str(), "Running" | "Pending" | "")
    }

    pub fn classes(&self) -> Classes {
        let kube_qos = self.status.qos_class.as_deref();
        Classes::of(self.metadata.labels.as_ref(), self.spec.priority, kube_qos)
    }

    pub fn request(&self) -> Amount {
        let total = self.spec.requests();
        Amount {
            milli_cpu: total.get("cpu").map_or(0, Quantity::milli),
            memory: total.get("memory").map_or(0, Quantity::value),
        }
    }
}

/// An amount in a resource list, as Kubernetes spells it: thousandths of cores are plain numbers, memory is counted as
/// bytes are, unless the machine's own is not.
pub fn spelled(resource: &str, value: i64, of_memory: Notation) -> String {
    let notation = match resource {
        names::MID_MEMORY => Notation::Binary,
        names::BATCH_MEMORY => of_memory,
        _ => Notation::Decimal,
    };
    Quantity::from_nanos(i128::from(value) * 1_000_000_000, notation).to_string()
}

/// How an amount of memory is counted.
pub fn notation(amount: Option<&String>) -> Notation {
    let amount = amount.and_then(|text| text.parse::<Quantity>().ok());
    amount.map_or(Notation::Binary, |amount| amount.notation())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_a_pod_asks_for() {
        let object = json!({
            "metadata": {},
            "spec": {"containers": [{"resources": {"requests": {"cpu": "1500m", "memory": "1Ki"}}}]},
        });
        let pod: Pod = serde_json::from_value(object).unwrap();
        let request = pod.request();
        assert_eq!((request.milli_cpu, request.memory), (1500, 1024));
        assert!(pod.is_alive());
    }

    #[test]
    fn where_a_pod_is_bound() {
        let status = r#"{"numaNodeResources":[{"node":1},{"node":-1},{"node":0},{"node":1}]}"#;
        let object =
            json!({"metadata": {"annotations": {names::ANNOTATION_RESOURCE_STATUS: status}}});
        let pod: Pod = serde_json::from_value(object).unwrap();
        assert_eq!(pod.zones(), [0, 1]);
    }

    #[test]
    fn amounts_are_spelled_as_others_do() {
        use Notation::{Binary, Decimal};
        for (resource, value, of_memory, expected) in [
            (names::BATCH_CPU, 319, Binary, "319"),
            (names::MID_CPU, 32_000, Binary, "32k"),
            (names::BATCH_MEMORY, 14_792_432_251, Binary, "14792432251"),
            (names::BATCH_MEMORY, 32_000, Binary, "32000"),
            (names::BATCH_MEMORY, 3 << 30, Binary, "3Gi"),
            (names::BATCH_MEMORY, 32_000, Decimal, "32k"),
            (names::MID_MEMORY, 2_048_000, Decimal, "2000Ki"),
        ] {
            assert_eq!(spelled(resource, value, of_memory), expected);
        }
        assert_eq!(notation(Some(&"24682416Ki".to_owned())), Binary);
        assert_eq!(notation(Some(&"64G".to_owned())), Decimal);
        assert_eq!(notation(None), Binary);
    }
}
