//! Batch resources of NUMA nodes, in the zones of the topology object.

use plimsoll_api::names;
use plimsoll_api::node_topology::{Zone, ZoneResource};
use plimsoll_api::quantity::Quantity;
use serde_json::json;

use super::node::Step;
use super::objects::{Topology, notation, spelled};
use crate::amount::Amount;
use crate::colocation::Strategy;

const OWNED: [&str; 2] = [names::BATCH_CPU, names::BATCH_MEMORY];

/// What each zone has, in order; `None`: some do not say yet.
pub fn amounts(topology: &Topology) -> Option<Vec<Amount>> {
    if topology.zones.is_empty() {
        return None;
    }
    let amount = |zone: &Zone| {
        let of = |name: &str| zone.resource(name)?.allocatable.parse::<Quantity>().ok();
        Some(Amount {
            milli_cpu: of("cpu")?.milli(),
            memory: of("memory")?.value(),
        })
    };
    topology.zones.iter().map(amount).collect()
}

/// Zones with these amounts, or without any. `None`: they are as they should be, or as good as.
pub fn lend(topology: &Topology, wanted: &[Amount], strategy: &Strategy) -> Option<Step> {
    let mut worth = false;
    let zones: Vec<Zone> = topology
        .zones
        .iter()
        .enumerate()
        .map(|(index, zone)| {
            let of_memory = notation(zone.resource("memory").map(|one| &one.allocatable));
            let resources = wanted.get(index).map_or_else(Vec::new, |amount| {
                let both = [amount.milli_cpu, amount.memory];
                let both = OWNED.iter().zip(both);
                both.map(|(name, value)| ZoneResource::whole(name, spelled(name, value, of_memory)))
                    .collect()
            });
            worth |= differs(zone, &resources, strategy);
            zone.with(&resources, &OWNED)
        })
        .collect();
    // Only over what was seen: the agent writes zones as well.
    let version = &topology.metadata.resource_version;
    worth.then(|| Step::LendZones {
        patch: json!({"metadata": {"resourceVersion": version}, "zones": zones}),
    })
}

fn differs(zone: &Zone, wanted: &[ZoneResource], strategy: &Strategy) -> bool {
    let share = strategy.resource_diff_threshold.unwrap_or(0.1);
    OWNED.iter().any(|name| {
        let value = |one: &ZoneResource| one.allocatable.parse::<Quantity>().ok();
        let present = zone.resource(name).and_then(value);
        let wanted = wanted.iter().find(|one| one.name == *name).and_then(value);
        match (present, wanted) {
            (None, None) => false,
            (Some(present), Some(wanted)) => {
                let (present, wanted) = (present.value(), wanted.value());
                present.abs_diff(wanted) as f64 > present as f64 * share
            }
            _ => true,
        }
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::colocation::Colocation;

    fn topology(batch: Option<&str>) -> Topology {
        let zone = |name: &str| {
            let mut resources = vec![
                json!({"name": "cpu", "capacity": "4", "allocatable": "4", "available": "4"}),
                json!({"name": "memory", "capacity": "8Gi", "allocatable": "8Gi", "available": "8Gi"}),
            ];
            for name in OWNED.iter().filter(|_| batch.is_some()) {
                resources.push(json!({"name": name, "capacity": batch, "allocatable": batch, "available": batch}));
            }
            json!({"name": name, "type": "Node", "resources": resources})
        };
        let object = json!({
            "metadata": {"name": "n", "resourceVersion": "7"},
            "zones": [zone("node-0"), zone("node-1")],
        });
        serde_json::from_value(object).unwrap()
    }

    fn strategy() -> Strategy {
        let nothing = BTreeMap::new();
        Colocation::default().for_node(&nothing, &nothing).0
    }

    fn amount(value: i64) -> Amount {
        Amount {
            milli_cpu: value,
            memory: value,
        }
    }

    #[test]
    fn zones_come_move_and_go() {
        assert_eq!(
            amounts(&topology(None)).unwrap()[1],
            Amount {
                milli_cpu: 4000,
                memory: 8 << 30
            }
        );
        let wanted = [amount(1000), amount(2000)];
        let Some(Step::LendZones { patch }) = lend(&topology(None), &wanted, &strategy()) else {
            panic!("nothing is lent");
        };
        assert_eq!(patch["metadata"]["resourceVersion"], "7");
        let resources = patch["zones"][1]["resources"].as_array().unwrap();
        let names: Vec<_> = resources.iter().map(|one| &one["name"]).collect();
        assert_eq!(
            names,
            [
                "cpu",
                "kubernetes.io/batch-cpu",
                "kubernetes.io/batch-memory",
                "memory"
            ]
        );
        assert_eq!(resources[1]["available"], "2k");
        assert_eq!(resources[2]["available"], "2000");
        let small = [amount(1050), amount(950)];
        assert_eq!(lend(&topology(Some("1k")), &small, &strategy()), None);
        let gone = lend(&topology(Some("1k")), &[], &strategy());
        let Some(Step::LendZones { patch }) = gone else {
            panic!("nothing is taken back");
        };
        assert_eq!(patch["zones"][0]["resources"].as_array().unwrap().len(), 2);
        assert_eq!(lend(&topology(None), &[], &strategy()), None);
    }
}
