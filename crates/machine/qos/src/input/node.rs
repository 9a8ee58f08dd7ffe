//! The node.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_api::cpus::CpuSet;
use plimsoll_api::kubelet_cgroups::CgroupLayout;
use plimsoll_api::names;
use plimsoll_api::pod::Amounts;
use plimsoll_api::quantity::Quantity;
use plimsoll_plan::BlockDevice;
use serde_json::Value;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct NodeView {
    pub capacity: Amounts,
    pub allocatable: Amounts,
    /// CPU that the annotation `reservation` keeps, in thousandths of a core.
    pub reserved_milli: i64,
    /// Every CPU that is online, in the kernel's order.
    pub cpus: Vec<Cpu>,
    /// The kubelet gives CPUs to containers itself.
    pub static_cpu_manager: bool,
    /// CPUs that nobody's pods get.
    pub reserved_cpus: CpuSet,
    /// CPUs of the system's own pods, where they share them with nobody.
    pub exclusive_system_cpus: CpuSet,
    /// CPUs that latency-sensitive pods share, one set a NUMA node.
    pub share_pools: Vec<CpuSet>,
    pub layout: CgroupLayout,
    pub storage: Storage,
    /// The node's own annotations that make no sense.
    pub problems: Vec<Box<str>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cpu {
    pub id: u32,
    pub core: u32,
    pub socket: u32,
    pub node: u32,
}

/// Which disk holds what.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Storage {
    /// By device file, `/dev/sda`.
    pub disks: BTreeMap<Box<str>, BlockDevice>,
    /// The disk of a partition.
    pub partitions: BTreeMap<Box<str>, Box<str>>,
    /// The disk of a volume group.
    pub volume_groups: BTreeMap<Box<str>, Box<str>>,
    /// The volume group of a logical volume, by its file below `/dev/mapper`.
    pub logical_volumes: BTreeMap<Box<str>, Box<str>>,
    /// The device that is mounted somewhere.
    pub mounts: BTreeMap<Box<str>, Box<str>>,
    /// Volumes by the namespace and name of their claims.
    pub claims: BTreeMap<(Box<str>, Box<str>), Box<str>>,
    /// Where the kubelet keeps its pods' volumes; empty for the usual place.
    pub kubelet_dir: Box<str>,
}

impl NodeView {
    /// From a Kubernetes object in JSON. What the machine says (CPUs, layout, storage) and what the kubelet's settings say is
    /// for the caller to fill in.
    pub fn from_json(node: &Value) -> Self {
        let amounts = |field: &str| amounts(&node["status"][field]);
        let mut view = Self {
            capacity: amounts("capacity"),
            allocatable: amounts("allocatable"),
            ..Self::default()
        };
        let annotations = &node["metadata"]["annotations"];
        view.annotate(|name| annotations[name].as_str());
        view
    }

    /// Reads what annotations of the node, or of its topology object, say about its CPUs. The latter also counts out CPUs
    /// where the former only says how many; so whatever names CPUs is best.
    pub fn annotate<'a>(&mut self, annotation: impl Fn(&str) -> Option<&'a str>) {
        let mut json = |name: &str| -> Value {
            let Some(text) = annotation(name) else {
                return Value::Null;
            };
            serde_json::from_str(text).unwrap_or_else(|error| {
                self.problems.push(format!("{name}: {error}").into());
                Value::Null
            })
        };
        let reservation = json(names::ANNOTATION_RESERVATION);
        let system = json(names::ANNOTATION_SYSTEM_QOS);
        let mut cpus = |value: &Value, name: &str| -> CpuSet {
            let text = value.as_str().unwrap_or_default();
            text.parse().unwrap_or_else(|error| {
                self.problems.push(format!("{name}: {error}").into());
                CpuSet::default()
            })
        };
        let reserved = cpus(&reservation["reservedCPUs"], names::ANNOTATION_RESERVATION);
        let exclusive = cpus(&system["cpuset"], names::ANNOTATION_SYSTEM_QOS);
        let milli = self::amounts(&reservation["resources"])
            .get("cpu")
            .map_or(0, Quantity::milli);
        self.reserved_milli = match reserved.is_empty() {
            true => milli,
            false => milli_of(reserved.0.len()),
        };
        self.reserved_cpus = reserved;
        self.exclusive_system_cpus = match system["cpusetExclusive"] == false {
            true => CpuSet::default(),
            false => exclusive,
        };
    }

    pub fn cpu_milli(&self) -> i64 {
        milli(&self.capacity, "cpu")
    }

    /// Whole cores, rounded up.
    pub fn cpu_cores(&self) -> i64 {
        self.capacity.get("cpu").map_or(0, Quantity::value)
    }

    pub fn memory(&self) -> i64 {
        self.capacity.get("memory").map_or(0, Quantity::value)
    }

    /// What the kubelet and the annotation keep of the CPUs, whichever is more, in thousandths of a core.
    pub fn kept_milli(&self) -> i64 {
        let kubelet = self
            .cpu_milli()
            .saturating_sub(milli(&self.allocatable, "cpu"));
        kubelet.max(self.reserved_milli).max(0)
    }

    pub fn all_cpus(&self) -> CpuSet {
        self.cpus.iter().map(|cpu| cpu.id).collect()
    }

    /// CPUs of pods that share with nobody are none of the share pools.
    pub fn shared_cpus(&self) -> CpuSet {
        let pools = self.share_pools.iter().flat_map(|pool| &pool.0);
        pools.copied().collect()
    }

    pub fn sockets(&self) -> usize {
        let sockets: BTreeSet<u32> = self.cpus.iter().map(|cpu| cpu.socket).collect();
        sockets.len()
    }
}

fn milli_of(cpus: usize) -> i64 {
    i64::try_from(cpus).unwrap_or(i64::MAX).saturating_mul(1000)
}

pub fn milli(amounts: &Amounts, name: &str) -> i64 {
    amounts.get(name).map_or(0, Quantity::milli)
}

/// A resource list; what is no quantity is left out.
pub fn amounts(list: &Value) -> Amounts {
    plimsoll_api::pod::amounts(list).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_node_and_what_it_keeps() {
        let node = json!({
            "metadata": {"annotations": {
                "node.koordinator.sh/reservation": r#"{"resources": {"cpu": "500m"}, "reservedCPUs": "0-1"}"#,
                "node.koordinator.sh/system-qos-resource": r#"{"cpuset": "7"}"#,
            }},
            "status": {"capacity": {"cpu": "8", "memory": "16Gi"}, "allocatable": {"cpu": "7", "memory": "x"}},
        });
        let view = NodeView::from_json(&node);
        assert_eq!(view.kept_milli(), 2000);
        assert_eq!(view.reserved_cpus.to_string(), "0-1");
        assert_eq!(view.exclusive_system_cpus.to_string(), "7");
        assert_eq!(
            (view.cpu_cores(), view.memory(), view.allocatable.len()),
            (8, 16 << 30, 1)
        );
        let shared = json!({"metadata": {"annotations": {
            "node.koordinator.sh/system-qos-resource": r#"{"cpuset": "7", "cpusetExclusive": false}"#,
            "node.koordinator.sh/reservation": "no JSON",
        }}});
        let view = NodeView::from_json(&shared);
        assert!(view.exclusive_system_cpus.is_empty());
        assert_eq!((view.problems.len(), view.kept_milli()), (1, 0));
    }
}
