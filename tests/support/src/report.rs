//! The line protocol between a test program and `xtask`: a `BEGIN` and a `TEST` line a case, `LOST` behind one that
//! others stand on and that failed, one `VERDICT` at the end.
//!
//! It is text because it crosses a serial line out of a booted kernel. A program that dies has no verdict, and that is
//! a failure by itself.

use std::fmt;
use std::io::Write;
use std::panic::AssertUnwindSafe;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use anyhow::Result;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// With what was measured, if anything.
    Passed(String),
    Failed(String),
    /// The machine cannot do this; the reason.
    LeftOut(String),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    Begin {
        name: String,
    },
    Test {
        name: String,
        outcome: Outcome,
    },
    /// This test failed, and cases that stand on it did not run.
    Lost {
        name: String,
    },
    Verdict {
        passed: usize,
        failed: usize,
    },
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Begin { name } => write!(f, "BEGIN {name}"),
            Self::Lost { name } => write!(f, "LOST {name}"),
            Self::Verdict { passed, failed } => {
                write!(f, "VERDICT {passed} passed {failed} failed")
            }
            Self::Test { name, outcome } => {
                let (word, text) = match outcome {
                    Outcome::Passed(note) => ("ok", note),
                    Outcome::Failed(reason) => ("FAILED", reason),
                    Outcome::LeftOut(reason) => ("LEFT-OUT", reason),
                };
                let one_line = text.trim().replace('\n', " | ");
                write!(f, "TEST {name} {word} {one_line}")?;
                Ok(())
            }
        }
    }
}

impl Line {
    /// `None`: not a line of the protocol (the program's own words).
    pub fn parse(line: &str) -> Option<Self> {
        let line = line.trim();
        if let Some(counts) = line.strip_prefix("VERDICT ") {
            let (passed, rest) = counts.split_once(" passed ")?;
            let failed = rest.strip_suffix(" failed")?;
            return Some(Self::Verdict {
                passed: passed.parse().ok()?,
                failed: failed.parse().ok()?,
            });
        }
        let one_word = |name: &str| (!name.contains(' ')).then(|| name.to_owned());
        if let Some(name) = line.strip_prefix("BEGIN ") {
            return one_word(name).map(|name| Self::Begin { name });
        }
        if let Some(name) = line.strip_prefix("LOST ") {
            return one_word(name).map(|name| Self::Lost { name });
        }
        let mut words = line.strip_prefix("TEST ")?.splitn(3, ' ');
        let name = words.next()?.to_owned();
        let word = words.next()?;
        let text = words.next().unwrap_or_default().to_owned();
        let outcome = match word {
            "ok" => Outcome::Passed(text),
            "FAILED" => Outcome::Failed(text),
            "LEFT-OUT" => Outcome::LeftOut(text),
            _ => return None,
        };
        Some(Self::Test { name, outcome })
    }
}

/// Raised by a case that this machine cannot run.
#[derive(Debug)]
pub struct LeaveOut(pub String);

impl fmt::Display for LeaveOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for LeaveOut {}

impl LeaveOut {
    /// Takes any error as the reason.
    pub fn because(error: anyhow::Error) -> Self {
        Self(format!("{error:#}"))
    }
}

/// Which tests are wanted: a list of patterns with commas between them. A pattern is a part of a name, or `=` and the
/// whole name.
#[derive(Debug, Clone, Default)]
pub struct Filter {
    /// None: every test.
    patterns: Option<Vec<String>>,
}

impl Filter {
    pub fn new(text: Option<&str>) -> Self {
        let patterns = text.map(|text| text.split(',').map(str::to_owned).collect());
        Self { patterns }
    }

    /// Only tests with exactly these names.
    pub fn exactly<N: AsRef<str>>(names: &[N]) -> Self {
        let patterns = names.iter().map(|name| format!("={}", name.as_ref()));
        Self {
            patterns: Some(patterns.collect()),
        }
    }

    /// Whether every test is wanted.
    pub fn is_all(&self) -> bool {
        self.patterns.is_none()
    }

    /// The text that [`Filter::new`] takes.
    pub fn text(&self) -> Option<String> {
        self.patterns.as_ref().map(|patterns| patterns.join(","))
    }

    pub fn wants(&self, name: &str) -> bool {
        let matches = |pattern: &String| match pattern.strip_prefix('=') {
            Some(whole) => name == whole,
            None => name.contains(pattern.as_str()),
        };
        self.patterns
            .as_ref()
            .is_none_or(|patterns| patterns.iter().any(matches))
    }
}

/// Runs cases and writes their lines. Threads may share it.
#[derive(Debug)]
pub struct Runner<W> {
    filter: Filter,
    state: Mutex<State<W>>,
}

#[derive(Debug)]
struct State<W> {
    out: W,
    passed: usize,
    failed: usize,
}

impl<W: Write> Runner<W> {
    pub fn new(out: W, filter: Filter) -> Self {
        let state = Mutex::new(State {
            out,
            passed: 0,
            failed: 0,
        });
        Self { filter, state }
    }

    /// A case that others stand on: it runs whatever the filter says. If it fails, they are missed.
    pub fn setup(&self, name: &str, body: impl FnOnce() -> Result<String>) {
        if !self.run(name, body) {
            self.lost(name);
        }
    }

