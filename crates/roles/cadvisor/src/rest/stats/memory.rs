//! Memory, by NUMA node too, and huge pages.

use plimsoll_host::cgroup::{Hugetlb, NumaNode};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};

use super::{PsiPair, psi};
use crate::rest::json::is_zero;
use plimsoll_observe::Sample;

#[derive(Debug, Serialize)]
pub struct Memory<'a> {
    usage: u64,
    max_usage: u64,
    cache: u64,
    rss: u64,
    swap: u64,
    mapped_file: u64,
    working_set: u64,
    total_active_file: u64,
    total_inactive_file: u64,
    file_dirty: u64,
    file_writeback: u64,
    pgscan: u64,
    pgsteal: u64,
    workingset_refault_file: u64,
    workingset_refault_anon: u64,
    failcnt: u64,
    kernel: u64,
    container_data: Faults<'a>,
    hierarchical_data: Faults<'a>,
    psi: PsiPair,
    events: MemoryEvents,
}

#[derive(Debug, Serialize)]
struct Faults<'a> {
    pgfault: u64,
    pgmajfault: u64,
    numa_stats: Numa<'a>,
}

#[derive(Debug, Serialize)]
struct MemoryEvents {
    high: u64,
    max: u64,
}

pub fn memory(sample: &Sample) -> Memory<'_> {
    let m = &sample.memory;
    let faults = |nodes| Faults {
        pgfault: m.pgfault,
        pgmajfault: m.pgmajfault,
        numa_stats: Numa(nodes),
    };
    Memory {
        usage: m.usage,
        max_usage: m.max_usage,
        cache: m.cache,
        rss: m.rss,
        swap: m.swap,
        mapped_file: m.mapped_file,
        working_set: m.working_set,
        total_active_file: m.active_file,
        total_inactive_file: m.inactive_file,
        file_dirty: m.dirty,
        file_writeback: m.writeback,
        pgscan: m.pgscan,
        pgsteal: m.pgsteal,
        workingset_refault_file: m.refault_file,
        workingset_refault_anon: m.refault_anon,
        failcnt: m.failcnt,
        kernel: m.kernel,
        container_data: faults(&sample.numa.own),
        hierarchical_data: faults(&sample.numa.hierarchical),
        psi: psi(&sample.memory_psi),
        events: MemoryEvents {
            high: m.events.high,
            max: m.events.max,
        },
    }
}

#[derive(Debug)]
struct Numa<'a>(&'a [NumaNode]);

impl Serialize for Numa<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if !self.0.is_empty() {
            map.serialize_entry("file", &ByNode(self.0, |n| n.file))?;
            map.serialize_entry("anon", &ByNode(self.0, |n| n.anon))?;
            map.serialize_entry("unevictable", &ByNode(self.0, |n| n.unevictable))?;
        }
        map.end()
    }
}

struct ByNode<'a>(&'a [NumaNode], fn(&NumaNode) -> u64);

impl Serialize for ByNode<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.0.iter().map(|node| (node.node, self.1(node))))
    }
}

/// By page size, `2MB`.
#[derive(Debug)]
pub struct HugetlbMap<'a>(pub &'a [Hugetlb]);

impl Serialize for HugetlbMap<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // Sorted by the text of the size, as the keys of a map are: 1GB, 2MB, 64KB.
        let mut pages: Vec<(String, HugetlbPages)> = self
            .0
            .iter()
            .map(|pages| (size_text(pages.page_size), HugetlbPages::from(pages)))
            .collect();
        pages.sort_by(|a, b| a.0.cmp(&b.0));
        serializer.collect_map(pages)
    }
}

#[derive(Debug, Serialize)]
struct HugetlbPages {
    #[serde(skip_serializing_if = "is_zero")]
    usage: u64,
    #[serde(skip_serializing_if = "is_zero")]
    max_usage: u64,
    failcnt: u64,
}

impl From<&Hugetlb> for HugetlbPages {
    fn from(pages: &Hugetlb) -> Self {
        Self {
            usage: pages.usage,
            max_usage: pages.max_usage,
            failcnt: pages.failcnt,
        }
    }
}

fn size_text(bytes: u64) -> String {
    const UNITS: [(&str, u32); 3] = [("GB", 30), ("MB", 20), ("KB", 10)];
    for (unit, shift) in UNITS {
        if bytes >= 1 << shift {
            return format!("{}{unit}", bytes >> shift);
        }
    }
    format!("{bytes}B")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rest::json;

    #[test]
    fn page_sizes() {
        let pages = |page_size| Hugetlb {
            page_size,
            usage: 0,
            max_usage: 7,
            failcnt: 0,
        };
        let json = json::to_vec(&HugetlbMap(&[pages(2 << 20), pages(1 << 30)]));
        assert_eq!(
            String::from_utf8(json.unwrap()).unwrap(),
            r#"{"1GB":{"max_usage":7,"failcnt":0},"2MB":{"max_usage":7,"failcnt":0}}"#
        );
    }
}
