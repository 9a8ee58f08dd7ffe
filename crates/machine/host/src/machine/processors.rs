//! CPUs and NUMA nodes, as `lscpu` shows them, read from sysfs and procfs.

use std::collections::BTreeMap;

use super::topology::{Cache, Topology};
use super::{HugePages, parse_cpuinfo};
use crate::proc::meminfo::{Meminfo, parse_meminfo};
use crate::{HostError, HostRoot, ReadBuf, Result, list_dir, parse_file, read_file, read_text};

/// What kind of processors, and which.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeCpuInfo {
    pub model: String,
    pub vendor_id: String,
    pub hyper_threads: bool,
    pub turbo: bool,
    /// The ways of the last-level cache that can be given out, in hex; empty where they cannot.
    pub l3_mask: String,
    /// Online ones, by number.
    pub processors: Vec<Processor>,
}

/// A hardware thread. Cores, sockets and caches are numbered through over the machine, in the order in which they are
/// met: the kernel's own numbers begin anew on each socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Processor {
    pub cpu: u32,
    pub core: u32,
    pub socket: u32,
    pub node: u32,
    pub l3: Option<u32>,
}

/// Memory of the NUMA nodes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeNumaInfo {
    pub nodes: Vec<NumaNodeFacts>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NumaNodeFacts {
    pub id: u32,
    pub memory: Meminfo,
    pub hugepages: Vec<HugePages>,
}

impl NodeCpuInfo {
    pub fn read(root: &HostRoot, buf: &mut ReadBuf) -> Result<Self> {
        let cpuinfo = read_file(&root.proc("cpuinfo"), buf)?
            .map(parse_cpuinfo)
            .unwrap_or_default();
        let cpu = |file: &str| root.sys("devices/system/cpu").join(file);
        let topology = Topology::read(root, buf)?;
        let smt = read_text(&cpu("smt/active"), buf)?;
        let no_turbo = read_text(&cpu("intel_pstate/no_turbo"), buf)?;
        let l3_mask = read_text(&root.sys("fs/resctrl/info/L3/cbm_mask"), buf)?;
        Ok(Self {
            model: cpuinfo.model,
            vendor_id: cpuinfo.vendor_id,
            hyper_threads: smt.as_deref() == Some("1"),
            turbo: no_turbo.as_deref() == Some("0"),
            l3_mask: l3_mask.unwrap_or_default(),
            processors: renumber(&topology),
        })
    }

    /// Where a processor is.
    pub fn node_of(&self, cpu: u32) -> Option<u32> {
        let at = self.processors.binary_search_by_key(&cpu, |p| p.cpu).ok()?;
        Some(self.processors[at].node)
    }
}

fn renumber(topology: &Topology) -> Vec<Processor> {
    struct Found {
        cpu: u32,
        node: u32,
        socket: (Option<String>, Option<String>, i64),
        /// The lowest thread of a core is nobody else's.
        core: u32,
        l3: Option<(u32, u64)>,
    }
    let mut found = Vec::new();
    for node in &topology.nodes {
        let id = u32::try_from(node.id).unwrap_or(0);
        let l3 = |caches: &[Cache]| caches.iter().find(|c| c.level == 3).map(|c| (id, c.id));
        for core in &node.cores {
            let first = core.thread_ids.iter().min().copied().unwrap_or(0);
            let cache = l3(&core.uncore_caches).or_else(|| l3(&node.caches));
            for &cpu in &core.thread_ids {
                found.push(Found {
                    cpu,
                    node: id,
                    socket: (core.drawer_id.clone(), core.book_id.clone(), core.socket_id),
                    core: first,
                    l3: cache,
                });
            }
        }
    }
    found.sort_by_key(|one| one.cpu);
    let (mut cores, mut sockets, mut caches) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    found
        .into_iter()
        .map(|one| Processor {
            cpu: one.cpu,
            node: one.node,
            core: number(&mut cores, one.core),
            socket: number(&mut sockets, one.socket),
            l3: one.l3.map(|cache| number(&mut caches, cache)),
        })
        .collect()
}

/// The number that something got when it was first met.
fn number<K: Ord>(known: &mut BTreeMap<K, u32>, key: K) -> u32 {
    let next = known.len() as u32;
    *known.entry(key).or_insert(next)
}

