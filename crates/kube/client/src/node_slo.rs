//! NodeSLO with only the fields that several roles read.

use k8s_openapi::ClusterResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use plimsoll_api::{node_metric, node_slo};
use serde::Deserialize;
use serde_json::Value;

use crate::impl_resource;
use crate::reflector::object_meta;

/// How a node is to treat its pods.
#[derive(Debug, Clone, Deserialize)]
pub struct NodeSlo {
    #[serde(deserialize_with = "object_meta::metadata")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: Value,
}

impl_resource!(
    NodeSlo,
    node_metric::GROUP,
    node_metric::VERSION,
    node_metric::API_VERSION,
    node_slo::KIND,
    node_slo::PLURAL,
    ClusterResourceScope
);
