//! `/proc/meminfo` and the `meminfo` of one NUMA node.

use crate::parse::{self, Malformed};
use crate::{HostError, HostRoot, ReadBuf, Result, read_file};

/// Bytes. A line that this kernel lacks is zero, except where absence changes what a reader should do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Meminfo {
    pub total: u64,
    pub free: u64,
    /// Since 3.14; never in a node's file.
    pub available: Option<u64>,
    pub buffers: u64,
    pub cached: u64,
    pub swap_cached: u64,
    pub active_anon: u64,
    pub inactive_anon: u64,
    pub active_file: u64,
    pub inactive_file: u64,
    pub unevictable: u64,
    pub swap_total: u64,
    pub swap_free: u64,
    pub dirty: u64,
    pub writeback: u64,
    pub anon_pages: u64,
    /// Page cache of one node (a node's file only; the machine's is `cached`).
    pub file_pages: u64,
    pub mapped: u64,
    pub shmem: u64,
    pub slab_reclaimable: u64,
    pub kernel_stack: u64,
    pub page_tables: u64,
}

impl Meminfo {
    pub fn swap_used(&self) -> u64 {
        self.swap_total.saturating_sub(self.swap_free)
    }

    /// What a workload could still take; an estimate on kernels that do not say.
    pub fn available_or_estimate(&self) -> u64 {
        let reclaimable = self.buffers + self.cached + self.slab_reclaimable;
        self.available
            .unwrap_or_else(|| (self.free + reclaimable.saturating_sub(self.shmem)).min(self.total))
    }
}

pub fn parse_meminfo(text: &[u8]) -> Result<Meminfo, Malformed> {
    let text = parse::whole_lines(text)?;
    let mut info = Meminfo::default();
    let mut has = (false, false);
    for (index, line) in parse::numbered(text) {
        let Some(colon) = memchr::memchr(b':', line) else {
            continue;
        };
        // A node's lines are `Node 0 MemTotal: …`.
        let key = parse::words(&line[..colon]).last().unwrap_or(b"");
        let field = match key {
            b"MemTotal" => {
                has.0 = true;
                &mut info.total
            }
            b"MemFree" => {
                has.1 = true;
                &mut info.free
            }
            b"MemAvailable" => info.available.insert(0),
            b"Buffers" => &mut info.buffers,
            b"Cached" => &mut info.cached,
            b"SwapCached" => &mut info.swap_cached,
            b"Active(anon)" => &mut info.active_anon,
            b"Inactive(anon)" => &mut info.inactive_anon,
            b"Active(file)" => &mut info.active_file,
            b"Inactive(file)" => &mut info.inactive_file,
            b"Unevictable" => &mut info.unevictable,
            b"SwapTotal" => &mut info.swap_total,
            b"SwapFree" => &mut info.swap_free,
            b"Dirty" => &mut info.dirty,
            b"Writeback" => &mut info.writeback,
            b"AnonPages" => &mut info.anon_pages,
            b"FilePages" => &mut info.file_pages,
            b"Mapped" => &mut info.mapped,
            b"Shmem" => &mut info.shmem,
            b"SReclaimable" => &mut info.slab_reclaimable,
            b"KernelStack" => &mut info.kernel_stack,
            b"PageTables" => &mut info.page_tables,
            _ => continue,
        };
        let bad = || Malformed::at(index, line);
        let kib = parse::words(&line[colon + 1..]).next().and_then(parse::u64);
        *field = kib.and_then(|kib| kib.checked_mul(1024)).ok_or_else(bad)?;
    }
    // Every kernel tells these two, first of all. Without the second all memory would seem to be used.
    match has {
        (true, true) => Ok(info),
        _ => Err(Malformed::cut_short(text)),
    }
}

pub fn read_meminfo(root: &HostRoot, buf: &mut ReadBuf) -> Result<Option<Meminfo>> {
    let path = root.proc("meminfo");
    let parsed = match read_file(&path, buf)? {
        Some(text) => parse_meminfo(text),
        None => return Ok(None),
    };
    parsed
        .map(Some)
        .map_err(|at| HostError::malformed(&path, at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_machine() {
        let info = parse_meminfo(
            b"MemTotal:       24682416 kB\nMemFree:        20000000 kB\nMemAvailable:   23000000 kB\n\
              Buffers:           1 kB\nCached:       2 kB\nActive(file):  3 kB\nInactive(file):    4 kB\n\
              SwapTotal:       100 kB\nSwapFree:        40 kB\nHugePages_Total:       0\nHugepagesize:       2048 kB\n",
        )
        .unwrap();
        assert_eq!(info.total, 25_274_793_984);
        assert_eq!(info.available, Some(23_000_000 * 1024));
        assert_eq!(info.swap_used(), 60 * 1024);
        assert_eq!(info.inactive_file, 4096);
    }

    #[test]
    fn one_node_and_an_old_kernel() {
        let info = parse_meminfo(
            b"Node 0 MemTotal:       1000 kB\nNode 0 MemFree:        300 kB\nNode 0 FilePages:  5 kB\n\
              Node 0 Cached: 50 kB\nNode 0 Buffers: 10 kB\nNode 0 Shmem: 20 kB\n",
        )
        .unwrap();
        assert_eq!((info.total, info.file_pages), (1_024_000, 5120));
        assert_eq!(info.available, None);
        assert_eq!(info.available_or_estimate(), 340 * 1024);
    }

    #[test]
    fn nonsense_is_named() {
        let error = parse_meminfo(b"MemTotal: 1 kB\nMemFree: lots\n").unwrap_err();
        assert_eq!((error.line, &*error.text), (2, "MemFree: lots"));
        for cut in [
            "",
            "MemTotal: 1 kB\n",
            "MemTotal: 1 kB\nMemFree: 1 kB\nMemAvail",
        ] {
            let error = parse_meminfo(cut.as_bytes()).unwrap_err();
            assert!(error.cut_short, "{cut}");
        }
    }

    #[test]
    fn this_machine() {
        let info = read_meminfo(&HostRoot::new("/"), &mut ReadBuf::default()).unwrap();
        assert!(info.is_some_and(|info| info.total > info.free));
    }

    proptest! {
        #[test]
        fn any_figures_survive(total in 0_u64..1 << 50, free in 0_u64..1 << 50) {
            let text = format!("MemTotal: {total} kB\nMemFree:  {free} kB\n");
            let info = parse_meminfo(text.as_bytes()).unwrap();
            prop_assert_eq!((info.total, info.free), (total * 1024, free * 1024));
        }

        #[test]
        fn no_input_panics(text: Vec<u8>) {
            let _ = parse_meminfo(&text);
        }
    }
}