    /// Says that cases did not run because this one failed.
    pub fn lost(&self, name: &str) {
        self.line(&Line::Lost {
            name: name.to_owned(),
        });
    }

    /// The case's `Ok` text is shown beside its name: put what was measured there.
    pub fn case(&self, name: &str, body: impl FnOnce() -> Result<String>) {
        if self.filter.wants(name) {
            self.run(name, body);
        }
    }

    /// `false`: it failed.
    fn run(&self, name: &str, body: impl FnOnce() -> Result<String>) -> bool {
        let started = Instant::now();
        self.line(&Line::Begin {
            name: name.to_owned(),
        });
        // A panicking case must not take the ones after it along.
        let outcome = match std::panic::catch_unwind(AssertUnwindSafe(body)) {
            Ok(Ok(note)) => {
                let seconds = started.elapsed().as_secs_f64();
                let separator = if note.is_empty() { "" } else { "; " };
                Outcome::Passed(format!("{note}{separator}{seconds:.1} s"))
            }
            Ok(Err(error)) => match error.downcast_ref::<LeaveOut>() {
                Some(LeaveOut(reason)) => Outcome::LeftOut(reason.clone()),
                None => Outcome::Failed(format!("{error:#}")),
            },
            Err(_) => Outcome::Failed("panicked; see its output".to_owned()),
        };
        let has_failed = matches!(outcome, Outcome::Failed(_));
        self.line(&Line::Test {
            name: name.to_owned(),
            outcome,
        });
        !has_failed
    }

    /// Writes the verdict; `true` when nothing failed.
    pub fn finish(self) -> bool {
        let (passed, failed) = {
            let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            (state.passed, state.failed)
        };
        self.line(&Line::Verdict { passed, failed });
        failed == 0
    }

    fn line(&self, line: &Line) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Line::Test { outcome, .. } = line {
            match outcome {
                Outcome::Passed(_) => state.passed += 1,
                Outcome::Failed(_) => state.failed += 1,
                Outcome::LeftOut(_) => {}
            }
        }
        // Nothing can be reported when the report itself cannot be written; the missing verdict tells.
        let _ = writeln!(state.out, "{line}");
        let _ = state.out.flush();
    }
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    #[test]
    fn lines_survive_the_wire() {
        let mut wire = Vec::new();
        let runner = Runner::new(&mut wire, Filter::default());
        runner.case("good", || Ok("3 ms".to_owned()));
        runner.case("bad", || bail!("two\nlines"));
        runner.case("absent", || Err(LeaveOut("no daemon".to_owned()).into()));
        runner.case("worse", || panic!("boom"));
        assert!(!runner.finish());

        let text = String::from_utf8(wire).unwrap();
        let (begins, lines): (Vec<Line>, Vec<Line>) = text
            .lines()
            .map(|line| Line::parse(line).unwrap())
            .partition(|line| matches!(line, Line::Begin { .. }));
        assert_eq!(begins.len(), 4);
        let outcome = |index: usize| match &lines[index] {
            Line::Test { outcome, .. } => outcome.clone(),
            other => panic!("{other}"),
        };
        assert!(matches!(outcome(0), Outcome::Passed(note) if note.starts_with("3 ms; ")));
        assert_eq!(outcome(1), Outcome::Failed("two | lines".to_owned()));
        assert_eq!(outcome(2), Outcome::LeftOut("no daemon".to_owned()));
        assert!(matches!(outcome(3), Outcome::Failed(_)));
        assert_eq!(
            lines[4],
            Line::Verdict {
                passed: 1,
                failed: 2
            }
        );
    }

    #[test]
    fn a_failed_setup_is_told() {
        let mut wire = Vec::new();
        let runner = Runner::new(&mut wire, Filter::default());
        runner.setup("starts", || Ok(String::new()));
        runner.setup("optional", || Err(LeaveOut("no daemon".to_owned()).into()));
        runner.setup("breaks", || bail!("too late"));
        runner.finish();
        let text = String::from_utf8(wire).unwrap();
        let lines = text.lines().filter_map(Line::parse);
        let lost: Vec<Line> = lines
            .filter(|line| matches!(line, Line::Lost { .. }))
            .collect();
        let name = "breaks".to_owned();
        assert_eq!(lost, [Line::Lost { name }]);
    }

    #[test]
    fn other_lines_are_not_ours() {
        for line in [
            "",
            "TEST",
            "TEST x maybe",
            "VERDICT all fine",
            "BEGIN to wonder",
            "[    1.0] TESTING",
        ] {
            assert_eq!(Line::parse(line), None, "{line}");
        }
    }

    #[test]
    fn a_filter_leaves_cases_out() {
        let runner = Runner::new(Vec::new(), Filter::new(Some("io")));
        runner.case("memory", || bail!("must not run"));
        assert!(runner.finish());
    }

    #[test]
    fn filters_by_part_and_by_whole_name() {
        let filter = Filter::new(Some("limits,=memory"));
        assert!(filter.wants("limits_survive"));
        assert!(filter.wants("memory"));
        assert!(!filter.wants("memory_numa"));
        assert!(Filter::new(None).wants("anything"));
        let exact = Filter::exactly(&["a::b"]);
        assert_eq!(exact.text().as_deref(), Some("=a::b"));
        assert!(exact.wants("a::b") && !exact.wants("a::b::c"));
    }
}
