//! Statistics of a cgroup, in one form for v1 and v2. Units are in the names; a figure that one version
//! lacks stays zero where cAdvisor's contract wants zero, and is an `Option` where absence is visible.

/// Nanoseconds throughout.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cpu {
    pub total_ns: u64,
    pub user_ns: u64,
    pub system_ns: u64,
    /// Empty on v2, and where per-CPU figures were not asked for.
    pub per_cpu_ns: Vec<u64>,
    pub cfs: Cfs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cfs {
    pub periods: u64,
    pub throttled_periods: u64,
    pub throttled_ns: u64,
    pub burst_periods: u64,
    pub burst_ns: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Psi {
    pub some: Pressure,
    pub full: Pressure,
    /// Older kernels have no `full` line for CPU.
    pub has_full: bool,
}

/// One line of a pressure file. The kernel prints averages with two decimals; they are kept as hundredths, exactly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pressure {
    pub total_us: u64,
    pub avg10_centi: u64,
    pub avg60_centi: u64,
    pub avg300_centi: u64,
}

/// Bytes unless the name says otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Memory {
    pub usage: u64,
    pub max_usage: u64,
    pub cache: u64,
    pub rss: u64,
    pub swap: u64,
    pub mapped_file: u64,
    pub working_set: u64,
    pub active_file: u64,
    pub inactive_file: u64,
    pub dirty: u64,
    pub writeback: u64,
    /// Pages.
    pub pgscan: u64,
    pub pgsteal: u64,
    pub refault_file: u64,
    pub refault_anon: u64,
    pub failcnt: u64,
    pub kernel: u64,
    pub pgfault: u64,
    pub pgmajfault: u64,
    /// Compressed size and original size of what zswap holds (v2, recent kernels).
    pub zswap: u64,
    pub zswapped: u64,
    pub events: MemoryEvents,
    /// `None`: this kernel does not tell all of them.
    pub lru: Option<Lru>,
}

/// The lists that hold what cannot simply be dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Lru {
    pub inactive_anon: u64,
    pub active_anon: u64,
    pub unevictable: u64,
}

/// `memory.events` (v2), the whole subtree's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MemoryEvents {
    pub low: u64,
    pub high: u64,
    pub max: u64,
    pub oom: u64,
    pub oom_kill: u64,
}

/// Pages per NUMA node, of the cgroup itself and of its subtree.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NumaPages {
    pub own: Vec<NumaNode>,
    pub hierarchical: Vec<NumaNode>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NumaNode {
    pub node: u64,
    pub file: u64,
    pub anon: u64,
    pub unevictable: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Hugetlb {
    /// Page size in bytes.
    pub page_size: u64,
    pub usage: u64,
    pub max_usage: u64,
    pub failcnt: u64,
}

/// Block I/O by device. A list that this kernel does not offer is empty.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Io {
    pub service_bytes: Vec<IoRow>,
    pub serviced: Vec<IoRow>,
    pub queued: Vec<IoRow>,
    pub sectors: Vec<IoRow>,
    pub service_time_ns: Vec<IoRow>,
    pub wait_time_ns: Vec<IoRow>,
    pub merged: Vec<IoRow>,
    pub time_ms: Vec<IoRow>,
    pub cost_usage_us: Vec<IoRow>,
    pub cost_wait_us: Vec<IoRow>,
    pub cost_indebt_us: Vec<IoRow>,
    pub cost_indelay_us: Vec<IoRow>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum IoOp {
    Read,
    Write,
    Sync,
    Async,
    Discard,
    Total,
    /// Files that give one number a device.
    Count,
}

impl IoOp {
    pub const ALL: [Self; 7] = [
        Self::Read,
        Self::Write,
        Self::Sync,
        Self::Async,
        Self::Discard,
        Self::Total,
        Self::Count,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "Read",
            Self::Write => "Write",
            Self::Sync => "Sync",
            Self::Async => "Async",
            Self::Discard => "Discard",
            Self::Total => "Total",
            Self::Count => "Count",
        }
    }

    pub fn from_name(name: &[u8]) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|op| op.name().as_bytes() == name)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IoRow {
    pub major: u64,
    pub minor: u64,
    /// Bit `op as u8` is set where the kernel named that operation.
    pub present: u64,
    pub values: [u64; 7],
}

impl IoRow {
    pub fn new(major: u64, minor: u64) -> Self {
        Self {
            major,
            minor,
            ..Self::default()
        }
    }

    pub fn set(&mut self, op: IoOp, value: u64) {
        self.present |= 1 << op as u8;
        self.values[op as usize] = value;
    }

    pub fn get(&self, op: IoOp) -> Option<u64> {
        (self.present & (1 << op as u8) != 0).then(|| self.values[op as usize])
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pids {
    pub current: u64,
    /// `None`: unlimited.
    pub max: Option<u64>,
}

/// The limits set on a cgroup; what cAdvisor calls its spec.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Spec {
    pub has_cpu: bool,
    /// In v1 shares, converted from v2's weight.
    pub cpu_shares: u64,
    /// Zero: no quota.
    pub cpu_quota_us: u64,
    pub cpu_period_us: u64,
    /// The CPU list as the kernel writes it; `None` where it was not asked for.
    pub cpu_mask: Option<String>,
    pub has_memory: bool,
    pub memory_limit: u64,
    pub memory_reservation: u64,
    pub memory_swap_limit: u64,
    pub has_hugetlb: bool,
    pub has_processes: bool,
    pub pids_limit: u64,
    pub has_diskio: bool,
}

impl Io {
    /// Empties the lists and keeps their room.
    pub fn clear(&mut self) {
        for list in self.lists_mut() {
            list.clear();
        }
    }

    /// The lists in the order of the fields.
    pub fn lists_mut(&mut self) -> [&mut Vec<IoRow>; 12] {
        [
            &mut self.service_bytes,
            &mut self.serviced,
            &mut self.queued,
            &mut self.sectors,
            &mut self.service_time_ns,
            &mut self.wait_time_ns,
            &mut self.merged,
            &mut self.time_ms,
            &mut self.cost_usage_us,
            &mut self.cost_wait_us,
            &mut self.cost_indebt_us,
            &mut self.cost_indelay_us,
        ]
    }
}
