//! The crate shows what `observe` has read, and reads nothing of the machine itself.

use std::fs;
use std::path::{Path, PathBuf};

const FORBIDDEN: [&str; 7] = [
    "std::fs",
    "fs::",
    "File::open",
    "HostRoot",
    "ReadBuf",
    "read_file",
    "list_processes",
];

/// Token and password files that flags name.
const READS_SECRETS: &str = "src/http/auth.rs";

fn sources(dir: &Path, out: &mut Vec<PathBuf>) {
    // A directory that cannot be read would show in the number of files below.
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        match path.is_dir() {
            true => sources(&path, out),
            false => out.push(path),
        }
    }
}

/// Files whose module is declared under `cfg(test)`.
fn is_test(path: &Path) -> bool {
    let names = ["tests", "tests.rs", "golden.rs", "fixture.rs"];
    path.iter()
        .any(|part| names.iter().any(|name| part == *name))
}

#[test]
fn no_source_opens_a_file_of_the_machine() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    sources(&root.join("src"), &mut files);
    let own: Vec<_> = files
        .iter()
        .map(|path| path.strip_prefix(root).unwrap())
        .filter(|path| !is_test(path))
        .collect();
    assert!(own.len() > 40, "{}", own.len());
    assert!(own.contains(&Path::new(READS_SECRETS)));
    for path in own {
        if path == Path::new(READS_SECRETS) {
            continue;
        }
        let text = fs::read_to_string(root.join(path)).unwrap();
        let code = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap();
        for word in FORBIDDEN {
            assert!(!code.contains(word), "{} uses {word}", path.display());
        }
    }
}
