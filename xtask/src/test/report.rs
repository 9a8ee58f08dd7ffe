//! What a run shows at its end: failures, flaky tests, what was left out, the table, and the counts.

use std::time::Duration;

use super::flaky::{self, Entry};
use super::progress::{Progress, Seen};

/// What the run itself took, beside its rungs.
#[derive(Debug, Clone)]
pub struct Whole {
    pub took: Duration,
    pub build: Duration,
    /// Why no test could run.
    pub build_failed: Option<String>,
    pub build_cpu: Duration,
    pub cores: usize,
    pub in_ci: bool,
}

/// Prints everything; `false` when the run has failed.
pub fn conclude(rungs: &[Progress], whole: Whole, known: &[Entry]) -> bool {
    let seen: Vec<(&Progress, Seen)> = rungs.iter().map(|rung| (rung, rung.snapshot())).collect();
    print_failures(&seen);
    if let Some(reason) = &whole.build_failed {
        println!("\nfailures:\nbuild\n{}", indent(reason));
    }
    print_table(&seen, &whole);
    print_flaky(&seen, known);
    let left_out = print_left_out(&seen);

    let passed: usize = seen.iter().map(|(_, seen)| seen.passed.len()).sum();
    let mut failed: usize = seen.iter().map(|(_, seen)| seen.failed.len()).sum();
    failed += usize::from(whole.build_failed.is_some());
    let flaky: usize = seen.iter().map(|(_, seen)| seen.flaky.len()).sum();
    if flaky > flaky::ALLOWED {
        println!(
            "!!! {flaky} tests are flaky, {} are allowed: all of them count as failed.",
            flaky::ALLOWED
        );
        failed += flaky;
    }
    if whole.in_ci && left_out > 0 {
        println!("!!! In CI nothing may be left out: {left_out} count as failed.");
        failed += left_out;
    }
    println!("\n{passed} passed, {failed} failed");
    failed == 0
}

fn print_failures(seen: &[(&Progress, Seen)]) {
    let failed: Vec<String> = seen
        .iter()
        .flat_map(|(rung, seen)| {
            let line =
                |name: &str, reason: &str| format!("{}::{name}\n{}", rung.rung, indent(reason));
            seen.failed
                .iter()
                .map(move |failed| line(&failed.name, &failed.reason))
        })
        .collect();
    if !failed.is_empty() {
        println!("\nfailures:\n{}", failed.join("\n"));
    }
}

fn print_table(seen: &[(&Progress, Seen)], whole: &Whole) {
    println!(
        "\n{:<20} {:<9} {:>7} {:>7} {:>6} {:>8} {:>8} {:>8} {:>8}",
        "rung", "", "passed", "failed", "flaky", "seconds", "budget", "CPU s", "last s"
    );
    println!(
        "{:<20} {:<9} {:>7} {:>7} {:>6} {:>8.1} {:>8} {:>8.1}",
        "build",
        "",
        "",
        "",
        "",
        whole.build.as_secs_f64(),
        "",
        whole.build_cpu.as_secs_f64()
    );
    let mut cpu = whole.build_cpu;
    for (rung, seen) in seen {
        let took = seen.took.unwrap_or_default();
        cpu += seen.cpu;
        let last = rung
            .last
            .map_or(String::new(), |last| format!("{:.1}", last.seconds));
        let over = if took > rung.rung.budget() {
            " over its budget"
        } else {
            ""
        };
        println!(
            "{:<20} {:<9} {:>7} {:>7} {:>6} {:>8.1} {:>8} {:>8.1} {last:>8}{over}",
            rung.rung,
            word(seen),
            seen.passed.len(),
            seen.failed.len(),
            seen.flaky.len(),
            took.as_secs_f64(),
            rung.rung.budget().as_secs(),
            seen.cpu.as_secs_f64(),
        );
    }
    let floor = cpu.as_secs_f64() / whole.cores as f64;
    let took = whole.took.as_secs_f64();
    println!(
        "\nin all {took:.0} s; {:.0} s of CPU time on {} cores, so {floor:.0} s at least ({:.2} times that)",
        cpu.as_secs_f64(),
        whole.cores,
        took / floor.max(1.0)
    );
}

