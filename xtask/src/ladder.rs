//! `cargo xtask test`: the rungs from the weakest test to the strongest, and one table at the end.

use std::fmt;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
pub use plimsoll_test_support::report::LeaveOut;
use plimsoll_test_support::report::{Line, Outcome};

use crate::cluster;
use crate::kernel::{self, Cgroups};
use crate::runtime::{self, Runtime};
use crate::workspace;

#[derive(Args, Debug)]
pub struct Options {
    /// Only the rungs whose name starts with this: fmt, clippy, unit, kernel (kernel-v2, kernel-v1), runtime
    /// (runtime-containerd, runtime-podman, runtime-docker), cluster.
    #[arg(long, value_name = "RUNG")]
    only: Option<String>,
    /// Only format, clippy and unit tests: nothing that needs root or an emulator.
    #[arg(long)]
    fast: bool,
    /// Within the kernel, runtime and cluster rungs, only the tests whose name contains this.
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Rung {
    Format,
    Clippy,
    Unit,
    Kernel(Cgroups),
    Runtime(Runtime),
    Cluster,
}

const LADDER: &[Rung] = &[
    Rung::Format,
    Rung::Clippy,
    Rung::Unit,
    Rung::Kernel(Cgroups::V2),
    Rung::Kernel(Cgroups::V1),
    Rung::Runtime(Runtime::Containerd),
    Rung::Runtime(Runtime::Podman),
    Rung::Runtime(Runtime::Docker),
    Rung::Cluster,
];

impl fmt::Display for Rung {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Format => "fmt",
            Self::Clippy => "clippy",
            Self::Unit => "unit",
            Self::Kernel(Cgroups::V2) => "kernel-v2",
            Self::Kernel(Cgroups::V1) => "kernel-v1",
            Self::Runtime(Runtime::Containerd) => "runtime-containerd",
            Self::Runtime(Runtime::Podman) => "runtime-podman",
            Self::Runtime(Runtime::Docker) => "runtime-docker",
            Self::Cluster => "cluster",
        })
    }
}

impl Rung {
    fn is_fast(self) -> bool {
        matches!(self, Self::Format | Self::Clippy | Self::Unit)
    }

    fn wanted(self, options: &Options) -> bool {
        let named = options
            .only
            .as_ref()
            .is_none_or(|name| self.to_string().starts_with(name.as_str()));
        named && (self.is_fast() || !options.fast)
    }

    fn climb(self, options: &Options, progress: &mut Progress) -> Result<()> {
        let filter = options.filter.as_deref();
        match self {
            Self::Format => {
                component("rustfmt", "fmt")?;
                whole(
                    progress,
                    workspace::cargo()?.args(["fmt", "--all", "--check"]),
                )
            }
            Self::Clippy => {
                component("clippy", "clippy")?;
                let mut cargo = workspace::cargo()?;
                cargo.args([
                    "clippy",
                    "--workspace",
                    "--all-targets",
                    "--",
                    "-D",
                    "warnings",
                ]);
                whole(progress, &mut cargo)
            }
            Self::Unit => unit_tests(progress),
            Self::Kernel(cgroups) => kernel::test(cgroups, filter, progress),
            Self::Runtime(runtime) => runtime::test(runtime, filter, progress),
            Self::Cluster => cluster::test(filter, progress),
        }
    }
}

/// What one rung has shown so far.
#[derive(Debug)]
pub struct Progress {
    rung: String,
    passed: usize,
    failed: usize,
    /// Tests that the rung itself left out, because this machine cannot run them.
    left_out: Vec<String>,
    failures: Vec<String>,
    verdict: bool,
}

impl Progress {
    fn new(rung: Rung) -> Self {
        Self {
            rung: rung.to_string(),
            passed: 0,
            failed: 0,
            left_out: Vec::new(),
            failures: Vec::new(),
            verdict: false,
        }
    }

    /// Takes and shows a line of a test program.
    pub fn line(&mut self, line: &Line) {
        match line {
            Line::Test { name, outcome } => self.outcome(name, outcome),
            Line::Verdict { passed, failed } => {
                self.verdict = true;
                // A lost line must not turn a failure into a success.
                if (*passed, *failed) != (self.passed, self.failed) {
                    let reason = format!(
                        "the verdict counts {passed} passed, {failed} failed, but {} and {} were seen",
                        self.passed, self.failed
                    );
                    self.outcome("verdict", &Outcome::Failed(reason));
                }
            }
        }
    }

    /// A part of the rung that cannot run here.
    pub fn left_out(&mut self, name: &str, reason: &str) {
        self.outcome(name, &Outcome::LeftOut(reason.to_owned()));
    }

    pub fn has_verdict(&self) -> bool {
        self.verdict
    }

