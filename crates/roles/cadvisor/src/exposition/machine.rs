//! The machine's families and the version line.

use std::collections::BTreeSet;

use plimsoll_host::machine::{Cache, MachineInfo};

use super::families::Kind::Gauge;
use super::number::Number::Whole;
use super::text::Text;

/// What `cadvisor_version_info` says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Version {
    pub kernel: String,
    pub os: String,
    pub docker: String,
    pub program: String,
    pub revision: String,
}

/// `cadvisor_version_info`, then `machine_*`, in order of name. `timed`: cAdvisor gives the machine's series the time
/// of their reading, the kubelet does not. `topology`: the families of the `cpu_topology` group.
pub fn machine_families(
    info: &MachineInfo,
    version: &Version,
    timed: bool,
    topology: bool,
) -> (Text, Text) {
    (version_line(version), machine(info, timed, topology))
}

fn version_line(version: &Version) -> Text {
    let mut text = Text::default();
    text.family(
        "cadvisor_version_info",
        Gauge,
        "Always 1; the labels tell the versions of what runs here.",
    )
    .series(
        &[
            ("cadvisorRevision", &version.revision),
            ("cadvisorVersion", &version.program),
            ("dockerVersion", &version.docker),
            ("kernelVersion", &version.kernel),
            ("osVersion", &version.os),
        ],
        Whole(1),
        None,
    );
    text
}

fn machine(info: &MachineInfo, timed: bool, topology: bool) -> Text {
    let at = timed.then_some(info.timestamp);
    let ids = Ids(info);
    let mut text = Text::default();
    let count = |n: usize| Whole(n as u64);
    let plain = ids.with(&[]);
    if topology {
        caches(&mut text, info, &ids);
    }
    for (name, help, value) in [
        (
            "machine_cpu_books",
            "CPU books of the machine (s390x).",
            count(info.num_books),
        ),
        (
            "machine_cpu_cores",
            "Logical CPUs of the machine.",
            count(info.num_cores),
        ),
        (
            "machine_cpu_drawers",
            "CPU drawers of the machine (s390x).",
            count(info.num_drawers),
        ),
        (
            "machine_cpu_physical_cores",
            "Physical CPU cores of the machine.",
            count(info.num_physical_cores),
        ),
        (
            "machine_cpu_sockets",
            "CPU sockets of the machine.",
            count(info.num_sockets),
        ),
    ] {
        text.family(name, Gauge, help).series(&plain, value, at);
    }
    if !info.memory_by_type.is_empty() {
        text.family(
            "machine_dimm_capacity_bytes",
            Gauge,
            "Memory modules, total size by type.",
        );
        for (kind, dimms) in &info.memory_by_type {
            text.series(&ids.with(&[("type", kind)]), Whole(dimms.capacity), at);
        }
        text.family(
            "machine_dimm_count",
            Gauge,
            "Memory modules, number by type.",
        );
        for (kind, dimms) in &info.memory_by_type {
            text.series(&ids.with(&[("type", kind)]), Whole(dimms.dimm_count), at);
        }
    }
    text.family("machine_memory_bytes", Gauge, "Memory of the machine.")
        .series(&plain, Whole(info.memory_capacity), at);
    if topology {
        nodes(&mut text, info, &ids);
    }
    text.family(
        "machine_nvm_avg_power_budget_watts",
        Gauge,
        "Power budget of non-volatile memory.",
    )
    .series(&plain, Whole(0), at);
    text.family(
        "machine_nvm_capacity",
        Gauge,
        "Non-volatile memory, by mode.",
    )
    .series(&ids.with(&[("mode", "app_direct_mode")]), Whole(0), at)
    .series(&ids.with(&[("mode", "memory_mode")]), Whole(0), at);
    text.single(
        "machine_scrape_error",
        Gauge,
        "1 if the machine's facts could not be read.",
        Whole(0),
    );
    text.family("machine_swap_bytes", Gauge, "Swap of the machine.")
        .series(&plain, Whole(info.swap_capacity), at);
    if topology {
        siblings(&mut text, info, &ids);
    }
    text
}