impl NodeNumaInfo {
    /// Machines whose kernel has no nodes have an empty list.
    pub fn read(root: &HostRoot, buf: &mut ReadBuf) -> Result<Self> {
        let dir = root.sys("devices/system/node");
        let mut nodes = Vec::new();
        for name in list_dir(&dir)? {
            let Some(id) = super::devices::numbered(&name, "node") else {
                continue;
            };
            let path = dir.join(&name);
            let Some(memory) = parse_file(&path.join("meminfo"), buf, parse_meminfo)? else {
                continue;
            };
            nodes.push(NumaNodeFacts {
                id,
                memory,
                hugepages: super::hugepages(&path.join("hugepages"), buf)?,
            });
        }
        nodes.sort_by_key(|node| node.id);
        if nodes
            .iter()
            .zip(0..)
            .any(|(node, expected)| node.id != expected)
        {
            let ids: Vec<u32> = nodes.iter().map(|node| node.id).collect();
            return Err(HostError::Unsupported(
                format!("NUMA node ids {ids:?} are not contiguous; NodeResourceTopology is not reported on this node")
                    .into(),
            ));
        }
        Ok(Self { nodes })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        put(
            "proc/cpuinfo",
            "processor : 0\nvendor_id : GenuineIntel\nmodel name\t: Fast CPU @ 3GHz\n",
        );
        put("sys/devices/system/cpu/online", "0-7\n");
        put("sys/devices/system/cpu/smt/active", "1\n");
        put("sys/devices/system/cpu/intel_pstate/no_turbo", "0\n");
        put("sys/fs/resctrl/info/L3/cbm_mask", "fffff\n");
        // Two sockets of two cores of two threads; core numbers begin anew on the second.
        for cpu in 0..8u32 {
            let (socket, core) = (cpu / 2 % 2, cpu % 2);
            let first = cpu % 4;
            let at = format!("sys/devices/system/cpu/cpu{cpu}");
            put(&format!("{at}/topology/core_id"), &format!("{core}\n"));
            put(
                &format!("{at}/topology/physical_package_id"),
                &format!("{socket}\n"),
            );
            put(
                &format!("{at}/topology/thread_siblings_list"),
                &format!("{first},{}\n", first + 4),
            );
            put(&format!("{at}/cache/index3/size"), "1M\n");
            put(&format!("{at}/cache/index3/level"), "3\n");
            put(&format!("{at}/cache/index3/type"), "Unified\n");
            put(&format!("{at}/cache/index3/id"), &format!("{socket}\n"));
            let sharers = if socket == 0 {
                "0-1,4-5\n"
            } else {
                "2-3,6-7\n"
            };
            put(&format!("{at}/cache/index3/shared_cpu_list"), sharers);
            let node = format!("sys/devices/system/node/node{socket}");
            put(&format!("{node}/cpu{cpu}/x"), "");
        }
        for node in 0..2 {
            let at = format!("sys/devices/system/node/node{node}");
            put(
                &format!("{at}/meminfo"),
                &format!(
                    "Node {node} MemTotal: {} kB\nNode {node} MemFree: 1 kB\n",
                    1000 + node
                ),
            );
            put(
                &format!("{at}/hugepages/hugepages-2048kB/nr_hugepages"),
                "3\n",
            );
        }
        dir
    }

    #[test]
    fn numbers_run_through_the_machine() {
        let dir = machine();
        let root = HostRoot::new(dir.path());
        let facts = NodeCpuInfo::read(&root, &mut ReadBuf::default()).unwrap();
        assert_eq!(facts.model, "Fast CPU @ 3GHz");
        assert!(facts.hyper_threads && facts.turbo);
        assert_eq!(facts.l3_mask, "fffff");
        let places: Vec<_> = facts
            .processors
            .iter()
            .map(|p| (p.cpu, p.core, p.socket, p.node, p.l3))
            .collect();
        assert_eq!(
            places,
            [
                (0, 0, 0, 0, Some(0)),
                (1, 1, 0, 0, Some(0)),
                (2, 2, 1, 1, Some(1)),
                (3, 3, 1, 1, Some(1)),
                (4, 0, 0, 0, Some(0)),
                (5, 1, 0, 0, Some(0)),
                (6, 2, 1, 1, Some(1)),
                (7, 3, 1, 1, Some(1)),
            ]
        );
        assert_eq!((facts.node_of(6), facts.node_of(9)), (Some(1), None));
    }

    #[test]
    fn nodes_and_gaps() {
        let dir = machine();
        let root = HostRoot::new(dir.path());
        let facts = NodeNumaInfo::read(&root, &mut ReadBuf::default()).unwrap();
        let totals: Vec<_> = facts.nodes.iter().map(|n| n.memory.total).collect();
        assert_eq!(totals, [1000 * 1024, 1001 * 1024]);
        assert_eq!(facts.nodes[1].hugepages[0].num_pages, 3);
        std::fs::remove_dir_all(dir.path().join("sys/devices/system/node/node0")).unwrap();
        assert!(NodeNumaInfo::read(&root, &mut ReadBuf::default()).is_err());
    }
}
