//! Cold pages (not accessed for long), on kernels with Anolis' kidled.

use crate::HostRoot;
use crate::parse::{self, Malformed};

/// What the file of a cgroup is called, beside its other memory files.
pub const FILE: &str = "memory.idle_page_stats";
/// Buckets from here on count as cold: idle for sixty scans and more.
const COLD_FROM: usize = 5;
/// Page cache that is inactive: clean and dirty, evictable and not.
const COLD_ROWS: [&[u8]; 4] = [b"cfei", b"dfei", b"cfui", b"dfui"];

/// Whether this kernel scans.
pub fn is_supported(root: &HostRoot) -> bool {
    let dir = root.sys("kernel/mm/kidled");
    ["scan_period_in_seconds", "use_hierarchy"]
        .iter()
        .all(|name| dir.join(name).exists())
}

/// Bytes that are cold. Rows of other kinds, and the notes at the beginning, do not count.
pub fn parse_cold_bytes(text: &[u8]) -> Result<u64, Malformed> {
    let mut cold: u64 = 0;
    let mut rows = 0;
    for (index, line) in parse::numbered(text) {
        let mut words = parse::words(line);
        let name = words.next().unwrap_or(b"");
        if !COLD_ROWS.contains(&name) {
            continue;
        }
        rows += 1;
        for bucket in words.skip(COLD_FROM) {
            let bytes = parse::u64(bucket).ok_or_else(|| Malformed::at(index, line))?;
            cold = cold.saturating_add(bytes);
        }
    }
    match rows == COLD_ROWS.len() {
        true => Ok(cold),
        false => Err(Malformed::cut_short(text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATS: &str = "# version: 1.0\n# page_scans: 24\n# scan_period_in_seconds: 5\n# use_hierarchy: 1\n\
        # buckets: 1,2,5,15,30,60,120,240\n#\n#   _-----=> clean/dirty\n# |||||  [1,2) [2,5)\n\
        \x20 csei   9 9 9 9 9 9 9 9\n  dsei   9 9 9 9 9 9 9 9\n\
        \x20 cfei   1 1 1 1 1 100 20 3\n  dfei   0 0 0 0 0 1000 0 0\n\
        \x20 csui   9 9 9 9 9 9 9 9\n  dsui   0 0 0 0 0 0 0 0\n\
        \x20 cfui   0 0 0 0 0 0 0 10000\n  dfui   0 0 0 0 7 0 0 0\n  slab   5 5 5 5 5 5 5 5\n";

    #[test]
    fn the_idle_page_cache_counts() {
        assert_eq!(parse_cold_bytes(STATS.as_bytes()).unwrap(), 11_123);
    }

    #[test]
    fn half_a_file_is_no_answer() {
        let half = STATS.split("cfui").next().unwrap();
        assert!(parse_cold_bytes(half.as_bytes()).is_err());
        let wrong = STATS.replace("1000 0 0", "many 0 0");
        assert!(parse_cold_bytes(wrong.as_bytes()).is_err());
    }

    #[test]
    fn both_settings_must_be_there() {
        let dir = tempfile::tempdir().unwrap();
        let root = HostRoot::new(dir.path());
        assert!(!is_supported(&root));
        let kidled = dir.path().join("sys/kernel/mm/kidled");
        std::fs::create_dir_all(&kidled).unwrap();
        for file in ["scan_period_in_seconds", "use_hierarchy"] {
            std::fs::write(kidled.join(file), "0\n").unwrap();
        }
        assert!(is_supported(&root));
    }
}