fn caches(text: &mut Text, info: &MachineInfo, ids: &Ids<'_>) {
    text.family(
        "machine_cpu_cache_capacity_bytes",
        Gauge,
        "CPU caches, by node, core, type and level; caches shared by a whole node have no core.",
    );
    // A node may share several caches of one kind, by groups of cores: with these labels they are one series.
    let mut written = BTreeSet::new();
    let mut cache = |node: &str, core: &str, cache: &Cache| {
        let key = (
            node.to_owned(),
            core.to_owned(),
            cache.level,
            cache.kind.clone(),
        );
        if !written.insert(key) {
            return;
        }
        let level = cache.level.to_string();
        let labels = [
            ("core_id", core),
            ("level", level.as_str()),
            ("node_id", node),
            ("type", cache.kind.as_str()),
        ];
        text.series(&ids.with(&labels), Whole(cache.size), Some(info.timestamp));
    };
    for node in &info.topology {
        let node_id = node.id.to_string();
        for core in &node.cores {
            let core_id = core.id.to_string();
            for own in core.caches.iter().chain(&core.uncore_caches) {
                cache(&node_id, &core_id, own);
            }
        }
        for shared in &node.caches {
            cache(&node_id, "", shared);
        }
    }
}

fn nodes(text: &mut Text, info: &MachineInfo, ids: &Ids<'_>) {
    let at = Some(info.timestamp);
    text.family(
        "machine_node_distance",
        Gauge,
        "Distance between two nodes.",
    );
    for node in &info.topology {
        for (target, distance) in node.distances.iter().enumerate() {
            let labels = [
                ("node_id", node.id.to_string()),
                ("target_node_id", target.to_string()),
            ];
            let labels = labels.each_ref().map(|(k, v)| (*k, v.as_str()));
            text.series(&ids.with(&labels), Whole(*distance), at);
        }
    }
    text.family(
        "machine_node_hugepages_count",
        Gauge,
        "Huge pages of a node, by size in KiB.",
    );
    for node in &info.topology {
        for pages in &node.hugepages {
            let labels = [
                ("node_id", node.id.to_string()),
                ("page_size", pages.page_size_kib.to_string()),
            ];
            let labels = labels.each_ref().map(|(k, v)| (*k, v.as_str()));
            text.series(&ids.with(&labels), Whole(pages.num_pages), at);
        }
    }
    text.family(
        "machine_node_memory_capacity_bytes",
        Gauge,
        "Memory of a node.",
    );
    for node in &info.topology {
        let id = node.id.to_string();
        text.series(&ids.with(&[("node_id", &id)]), Whole(node.memory), at);
    }
}

fn siblings(text: &mut Text, info: &MachineInfo, ids: &Ids<'_>) {
    text.family(
        "machine_thread_siblings_count",
        Gauge,
        "Threads that share a core with this one, itself included.",
    );
    for node in &info.topology {
        for core in &node.cores {
            for thread in &core.thread_ids {
                let labels = [
                    ("core_id", core.id.to_string()),
                    ("node_id", node.id.to_string()),
                    ("thread_id", thread.to_string()),
                ];
                let labels = labels.each_ref().map(|(k, v)| (*k, v.as_str()));
                let count = Whole(core.thread_ids.len() as u64);
                text.series(&ids.with(&labels), count, Some(info.timestamp));
            }
        }
    }
}

/// The labels that every machine series has.
struct Ids<'a>(&'a MachineInfo);

impl<'a> Ids<'a> {
    fn with<'b>(&self, more: &[(&'b str, &'b str)]) -> Vec<(&'b str, &'b str)>
    where
        'a: 'b,
    {
        let mut labels: Vec<(&str, &str)> = vec![
            ("boot_id", self.0.boot_id.as_str()),
            ("machine_id", self.0.machine_id.as_str()),
            ("system_uuid", self.0.system_uuid.as_str()),
        ];
        labels.extend_from_slice(more);
        labels.sort_unstable();
        labels
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_host::machine::Node;

    use super::*;
    use crate::exposition::Gathered;

    #[test]
    fn caches_of_one_kind_are_one_series() {
        let shared = |id, size| Cache {
            id,
            size,
            kind: "Unified".to_owned(),
            level: 3,
        };
        let info = MachineInfo {
            topology: vec![Node {
                caches: vec![shared(0, 16), shared(1, 32)],
                ..Node::default()
            }],
            ..MachineInfo::default()
        };
        let (_, page) = machine_families(&info, &Version::default(), false, true);
        let page = Gathered::from(page).to_string();
        let mut caches = page.lines().filter(|line| {
            line.starts_with("machine_cpu_cache_capacity_bytes{") && line.contains("level=\"3\"")
        });
        assert!(caches.next().is_some_and(|line| line.contains("} 16")));
        assert_eq!(caches.next(), None);
    }
}
