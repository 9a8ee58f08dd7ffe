use super::*;
use crate::fs::read_mounts;
use expect_test::{Expect, expect};

/// A machine made of files.
struct Tree(tempfile::TempDir);

impl Tree {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self, path: &str, text: impl AsRef<str>) {
        let path = self.0.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text.as_ref()).unwrap();
    }

    fn dir(&self, path: &str) {
        std::fs::create_dir_all(self.0.path().join(path)).unwrap();
    }

    fn root(&self) -> HostRoot {
        HostRoot::new(self.0.path())
    }

    fn cpu(&self, cpu: u32, socket: i32, core: i32) {
        let dir = format!("sys/devices/system/cpu/cpu{cpu}/topology");
        self.file(&format!("{dir}/core_id"), format!("{core}\n"));
        self.file(&format!("{dir}/physical_package_id"), format!("{socket}\n"));
    }

    fn siblings(&self, cpus: &[u32], list: &str) {
        for cpu in cpus {
            let file = format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
            self.file(&file, format!("{list}\n"));
        }
    }

    fn node(&self, node: u32, cpus: &[u32], kib: u64, distance: &str) {
        let dir = format!("sys/devices/system/node/node{node}");
        self.file(
            &format!("{dir}/meminfo"),
            format!("Node {node} MemTotal:       {kib} kB\nNode {node} MemFree:  1 kB\n"),
        );
        self.file(&format!("{dir}/distance"), format!("{distance}\n"));
        for size in ["1048576", "2048"] {
            let file = format!("{dir}/hugepages/hugepages-{size}kB/nr_hugepages");
            self.file(&file, "0\n");
        }
        for cpu in cpus {
            self.dir(&format!("{dir}/cpu{cpu}"));
        }
    }

    /// `level type size id sharers`
    fn caches(&self, cpu: u32, caches: &[(u32, &str, &str, u32, &str)]) {
        for (index, (level, kind, size, id, sharers)) in caches.iter().enumerate() {
            let dir = format!("sys/devices/system/cpu/cpu{cpu}/cache/index{index}");
            self.file(&format!("{dir}/level"), format!("{level}\n"));
            self.file(&format!("{dir}/type"), format!("{kind}\n"));
            self.file(&format!("{dir}/size"), format!("{size}\n"));
            self.file(&format!("{dir}/id"), format!("{id}\n"));
            self.file(&format!("{dir}/shared_cpu_list"), format!("{sharers}\n"));
        }
    }
}

fn caches(list: &[Cache]) -> String {
    let texts: Vec<String> = list
        .iter()
        .map(|c| format!("L{}{}#{}={}", c.level, &c.kind[..1], c.id, c.size))
        .collect();
    texts.join(" ")
}

fn render(info: &MachineInfo) -> String {
    let mut text = format!(
        "threads={} cores={} sockets={} khz={} vendor={:?}\n",
        info.num_cores,
        info.num_physical_cores,
        info.num_sockets,
        info.cpu_frequency_khz,
        info.vendor_id
    );
    for node in &info.topology {
        text += &format!(
            "node {} memory={} distances={:?} [{}]\n",
            node.id,
            node.memory,
            node.distances,
            caches(&node.caches)
        );
        for core in &node.cores {
            text += &format!(
                "  core {} socket={} threads={:?} [{}] [{}]\n",
                core.id,
                core.socket_id,
                core.thread_ids,
                caches(&core.caches),
                caches(&core.uncore_caches)
            );
        }
    }
    text
}

#[track_caller]
fn check(tree: &Tree, expected: Expect) -> MachineInfo {
    let now = Timestamp::from_secs(1);
    let mut buf = ReadBuf::default();
    let info = MachineInfo::read(&tree.root(), &IdFiles::default(), now, &mut buf).unwrap();
    expected.assert_eq(&render(&info));
    info
}

