//! CPU and memory of the machine as a whole, and of its NUMA nodes.

use std::time::Duration;

use plimsoll_host::Timestamp;
use plimsoll_host::proc::meminfo::Meminfo;
use plimsoll_host::proc::stat::ProcStat;
use rustc_hash::FxHashMap;

use super::{MemoryUse, Rate};

const SECOND_NS: f64 = 1e9;

/// Cores in use: time in user space, kernel and interrupts, without idle, iowait and stolen time.
#[derive(Debug, Clone, Default)]
pub struct MachineCpu {
    rate: Rate,
}

impl MachineCpu {
    pub fn next(
        &mut self,
        at: Timestamp,
        stat: &ProcStat,
        ticks_per_second: u64,
        forget: Duration,
    ) -> Option<f64> {
        let ticks = self.rate.next(at, stat.total.busy(), forget)?;
        Some(ticks * SECOND_NS / ticks_per_second as f64)
    }
}

/// The same for each NUMA node.
#[derive(Debug, Clone, Default)]
pub struct NumaCpu {
    rates: FxHashMap<u32, Rate>,
    sums: FxHashMap<u32, u64>,
}

impl NumaCpu {
    /// `node_of`: the node of a CPU; CPUs without one are left out. Nodes in order.
    pub fn next(
        &mut self,
        at: Timestamp,
        stat: &ProcStat,
        node_of: impl Fn(u32) -> Option<u32>,
        ticks_per_second: u64,
        forget: Duration,
    ) -> Vec<(u32, f64)> {
        self.sums.clear();
        for (cpu, ticks) in &stat.per_cpu {
            if let Some(node) = node_of(*cpu) {
                let sum = self.sums.entry(node).or_default();
                *sum = sum.saturating_add(ticks.busy());
            }
        }
        let mut found: Vec<(u32, f64)> = self
            .sums
            .iter()
            .filter_map(|(&node, &busy)| {
                let rate = self.rates.entry(node).or_default();
                let ticks = rate.next(at, busy, forget)?;
                Some((node, ticks * SECOND_NS / ticks_per_second as f64))
            })
            .collect();
        found.sort_by_key(|(node, _)| *node);
        found
    }
}

/// Memory usage of the node, without and with page cache.
pub fn machine_memory(memory: &Meminfo) -> MemoryUse {
    MemoryUse {
        usage: memory.total.saturating_sub(memory.available_or_estimate()),
        with_page_cache: memory.total.saturating_sub(memory.free),
    }
}

/// A node's file has no estimate of what could be got, so what can be dropped is added up.
pub fn numa_memory(memory: &Meminfo) -> u64 {
    let droppable = memory
        .free
        .saturating_add(memory.active_file)
        .saturating_add(memory.inactive_file)
        .saturating_add(memory.slab_reclaimable);
    memory.total.saturating_sub(droppable)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORGET: Duration = Duration::from_secs(20);

    fn stat(text: &str) -> ProcStat {
        let mut stat = ProcStat::default();
        stat.parse(text.as_bytes()).unwrap();
        stat
    }

    #[test]
    fn ticks_over_time_are_cores() {
        let mut cpu = MachineCpu::default();
        let at = Timestamp::from_secs;
        let first = stat("cpu 100 0 100 1000 500 10 10 77\n");
        assert_eq!(cpu.next(at(1), &first, 100, FORGET), None);
        // 100 user, 20 nice, 50 system, 5 irq, 25 softirq in 2 s; idle, iowait and steal do not count.
        let then = stat("cpu 200 20 150 1900 900 15 35 200\n");
        assert_eq!(cpu.next(at(3), &then, 100, FORGET), Some(1.0));
    }

    #[test]
    fn nodes_add_up_their_cpus() {
        let mut cpu = NumaCpu::default();
        let node_of = |cpu: u32| (cpu < 4).then_some(cpu / 2);
        let first = stat("cpu 0 0 0 0\ncpu0 0 0 0 0\ncpu1 0 0 0 0\ncpu2 0 0 0 0\ncpu4 0 0 0 0\n");
        assert_eq!(
            cpu.next(Timestamp::from_secs(1), &first, node_of, 100, FORGET),
            []
        );
        let then =
            stat("cpu 184 0 25 0\ncpu0 50 0 0 0\ncpu1 25 0 25 0\ncpu2 10 0 0 0\ncpu4 99 0 0 0\n");
        assert_eq!(
            cpu.next(Timestamp::from_secs(2), &then, node_of, 100, FORGET),
            [(0, 1.0), (1, 0.1)]
        );
    }

    #[test]
    fn memory() {
        let memory = Meminfo {
            total: 1000,
            free: 100,
            available: Some(700),
            active_file: 200,
            inactive_file: 150,
            slab_reclaimable: 50,
            ..Meminfo::default()
        };
        let expected = MemoryUse {
            usage: 300,
            with_page_cache: 900,
        };
        assert_eq!(machine_memory(&memory), expected);
        assert_eq!(numa_memory(&memory), 500);
    }
}
