//! The line protocol between a test program and `xtask`: one `TEST` line a case, one `VERDICT` at the end.
//!
//! It is text because it crosses a serial line out of a booted kernel. A program that dies has no verdict, and that is
//! a failure by itself.

use std::fmt;
use std::io::Write;
use std::panic::AssertUnwindSafe;
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
    Test { name: String, outcome: Outcome },
    Verdict { passed: usize, failed: usize },
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
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

/// Runs cases one after the other and writes their lines.
#[derive(Debug)]
pub struct Runner<W> {
    out: W,
    /// Only cases whose name contains this.
    filter: Option<String>,
    passed: usize,
    failed: usize,
}

impl<W: Write> Runner<W> {
    pub fn new(out: W, filter: Option<String>) -> Self {
        Self {
            out,
            filter,
            passed: 0,
            failed: 0,
        }
    }

    /// A case that others stand on: it runs whatever the filter says.
    pub fn setup(&mut self, name: &str, body: impl FnOnce() -> Result<String>) {
        let filter = self.filter.take();
        self.case(name, body);
        self.filter = filter;
    }

    /// The case's `Ok` text is shown beside its name: put what was measured there.
    pub fn case(&mut self, name: &str, body: impl FnOnce() -> Result<String>) {
        if self
            .filter
            .as_ref()
            .is_some_and(|wanted| !name.contains(wanted.as_str()))
        {
            return;
        }
        let started = Instant::now();
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
        match &outcome {
            Outcome::Passed(_) => self.passed += 1,
            Outcome::Failed(_) => self.failed += 1,
            Outcome::LeftOut(_) => {}
        }
        self.line(&Line::Test {
            name: name.to_owned(),
            outcome,
        });
    }

    /// Writes the verdict; `true` when nothing failed.
    pub fn finish(mut self) -> bool {
        let (passed, failed) = (self.passed, self.failed);
        self.line(&Line::Verdict { passed, failed });
        failed == 0
    }

    fn line(&mut self, line: &Line) {
        // Nothing can be reported when the report itself cannot be written; the missing verdict tells.
        let _ = writeln!(self.out, "{line}");
        let _ = self.out.flush();
    }
}

#[cfg(test)]
mod tests {
    use anyhow::bail;

    use super::*;

    #[test]
    fn lines_survive_the_wire() {
        let mut wire = Vec::new();
        let mut runner = Runner::new(&mut wire, None);
        runner.case("good", || Ok("3 ms".to_owned()));
        runner.case("bad", || bail!("two\nlines"));
        runner.case("absent", || Err(LeaveOut("no daemon".to_owned()).into()));
        runner.case("worse", || panic!("boom"));
        assert!(!runner.finish());

        let text = String::from_utf8(wire).unwrap();
        let lines: Vec<Line> = text
            .lines()
            .map(|line| Line::parse(line).unwrap())
            .collect();
        let outcome = |index: usize| match &lines[index] {
            Line::Test { outcome, .. } => outcome.clone(),
            Line::Verdict { .. } => panic!("a verdict"),
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
    fn other_lines_are_not_ours() {
        for line in [
            "",
            "TEST",
            "TEST x maybe",
            "VERDICT all fine",
            "[    1.0] TESTING",
        ] {
            assert_eq!(Line::parse(line), None, "{line}");
        }
    }

    #[test]
    fn a_filter_leaves_cases_out() {
        let mut runner = Runner::new(Vec::new(), Some("io".to_owned()));
        runner.case("memory", || bail!("must not run"));
        assert!(runner.finish());
    }
}
