//! Metric groups: what can be switched on and off, under cAdvisor's names.

use std::fmt;

macro_rules! groups {
    ($($variant:ident = $name:literal,)*) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Group { $($variant),* }

        impl Group {
            pub const ALL: &[Self] = &[$(Self::$variant),*];

            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name),* }
            }
        }
    };
}

groups! {
    Cpu = "cpu",
    PerCpu = "percpu",
    Memory = "memory",
    MemoryNuma = "memory_numa",
    CpuLoad = "cpuLoad",
    DiskIo = "diskIO",
    Disk = "disk",
    Network = "network",
    Tcp = "tcp",
    AdvancedTcp = "advtcp",
    Udp = "udp",
    App = "app",
    Process = "process",
    Sched = "sched",
    Hugetlb = "hugetlb",
    PerfEvent = "perf_event",
    ReferencedMemory = "referenced_memory",
    CpuTopology = "cpu_topology",
    Resctrl = "resctrl",
    Cpuset = "cpuset",
    OomEvent = "oom_event",
    Pressure = "pressure",
}

/// A set of groups in one word.
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct GroupSet(u32);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown metric group {name:?}; the groups are {}", known_names())]
pub struct UnknownGroup {
    pub name: String,
}

fn known_names() -> String {
    let names: Vec<&str> = Group::ALL.iter().map(|g| g.name()).collect();
    names.join(", ")
}

impl GroupSet {
    pub const EMPTY: Self = Self(0);

    pub fn of(groups: &[Group]) -> Self {
        groups.iter().fold(Self::EMPTY, |set, g| set.with(*g))
    }

    pub fn all() -> Self {
        Self::of(Group::ALL)
    }

    /// What cAdvisor leaves off unless asked, because it costs much or is seldom wanted.
    pub fn off_by_default() -> Self {
        Self::of(&[
            Group::MemoryNuma,
            Group::Tcp,
            Group::Udp,
            Group::AdvancedTcp,
            Group::Sched,
            Group::Process,
            Group::Hugetlb,
            Group::ReferencedMemory,
            Group::CpuTopology,
            Group::Resctrl,
            Group::Cpuset,
        ])
    }

    /// The set from cAdvisor's two flags: `enable` replaces the whole set, otherwise everything but `disable` is on.
    pub fn from_flags(enable: Option<&str>, disable: Option<&str>) -> Result<Self, UnknownGroup> {
        if let Some(enable) = enable.filter(|list| !list.is_empty()) {
            return Self::parse(enable);
        }
        let off = match disable {
            Some(list) => Self::parse(list)?,
            None => Self::off_by_default(),
        };
        Ok(Self::all().without(off))
    }

    /// A comma-separated list of names; an empty list is an empty set.
    pub fn parse(list: &str) -> Result<Self, UnknownGroup> {
        let mut set = Self::EMPTY;
        for name in list.split(',').map(str::trim).filter(|n| !n.is_empty()) {
            let group = Group::ALL.iter().find(|g| g.name() == name);
            let group = group.ok_or_else(|| UnknownGroup {
                name: name.to_owned(),
            })?;
            set = set.with(*group);
        }
        Ok(set)
    }

    pub fn has(self, group: Group) -> bool {
        self.0 & (1 << group as u8) != 0
    }

    #[must_use]
    pub fn with(self, group: Group) -> Self {
        Self(self.0 | 1 << group as u8)
    }

    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    #[must_use]
    pub fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    #[must_use]
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    pub fn iter(self) -> impl Iterator<Item = Group> {
        Group::ALL.iter().copied().filter(move |g| self.has(*g))
    }

    pub(crate) fn bits(self) -> u64 {
        u64::from(self.0)
    }

    pub(crate) fn from_bits(bits: u64) -> Self {
        Self(bits as u32 & Self::all().0)
    }
}

impl fmt::Debug for GroupSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(Group::name)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags() {
        let default = GroupSet::from_flags(None, None).unwrap();
        assert!(default.has(Group::Cpu) && default.has(Group::PerCpu));
        assert!(!default.has(Group::Process));
        let all = GroupSet::from_flags(None, Some("")).unwrap();
        assert_eq!(all, GroupSet::all());
        let only = GroupSet::from_flags(Some("cpu, tcp"), Some("cpu")).unwrap();
        assert_eq!(only, GroupSet::of(&[Group::Cpu, Group::Tcp]));
        let error = GroupSet::from_flags(Some("cpus"), None).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("unknown metric group \"cpus\"; the groups are cpu, percpu")
        );
    }
}
