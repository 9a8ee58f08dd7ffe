use std::process::Command;

use plimsoll_host::program::give_back_mapped;

const ALONE: &str = "PLIMSOLL_TEST_ALONE";

/// In a process of its own, where no other test maps pages meanwhile.
#[test]
fn what_is_mapped_of_this_very_program_is_given_back() {
    if std::env::var_os(ALONE).is_none() {
        let name = "program::what_is_mapped_of_this_very_program_is_given_back";
        let program = std::env::current_exe().unwrap();
        let mut alone = Command::new(program);
        let output = alone.args(["--exact", name]).env(ALONE, "1").output();
        let output = output.unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{text}");
        // Under another name nothing would have been run.
        assert!(text.contains("1 passed"), "{text}");
        return;
    }
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