fn word(seen: &Seen) -> &'static str {
    match (&seen.absent, seen.failed.len(), seen.flaky.len()) {
        (Some(_), ..) => "left out",
        (None, 0, 0) => "passed",
        (None, 0, _) => "FLAKY",
        (None, ..) => "failed",
    }
}

fn print_flaky(seen: &[(&Progress, Seen)], known: &[Entry]) {
    for (rung, seen) in seen {
        for flaky in &seen.flaky {
            let name = format!("{}::{}", rung.rung, flaky.name);
            println!("\nFLAKY {name}: it failed, and passed when it was run once more, alone");
            println!(
                "  failed:\n{}\n  passed: {}",
                indent(&flaky.failed),
                flaky.passed
            );
            match known.iter().find(|entry| entry.test == name) {
                Some(entry) => println!(
                    "  Seen before, on {}: {}. Mend it before anything new is built.",
                    entry.date, entry.cause
                ),
                None => println!("  Find the cause, and mend it or write it to tests/flaky.txt."),
            }
        }
    }
}

/// How many there are.
fn print_left_out(seen: &[(&Progress, Seen)]) -> usize {
    let mut lines = Vec::new();
    for (rung, seen) in seen {
        let tests = seen.left_out.iter();
        lines.extend(tests.map(|test| format!("{}::{}: {}", rung.rung, test.name, test.reason)));
        lines.extend(
            seen.absent
                .iter()
                .map(|reason| format!("{}: {reason}", rung.rung)),
        );
    }
    if !lines.is_empty() {
        println!("\n!!! LEFT OUT, NOT TESTED:");
        for line in &lines {
            println!("!!!   {line}");
        }
    }
    lines.len()
}

fn indent(text: &str) -> String {
    let lines = text.lines().map(|line| format!("    {line}"));
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use plimsoll_test_support::report::Outcome;

    use super::*;
    use crate::test::progress::Flaky;
    use crate::test::rung::Rung;

    const WHOLE: Whole = Whole {
        took: Duration::from_secs(1),
        build: Duration::ZERO,
        build_failed: None,
        build_cpu: Duration::ZERO,
        cores: 2,
        in_ci: false,
    };

    fn verdict(rung: Progress, in_ci: bool) -> bool {
        conclude(&[rung], Whole { in_ci, ..WHOLE }, &[])
    }

    fn with(outcome: Outcome) -> Progress {
        let rung = Progress::new(Rung::Unit, None);
        rung.outcome("a", &outcome);
        rung
    }

    #[test]
    fn a_build_that_failed_is_a_failure() {
        let rung = with(Outcome::Passed("fine".into()));
        let build_failed = Some("a semicolon".to_owned());
        assert!(!conclude(
            &[rung],
            Whole {
                build_failed,
                ..WHOLE
            },
            &[]
        ));
    }

    #[test]
    fn what_is_left_out_fails_only_in_ci() {
        let left_out = || with(Outcome::LeftOut("no disk".into()));
        assert!(verdict(left_out(), false));
        assert!(!verdict(left_out(), true), "a single test");
        let absent = || {
            let rung = Progress::new(Rung::Unit, None);
            rung.change(|seen| seen.absent = Some("no compiler".into()));
            rung
        };
        assert!(verdict(absent(), false));
        assert!(!verdict(absent(), true), "a whole rung");
        assert!(!verdict(with(Outcome::Failed("no".into())), false));
        assert!(verdict(with(Outcome::Passed(String::new())), true));
    }

    #[test]
    fn two_flaky_tests_pass_and_three_fail() {
        let flaky = |count: usize| {
            let rung = with(Outcome::Passed(String::new()));
            let one = Flaky {
                name: "a".into(),
                failed: "too late".into(),
                passed: "1 s".into(),
            };
            rung.change(|seen| seen.flaky = vec![one; count]);
            rung
        };
        assert!(verdict(flaky(2), true));
        assert!(!verdict(flaky(3), true));
    }
}
