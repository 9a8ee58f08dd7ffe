//! The features that evict, by koordlet's names, which clients match on.

use plimsoll_plan::EvictionScope;

use crate::settings::Gates;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Feature {
    BeCpu,
    CpuAllocatable,
    Cpu,
    BeMemory,
    MemoryAllocatable,
    Memory,
}

/// What a pod's end is to lower.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Aim {
    Used,
    Requested,
}

impl Feature {
    /// In this order: what one releases counts for the next.
    pub fn of(scope: EvictionScope) -> [Self; 3] {
        match scope {
            EvictionScope::Cpu => [Self::BeCpu, Self::CpuAllocatable, Self::Cpu],
            EvictionScope::Memory => [Self::BeMemory, Self::MemoryAllocatable, Self::Memory],
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::BeCpu => "BECPUEvict",
            Self::CpuAllocatable => "CPUAllocatableEvict",
            Self::Cpu => "CPUEvict",
            Self::BeMemory => "BEMemoryEvict",
            Self::MemoryAllocatable => "MemoryAllocatableEvict",
            Self::Memory => "MemoryEvict",
        }
    }

    pub fn is_on(self, gates: &Gates) -> bool {
        gates.is_on(self.name()) == Some(true)
    }

    pub fn aim(self) -> Aim {
        match self {
            Self::Cpu | Self::BeMemory | Self::Memory => Aim::Used,
            Self::BeCpu | Self::CpuAllocatable | Self::MemoryAllocatable => Aim::Requested,
        }
    }

    pub fn scope(self) -> EvictionScope {
        match self {
            Self::BeCpu | Self::CpuAllocatable | Self::Cpu => EvictionScope::Cpu,
            Self::BeMemory | Self::MemoryAllocatable | Self::Memory => EvictionScope::Memory,
        }
    }
}
