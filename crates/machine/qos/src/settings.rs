//! What the command line decides: koordlet's feature gates of this half, and its flags, with its defaults.

use std::sync::Arc;
use std::time::Duration;

macro_rules! gates {
    ($($field:ident = $name:literal, $default:literal;)*) => {
        /// Which strategies run.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct Gates {
            $(pub $field: bool,)*
        }

        impl Default for Gates {
            fn default() -> Self {
                Self { $($field: $default,)* }
            }
        }

        impl Gates {
            pub const NAMES: &'static [&'static str] = &[$($name,)*];

            /// By koordlet's name; `false`: it is none of these.
            pub fn set(&mut self, name: &str, on: bool) -> bool {
                match name {
                    $($name => self.$field = on,)*
                    _ => return false,
                }
                true
            }

            pub fn is_on(&self, name: &str) -> Option<bool> {
                match name {
                    $($name => Some(self.$field),)*
                    _ => None,
                }
            }
        }
    };
}

gates! {
    be_cpu_suppress = "BECPUSuppress", true;
    be_cpu_manager = "BECPUManager", false;
    cpu_burst = "CPUBurst", true;
    be_cpu_evict = "BECPUEvict", false;
    cpu_evict = "CPUEvict", false;
    cpu_allocatable_evict = "CPUAllocatableEvict", false;
    be_memory_evict = "BEMemoryEvict", false;
    memory_evict = "MemoryEvict", false;
    memory_allocatable_evict = "MemoryAllocatableEvict", false;
    cgroup_reconcile = "CgroupReconcile", false;
    rdt_resctrl = "RdtResctrl", true;
    blkio_reconcile = "BlkIOReconcile", false;
    system_config = "SystemConfig", false;
    group_identity = "GroupIdentity", true;
    cpuset_allocator = "CPUSetAllocator", true;
}

/// How pods are made to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EvictBy {
    /// Their containers are stopped, as often as it is due: koordlet's default.
    Killing,
    /// The eviction API is asked, once a pod; pods on their way out count as if they had gone.
    Api,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    pub gates: Gates,
    /// How often usage is measured: `collect-res-used-interval`. Below a second nothing is done.
    pub interval: Duration,
    /// How often plans are made, `reconcile-interval-seconds`.
    pub reconcile_interval: Duration,
    pub cpu_evict_cool_down: Duration,
    pub memory_evict_cool_down: Duration,
    pub evict_by: EvictBy,
    /// Only pods that are needed go, and needs that no pod can meet evict nobody. Off: victims are exactly koordlet's.
    pub smallest_set: bool,
    /// The most pods that may go in a minute, for CPU and memory together; `None`: cool-downs alone count.
    pub evictions_per_minute: Option<u32>,
    /// The agent's own pod is never evicted.
    pub own_pod: Option<Arc<str>>,
    /// How long a last plan is held after its inputs are not known any more.
    pub hold: Duration,
}

impl Settings {
    /// As koordlet does it.
    pub fn koordlet() -> Self {
        Self {
            gates: Gates::default(),
            interval: Duration::from_secs(1),
            reconcile_interval: Duration::from_secs(1),
            cpu_evict_cool_down: Duration::from_secs(20),
            memory_evict_cool_down: Duration::from_secs(4),
            evict_by: EvictBy::Killing,
            smallest_set: false,
            evictions_per_minute: None,
            own_pod: None,
            hold: Duration::from_secs(30),
        }
    }
}

impl Default for Settings {
    /// As our own agent does it.
    fn default() -> Self {
        Self {
            evict_by: EvictBy::Api,
            smallest_set: true,
            evictions_per_minute: Some(10),
            ..Self::koordlet()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_by_name() {
        let mut gates = Gates::default();
        assert!(gates.set("BECPUEvict", true) && gates.be_cpu_evict);
        assert!(!gates.set("Accelerators", true));
        assert_eq!(gates.is_on("BECPUSuppress"), Some(true));
        let on = |name: &&&str| Gates::default().is_on(name) == Some(true);
        assert_eq!(Gates::NAMES.iter().filter(on).count(), 5);
    }
}