    fn outcome(&mut self, name: &str, outcome: &Outcome) {
        let name = format!("{}::{name}", self.rung);
        match outcome {
            Outcome::Passed(note) => {
                self.passed += 1;
                println!("test {name} ... ok ({note})");
            }
            Outcome::Failed(reason) => {
                self.failed += 1;
                println!("test {name} ... FAILED\n    {reason}");
                self.failures.push(format!("{name}: {reason}"));
            }
            Outcome::LeftOut(reason) => {
                println!("test {name} ... LEFT OUT: {reason}");
                self.left_out.push(format!("{name}: {reason}"));
            }
        }
    }
}

#[derive(Debug)]
struct Climbed {
    rung: Rung,
    progress: Progress,
    /// The whole rung was left out, and why.
    left_out: Option<String>,
    took: Duration,
}

impl Climbed {
    fn word(&self) -> &'static str {
        match (&self.left_out, self.progress.failed) {
            (Some(_), _) => "left out",
            (None, 0) => "passed",
            (None, _) => "failed",
        }
    }
}

/// Runs the wanted rungs; `false` when something failed.
pub fn run(options: &Options) -> Result<bool> {
    let in_ci = std::env::var("CI").is_ok_and(|value| value == "true");
    let rungs: Vec<Rung> = LADDER
        .iter()
        .copied()
        .filter(|rung| rung.wanted(options))
        .collect();
    if rungs.is_empty() {
        let names: Vec<String> = LADDER.iter().map(Rung::to_string).collect();
        bail!("no such rung; there are {}", names.join(", "));
    }
    let mut climbed = Vec::new();
    for rung in rungs {
        println!("\n=== {rung}");
        climbed.push(climb(rung, options));
    }
    Ok(conclude(&climbed, in_ci))
}

fn climb(rung: Rung, options: &Options) -> Climbed {
    let started = Instant::now();
    let mut progress = Progress::new(rung);
    let mut left_out = None;
    if let Err(error) = rung.climb(options, &mut progress) {
        match error.downcast_ref::<LeaveOut>() {
            Some(LeaveOut(reason)) => {
                println!("!!! {rung} LEFT OUT: {reason}");
                left_out = Some(reason.clone());
            }
            None => progress.outcome("rung", &Outcome::Failed(format!("{error:#}"))),
        }
    }
    Climbed {
        rung,
        progress,
        left_out,
        took: started.elapsed(),
    }
}

/// Prints what failed, what was left out, the table, and the counts as the last line.
fn conclude(climbed: &[Climbed], in_ci: bool) -> bool {
    let failures: Vec<&String> = climbed
        .iter()
        .flat_map(|rung| &rung.progress.failures)
        .collect();
    if !failures.is_empty() {
        println!("\nfailures:");
        for failure in failures {
            println!("    {failure}");
        }
    }
    println!(
        "\n{:<20} {:<9} {:>7} {:>7} {:>8}",
        "rung", "", "passed", "failed", "seconds"
    );
    for rung in climbed {
        println!(
            "{:<20} {:<9} {:>7} {:>7} {:>8.1}",
            rung.rung,
            rung.word(),
            rung.progress.passed,
            rung.progress.failed,
            rung.took.as_secs_f64()
        );
    }

    let mut skipped: Vec<String> = Vec::new();
    for rung in climbed {
        skipped.extend(rung.progress.left_out.iter().cloned());
        skipped.extend(
            rung.left_out
                .iter()
                .map(|reason| format!("{}: {reason}", rung.rung)),
        );
    }
    if !skipped.is_empty() {
        println!("\n!!! LEFT OUT, NOT TESTED:");
        for reason in &skipped {
            println!("!!!   {reason}");
        }
    }

    let passed: usize = climbed.iter().map(|rung| rung.progress.passed).sum();
    let mut failed: usize = climbed.iter().map(|rung| rung.progress.failed).sum();
    let whole_rungs = climbed
        .iter()
        .filter(|rung| rung.left_out.is_some())
        .count();
    if in_ci && whole_rungs > 0 {
        println!("!!! In CI nothing may be left out: {whole_rungs} rungs count as failed.");
        failed += whole_rungs;
    }
    let word = if failed == 0 { "ok" } else { "FAILED" };
    println!(
        "\ntest result: {word}. {passed} passed; {failed} failed; {} ignored",
        skipped.len()
    );
    println!("{passed} passed, {failed} failed");
    failed == 0
}

/// A rung that is one command: it counts as one test.
fn whole(progress: &mut Progress, command: &mut Command) -> Result<()> {
    let outcome = match workspace::run(command) {
        Ok(()) => Outcome::Passed("no findings".to_owned()),
        Err(error) => Outcome::Failed(format!("{error:#}")),
    };
    progress.outcome("all", &outcome);
    Ok(())
}

