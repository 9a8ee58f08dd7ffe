//! The NUMA nodes and what each has.

use std::collections::BTreeMap;

use plimsoll_api::names;
use plimsoll_api::node_topology::{Zone, ZoneResource};
use plimsoll_api::quantity::{Notation, Quantity};

use super::Facts;
use crate::states::Node;

pub fn zones(node: &Node, facts: &Facts<'_>) -> Vec<Zone> {
    let count = facts.numa.nodes.len();
    let reserving = node.labels.get(names::LABEL_NUMA_RESERVATION);
    let reserving = reserving.is_some_and(|value| &**value == "true");
    let zones = facts.numa.nodes.iter().enumerate().map(|(index, numa)| {
        let cpus = facts.cpus.processors.iter();
        let cpus = cpus.filter(|one| one.node == numa.id).count();
        let huge = |kib: u64| {
            let pages = numa.hugepages.iter();
            let pages = pages.filter(|one| facts.hugepages && one.page_size_kib == kib);
            pages
                .map(|one| {
                    one.num_pages
                        .saturating_mul(one.page_size_kib)
                        .saturating_mul(1024)
                })
                .fold(0, u64::saturating_add)
        };
        let (two_mib, one_gib) = (huge(2 << 10), huge(1 << 20));
        let memory = numa
            .memory
            .total
            .saturating_sub(two_mib.saturating_add(one_gib));
        let cpus = i128::try_from(cpus).unwrap_or(0) * 1_000_000_000;
        let resources = [
            ("cpu", Quantity::from_nanos(cpus, Notation::Decimal)),
            ("hugepages-1Gi", Quantity::from_bytes(one_gib)),
            ("hugepages-2Mi", Quantity::from_bytes(two_mib)),
            ("memory", Quantity::from_bytes(memory)),
        ];
        let resources = resources.map(|(name, amount)| match reserving {
            true => less_reserved(node, name, &amount, count),
            false => ZoneResource::whole(name, amount),
        });
        Zone {
            resources: resources.into(),
            ..Zone::numbered(index)
        }
    });
    zones.collect()
}

/// What the kubelet keeps is taken from all zones alike; of CPU to the thousandth, of memory to the byte, rounded up.
fn less_reserved(node: &Node, name: &str, amount: &Quantity, zones: usize) -> ZoneResource {
    let of = |list: &BTreeMap<Box<str>, Quantity>| list.get(name).map(Quantity::nanos);
    let kept = match (name, of(&node.capacity), of(&node.allocatable)) {
        ("cpu" | "memory", Some(capacity), Some(allocatable)) => (capacity - allocatable).max(0),
        _ => 0,
    };
    let unit = if name == "cpu" {
        1_000_000
    } else {
        1_000_000_000
    };
    let share = unit * i128::try_from(zones.max(1)).unwrap_or(1);
    let each = (kept + share - 1) / share * unit;
    let left = Quantity::from_nanos((amount.nanos() - each).max(0), amount.notation());
    ZoneResource {
        name: name.to_owned(),
        capacity: amount.to_string(),
        allocatable: left.to_string(),
        available: left.to_string(),
    }
}
