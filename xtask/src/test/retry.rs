//! Failed tests, run once more. One that passes then is flaky.
//!
//! Where something failed that other tests stand on, nobody knows which tests are missing: the whole rung runs once more.

use super::progress::{Finding, Flaky, Progress, Seen};

/// More failures of a rung than this are no chance, and are not tried again.
const MOST: usize = 10;

/// What is run once more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Again<'a> {
    Rung,
    Test(&'a str),
}

/// Tries what failed in a rung once more; `again` runs it and gives what was seen.
pub fn retry(progress: &Progress, again: impl Fn(Again<'_>) -> Seen) {
    let before = progress.snapshot();
    if before.lost {
        let again = again(Again::Rung);
        progress.change(|seen| settle_all(seen, again));
        return;
    }
    let failed = before.failed;
    if failed.len() > MOST {
        let count = failed.len();
        println!(
            "=== {}: {count} failures are not tried again",
            progress.rung
        );
        return;
    }
    for failure in failed {
        let again = again(Again::Test(&failure.name));
        progress.change(|seen| settle(seen, &failure, &again));
    }
}

fn settle(seen: &mut Seen, failure: &Finding, again: &Seen) {
    let passed = again.passed.iter().find(|(name, _)| *name == failure.name);
    match passed {
        Some((_, note)) if again.failed.is_empty() => {
            seen.failed.retain(|other| other.name != failure.name);
            seen.passed.push((failure.name.clone(), note.clone()));
            seen.flaky.push(Flaky {
                name: failure.name.clone(),
                failed: failure.reason.clone(),
                passed: note.clone(),
            });
        }
        _ => {
            let reasons: Vec<&str> = again.failed.iter().map(|it| it.reason.as_str()).collect();
            let reasons = match reasons.is_empty() {
                true => "it did not run".to_owned(),
                false => reasons.join("\n"),
            };
            for finding in seen.failed.iter_mut() {
                if finding.name == failure.name {
                    finding.reason =
                        format!("{}\nand once more, alone:\n{reasons}", failure.reason);
                }
            }
        }
    }
}

/// Joins two runs of a whole rung: what passed in one of them and failed in the other is flaky.
fn settle_all(seen: &mut Seen, again: Seen) {
    let before = std::mem::take(&mut seen.failed);
    let is_whole = !again.lost && again.absent.is_none();
    for failure in before {
        let later = again.failed.iter().find(|it| it.name == failure.name);
        let passed = again.passed.iter().find(|(name, _)| *name == failure.name);
        match (later, passed) {
            (Some(later), _) => seen.failed.push(Finding {
                name: failure.name,
                reason: format!("{}\nand once more:\n{}", failure.reason, later.reason),
            }),
            (None, Some((_, note))) => seen.flaky.push(Flaky {
                name: failure.name,
                failed: failure.reason,
                passed: note.clone(),
            }),
            // The rung itself had broken off, and has not again.
            (None, None) if is_whole => seen.flaky.push(Flaky {
                name: failure.name,
                failed: failure.reason,
                passed: "the whole rung, once more".to_owned(),
            }),
            (None, None) => seen.failed.push(failure),
        }
    }
    for failure in again.failed {
        let had_passed = seen.passed.iter().position(|it| it.0 == failure.name);
        match had_passed {
            Some(index) => seen.flaky.push(Flaky {
                name: failure.name,
                failed: failure.reason,
                passed: seen.passed.remove(index).1,
            }),
            None if seen.failed.iter().any(|it| it.name == failure.name) => {}
            None => seen.failed.push(failure),
        }
    }
    for test in again.passed {
        if !seen.passed.iter().any(|it| it.0 == test.0) {
            seen.passed.push(test);
        }
    }
    for test in again.left_out {
        if !seen.left_out.iter().any(|it| it.name == test.name) {
            seen.left_out.push(test);
        }
    }
    // A test that was flaky has passed once.
    for flaky in &seen.flaky {
        if !seen.passed.iter().any(|it| it.0 == flaky.name) {
            let test = (flaky.name.clone(), flaky.passed.clone());
            seen.passed.push(test);
        }
    }
    seen.cpu += again.cpu;
}

#[cfg(test)]
mod tests {
    use plimsoll_test_support::report::{Line, Outcome};

    use super::*;
    use crate::test::rung::Rung;

    fn rung_of(outcomes: &[(&str, bool)]) -> Progress {
        let progress = Progress::new(Rung::Unit, None);
        for (name, passed) in outcomes {
            progress.outcome(name, &outcome(*passed));
        }
        progress
    }

    fn outcome(passed: bool) -> Outcome {
        match passed {
            true => Outcome::Passed("fine".into()),
            false => Outcome::Failed("too late".into()),
        }
    }

    fn lost(progress: &Progress, name: &str) {
        let name = name.to_owned();
        progress.line(&Line::Lost { name });
    }

    fn names(of: &[Flaky]) -> Vec<&str> {
        of.iter().map(|flaky| flaky.name.as_str()).collect()
    }

    #[test]
    fn one_that_passes_is_flaky_and_one_that_fails_has_failed() {
        let rung = rung_of(&[("sound", true), ("chance", false), ("broken", false)]);
        retry(&rung, |again| match again {
            Again::Test(name) => rung_of(&[(name, name == "chance")]).snapshot(),
            Again::Rung => panic!("nothing was lost"),
        });
        let seen = rung.snapshot();
        assert_eq!(seen.passed.len(), 2);
        assert_eq!(seen.flaky.len(), 1);
        assert_eq!(seen.flaky[0].name, "chance");
        assert_eq!(seen.flaky[0].failed, "too late");
        assert_eq!(seen.failed.len(), 1);
        let reason = &seen.failed[0].reason;
        assert_eq!(reason, "too late\nand once more, alone:\ntoo late");
    }

    #[test]
    fn one_that_does_not_run_has_failed() {
        let rung = rung_of(&[("gone", false)]);
        retry(&rung, |_| rung_of(&[]).snapshot());
        assert!(rung.snapshot().flaky.is_empty());
        assert!(rung.snapshot().failed[0].reason.ends_with("it did not run"));
    }

    #[test]
    fn many_failures_are_no_chance() {
        let names: Vec<String> = (0..=MOST).map(|number| number.to_string()).collect();
        let outcomes: Vec<(&str, bool)> = names.iter().map(|name| (name.as_str(), false)).collect();
        let rung = rung_of(&outcomes);
        retry(&rung, |_| panic!("must not run"));
        assert_eq!(rung.snapshot().failed.len(), MOST + 1);
    }

    #[test]
    fn what_stood_on_a_failed_setup_runs_after_all() {
        let rung = rung_of(&[("before", true), ("starts", false)]);
        lost(&rung, "starts");
        let second = [
            ("before", true),
            ("starts", true),
            ("behind", true),
            ("broken", false),
        ];
        retry(&rung, |again| {
            assert_eq!(again, Again::Rung);
            rung_of(&second).snapshot()
        });
        let seen = rung.snapshot();
        assert_eq!(names(&seen.flaky), ["starts"]);
        let passed: Vec<&str> = seen.passed.iter().map(|it| it.0.as_str()).collect();
        assert_eq!(passed, ["before", "starts", "behind"]);
        assert_eq!(seen.failed.len(), 1);
        assert_eq!(seen.failed[0].name, "broken");
    }

    #[test]
    fn a_rung_that_broke_off_is_flaky_if_it_does_not_again() {
        let broken_off = || {
            let rung = rung_of(&[("first", true), ("rung", false)]);
            rung.change(|seen| seen.lost = true);
            rung
        };
        let rung = broken_off();
        retry(&rung, |_| {
            rung_of(&[("first", false), ("second", true)]).snapshot()
        });
        let seen = rung.snapshot();
        assert_eq!(names(&seen.flaky), ["rung", "first"]);
        assert!(seen.failed.is_empty());
        let rung = broken_off();
        retry(&rung, |_| broken_off().snapshot());
        assert_eq!(rung.snapshot().failed.len(), 1);
    }
}
