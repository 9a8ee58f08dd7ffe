//! The things of a machine that can be changed, by meaning. `actuate` turns them into files of cgroup v1, v2 or both.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A cgroup's path below the root of the hierarchy, with a leading slash; `/` is the root itself.
pub type CgroupPath = Arc<str>;

/// One value of the kernel.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Target {
    Cgroup {
        path: CgroupPath,
        knob: Knob,
    },
    Resctrl {
        /// The group's folder below the root of resctrl; empty for the root group.
        group: Box<str>,
        knob: ResctrlKnob,
    },
    /// The start time distinguishes a process from a later one with the same pid.
    Process {
        pid: u32,
        start_ticks: u64,
        file: ProcFile,
    },
    Sysctl(Sysctl),
}

impl Target {
    pub fn cgroup(path: &CgroupPath, knob: Knob) -> Self {
        Self::Cgroup {
            path: path.clone(),
            knob,
        }
    }

    /// The cgroup that it is a value of.
    pub fn cgroup_path(&self) -> Option<&CgroupPath> {
        match self {
            Self::Cgroup { path, .. } => Some(path),
            _ => None,
        }
    }
}

/// A value of a cgroup.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Knob {
    /// `cpu.shares` or `cpu.weight`. Wanted in shares, as Kubernetes does; the unit of the kernel is the actuator's
    /// affair, since runtimes convert in two ways.
    CpuShares,
    /// `cpu.cfs_quota_us` and `cpu.cfs_period_us`, or both fields of `cpu.max`.
    CpuQuota,
    CpuBurst,
    CpuIdle,
    /// `cpu.bvt_warp_ns` of Anolis kernels.
    GroupIdentity,
    Cpuset,
    MemoryMin,
    MemoryLow,
    MemoryHigh,
    MemoryMax,
    /// `memory.oom.group`.
    OomGroup,
    // Anolis kernels.
    WmarkRatio,
    WmarkScaleFactor,
    WmarkMinAdj,
    MemoryPriority,
    UsePriorityOom,
    PageCacheLimitEnable,
    PageCacheLimitSize,
    PageCacheLimitSync,
    /// One value for each device.
    Io {
        device: BlockDevice,
        knob: IoKnob,
    },
    NetClass,
    Freeze,
    /// `memory.reclaim`: an action rather than a value; it has no base and is never repeated.
    MemoryReclaim,
}

/// Major and minor number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct BlockDevice {
    pub major: u32,
    pub minor: u32,
}

impl fmt::Display for BlockDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.major, self.minor)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum IoKnob {
    /// `blkio.throttle.read_bps_device`, or `rbps` of `io.max`.
    ReadBps,
    WriteBps,
    ReadIops,
    WriteIops,
    /// `blkio.cost.weight`, or a device's line of `io.weight`.
    Weight,
    /// `blkio.cost.qos` or `io.cost.qos`: one line of settings. Only on the root.
    CostQos,
    /// `blkio.cost.model` or `io.cost.model`, likewise.
    CostModel,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ResctrlKnob {
    /// The group exists.
    Exists,
    /// The line `L3:` of its `schemata`.
    L3,
    /// The line `MB:`.
    MemoryBandwidth,
    /// Threads that belong to it. Added only; threads leave when they end or join another group.
    Tasks,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ProcFile {
    OomScoreAdj,
}

/// A setting of the whole machine.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Sysctl {
    /// `vm/min_free_kbytes`.
    MinFreeKbytes,
    /// `vm/watermark_scale_factor`.
    WatermarkScaleFactor,
    /// `kernel/sched_group_identity_enabled`.
    SchedGroupIdentityEnabled,
    /// `kernel/sched_idle_saver_wmark`.
    SchedIdleSaverWmark,
    /// `kernel/sched_core`.
    SchedCore,
    /// `/sys/kernel/mm/memcg_reaper/reap_background`.
    MemcgReaper,
    /// `/sys/kernel/mm/pagecache_limit/enabled`.
    PageCacheLimit,
    /// One word of `/sys/kernel/debug/sched_features`, or of `/sys/kernel/debug/sched/features`.
    SchedFeature(Box<str>),
    /// `/sys/kernel/mm/kidled/scan_period_in_seconds`.
    KidledScanPeriod,
    /// `/sys/kernel/mm/kidled/use_hierarchy`.
    KidledUseHierarchy,
}
