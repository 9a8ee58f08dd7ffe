//! Makes the NodeResourceTopology object, and merges it with what others wrote.

use plimsoll_api::names;
use plimsoll_api::node_topology::{self, Zone};
use serde_json::{Value, json};

use super::TopologyReport;
use crate::reports::upsert::owner;

/// The resources of zones that are the agent's to say.
const RESOURCES: [&str; 4] = ["cpu", "memory", "hugepages-1Gi", "hugepages-2Mi"];

impl TopologyReport {
    /// The present object with our fields updated. `None`: no change.
    pub fn merged(&self, present: &Value) -> Option<Value> {
        let mut wanted = present.clone();
        for (name, text) in &self.annotations {
            let before = &present["metadata"]["annotations"][name];
            if !same_json(before.as_str(), text) {
                wanted["metadata"]["annotations"][name] = text.clone().into();
            }
        }
        if let Some(labels) = wanted["metadata"]["labels"].as_object_mut() {
            labels.remove(names::LABEL_NUMA_RESERVATION);
        }
        for (name, value) in &self.labels {
            wanted["metadata"]["labels"][name] = value.clone().into();
        }
        if present["metadata"]["labels"].is_null() && self.labels.is_empty() {
            wanted["metadata"]["labels"] = Value::Null;
        }
        wanted["topologyPolicies"] = json!([self.policy]);
        let zones = present.get("zones").cloned().unwrap_or_default();
        let zones: Vec<Zone> = serde_json::from_value(zones).unwrap_or_default();
        let merged = node_topology::merged(&zones, &self.zones, &RESOURCES);
        if merged != zones {
            wanted["zones"] = json!(merged);
        }
        (wanted != *present).then_some(wanted)
    }

    /// The object where there is none yet.
    pub fn object(&self, name: &str, node_uid: &str) -> Value {
        let mut labels = self.labels.clone();
        labels.insert(
            names::LABEL_MANAGED_BY.to_owned(),
            names::MANAGED_BY.to_owned(),
        );
        json!({
            "apiVersion": node_topology::API_VERSION,
            "kind": node_topology::KIND,
            "metadata": {
                "name": name,
                "labels": labels,
                "annotations": self.annotations,
                "ownerReferences": [owner(name, node_uid)],
            },
            "topologyPolicies": [self.policy],
            "zones": self.zones,
        })
    }
}

/// Somebody else may have written the same with other spaces.
fn same_json(before: Option<&str>, wanted: &str) -> bool {
    let value = |text: &str| serde_json::from_str::<Value>(text).ok();
    before.is_some_and(|before| before == wanted || value(before) == value(wanted))
}
