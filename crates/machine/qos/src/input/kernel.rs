//! What the machine's kernel can do, and what it has now.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_plan::{CgroupPath, Target, Value};

/// What decides between values. Knobs that a kernel lacks are skipped by whoever applies a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    pub cgroup_v2: bool,
    /// A cgroup may burst by no more than its quota: true of cgroup v2 and of every mainline kernel; Anolis kernels allow
    /// more on v1.
    pub burst_within_quota: bool,
    /// Bytes of a page.
    pub page_size: u64,
}

impl Capabilities {
    pub fn v1() -> Self {
        Self {
            cgroup_v2: false,
            burst_within_quota: false,
            page_size: 4096,
        }
    }

    pub fn v2() -> Self {
        Self {
            cgroup_v2: true,
            burst_within_quota: true,
            ..Self::v1()
        }
    }
}

impl Default for Capabilities {
    fn default() -> Self {
        Self::v2()
    }
}

#[derive(Debug, Clone, PartialEq, Default)]
pub struct Kernel {
    pub capabilities: Capabilities,
    /// What the kernel has, of those targets that the planner asks for (`Planner::reads`).
    pub values: BTreeMap<Target, Value>,
    /// All folders one or two levels below the best-effort tier, as they are found: pods, containers, sandboxes and whatever else
    /// is there. `None`: nobody looked, and those of the pods that are known count.
    pub below_best_effort: Option<Vec<CgroupPath>>,
    /// Threads by cgroup, of pods' containers and sandboxes.
    pub threads: BTreeMap<CgroupPath, Box<[u32]>>,
    /// `None`: there is no such thing here, or it is not mounted.
    pub resctrl: Option<Resctrl>,
}

/// What `/sys/fs/resctrl` says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Resctrl {
    /// `info/L3/cbm_mask`, in hexadecimal; empty where caches cannot be divided.
    pub l3_mask: Box<str>,
    /// The caches, by the numbers that `schemata` gives them.
    pub l3_ids: Box<[u32]>,
    pub memory_bandwidth: bool,
    /// AMD counts bandwidth in eighths of a gigabyte a second, Intel in percent.
    pub is_amd: bool,
    /// Threads that are in a group already.
    pub tasks: BTreeMap<Box<str>, BTreeSet<u32>>,
}

impl Kernel {
    pub fn value(&self, target: &Target) -> Option<&Value> {
        self.values.get(target)
    }

    /// A quota in microseconds of the usual period of 100 ms, -1 for none.
    pub fn quota(&self, target: &Target) -> Option<i64> {
        let Value::Quota {
            quota_us,
            period_us,
        } = self.value(target)?
        else {
            return None;
        };
        let Some(quota) = quota_us else {
            return Some(-1);
        };
        let period = period_us.filter(|period| *period > 0).unwrap_or(100_000);
        let scaled = u128::from(*quota) * 100_000 / u128::from(period);
        Some(i64::try_from(scaled).unwrap_or(i64::MAX))
    }
}
