//! What to write to a node, if anything: lent resources come, move and go.

use std::collections::BTreeMap;

use jiff::Timestamp;
use plimsoll_api::names;

use crate::amount::Amount;
use crate::colocation::Strategy;

/// What a node says about itself now, and when it was written last.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Present {
    /// The lent resources among its allocatable ones, as it spells them.
    pub lent: BTreeMap<String, String>,
    /// `None`: by nobody that is remembered.
    pub written: Option<Timestamp>,
}

/// What the lent resources should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    Amounts {
        batch: Amount,
        mid: Amount,
    },
    /// Nothing is lent here, or nothing is known that could be relied upon.
    Nothing,
}

/// Lent resources to be written; `None` removes one.
pub type Writes = BTreeMap<&'static str, Option<i64>>;

/// Whether a report is too old to lend anything by it.
pub fn is_stale(updated: Option<Timestamp>, strategy: &Strategy, now: Timestamp) -> bool {
    let minutes = strategy.degrade_time_minutes.unwrap_or(15);
    updated.is_none_or(|updated| now.duration_since(updated).as_secs() > minutes.saturating_mul(60))
}

/// Small changes are not worth a write, unless the last one is long ago.
pub fn writes(
    present: &Present,
    wanted: Wanted,
    strategy: &Strategy,
    now: Timestamp,
) -> Option<Writes> {
    let wanted = resources(wanted);
    let worth = wanted
        .iter()
        .any(|(name, value)| differs(present, name, *value, strategy));
    let seconds = strategy.update_time_threshold_seconds.unwrap_or(300);
    let long_ago = present
        .written
        .is_none_or(|written| now.duration_since(written).as_secs() > seconds);
    let other = wanted
        .iter()
        .any(|(name, value)| present_value(present, name) != *value);
    (worth || (long_ago && other)).then_some(wanted)
}

fn resources(wanted: Wanted) -> Writes {
    let [batch, mid] = match wanted {
        Wanted::Amounts { batch, mid } => [Some(batch), Some(mid)],
        Wanted::Nothing => [None, None],
    };
    BTreeMap::from([
        (names::BATCH_CPU, batch.map(|amount| amount.milli_cpu)),
        (names::BATCH_MEMORY, batch.map(|amount| amount.memory)),
        (names::MID_CPU, mid.map(|amount| amount.milli_cpu)),
        (names::MID_MEMORY, mid.map(|amount| amount.memory)),
    ])
}

fn present_value(present: &Present, name: &str) -> Option<i64> {
    let text = present.lent.get(name)?;
    text.parse::<plimsoll_api::quantity::Quantity>()
        .ok()
        .map(|quantity| quantity.value())
}

fn differs(present: &Present, name: &str, wanted: Option<i64>, strategy: &Strategy) -> bool {
    match (present_value(present, name), wanted) {
        (None, None) => false,
        (Some(present), Some(wanted)) => {
            let share = strategy.resource_diff_threshold.unwrap_or(0.1);
            present.abs_diff(wanted) as f64 > present as f64 * share
        }
        // It comes or goes.
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::colocation::Colocation;

    fn strategy() -> Strategy {
        let nothing = BTreeMap::new();
        Colocation::default().for_node(&nothing, &nothing).0
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_767_225_600 + second).unwrap()
    }

    fn present(batch_cpu: &str, written: i64) -> Present {
        let lent = [
            (names::BATCH_CPU, batch_cpu),
            (names::BATCH_MEMORY, "1000"),
            (names::MID_CPU, "0"),
            (names::MID_MEMORY, "0"),
        ];
        Present {
            lent: lent
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            written: Some(at(written)),
        }
    }

    fn wanted(batch_cpu: i64) -> Wanted {
        Wanted::Amounts {
            batch: Amount {
                milli_cpu: batch_cpu,
                memory: 1000,
            },
            mid: Amount::default(),
        }
    }

    #[track_caller]
    fn check(present: &Present, wanted: Wanted, now: i64, expected: bool) {
        assert_eq!(
            writes(present, wanted, &strategy(), at(now)).is_some(),
            expected
        );
    }

    #[test]
    fn small_changes_wait() {
        check(&present("1k", 0), wanted(1000), 10, false);
        check(&present("1k", 0), wanted(1100), 10, false);
        check(&present("1k", 0), wanted(1101), 10, true);
        check(&present("1k", 0), wanted(1050), 301, true);
        check(&present("1k", 0), wanted(1000), 301, false);
        check(&present("0", 0), wanted(1), 10, true);
    }

    #[test]
    fn lent_resources_come_and_go() {
        check(&Present::default(), wanted(1000), 0, true);
        check(&present("1k", 0), Wanted::Nothing, 1, true);
        check(&Present::default(), Wanted::Nothing, 1000, false);
        let gone = writes(&present("1k", 0), Wanted::Nothing, &strategy(), at(1)).unwrap();
        assert!(gone.len() == 4 && gone.values().all(Option::is_none));
    }

    #[test]
    fn old_reports_are_not_relied_upon() {
        assert!(is_stale(None, &strategy(), at(0)));
        assert!(!is_stale(Some(at(0)), &strategy(), at(900)));
        assert!(is_stale(Some(at(0)), &strategy(), at(901)));
    }
}