/// A toolchain without rustfmt or clippy gets them from rustup, or the advice to.
fn component(name: &str, subcommand: &str) -> Result<()> {
    let works = || -> Result<bool> {
        let output = workspace::cargo()?
            .args([subcommand, "--version"])
            .output()?;
        Ok(output.status.success())
    };
    if works()? {
        return Ok(());
    }
    let advice = format!("{name} is missing: run `rustup component add {name}`");
    if !workspace::has_program("rustup") {
        return Err(LeaveOut(advice).into());
    }
    let added = workspace::run(Command::new("rustup").args(["component", "add", name]));
    if added.is_err() || !works()? {
        return Err(LeaveOut(advice).into());
    }
    Ok(())
}

/// `cargo test`, with its output shown and its counts taken.
fn unit_tests(progress: &mut Progress) -> Result<()> {
    let mut cargo = workspace::cargo()?;
    cargo
        .args(["test", "--workspace", "--no-fail-fast"])
        .stdout(Stdio::piped());
    let mut child = cargo.spawn().context("start cargo test")?;
    let output = child.stdout.take().context("no output of cargo test")?;
    for line in BufReader::new(output).lines() {
        let line = line?;
        println!("{line}");
        if let Some(name) = failed_test(&line) {
            progress.failures.push(format!("unit::{name}"));
        }
        if let Some((passed, failed)) = counts(&line) {
            progress.passed += passed;
            progress.failed += failed;
        }
    }
    let status = child.wait()?;
    if !status.success() && progress.failed == 0 {
        bail!("cargo test ended with {status} before it could count a failure");
    }
    Ok(())
}

fn failed_test(line: &str) -> Option<&str> {
    line.strip_prefix("test ")?.strip_suffix(" ... FAILED")
}

/// Passed and failed of a `test result:` line.
fn counts(line: &str) -> Option<(usize, usize)> {
    let rest = line.strip_prefix("test result: ")?;
    let number_before = |word: &str| -> Option<usize> {
        let before = rest.split(word).next()?;
        before.rsplit(' ').next()?.parse().ok()
    };
    Some((number_before(" passed")?, number_before(" failed")?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_test_lines() {
        let line = "test result: ok. 12 passed; 3 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.01s";
        assert_eq!(counts(line), Some((12, 3)));
        assert_eq!(counts("running 12 tests"), None);
        assert_eq!(failed_test("test a::b ... FAILED"), Some("a::b"));
        assert_eq!(failed_test("test a::b ... ok"), None);
    }

    fn progress_of(lines: &[&str]) -> Progress {
        let mut progress = Progress::new(Rung::Kernel(Cgroups::V2));
        for line in lines {
            progress.line(&Line::parse(line).unwrap());
        }
        progress
    }

    #[test]
    fn a_verdict_that_disagrees_is_a_failure() {
        let fine = progress_of(&[
            "TEST a ok",
            "TEST b LEFT-OUT no disk",
            "VERDICT 1 passed 0 failed",
        ]);
        assert_eq!((fine.passed, fine.failed, fine.left_out.len()), (1, 0, 1));
        assert!(fine.has_verdict());
        let lost = progress_of(&["TEST a ok", "VERDICT 2 passed 0 failed"]);
        assert_eq!(lost.failed, 1);
        assert!(!progress_of(&["TEST a ok"]).has_verdict());
    }

    #[test]
    fn rungs_by_name() {
        let wanted = |only: Option<&str>, fast| {
            let options = Options {
                only: only.map(str::to_owned),
                fast,
                filter: None,
            };
            let rungs = LADDER.iter().filter(|rung| rung.wanted(&options));
            rungs.map(Rung::to_string).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(wanted(Some("kernel"), false), "kernel-v2 kernel-v1");
        assert_eq!(wanted(Some("kernel-v1"), false), "kernel-v1");
        assert_eq!(wanted(None, true), "fmt clippy unit");
        assert_eq!(wanted(Some("moon"), false), "");
    }

    fn climbed(rung: Rung, failed: usize, left_out: Option<&str>) -> Climbed {
        let mut progress = Progress::new(rung);
        progress.failed = failed;
        Climbed {
            rung,
            progress,
            left_out: left_out.map(str::to_owned),
            took: Duration::ZERO,
        }
    }

    #[test]
    fn what_is_left_out_fails_only_in_ci() {
        let left_out = [climbed(Rung::Format, 0, Some("no rustfmt"))];
        assert!(conclude(&left_out, false));
        assert!(!conclude(&left_out, true));
        assert!(!conclude(&[climbed(Rung::Unit, 1, None)], false));
    }
}
