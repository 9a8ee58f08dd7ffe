//! The cluster's objects, without what the manager does not look at.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use plimsoll_api::names;
use plimsoll_api::node_metric::{self, NodeMetricStatus};
use plimsoll_api::node_slo;
use plimsoll_api::node_topology::{self, Zone};
use plimsoll_api::pod::{self, Resources};
use plimsoll_api::priority::{KubeQos, PriorityClass, QosClass};
use plimsoll_api::quantity::Quantity;
use plimsoll_ground::found_at;
use plimsoll_ground::reflect::slim;
use serde::Deserialize;
use serde_json::Value;

use crate::amount::Amount;

#[derive(Debug, Clone, Deserialize)]
pub struct Node {
    #[serde(deserialize_with = "slim::metadata")]
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
    #[serde(deserialize_with = "slim::metadata")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: PodSpec,
    #[serde(default)]
    pub status: PodStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    pub node_name: String,
    pub priority: Option<i32>,
    pub containers: Vec<Container>,
    pub init_containers: Vec<Container>,
    #[serde(deserialize_with = "pod::amounts")]
    pub overhead: pod::Amounts,
    /// Of the pod as a whole.
    pub resources: Option<Resources>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Container {
    pub resources: Resources,
    pub restart_policy: Option<String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    pub phase: String,
    pub qos_class: Option<String>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct NodeMetric {
    #[serde(deserialize_with = "slim::metadata")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: Value,
    #[serde(default)]
    pub status: NodeMetricStatus,
}

#[derive(Debug, Clone, Deserialize)]
pub struct NodeSlo {
    #[serde(deserialize_with = "slim::metadata")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: Value,
}

/// A node's NUMA nodes, as its agent tells them.
#[derive(Debug, Clone, Deserialize)]
pub struct Topology {
    #[serde(deserialize_with = "slim::metadata")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub zones: Vec<Zone>,
}

const SLO_API: &str = "slo.koordinator.sh/v1alpha1";

found_at!(Node, "", "v1", "v1", "Node", "nodes", ClusterResourceScope);
found_at!(Pod, "", "v1", "v1", "Pod", "pods", NamespaceResourceScope);
found_at!(
    NodeMetric,
    node_metric::GROUP,
    node_metric::VERSION,
    SLO_API,
    node_metric::KIND,
    node_metric::PLURAL,
    ClusterResourceScope
);
found_at!(
    NodeSlo,
    node_metric::GROUP,
    node_metric::VERSION,
    SLO_API,
    node_slo::KIND,
    node_slo::PLURAL,
    ClusterResourceScope
);

found_at!(
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
            node: usize,
        }
        let annotations = self.metadata.annotations.as_ref();
        let text = annotations.and_then(|all| all.get(names::ANNOTATION_RESOURCE_STATUS));
        let status = text.and_then(|text| serde_json::from_str::<Status>(text).ok());
        let bound = status.unwrap_or_default().numa_node_resources;
        bound.into_iter().map(|one| one.node).collect()
    }

    /// It holds, or is about to hold, resources of its node.
    pub fn is_alive(&self) -> bool {
        matches!(self.status.phase.as_str(), "Running" | "Pending" | "")
    }

    pub fn qos(&self) -> QosClass {
        let kube = self.status.qos_class.as_deref().and_then(KubeQos::named);
        let kube = kube.unwrap_or(KubeQos::BestEffort);
        QosClass::of_label(self.label(names::LABEL_QOS)).or_by_kube(kube)
    }

    pub fn priority(&self) -> PriorityClass {
        PriorityClass::of_pod(self.label(names::LABEL_PRIORITY_CLASS), self.spec.priority)
            .or_by_qos(self.qos())
    }

    fn label(&self, name: &str) -> Option<&str> {
        let labels = self.metadata.labels.as_ref()?;
        labels.get(name).map(String::as_str)
    }

    pub fn request(&self) -> Amount {
        let spec = &self.spec;
        let running = spec.containers.iter().map(|one| &one.resources.requests);
        let starting = spec.init_containers.iter().map(|one| pod::Part {
            amounts: &one.resources.requests,
            stays: one.restart_policy.as_deref() == Some("Always"),
        });
        let nothing = pod::Amounts::new();
        let whole = spec.resources.as_ref().map(|whole| &whole.requests);
        let total = pod::total(running, starting, whole.unwrap_or(&nothing), &spec.overhead);
        Amount {
            milli_cpu: total.get("cpu").map_or(0, Quantity::milli),
            memory: total.get("memory").map_or(0, Quantity::value),
        }
    }
}

/// An amount in a resource list, as Kubernetes spells it.
pub fn spelled(value: i64) -> String {
    let nanos = i128::from(value) * 1_000_000_000;
    Quantity::from_nanos(nanos, plimsoll_api::quantity::Notation::Decimal).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(spec: Value, labels: Value) -> Pod {
        let object = json!({"metadata": {"labels": labels}, "spec": spec, "status": {"qosClass": "Burstable"}});
        serde_json::from_value(object).unwrap()
    }

    fn container(cpu: &str, memory: &str) -> Value {
        json!({"resources": {"requests": {"cpu": cpu, "memory": memory}}})
    }

    #[test]
    fn requests_count_what_starts_and_what_stays() {
        let mut sidecar = container("200m", "20");
        sidecar["restartPolicy"] = "Always".into();
        let spec = json!({
            "containers": [container("1", "100"), container("500m", "50")],
            "initContainers": [container("100m", "10"), sidecar, container("3", "30")],
            "overhead": {"cpu": "10m", "memory": "1"}
        });
        let request = pod(spec, json!({})).request();
        // CPU: the second init container beside the sidecar; memory: the containers beside it.
        assert_eq!((request.milli_cpu, request.memory), (3210, 171));
    }

    #[test]
    fn classes() {
        let found = |spec: Value, labels: Value| {
            let pod = pod(spec, labels);
            (pod.priority(), pod.qos())
        };
        assert_eq!(
            found(json!({}), json!({})),
            (PriorityClass::Prod, QosClass::Ls)
        );
        let batch = json!({"koordinator.sh/qosClass": "BE"});
        assert_eq!(
            found(json!({"priority": 5500}), batch),
            (PriorityClass::Batch, QosClass::Be)
        );
    }

    #[test]
    fn amounts_are_spelled_as_others_do() {
        assert_eq!(spelled(319), "319");
        assert_eq!(spelled(32_000), "32k");
        assert_eq!(spelled(14_792_432_251), "14792432251");
    }
}
