//! Plans, and what they consist of.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Reason, Target, Value};

/// Who wants a value. Where several want the same one, `actuate` has a table that says who wins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Asker {
    CpuSuppress,
    CpuBurst,
    CpuNormalization,
    MemoryQos,
    Resctrl,
    BlkIo,
    SystemConfig,
    HostApplications,
    BatchResource,
    CpusetAllocator,
    GroupIdentity,
    CoreSched,
    OomScoreAdj,
    NetQos,
    /// Cold pages are counted only if the kernel is told to look for them.
    ColdPages,
    /// A person, by `plimsoll qos`.
    Operator,
}

impl Asker {
    pub const ALL: [Self; 16] = [
        Self::CpuSuppress,
        Self::CpuBurst,
        Self::CpuNormalization,
        Self::MemoryQos,
        Self::Resctrl,
        Self::BlkIo,
        Self::SystemConfig,
        Self::HostApplications,
        Self::BatchResource,
        Self::CpusetAllocator,
        Self::GroupIdentity,
        Self::CoreSched,
        Self::OomScoreAdj,
        Self::NetQos,
        Self::ColdPages,
        Self::Operator,
    ];

    /// Its name in the journal, in metrics and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::CpuSuppress => "cpu-suppress",
            Self::CpuBurst => "cpu-burst",
            Self::CpuNormalization => "cpu-normalization",
            Self::MemoryQos => "memory-qos",
            Self::Resctrl => "resctrl",
            Self::BlkIo => "blkio",
            Self::SystemConfig => "system-config",
            Self::HostApplications => "host-applications",
            Self::BatchResource => "batch-resource",
            Self::CpusetAllocator => "cpuset-allocator",
            Self::GroupIdentity => "group-identity",
            Self::CoreSched => "core-sched",
            Self::OomScoreAdj => "oom-score-adj",
            Self::NetQos => "net-qos",
            Self::ColdPages => "cold-pages",
            Self::Operator => "operator",
        }
    }
}

impl fmt::Display for Asker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One value that is wanted.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Effect {
    pub target: Target,
    pub value: Value,
    pub why: Reason,
    /// It goes back after this time even if nobody says so: freezes and probes. `None`: it stays until the asker drops it.
    pub at_most: Option<Duration>,
}

impl Effect {
    pub fn new(target: Target, value: Value, why: Reason) -> Self {
        Self {
            target,
            value,
            why,
            at_most: None,
        }
    }
}

/// All that one asker wants now. What it wanted before and does not name here goes back to its base.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Plan {
    pub asker: Asker,
    pub effects: Vec<Effect>,
    pub evictions: Vec<Eviction>,
    pub notes: Vec<Note>,
}

impl Plan {
    /// The asker wants nothing.
    pub fn empty(asker: Asker) -> Self {
        Self {
            asker,
            effects: Vec::new(),
            evictions: Vec::new(),
            notes: Vec::new(),
        }
    }

    pub fn want(&mut self, target: Target, value: Value, why: Reason) {
        self.effects.push(Effect::new(target, value, why));
    }
}

/// What an eviction is to release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum EvictionScope {
    Cpu,
    Memory,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Urgency {
    /// The eviction API decides, with disruption budgets.
    Orderly,
    /// The node runs out of memory before an orderly eviction would help.
    Now,
}

/// A pod that should go.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Eviction {
    pub uid: Arc<str>,
    pub namespace: Box<str>,
    pub name: Box<str>,
    pub scope: EvictionScope,
    /// What its end releases: thousandths of a core, or bytes.
    pub releases: u64,
    pub urgency: Urgency,
    /// The feature that asks for it, in koordlet's name (`BECPUEvict`), which clients match on.
    pub feature: &'static str,
    pub why: Reason,
}

/// Something that an operator should know, which is no change: a policy that makes no sense, a mechanism that this kernel
/// lacks.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Note {
    /// A stable name in snake case.
    pub code: &'static str,
    /// What it is about: a field, a pod, a file.
    pub about: Box<str>,
    /// A sentence for people.
    pub text: Box<str>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_askers_differ() {
        let mut names: Vec<_> = Asker::ALL.iter().map(|asker| asker.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Asker::ALL.len());
    }
}
