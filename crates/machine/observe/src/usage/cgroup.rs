//! Memory and throttling of one cgroup.

use plimsoll_host::cgroup::{Cfs, Memory, NumaPages};

/// Bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemoryUse {
    /// Without what the kernel can drop.
    pub usage: u64,
    pub with_page_cache: u64,
}

/// `None`: this kernel does not report enough.
pub fn memory_use(memory: &Memory) -> Option<MemoryUse> {
    let lru = memory.lru?;
    let usage = lru
        .inactive_anon
        .saturating_add(lru.active_anon)
        .saturating_add(lru.unevictable);
    Some(MemoryUse {
        usage,
        with_page_cache: usage
            .saturating_add(memory.active_file)
            .saturating_add(memory.inactive_file),
    })
}

/// Throttled CFS periods over all periods, between two readings.
#[derive(Debug, Clone, Copy, Default)]
pub struct ThrottleRatio {
    last: Option<(u64, u64)>,
}

impl ThrottleRatio {
    /// 0 to 1, and 0 if no period passed; `None` for the first reading and after the counters were reset.
    pub fn next(&mut self, cfs: &Cfs) -> Option<f64> {
        let now = (cfs.periods, cfs.throttled_periods);
        let (periods, throttled) = self.last.replace(now)?;
        let periods = now.0.checked_sub(periods)?;
        let throttled = now.1.checked_sub(throttled)?;
        match periods {
            0 => Some(0.0),
            periods => Some(throttled as f64 / periods as f64),
        }
    }
}

/// Bytes by NUMA node, of a cgroup with all below it.
pub fn numa_pages(numa: &NumaPages, page_size: u64) -> impl Iterator<Item = (u32, u64)> + '_ {
    let told = match numa.hierarchical.is_empty() {
        true => &numa.own,
        false => &numa.hierarchical,
    };
    told.iter().map(move |node| {
        let pages = node.anon.saturating_add(node.file);
        (node.node as u32, pages.saturating_mul(page_size))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_host::cgroup::{Lru, NumaNode};

    #[test]
    fn memory_by_the_rule() {
        let memory = Memory {
            usage: 1000,
            rss: 500,
            active_file: 30,
            inactive_file: 40,
            lru: Some(Lru {
                inactive_anon: 1,
                active_anon: 20,
                unevictable: 300,
            }),
            ..Memory::default()
        };
        let expected = MemoryUse {
            usage: 321,
            with_page_cache: 391,
        };
        assert_eq!(memory_use(&memory), Some(expected));
        assert_eq!(
            memory_use(&Memory {
                lru: None,
                ..memory
            }),
            None
        );
    }

    #[test]
    fn throttling() {
        let mut throttling = ThrottleRatio::default();
        let mut look = |periods, throttled_periods| {
            throttling.next(&Cfs {
                periods,
                throttled_periods,
                ..Cfs::default()
            })
        };
        assert_eq!(look(100, 50), None);
        assert_eq!(look(110, 55), Some(0.5));
        assert_eq!(look(110, 55), Some(0.0));
        assert_eq!(look(120, 55), Some(0.0));
        assert_eq!(look(5, 1), None);
        assert_eq!(look(6, 2), Some(1.0));
    }

    #[test]
    fn numa() {
        let node = |node, file, anon| NumaNode {
            node,
            file,
            anon,
            unevictable: 9,
        };
        let mut pages = NumaPages {
            own: vec![node(0, 1, 1)],
            hierarchical: vec![node(0, 10, 5), node(1, 0, 2)],
        };
        let found: Vec<_> = numa_pages(&pages, 4096).collect();
        assert_eq!(found, [(0, 15 * 4096), (1, 2 * 4096)]);
        // v2 tells the whole subtree's as the cgroup's own.
        pages.hierarchical.clear();
        assert_eq!(numa_pages(&pages, 4096).collect::<Vec<_>>(), [(0, 8192)]);
    }
}
