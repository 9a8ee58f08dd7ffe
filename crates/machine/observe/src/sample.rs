//! One reading of one container, in numbers.
//!
//! Everything a sample holds can be walked as a row of `u64`s ([`Walk`]), and that one definition serves both the
//! encoder and the decoder of the [history](crate::history): a field added here is stored and restored without
//! another line anywhere.

use plimsoll_host::Timestamp;
use plimsoll_host::cgroup::{
    Cfs, Cpu, Hugetlb, Io, IoRow, Memory, MemoryEvents, NumaNode, NumaPages, Pressure, Psi,
};
use plimsoll_host::fs::DiskCounters;

use crate::{Group, GroupSet, Symbol};

/// The number of counters in cAdvisor's advanced TCP statistics.
pub const ADVANCED_TCP: usize = 99;

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Sample {
    pub at: Timestamp,
    /// The groups whose figures below were read; the others are zero.
    pub groups: GroupSet,
    pub cpu: Cpu,
    pub cpu_psi: Psi,
    pub schedstat: Schedstat,
    pub load: Load,
    pub memory: Memory,
    pub memory_psi: Psi,
    pub numa: NumaPages,
    pub hugetlb: Vec<Hugetlb>,
    pub io: Io,
    pub io_psi: Psi,
    /// The container's own network namespace was looked at (its pid is known).
    pub has_network: bool,
    pub network: Network,
    pub filesystems: Vec<Filesystem>,
    pub processes: Processes,
    pub referenced_bytes: u64,
    pub resctrl: Vec<ResctrlDomain>,
    pub perf: Vec<PerfCount>,
    pub perf_uncore: Vec<PerfUncoreCount>,
    pub memory_migrate: u64,
}

