//! `NodeResourceTopology` of `topology.node.k8s.io`: a node's NUMA nodes and what each has. The agent writes it, others
//! add resources of their own to its zones.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub const GROUP: &str = "topology.node.k8s.io";
pub const VERSION: &str = "v1alpha1";
pub const API_VERSION: &str = "topology.node.k8s.io/v1alpha1";
pub const KIND: &str = "NodeResourceTopology";
pub const PLURAL: &str = "noderesourcetopologies";

/// What zones of NUMA nodes are called, and their type.
pub const ZONE_PREFIX: &str = "node-";
pub const ZONE_TYPE: &str = "Node";

#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Zone {
    pub name: String,
    #[serde(rename = "type", default)]
    pub kind: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resources: Vec<ZoneResource>,
    /// Costs, attributes and whatever else others wrote.
    #[serde(flatten)]
    pub other: Map<String, Value>,
}

/// Quantities as texts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ZoneResource {
    pub name: String,
    pub capacity: String,
    pub allocatable: String,
    pub available: String,
}

impl ZoneResource {
    /// All of it can be had.
    pub fn whole(name: &str, amount: impl ToString) -> Self {
        Self {
            name: name.to_owned(),
            capacity: amount.to_string(),
            allocatable: amount.to_string(),
            available: amount.to_string(),
        }
    }
}

impl Zone {
    pub fn numbered(node: usize) -> Self {
        Self {
            name: format!("{ZONE_PREFIX}{node}"),
            kind: ZONE_TYPE.to_owned(),
            ..Self::default()
        }
    }

    /// Which NUMA node it is; `None`: it is none.
    pub fn number(&self) -> Option<usize> {
        self.name.strip_prefix(ZONE_PREFIX)?.parse().ok()
    }

    pub fn resource(&self, name: &str) -> Option<&ZoneResource> {
        self.resources.iter().find(|one| one.name == name)
    }

    /// With these resources in place of those of the names in `owned`; the others stay. By name.
    #[must_use]
    pub fn with(&self, resources: &[ZoneResource], owned: &[&str]) -> Self {
        let foreign = self.resources.iter();
        let foreign = foreign.filter(|one| !owned.contains(&one.name.as_str()));
        let mut all: Vec<ZoneResource> = foreign.chain(resources).cloned().collect();
        all.sort_by(|a, b| a.name.cmp(&b.name));
        Self {
            resources: all,
            ..self.clone()
        }
    }
}

/// The wanted zones, with the resources that others have added to those of the same names.
pub fn merged(present: &[Zone], wanted: &[Zone], owned: &[&str]) -> Vec<Zone> {
    wanted
        .iter()
        .map(|zone| {
            let found = present.iter().find(|one| one.name == zone.name);
            let base = found.cloned().unwrap_or_else(|| Zone {
                resources: Vec::new(),
                ..zone.clone()
            });
            Zone {
                kind: zone.kind.clone(),
                ..base.with(&zone.resources, owned)
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn zone(value: Value) -> Zone {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn what_others_wrote_stays() {
        let present = zone(json!({
            "name": "node-0", "type": "Node",
            "costs": [{"name": "node-0", "value": 10}],
            "resources": [
                {"name": "cpu", "capacity": "2", "allocatable": "2", "available": "2"},
                {"name": "kubernetes.io/batch-cpu", "capacity": "319", "allocatable": "319", "available": "319"},
            ],
        }));
        let gone = Zone::numbered(1);
        let wanted = Zone {
            resources: vec![ZoneResource::whole("cpu", 4)],
            ..Zone::numbered(0)
        };
        let found = merged(&[present, gone], &[wanted], &["cpu", "memory"]);
        assert_eq!(
            serde_json::to_value(found).unwrap(),
            json!([{
                "name": "node-0", "type": "Node",
                "costs": [{"name": "node-0", "value": 10}],
                "resources": [
                    {"name": "cpu", "capacity": "4", "allocatable": "4", "available": "4"},
                    {"name": "kubernetes.io/batch-cpu", "capacity": "319", "allocatable": "319", "available": "319"},
                ],
            }])
        );
    }

    #[test]
    fn a_new_zone_is_as_wanted() {
        let wanted = Zone {
            resources: vec![
                ZoneResource::whole("memory", "1Gi"),
                ZoneResource::whole("cpu", 1),
            ],
            ..Zone::numbered(3)
        };
        let found = merged(&[], &[wanted], &["cpu", "memory"]);
        assert_eq!((found[0].number(), found[0].resources.len()), (Some(3), 2));
        assert_eq!(found[0].resources[0].name, "cpu");
    }
}
