//! No crate but this one opens a kernel file for writing. Files of our own are written elsewhere, too: each place is
//! named here with what it writes, so a new one is noticed.

use std::path::{Path, PathBuf};

/// Ways to open something for writing, or to make and remove directories as cgroups and groups of resctrl are.
const WRITES: [&str; 16] = [
    "OpenOptions",
    ".write(true)",
    ".append(true)",
    "fs::write(",
    "File::create",
    "File::options",
    "OFlags::WRONLY",
    "OFlags::RDWR",
    "O_WRONLY",
    "O_RDWR",
    "create_dir(",
    "remove_dir(",
    "mkdirat",
    "unlinkat",
    "fs::copy(",
    "set_permissions(",
];

/// Where else something is written.
const OURS: [(&str, &str); 16] = [
    // Arming a trigger opens a pressure file for writing. It changes only what this descriptor is told.
    ("machine/host/src/psi_trigger.rs", "a PSI trigger"),
    ("machine/observe/src/oom.rs", "counts below --data-dir"),
    (
        "machine/predict/src/checkpoint.rs",
        "checkpoints of forecasts",
    ),
    ("machine/tsdb/src/recover.rs", "the usage history"),
    ("machine/tsdb/src/seal.rs", "the usage history"),
    ("roles/agent/src/agent.rs", "a test file below --data-dir"),
    ("roles/metrics-server/src/audit/log.rs", "the audit log"),
    ("kube/serving/src/self_signed.rs", "a certificate"),
    (
        "roles/agent/src/protect/control.rs",
        "the socket of `plimsoll qos`",
    ),
    // The demonstration needs cgroups to show something on.
    ("plimsoll/src/qos/demo.rs", "cgroups of its own"),
    ("embedded/apiserver/src/credentials.rs", "credentials"),
    ("embedded/apiserver/src/store/persist.rs", "the store"),
    ("embedded/apiserver/src/store/roll.rs", "the store"),
    ("embedded/apiserver/src/store/spill.rs", "the store"),
    ("plimsoll/src/up/lock.rs", "a lock of `up`"),
    (
        "plimsoll/src/scheduler/mod.rs",
        "a configuration, when asked for one",
    ),
];

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return;
    };
    for entry in entries.flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        let is_test = name.contains("test") || ["examples", "benches", "target"].contains(&&*name);
        if entry.path().is_dir() && !is_test {
            sources(&path, found);
        } else if name.ends_with(".rs") && !is_test {
            found.push(path);
        }
    }
}

/// What is compiled into the program: tests at the end of a file are not.
fn shipped(text: &str) -> &str {
    text.split("#[cfg(test)]\nmod ").next().unwrap_or(text)
}

fn writes(text: &str) -> bool {
    shipped(text)
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .any(|line| WRITES.iter().any(|way| line.contains(way)))
}

#[test]
fn nobody_else_opens_a_kernel_file_for_writing() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut found = Vec::new();
    sources(&crates, &mut found);
    assert!(found.len() > 300, "only {} files", found.len());
    let mut writers: Vec<String> = found
        .iter()
        .filter(|path| writes(&std::fs::read_to_string(path).unwrap()))
        .map(|path| path.strip_prefix(&crates).unwrap().display().to_string())
        .filter(|path| !path.starts_with("machine/actuate/"))
        .collect();
    writers.sort();
    let mut known: Vec<_> = OURS.iter().map(|(path, _)| (*path).to_owned()).collect();
    known.sort();
    assert_eq!(
        writers, known,
        "kernel files are written by plimsoll-actuate only; a file of our own belongs on the list of this test"
    );
}

#[test]
fn writing_is_recognised() {
    assert!(writes("fn x() { std::fs::write(path, text) }"));
    assert!(writes("let flags = OFlags::WRONLY;"));
    assert!(!writes(
        "// OFlags::WRONLY\nfn x() {}\n#[cfg(test)]\nmod tests { fs::write( }"
    ));
}
