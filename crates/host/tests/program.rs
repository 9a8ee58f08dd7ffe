//! In a program of its own, where nothing else maps pages meanwhile.

use plimsoll_host::program::give_back_mapped;

#[test]
fn what_is_mapped_of_this_very_program_is_given_back() {
    // Bytes of files that are mapped.
    let resident = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let mut lines = status.lines();
        let line = lines.find_map(|line| line.strip_prefix("RssFile:"));
        let kib = line.unwrap().trim().trim_end_matches(" kB");
        kib.parse::<u64>().unwrap() * 1024
    };
    let before = resident();
    let given = give_back_mapped().unwrap();
    let after = resident();
    assert!(given > 0);
    assert!(after < before, "{before} before, {after} after");
    // And we are still alive.
    assert!(give_back_mapped().unwrap() < given);
}