/// The virtual machine whose report was captured from the original.
#[test]
fn the_captured_virtual_machine() {
    let tree = Tree::new();
    for cpu in 0..2 {
        tree.cpu(cpu, 0, cpu as i32);
        let own = cpu.to_string();
        tree.caches(
            cpu,
            &[
                (1, "Data", "32K", cpu, &own),
                (1, "Instruction", "32K", cpu, &own),
                (2, "Unified", "512K", cpu, &own),
                (3, "Unified", "32768K", 0, "0-1"),
            ],
        );
    }
    tree.file("sys/devices/system/cpu/online", "0-1\n");
    tree.node(0, &[0, 1], 17_261_124, "10");
    tree.file(
        "proc/cpuinfo",
        "processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu MHz\t\t: 2445.428\nphysical id\t: 0\ncore id\t\t: 0\n\n\
         processor\t: 1\nvendor_id\t: AuthenticAMD\ncpu MHz\t\t: 2445.428\nphysical id\t: 0\ncore id\t\t: 1\n\n",
    );
    tree.file(
        "proc/meminfo",
        "MemTotal:       24682416 kB\nMemFree: 1 kB\nSwapTotal:  0 kB\n",
    );
    for size in ["1048576", "2048"] {
        let file = format!("sys/kernel/mm/hugepages/hugepages-{size}kB/nr_hugepages");
        tree.file(&file, "0\n");
    }
    tree.file("etc/machine-id", "3d1219c7c4c5404aaa1f6d2a48adfda4\n");
    tree.file(
        "proc/sys/kernel/random/boot_id",
        "3b6c7252-c4a4-424f-9641-f1da33b5b756\n",
    );
    for (name, mac, mtu, speed) in [
        ("eth0", "02:fc:00:00:00:01", "1400", Some("-1")),
        ("ifb0", "ea:3f:f7:d2:83:2b", "1500", None),
        ("lo", "00:00:00:00:00:00", "65536", None),
    ] {
        tree.file(&format!("sys/class/net/{name}/address"), format!("{mac}\n"));
        tree.file(&format!("sys/class/net/{name}/mtu"), format!("{mtu}\n"));
        if let Some(speed) = speed {
            tree.file(&format!("sys/class/net/{name}/speed"), format!("{speed}\n"));
        }
    }
    tree.file("sys/class/net/bonding_masters", "");
    for (name, number, sectors, scheduler) in [
        ("vda", "254:0", "536870912", "none [mq-deadline] kyber\n"),
        ("zram0", "253:0", "0", "none\n"),
    ] {
        tree.file(&format!("sys/block/{name}/dev"), format!("{number}\n"));
        tree.file(&format!("sys/block/{name}/size"), format!("{sectors}\n"));
        tree.file(&format!("sys/block/{name}/queue/scheduler"), scheduler);
    }

    let info = check(
        &tree,
        expect![[r#"
            threads=2 cores=2 sockets=1 khz=2445428 vendor="AuthenticAMD"
            node 0 memory=17675390976 distances=[10] [L3U#0=33554432]
              core 0 socket=0 threads=[0] [L1D#0=32768 L1I#0=32768 L2U#0=524288] []
              core 1 socket=0 threads=[1] [L1D#1=32768 L1I#1=32768 L2U#1=524288] []
        "#]],
    );
    assert_eq!(info.memory_capacity, 25_274_793_984);
    assert_eq!(info.swap_capacity, 0);
    assert!(info.memory_by_type.is_empty());
    let pages: Vec<u64> = info.hugepages.iter().map(|h| h.page_size_kib).collect();
    assert_eq!(pages, [1_048_576, 2048]);
    assert_eq!(info.topology[0].hugepages, info.hugepages);
    assert_eq!(info.machine_id, "3d1219c7c4c5404aaa1f6d2a48adfda4");
    assert_eq!(info.system_uuid, info.machine_id);
    assert_eq!(info.boot_id, "3b6c7252-c4a4-424f-9641-f1da33b5b756");
    let names: Vec<(&str, i64, i64)> = info
        .network_devices
        .iter()
        .map(|d| (&*d.name, d.speed, d.mtu))
        .collect();
    assert_eq!(names, [("eth0", -1, 1400), ("ifb0", 0, 1500)]);
    let vda = &info.disk_map[&(254, 0)];
    assert_eq!(
        (vda.size_bytes, &*vda.scheduler),
        (274_877_906_944, "mq-deadline")
    );
    assert_eq!(info.disk_map[&(253, 0)].scheduler, "none");
}

#[test]
fn two_sockets_with_two_threads_a_core() {
    let tree = Tree::new();
    // Cores 0 and 1 on each socket; threads 0–3 are the first of each core, 4–7 the second.
    for (cpu, socket, core) in [(0, 0, 0), (1, 0, 1), (2, 1, 0), (3, 1, 1)] {
        for thread in [cpu, cpu + 4] {
            tree.cpu(thread, socket, core);
            let l3 = if socket == 0 { "0-1,4-5" } else { "2-3,6-7" };
            let own = format!("{cpu},{}", cpu + 4);
            tree.caches(
                thread,
                &[
                    (1, "Data", "32K", cpu, &own),
                    (2, "Unified", "1024K", cpu, &own),
                    (3, "Unified", "16896K", socket as u32, l3),
                ],
            );
        }
        tree.siblings(&[cpu, cpu + 4], &format!("{cpu},{}", cpu + 4));
    }
    tree.file("sys/devices/system/cpu/online", "0-7\n");
    tree.file(
        "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq",
        "3200000\n",
    );
    tree.node(0, &[0, 1, 4, 5], 1000, "10 21");
    tree.node(1, &[2, 3, 6, 7], 2000, "21 10");
    // What the original counts: two distinct `core id` lines.
    tree.file(
        "proc/cpuinfo",
        "processor : 0\ncore id : 0\nprocessor : 1\ncore id : 1\n",
    );
    let info = check(
        &tree,
        expect![[r#"
            threads=8 cores=4 sockets=2 khz=3200000 vendor=""
            node 0 memory=1024000 distances=[10, 21] [L3U#0=17301504]
              core 0 socket=0 threads=[0, 4] [L1D#0=32768 L2U#0=1048576] []
              core 1 socket=0 threads=[1, 5] [L1D#1=32768 L2U#1=1048576] []
            node 1 memory=2048000 distances=[21, 10] [L3U#1=17301504]
              core 0 socket=1 threads=[2, 6] [L1D#2=32768 L2U#2=1048576] []
              core 1 socket=1 threads=[3, 7] [L1D#3=32768 L2U#3=1048576] []
        "#]],
    );
    let topology = Topology::read(&tree.root(), &mut ReadBuf::default()).unwrap();
    assert_eq!(topology.socket_of(6), Some(1));
    assert_eq!(topology.socket_of(8), None);
    assert_eq!(topology.online(), [0, 1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(info.topology, topology.nodes);
}

/// An EPYC: one socket, several nodes, a level-3 cache for every few cores.
#[test]
fn one_socket_many_nodes() {
    let tree = Tree::new();
    for cpu in 0..8 {
        tree.cpu(cpu, 0, cpu as i32);
        let complex = if cpu % 4 < 2 {
            cpu / 4 * 4
        } else {
            cpu / 4 * 4 + 2
        };
        let shared = format!("{complex}-{}", complex + 1);
        tree.caches(cpu, &[(3, "Unified", "16384K", complex / 2, &shared)]);
    }
    tree.node(0, &[0, 1, 2, 3], 10, "10 12");
    tree.node(1, &[4, 5, 6, 7], 10, "12 10");
    // Memory that hangs on no processor (CXL).
    tree.node(2, &[], 5, "20 20");
    check(
        &tree,
        expect![[r#"
            threads=8 cores=8 sockets=1 khz=0 vendor=""
            node 0 memory=10240 distances=[10, 12] []
              core 0 socket=0 threads=[0] [] [L3U#0=16777216]
              core 1 socket=0 threads=[1] [] [L3U#0=16777216]
              core 2 socket=0 threads=[2] [] [L3U#1=16777216]
              core 3 socket=0 threads=[3] [] [L3U#1=16777216]
            node 1 memory=10240 distances=[12, 10] []
              core 4 socket=0 threads=[4] [] [L3U#2=16777216]
              core 5 socket=0 threads=[5] [] [L3U#2=16777216]
              core 6 socket=0 threads=[6] [] [L3U#3=16777216]
              core 7 socket=0 threads=[7] [] [L3U#3=16777216]
            node 2 memory=5120 distances=[20, 20] []
        "#]],
    );
}

/// A Graviton: no `physical id` in cpuinfo, no cache numbers in old kernels.
#[test]
fn arm_server() {
    let tree = Tree::new();
    for cpu in 0..2 {
        tree.cpu(cpu, 0, cpu as i32);
        let own = cpu.to_string();
        tree.caches(
            cpu,
            &[
                (1, "Data", "64K", 0, &own),
                (3, "Unified", "32768K", 0, "0-1"),
            ],
        );
        let id = format!("sys/devices/system/cpu/cpu{cpu}/cache/index0/id");
        std::fs::remove_file(tree.0.path().join(id)).unwrap();
    }
    tree.node(0, &[0, 1], 10, "10");
    tree.file(
        "proc/cpuinfo",
        "processor\t: 0\nBogoMIPS\t: 243.75\n\nprocessor\t: 1\n",
    );
    check(
        &tree,
        expect![[r#"
            threads=2 cores=2 sockets=1 khz=0 vendor=""
            node 0 memory=10240 distances=[10] [L3U#0=33554432]
              core 0 socket=0 threads=[0] [L1D#0=65536] []
              core 1 socket=0 threads=[1] [L1D#1=65536] []
        "#]],
    );
}

/// A board with clusters that number their cores alike, and no nodes.
#[test]
fn arm_board_without_nodes() {
    let tree = Tree::new();
    for (cpu, core) in [(0, 0), (1, 1), (2, 0), (3, 1)] {
        tree.cpu(cpu, 0, core);
        tree.siblings(&[cpu], &cpu.to_string());
    }
    tree.file(
        "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq",
        "1500000\n",
    );
    check(
        &tree,
        expect![[r#"
            threads=4 cores=4 sockets=1 khz=1500000 vendor=""
            node 0 memory=0 distances=[] []
              core 0 socket=0 threads=[0] [] []
              core 1 socket=0 threads=[1] [] []
              core 0 socket=0 threads=[2] [] []
              core 1 socket=0 threads=[3] [] []
        "#]],
    );
}

#[test]
fn offline_processors_do_not_count() {
    let tree = Tree::new();
    for (cpu, core) in [(0, 0), (1, 1), (10, 0)] {
        tree.cpu(cpu, 0, core);
    }
    // An offline processor keeps its directory but has no topology.
    tree.dir("sys/devices/system/cpu/cpu11");
    tree.dir("sys/devices/system/cpu/cpufreq");
    tree.file("sys/devices/system/cpu/online", "0-1,10\n");
    tree.node(0, &[0, 1, 10, 11], 10, "10");
    check(
        &tree,
        expect![[r#"
            threads=3 cores=2 sockets=1 khz=0 vendor=""
            node 0 memory=10240 distances=[10] []
              core 0 socket=0 threads=[0, 10] [] []
              core 1 socket=0 threads=[1] [] []
        "#]],
    );
}

#[test]
fn a_mainframe_has_books_and_drawers() {
    let tree = Tree::new();
    for cpu in 0..4 {
        tree.cpu(cpu, 0, 0);
        let dir = format!("sys/devices/system/cpu/cpu{cpu}/topology");
        tree.file(&format!("{dir}/book_id"), format!("{}\n", cpu % 2));
        tree.file(&format!("{dir}/drawer_id"), format!("{}\n", cpu / 2));
    }
    let mut buf = ReadBuf::default();
    let topology = Topology::read(&tree.root(), &mut buf).unwrap();
    assert_eq!((topology.num_books(), topology.num_drawers()), (4, 2));
    assert_eq!((topology.num_cores(), topology.num_sockets()), (4, 4));
}

#[test]
fn no_topology_at_all() {
    let tree = Tree::new();
    tree.dir("sys/devices/system/cpu/cpu0");
    tree.dir("sys/devices/system/cpu/cpu1");
    tree.file(
        "proc/cpuinfo",
        "processor : 0\nphysical id : 0\ncore id : 0\n\nprocessor : 1\nphysical id : 1\ncore id : 0\n",
    );
    check(
        &tree,
        expect![[r#"
            threads=2 cores=2 sockets=2 khz=0 vendor=""
        "#]],
    );
}

#[test]
fn memory_modules() {
    let tree = Tree::new();
    for (dimm, kind, size) in [
        ("mc0/dimm0", "Unbuffered-DDR4", "8192"),
        ("mc0/dimm1", "Unbuffered-DDR4", "8192"),
        ("mc1/dimm0", "Non-volatile-RAM", "131072"),
    ] {
        let dir = format!("sys/devices/system/edac/mc/{dimm}");
        tree.file(&format!("{dir}/dimm_mem_type"), format!("{kind}\n"));
        tree.file(&format!("{dir}/size"), format!("{size}\n"));
    }
    tree.dir("sys/devices/system/edac/mc/power");
    let found = dimms_by_type(&tree.root(), &mut ReadBuf::default()).unwrap();
    assert_eq!(found.len(), 2);
    let ddr4 = found["Unbuffered-DDR4"];
    assert_eq!((ddr4.capacity, ddr4.dimm_count), (16 << 30, 2));
}

#[test]
fn malformed_files_are_named() {
    let tree = Tree::new();
    tree.file("sys/devices/system/cpu/online", "0-x\n");
    let error = Topology::read(&tree.root(), &mut ReadBuf::default());
    let text = error.unwrap_err().to_string();
    assert!(text.contains("cpu/online: line 1"), "{text}");
}

#[test]
fn this_machine() {
    let mut buf = ReadBuf::default();
    let root = HostRoot::new("/");
    let info = MachineInfo::read(&root, &IdFiles::default(), Timestamp::ZERO, &mut buf).unwrap();
    assert!(info.num_cores >= info.num_physical_cores, "{info:?}");
    assert!(info.num_cores > 0 && info.memory_capacity > 0);
    let partitions = Partitions::new(
        &root,
        &read_mounts(&root, &mut buf).unwrap(),
        &Default::default(),
    );
    let found = filesystems(&root, &partitions, &mut StatfsWorker::default());
    assert!(found.len() <= partitions.iter().count());
}
