//! One build of everything that the rungs run: test binaries, test programs and the program under test.
//!
//! It is static, because guests without libraries run it too, and it is optimised a little, because emulation is slow.
//! Debug assertions and overflow checks stay on. One set of features and one profile: nothing is compiled twice.

use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::workspace;

const TARGET: &str = "x86_64-unknown-linux-gnu";
const PROFILE: &str = "ladder";

/// A binary with `#[test]` functions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TestBinary {
    /// `apiserver`, `plimsoll/it`.
    pub label: String,
    pub program: PathBuf,
    /// The package's folder, where its tests expect to run.
    pub folder: PathBuf,
}

#[derive(Debug)]
pub struct Built {
    pub tests: Vec<TestBinary>,
    /// Where the programs are.
    folder: PathBuf,
    pub cpu: Duration,
}

impl Built {
    pub fn program(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

pub fn build() -> Result<Built> {
    let target = workspace::target()?;
    let mut cargo = workspace::cargo()?;
    cargo
        .args(["build", "--workspace", "--lib", "--bins", "--tests"])
        .args(["--profile", PROFILE, "--target", TARGET])
        .arg("--target-dir")
        .arg(&target)
        .arg("--message-format=json-render-diagnostics")
        // This variable wins over every other source of flags, so a caller's RUSTFLAGS cannot undo it.
        .env("CARGO_ENCODED_RUSTFLAGS", "-Ctarget-feature=+crt-static")
        .stdout(Stdio::piped());
    let mut child = cargo.spawn().context("start cargo build")?;
    let messages = read(&mut child)?;
    let (status, cpu) = workspace::reap(&mut child)?;
    ensure!(status.success(), "cargo build ended with {status}");
    let mut tests: Vec<TestBinary> = messages.lines().filter_map(test_binary).collect();
    tests.sort_by(|a, b| a.label.cmp(&b.label));
    ensure!(!tests.is_empty(), "cargo build names no test binary");
    Ok(Built {
        tests,
        folder: target.join(TARGET).join(PROFILE),
        cpu,
    })
}

fn read(child: &mut Child) -> Result<String> {
    let output = child.stdout.take().context("no output of cargo build")?;
    std::io::read_to_string(output).context("output of cargo build")
}

/// A message of cargo that names a test binary.
fn test_binary(message: &str) -> Option<TestBinary> {
    let message: Value = serde_json::from_str(message).ok()?;
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let program = PathBuf::from(message["executable"].as_str()?);
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?;
    let target = &message["target"];
    // Of the package, not of the target: `[lib] name` may differ.
    let package = folder.file_name()?.to_str()?;
    let kind = target["kind"].as_array()?.first()?.as_str()?;
    let label = match kind {
        "lib" | "proc-macro" => package.to_owned(),
        "bin" => format!("{package}/{}", target["name"].as_str()?),
        _ => format!("{package}/tests/{}", target["name"].as_str()?),
    };
    Some(TestBinary {
        label,
        program,
        folder: folder.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_binaries_are_told_from_other_messages() {
        let message = |test: bool, kind: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"/x/crates/sched/Cargo.toml",
                "target":{{"kind":["{kind}"],"name":"it"}},"profile":{{"test":{test}}},"executable":"/x/it-1"}}"#
            )
        };
        let found = test_binary(&message(true, "test")).unwrap();
        assert_eq!(found.label, "sched/tests/it");
        assert_eq!(found.folder, Path::new("/x/crates/sched"));
        assert_eq!(test_binary(&message(true, "lib")).unwrap().label, "sched");
        assert_eq!(
            test_binary(&message(true, "bin")).unwrap().label,
            "sched/it"
        );
        assert_eq!(test_binary(&message(false, "bin")), None);
        assert_eq!(test_binary("   Compiling x"), None);
    }
}
