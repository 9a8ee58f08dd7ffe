//! What a rung has shown so far. Threads share it: the rung writes, the status line reads.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use plimsoll_test_support::report::{Line, Outcome};

use super::rung::Rung;
use super::times::LastTime;

/// A test that failed, or was left out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Without the rung's name.
    pub name: String,
    pub reason: String,
}

/// A test that failed and then passed, alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flaky {
    pub name: String,
    pub failed: String,
    pub passed: String,
}

#[derive(Debug, Default, Clone)]
pub struct Seen {
    pub started: Option<Instant>,
    pub took: Option<Duration>,
    /// CPU time of its programs and of everything that they waited for.
    pub cpu: Duration,
    /// How many tests there are, once that is known.
    pub expected: Option<usize>,
    pub passed: Vec<(String, String)>,
    pub failed: Vec<Finding>,
    pub flaky: Vec<Flaky>,
    /// Tests that this machine cannot run.
    pub left_out: Vec<Finding>,
    /// Why the whole rung was left out.
    pub absent: Option<String>,
    /// Something that other tests stand on failed, so that they did not run.
    pub lost: bool,
    verdict: bool,
    running: BTreeSet<String>,
}

impl Seen {
    /// No test has the name that was asked for.
    pub fn nothing_ran(&self) -> bool {
        self.done() == 0 && self.absent.is_none()
    }

    pub fn done(&self) -> usize {
        self.passed.len() + self.failed.len() + self.left_out.len()
    }
}

#[derive(Debug)]
pub struct Progress {
    pub rung: Rung,
    pub last: Option<LastTime>,
    seen: Mutex<Seen>,
}

impl Progress {
    pub fn new(rung: Rung, last: Option<LastTime>) -> Self {
        Self {
            rung,
            last,
            seen: Mutex::default(),
        }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn snapshot(&self) -> Seen {
        self.seen().clone()
    }

    pub fn change(&self, change: impl FnOnce(&mut Seen)) {
        change(&mut self.seen());
    }

    pub fn begin(&self) {
        self.seen().started = Some(Instant::now());
        let budget = self.rung.budget().as_secs();
        match &self.last {
            Some(last) => println!(
                "=== {} begins: {} tests in {:.0} s last time, budget {budget} s",
                self.rung, last.tests, last.seconds
            ),
            None => println!("=== {} begins: budget {budget} s", self.rung),
        }
    }

    pub fn end(&self) {
        let mut seen = self.seen();
        let took = seen.started.map(|started| started.elapsed());
        seen.took = took;
        println!(
            "=== {} ends: {} passed, {} failed, {:.0} s, {:.0} s of CPU",
            self.rung,
            seen.passed.len(),
            seen.failed.len(),
            took.unwrap_or_default().as_secs_f64(),
            seen.cpu.as_secs_f64()
        );
    }

    pub fn add_cpu(&self, cpu: Duration) {
        self.seen().cpu += cpu;
    }

    pub fn expect(&self, tests: usize) {
        self.seen().expected = Some(tests);
    }

    /// Takes and shows a line of a test program.
    pub fn line(&self, line: &Line) {
        match line {
            Line::Begin { name } => {
                self.seen().running.insert(name.clone());
            }
            Line::Test { name, outcome } => self.outcome(name, outcome),
            Line::Lost { name } => {
                println!(
                    "    {}| the tests that stand on {name} did not run",
                    self.rung
                );
                self.seen().lost = true;
            }
            Line::Verdict { passed, failed } => {
                let counted = {
                    let mut seen = self.seen();
                    seen.verdict = true;
                    (seen.passed.len(), seen.failed.len())
                };
                // A lost line must not turn a failure into a success.
                if (*passed, *failed) != counted {
                    let reason = format!(
                        "the verdict counts {passed} passed, {failed} failed, but {} and {} were seen",
                        counted.0, counted.1
                    );
                    self.outcome("verdict", &Outcome::Failed(reason));
                }
            }
        }
    }

    /// Something a program says beside its tests.
    pub fn say(&self, text: &str) {
        println!("    {}| {text}", self.rung);
    }

    pub fn has_verdict(&self) -> bool {
        self.seen().verdict
    }

    pub fn outcome(&self, name: &str, outcome: &Outcome) {
        let full = format!("{}::{name}", self.rung);
        let mut seen = self.seen();
        seen.running.remove(name);
        let finding = |reason: &String| Finding {
            name: name.to_owned(),
            reason: reason.clone(),
        };
        match outcome {
            Outcome::Passed(note) => {
                println!("test {full} ... ok ({note})");
                seen.passed.push((name.to_owned(), note.clone()));
            }
            Outcome::Failed(reason) => {
                println!("test {full} ... FAILED\n    {reason}");
                seen.failed.push(finding(reason));
            }
            Outcome::LeftOut(reason) => {
                println!("test {full} ... LEFT OUT: {reason}");
                seen.left_out.push(finding(reason));
            }
        }
    }

    /// `unit 812/1510`, with what runs now where little does. `None` while it does not run.
    pub fn status(&self) -> Option<String> {
        let seen = self.seen();
        if seen.started.is_none() || seen.took.is_some() {
            return None;
        }
        let expected = seen.expected.or(self.last.as_ref().map(|last| last.tests));
        let of = expected.map_or(String::new(), |expected| format!("/{expected}"));
        let running: Vec<&str> = seen.running.iter().take(3).map(String::as_str).collect();
        let running = match running.is_empty() {
            true => String::new(),
            false => format!(" ({})", running.join(", ")),
        };
        Some(format!("{} {}{of}{running}", self.rung, seen.done()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Cgroups;

    fn progress_of(lines: &[&str]) -> Progress {
        let progress = Progress::new(Rung::Kernel(Cgroups::V2), None);
        for line in lines {
            progress.line(&Line::parse(line).unwrap());
        }
        progress
    }

    #[test]
    fn a_verdict_that_disagrees_is_a_failure() {
        let fine = progress_of(&[
            "BEGIN a",
            "TEST a ok",
            "TEST b LEFT-OUT no disk",
            "VERDICT 1 passed 0 failed",
        ]);
        let seen = fine.snapshot();
        assert_eq!((seen.passed.len(), seen.failed.len()), (1, 0));
        assert_eq!(seen.left_out.len(), 1);
        assert!(fine.has_verdict());
        let lost = progress_of(&["TEST a ok", "VERDICT 2 passed 0 failed"]);
        assert_eq!(lost.snapshot().failed.len(), 1);
        assert!(!progress_of(&["TEST a ok"]).has_verdict());
    }

    #[test]
    fn status_tells_how_far_and_what() {
        let progress = progress_of(&["TEST a ok"]);
        assert_eq!(progress.status(), None, "it has not begun");
        progress.begin();
        progress.line(&Line::parse("BEGIN b").unwrap());
        progress.expect(7);
        assert_eq!(progress.status().unwrap(), "kernel-v2 1/7 (b)");
        progress.end();
        assert_eq!(progress.status(), None);
    }
}
