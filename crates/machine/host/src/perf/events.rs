//! Names of events that every kernel knows, whatever the processor.

/// What `perf_event_open` is asked to count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventCode {
    pub kind: u32,
    /// `config`, `config1`, `config2`.
    pub config: [u64; 3],
}

const HARDWARE: u32 = 0;
const SOFTWARE: u32 = 1;
const HW_CACHE: u32 = 3;

/// Hardware events by `PERF_COUNT_HW_*` number.
const HARDWARE_EVENTS: [(&str, u64); 14] = [
    ("cycles", 0),
    ("cpu-cycles", 0),
    ("instructions", 1),
    ("cache-references", 2),
    ("cache-misses", 3),
    ("branches", 4),
    ("branch-instructions", 4),
    ("branch-misses", 5),
    ("bus-cycles", 6),
    ("stalled-cycles-frontend", 7),
    ("idle-cycles-frontend", 7),
    ("stalled-cycles-backend", 8),
    ("idle-cycles-backend", 8),
    ("ref-cycles", 9),
];

/// Software events by `PERF_COUNT_SW_*` number.
const SOFTWARE_EVENTS: [(&str, u64); 15] = [
    ("cpu-clock", 0),
    ("task-clock", 1),
    ("page-faults", 2),
    ("faults", 2),
    ("context-switches", 3),
    ("cs", 3),
    ("cpu-migrations", 4),
    ("migrations", 4),
    ("minor-faults", 5),
    ("page-faults-min", 5),
    ("major-faults", 6),
    ("page-faults-maj", 6),
    ("alignment-faults", 7),
    ("emulation-faults", 8),
    ("cgroup-switches", 11),
];

/// Caches by `PERF_COUNT_HW_CACHE_*` number.
const CACHES: [(&str, u64); 9] = [
    ("l1-dcache", 0),
    ("l1d", 0),
    ("l1-icache", 1),
    ("l1i", 1),
    ("llc", 2),
    ("dtlb", 3),
    ("itlb", 4),
    ("branch", 5),
    ("node", 6),
];

/// What is done with a cache: operation, and whether only misses count.
const CACHE_OPERATIONS: [(&str, u64, u64); 6] = [
    ("-load-misses", 0, 1),
    ("-loads", 0, 0),
    ("-store-misses", 1, 1),
    ("-stores", 1, 0),
    ("-prefetch-misses", 2, 1),
    ("-prefetches", 2, 0),
];

/// The code of a generic event. Takes the spellings of `perf list` (`branch-misses`) and of libpfm4
/// (`PERF_COUNT_HW_BRANCH_MISSES`, `perf::BRANCH-MISSES`); `None` for names of one processor family.
pub fn generic_event(name: &str) -> Option<EventCode> {
    let plain = name.to_ascii_lowercase().replace('_', "-");
    let plain = plain.strip_prefix("perf::").unwrap_or(&plain);
    let named = |table: &[(&str, u64)], name: &str| {
        let found = table.iter().find(|(known, _)| *known == name);
        found.map(|(_, number)| *number)
    };
    let code = |kind, config| EventCode {
        kind,
        config: [config, 0, 0],
    };
    let hardware = plain.strip_prefix("perf-count-hw-").unwrap_or(plain);
    if let Some(number) = named(&HARDWARE_EVENTS, hardware) {
        return Some(code(HARDWARE, number));
    }
    let software = plain.strip_prefix("perf-count-sw-").unwrap_or(plain);
    if let Some(number) = named(&SOFTWARE_EVENTS, software) {
        return Some(code(SOFTWARE, number));
    }
    CACHE_OPERATIONS
        .iter()
        .find_map(|(suffix, operation, misses)| {
            let cache = named(&CACHES, plain.strip_suffix(suffix)?)?;
            Some(code(HW_CACHE, cache | operation << 8 | misses << 16))
        })
}
