//! The rung `unit`: every test binary of the workspace, a few at a time.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use plimsoll_test_support::log;
use plimsoll_test_support::report::{Filter, Outcome};

use super::build::{Built, TestBinary};
use super::follow;
use super::progress::Progress;
use super::with_long;
use crate::workspace;

/// Binaries at a time, and threads of each: most tests compute, some wait.
const BINARIES: usize = 2;
const THREADS: &str = "2";
/// A binary that finishes no test for so long hangs.
const SILENCE: Duration = Duration::from_secs(300);

/// Runs the tests that the filter wants, by their names `LABEL::TEST`.
///
/// What passing tests print is kept where `shows` says so.
pub fn test(
    built: &Built,
    filter: &Filter,
    seed: u64,
    shows: bool,
    progress: &Progress,
) -> Result<()> {
    let folder = workspace::target()?.join("unit-tests");
    fs::create_dir_all(&folder)?;
    let mut chosen = Vec::new();
    for binary in &built.tests {
        let tests = wanted(binary, filter)?;
        if !tests.is_empty() {
            chosen.push((binary, tests));
        }
    }
    progress.expect(chosen.iter().map(|(_, tests)| tests.len()).sum());
    // Those with the most tests first: they take longest.
    chosen.sort_by_key(|(_, tests)| tests.len());
    let queue = Mutex::new(chosen);
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).pop();
    std::thread::scope(|scope| {
        for _ in 0..BINARIES {
            scope.spawn(|| {
                while let Some((binary, tests)) = next() {
                    let way = Way {
                        filter,
                        seed,
                        shows,
                    };
                    if let Err(error) = run(binary, &tests, way, &folder, progress) {
                        let name = format!("{}::binary", binary.label);
                        progress.outcome(&name, &Outcome::Failed(format!("{error:#}")));
                    }
                }
            });
        }
    });
    Ok(())
}

/// The binary's tests that are wanted, by their names within it.
fn wanted(binary: &TestBinary, filter: &Filter) -> Result<Vec<String>> {
    let mut list = command(binary);
    list.args(["--list", "--format", "terse"]);
    let listed = workspace::output(&mut list)?;
    let tests = listed
        .lines()
        .filter_map(|line| line.strip_suffix(": test"));
    Ok(tests
        .filter(|test| filter.wants(&format!("{}::{test}", binary.label)))
        .map(str::to_owned)
        .collect())
}

fn command(binary: &TestBinary) -> Command {
    let mut command = Command::new(&binary.program);
    // As `cargo test` has it.
    with_long(&mut command)
        .current_dir(&binary.folder)
        .env("CARGO_MANIFEST_DIR", &binary.folder);
    command
}

/// How binaries are run.
#[derive(Debug, Clone, Copy)]
struct Way<'a> {
    filter: &'a Filter,
    seed: u64,
    shows: bool,
}

fn run(
    binary: &TestBinary,
    tests: &[String],
    way: Way<'_>,
    folder: &Path,
    progress: &Progress,
) -> Result<()> {
    let errors = folder.join(format!("{}.stderr", binary.label.replace('/', "-")));
    let mut command = command(binary);
    command
        .args(["--test-threads", THREADS])
        .env("PROPTEST_RNG_SEED", way.seed.to_string())
        .stderr(File::create(&errors)?);
    if !way.filter.is_all() {
        command.arg("--exact").args(tests);
    }
    if way.shows {
        command.arg("--show-output");
    }
    let started = Instant::now();
    let mut output = LibtestOutput::default();
    let ended = follow::lines(&mut command, SILENCE, progress, |line| output.line(line));
    let mut missing: BTreeSet<&str> = tests.iter().map(String::as_str).collect();
    for (name, result) in &output.results {
        missing.remove(name.as_str());
        let full = format!("{}::{name}", binary.label);
        progress.outcome(&full, &outcome(result, output.said_by(name)));
    }
    let ended = match ended {
        Ok(status) => format!("the binary ended with {status}"),
        Err(error) => format!("{error:#}"),
    };
    // What a crash or a hang kept from its end.
    for name in missing {
        let reason = format!("no result: {ended}\n{}", log::tail(&errors, 60));
        progress.outcome(
            &format!("{}::{name}", binary.label),
            &Outcome::Failed(reason),
        );
    }
    let seconds = started.elapsed().as_secs_f64();
    println!("    unit| {} done, {seconds:.1} s", binary.label);
    fs::remove_file(&errors).context("remove the errors of a binary")
}

