//! Failed tests, run once more. One that passes then is flaky.

use super::progress::{Finding, Flaky, Progress, Seen};

/// More failures of a rung than this are no chance, and are not tried again.
const MOST: usize = 10;

/// Tries every failed test of a rung once more; `again` runs one test and gives what was seen.
pub fn retry(progress: &Progress, again: impl Fn(&str) -> Seen) {
    let failed = progress.snapshot().failed;
    if failed.len() > MOST {
        let count = failed.len();
        println!(
            "=== {}: {count} failures are not tried again",
            progress.rung
        );
        return;
    }
    for failure in failed {
        let again = again(&failure.name);
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

#[cfg(test)]
mod tests {
    use plimsoll_test_support::report::Outcome;

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

    #[test]
    fn one_that_passes_is_flaky_and_one_that_fails_has_failed() {
        let rung = rung_of(&[("sound", true), ("chance", false), ("broken", false)]);
        retry(&rung, |name| {
            rung_of(&[(name, name == "chance")]).snapshot()
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
        let rung = rung_of(&[("rung", false)]);
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
}