/// Sums over the tasks of a cgroup and below.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Schedstat {
    pub run_ns: u64,
    pub wait_ns: u64,
    pub slices: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Load {
    /// Thousandths.
    pub average: u64,
    pub average_uninterruptible: u64,
    pub sleeping: u64,
    pub running: u64,
    pub stopped: u64,
    pub uninterruptible: u64,
    pub io_wait: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Network {
    pub interfaces: Vec<Interface>,
    /// In the order established, synsent, synrecv, finwait1, finwait2, timewait, close, closewait, lastack, listen,
    /// closing.
    pub tcp: [u64; 11],
    pub tcp6: [u64; 11],
    pub udp: Udp,
    pub udp6: Udp,
    /// [`ADVANCED_TCP`] counters when the group is on, else empty. `MaxConn` may be −1, kept as its bit pattern.
    pub advanced_tcp: Vec<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Interface {
    pub name: Symbol,
    pub rx_bytes: u64,
    pub rx_packets: u64,
    pub rx_errors: u64,
    pub rx_dropped: u64,
    pub tx_bytes: u64,
    pub tx_packets: u64,
    pub tx_errors: u64,
    pub tx_dropped: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Udp {
    pub listen: u64,
    pub dropped: u64,
    pub rx_queued: u64,
    pub tx_queued: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Filesystem {
    pub device: Symbol,
    /// `vfs`, `zfs`, `devicemapper`.
    pub kind: Symbol,
    pub capacity: u64,
    pub usage: u64,
    pub base_usage: u64,
    pub available: u64,
    pub has_inodes: u64,
    pub inodes: u64,
    pub inodes_free: u64,
    /// What the device did; zero where it is none.
    pub disk: DiskCounters,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Processes {
    pub count: u64,
    pub fds: u64,
    pub sockets: u64,
    pub threads: u64,
    /// Zero: unlimited.
    pub threads_max: u64,
    /// Soft and hard limit of open files; `u64::MAX` is "unlimited" (−1 on the wire). `None`: no root process known.
    pub max_open_files: Option<(u64, u64)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ResctrlDomain {
    pub mbm_total_bytes: u64,
    pub mbm_local_bytes: u64,
    pub llc_occupancy: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct PerfCount {
    pub event: Symbol,
    pub cpu: u64,
    pub value: u64,
    pub scaling_ratio: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct PerfUncoreCount {
    pub event: Symbol,
    pub pmu: Symbol,
    pub socket: u64,
    pub value: u64,
    pub scaling_ratio: f64,
}

impl Sample {
    /// Ready for the next reading; lists keep their room.
    pub fn clear(&mut self) {
        self.at = Timestamp::ZERO;
        self.groups = GroupSet::EMPTY;
        self.cpu.per_cpu_ns.clear();
        self.cpu = Cpu {
            per_cpu_ns: std::mem::take(&mut self.cpu.per_cpu_ns),
            ..Cpu::default()
        };
        self.cpu_psi = Psi::default();
        self.schedstat = Schedstat::default();
        self.load = Load::default();
        self.memory = Memory::default();
        self.memory_psi = Psi::default();
        self.numa.own.clear();
        self.numa.hierarchical.clear();
        self.hugetlb.clear();
        self.io.clear();
        self.io_psi = Psi::default();
        self.has_network = false;
        self.network.interfaces.clear();
        self.network.tcp = [0; 11];
        self.network.tcp6 = [0; 11];
        self.network.udp = Udp::default();
        self.network.udp6 = Udp::default();
        self.network.advanced_tcp.clear();
        self.filesystems.clear();
        self.processes = Processes::default();
        self.referenced_bytes = 0;
        self.resctrl.clear();
        self.perf.clear();
        self.perf_uncore.clear();
        self.memory_migrate = 0;
    }

    pub fn has(&self, group: Group) -> bool {
        self.groups.has(group)
    }
}

/// Visits a sample as a row of numbers, either reading them (to encode) or writing them (to decode).
pub trait Walk {
    fn value(&mut self, value: &mut u64);

    /// Visits a list's length; on decoding the list is resized to it first.
    fn list<T: Fields + Default + Clone>(&mut self, list: &mut Vec<T>) {
        let mut len = list.len() as u64;
        self.value(&mut len);
        // A corrupt length must not become an allocation.
        list.resize(len.min(1 << 16) as usize, T::default());
        for item in list {
            item.walk(self);
        }
    }
}

pub trait Fields {
    fn walk<W: Walk + ?Sized>(&mut self, walk: &mut W);
}

impl Fields for u64 {
    fn walk<W: Walk + ?Sized>(&mut self, walk: &mut W) {
        walk.value(self);
    }
}

impl Fields for Symbol {
    fn walk<W: Walk + ?Sized>(&mut self, walk: &mut W) {
        let mut id = u64::from(self.0);
        walk.value(&mut id);
        self.0 = id as u32;
    }
}

impl Fields for f64 {
    fn walk<W: Walk + ?Sized>(&mut self, walk: &mut W) {
        let mut bits = self.to_bits();
        walk.value(&mut bits);
        *self = f64::from_bits(bits);
    }
}

impl<const N: usize> Fields for [u64; N] {
    fn walk<W: Walk + ?Sized>(&mut self, walk: &mut W) {
        for value in self {
            walk.value(value);
        }
    }
}

macro_rules! fields {
    ($($type:ty { $($field:ident),* $(,)? })*) => {
        $(impl Fields for $type {
            fn walk<W: Walk + ?Sized>(&mut self, walk: &mut W) {
                $(self.$field.walk(walk);)*
            }
        })*
    };
}

fields! {
    Cfs { periods, throttled_periods, throttled_ns, burst_periods, burst_ns }
    Psi { some, full }
    Pressure { total_us, avg10_centi, avg60_centi, avg300_centi }
    Schedstat { run_ns, wait_ns, slices }
    Load { average, average_uninterruptible, sleeping, running, stopped, uninterruptible, io_wait }
    Memory {
        usage, max_usage, cache, rss, swap, mapped_file, working_set, active_file, inactive_file, dirty, writeback,
        pgscan, pgsteal, refault_file, refault_anon, failcnt, kernel, pgfault, pgmajfault, zswap, zswapped, events,
    }
    MemoryEvents { low, high, max, oom, oom_kill }
    NumaNode { node, file, anon, unevictable }
    Hugetlb { page_size, usage, max_usage, failcnt }
    IoRow { major, minor, present, values }
    Interface {
        name, rx_bytes, rx_packets, rx_errors, rx_dropped, tx_bytes, tx_packets, tx_errors, tx_dropped,
    }
    Udp { listen, dropped, rx_queued, tx_queued }
    Filesystem {
        device, kind, capacity, usage, base_usage, available, has_inodes, inodes, inodes_free, disk,
    }
    DiskCounters {
        reads_completed, reads_merged, sectors_read, read_ms, writes_completed, writes_merged, sectors_written,
        write_ms, io_in_progress, io_ms, weighted_io_ms,
    }
    ResctrlDomain { mbm_total_bytes, mbm_local_bytes, llc_occupancy }
    PerfCount { event, cpu, value, scaling_ratio }
    PerfUncoreCount { event, pmu, socket, value, scaling_ratio }
}

impl Fields for Processes {
    fn walk<W: Walk + ?Sized>(&mut self, walk: &mut W) {
        for value in [
            &mut self.count,
            &mut self.fds,
            &mut self.sockets,
            &mut self.threads,
            &mut self.threads_max,
        ] {
            walk.value(value);
        }
        let mut known = u64::from(self.max_open_files.is_some());
        walk.value(&mut known);
        if known != 0 {
            let (soft, hard) = self.max_open_files.get_or_insert((0, 0));
            walk.value(soft);
            walk.value(hard);
        }
    }
}

impl Fields for Sample {
    /// Only the groups that were read are visited, so a group that is off costs no room either.
    fn walk<W: Walk + ?Sized>(&mut self, walk: &mut W) {
        let mut at = self.at.0 as u64;
        walk.value(&mut at);
        self.at = Timestamp(at as i64);
        let mut groups = self.groups.bits();
        walk.value(&mut groups);
        self.groups = GroupSet::from_bits(groups);

        if self.has(Group::Cpu) {
            for value in [
                &mut self.cpu.total_ns,
                &mut self.cpu.user_ns,
                &mut self.cpu.system_ns,
            ] {
                walk.value(value);
            }
            walk.list(&mut self.cpu.per_cpu_ns);
            self.cpu.cfs.walk(walk);
        }
        if self.has(Group::Memory) {
            self.memory.walk(walk);
        }
        if self.has(Group::DiskIo) {
            for list in self.io.lists_mut() {
                walk.list(list);
            }
        }
        if self.has(Group::Pressure) {
            self.cpu_psi.walk(walk);
            self.memory_psi.walk(walk);
            self.io_psi.walk(walk);
        }
        if self.has(Group::CpuLoad) {
            self.load.walk(walk);
        }
        if self.has(Group::Sched) {
            self.schedstat.walk(walk);
        }
        if self.has(Group::MemoryNuma) {
            walk.list(&mut self.numa.own);
            walk.list(&mut self.numa.hierarchical);
        }
        if self.has(Group::Hugetlb) {
            walk.list(&mut self.hugetlb);
        }
        let mut has_network = u64::from(self.has_network);
        walk.value(&mut has_network);
        self.has_network = has_network != 0;
        if self.has_network {
            walk.list(&mut self.network.interfaces);
            if self.has(Group::Tcp) {
                self.network.tcp.walk(walk);
                self.network.tcp6.walk(walk);
            }
            if self.has(Group::Udp) {
                self.network.udp.walk(walk);
                self.network.udp6.walk(walk);
            }
            walk.list(&mut self.network.advanced_tcp);
        }
        walk.list(&mut self.filesystems);
        if self.has(Group::Process) {
            self.processes.walk(walk);
        }
        if self.has(Group::ReferencedMemory) {
            walk.value(&mut self.referenced_bytes);
        }
        if self.has(Group::Resctrl) {
            walk.list(&mut self.resctrl);
        }
        if self.has(Group::PerfEvent) {
            walk.list(&mut self.perf);
            walk.list(&mut self.perf_uncore);
        }
        if self.has(Group::Cpuset) {
            walk.value(&mut self.memory_migrate);
        }
    }
}