fn outcome(result: &str, said: Option<&str>) -> Outcome {
    match result {
        "ok" => Outcome::Passed(said.unwrap_or_default().to_owned()),
        "FAILED" => Outcome::Failed(said.unwrap_or("it said nothing").to_owned()),
        other => Outcome::LeftOut(other.to_owned()),
    }
}

/// What a test binary prints, as far as it matters.
#[derive(Debug, Default)]
struct LibtestOutput {
    results: Vec<(String, String)>,
    /// What failed tests said, in order; and those that passed, where that is asked for.
    said: Vec<(String, String)>,
    in_section: bool,
}

impl LibtestOutput {
    fn line(&mut self, line: &str) {
        if let Some(name) = section(line) {
            self.said.push((name.to_owned(), String::new()));
            self.in_section = true;
            return;
        }
        if self.in_section {
            if matches!(line, "failures:" | "successes:") {
                self.in_section = false;
            } else if let Some((_, text)) = self.said.last_mut() {
                text.push_str(line);
                text.push('\n');
            }
            return;
        }
        if let Some((name, result)) = result(line) {
            self.results.push((name.to_owned(), result.to_owned()));
        }
    }

    fn said_by(&self, name: &str) -> Option<&str> {
        let of_it = |said: &&(String, String)| said.0 == name;
        self.said.iter().find(of_it).map(|(_, text)| text.trim())
    }
}

/// `test a::b ... ok`, also with ` - should panic` behind the name.
fn result(line: &str) -> Option<(&str, &str)> {
    let (name, result) = line.strip_prefix("test ")?.rsplit_once(" ... ")?;
    let name = name.strip_suffix(" - should panic").unwrap_or(name);
    Some((name, result))
}

/// `---- a::b stdout ----`
fn section(line: &str) -> Option<&str> {
    line.strip_prefix("---- ")?.strip_suffix(" stdout ----")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_libtest_prints() {
        let mut output = LibtestOutput::default();
        for line in [
            "running 4 tests",
            "test a::b ... ok",
            "test c ... FAILED",
            "test d - should panic ... ok",
            "test e ... ignored, no disk",
            "failures:",
            "---- c stdout ----",
            "thread 'c' panicked at x.rs:1:2:",
            "test looks ... like a result",
            "failures:",
            "    c",
            "successes:",
            "---- a::b stdout ----",
            "seen: 3",
            "successes:",
            "    a::b",
            "test result: FAILED. 2 passed; 1 failed; 1 ignored; 0 measured; 0 filtered out",
        ] {
            output.line(line);
        }
        let results: Vec<(&str, &str)> = output
            .results
            .iter()
            .map(|(name, result)| (name.as_str(), result.as_str()))
            .collect();
        assert_eq!(
            results,
            [
                ("a::b", "ok"),
                ("c", "FAILED"),
                ("d", "ok"),
                ("e", "ignored, no disk")
            ]
        );
        assert!(
            output
                .said_by("c")
                .unwrap()
                .starts_with("thread 'c' panicked")
        );
        assert_eq!(
            outcome("ok", output.said_by("a::b")),
            Outcome::Passed("seen: 3".into())
        );
        assert_eq!(
            outcome("ignored, no disk", None),
            Outcome::LeftOut("ignored, no disk".into())
        );
    }
}
