//! What annotations of the node say about its CPUs.

use std::collections::BTreeMap;

use plimsoll_api::names;
use plimsoll_api::quantity::Quantity;
use plimsoll_host::machine::Processor;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::kubelet::by_topology;
use super::parsed;
use crate::states::Node;

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Reservation {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    resources: BTreeMap<String, Value>,
    #[serde(rename = "reservedCPUs", skip_serializing_if = "String::is_empty")]
    pub reserved_cpus: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    apply_policy: String,
}

/// As the node has it, with CPUs named where it only counts them.
pub fn reservation(
    node: &Node,
    processors: &[Processor],
    warnings: &mut Vec<String>,
) -> Reservation {
    let mut reservation: Reservation = annotation(node, names::ANNOTATION_RESERVATION, warnings);
    if reservation.reserved_cpus.is_empty() {
        let count = reservation.resources.get("cpu").and_then(|cpu| match cpu {
            Value::String(text) => text.parse::<Quantity>().ok(),
            other => other.to_string().parse().ok(),
        });
        let count = count.map_or(0, |cpu| usize::try_from(cpu.value()).unwrap_or(0));
        reservation.reserved_cpus = by_topology(processors, count).to_string();
    } else {
        let cpus = parsed(
            names::ANNOTATION_RESERVATION,
            &reservation.reserved_cpus,
            warnings,
        );
        reservation.reserved_cpus = cpus.to_string();
    }
    reservation
}

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct SystemQos {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub cpuset: String,
    /// Unless said otherwise they are.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpuset_exclusive: Option<bool>,
}

pub fn system_qos(node: &Node, warnings: &mut Vec<String>) -> SystemQos {
    annotation(node, names::ANNOTATION_SYSTEM_QOS, warnings)
}

fn annotation<T: Default + serde::de::DeserializeOwned>(
    node: &Node,
    name: &str,
    warnings: &mut Vec<String>,
) -> T {
    let Some(text) = node.annotations.get(name) else {
        return T::default();
    };
    serde_json::from_str(text).unwrap_or_else(|error| {
        warnings.push(format!("annotation {name} of the node: {error}"));
        T::default()
    })
}
