//! The cluster's objects, as they are read: the few fields that the agent looks at.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use plimsoll_api::node_metric::{self, NodeMetricSpec};
use plimsoll_api::node_topology;
use plimsoll_api::pod::{Amounts, Resources, Spec, amounts};
use plimsoll_client::impl_resource;
use plimsoll_client::reflector::object_meta;
use serde::Deserialize;
use serde::de::IgnoredAny;

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
    pub phase: Option<Box<str>>,
    pub qos_class: Option<Box<str>>,
    pub container_statuses: Vec<ContainerStatus>,
    pub init_container_statuses: Vec<ContainerStatus>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct ContainerStatus {
    pub name: Box<str>,
    #[serde(rename = "containerID")]
    pub container_id: Option<Box<str>>,
    pub state: ContainerState,
    pub resources: Option<Resources>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct ContainerState {
    pub running: Option<IgnoredAny>,
}

/// As a kubelet answers.
#[derive(Debug, Default, Deserialize)]
pub struct PodList {
    #[serde(default)]
    pub items: Option<Vec<Pod>>,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Node {
    #[serde(deserialize_with = "object_meta::metadata")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub status: NodeStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeStatus {
    #[serde(deserialize_with = "amounts")]
    pub capacity: Amounts,
    #[serde(deserialize_with = "amounts")]
    pub allocatable: Amounts,
    pub addresses: Vec<Address>,
    pub daemon_endpoints: BTreeMap<Box<str>, Endpoint>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Address {
    #[serde(rename = "type")]
    pub kind: Box<str>,
    pub address: Box<str>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Endpoint {
    /// A capital of the original's.
    #[serde(rename = "Port")]
    pub port: u16,
}

/// What is asked of us, not what we reported.
#[derive(Debug, Clone, Deserialize)]
pub struct NodeMetric {
    #[serde(deserialize_with = "object_meta::metadata")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: NodeMetricSpec,
}

/// That it is there.
#[derive(Debug, Clone, Deserialize)]
pub struct Topology {
    #[serde(deserialize_with = "object_meta::metadata")]
    pub metadata: ObjectMeta,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Claim {
    #[serde(deserialize_with = "object_meta::metadata")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: ClaimSpec,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClaimSpec {
    pub volume_name: Box<str>,
}

impl_resource!(
    Topology,
    node_topology::GROUP,
    node_topology::VERSION,
    node_topology::API_VERSION,
    node_topology::KIND,
    node_topology::PLURAL,
    ClusterResourceScope
);
impl_resource!(Pod, "", "v1", "v1", "Pod", "pods", NamespaceResourceScope);
impl_resource!(Node, "", "v1", "v1", "Node", "nodes", ClusterResourceScope);
impl_resource!(
    Claim,
    "",
    "v1",
    "v1",
    "PersistentVolumeClaim",
    "persistentvolumeclaims",
    NamespaceResourceScope
);
impl_resource!(
    NodeMetric,
    node_metric::GROUP,
    node_metric::VERSION,
    node_metric::API_VERSION,
    node_metric::KIND,
    node_metric::PLURAL,
    ClusterResourceScope
);
