//! When to say what goes wrong, by a clock that people set.

use std::time::Duration;

use plimsoll_waiting::{Episode, Over, Times};

/// An [`Episode`] that is told milliseconds of the wall clock, which may be set back or forth.
#[derive(Debug, Default)]
pub struct Trouble {
    episode: Episode,
    last: Option<i64>,
    /// What has passed, without the steps back.
    passed: Duration,
}

impl Trouble {
    pub fn failed(&mut self, now: i64) -> Option<Times> {
        let at = self.at(now);
        self.episode.failed(at)
    }

    pub fn well(&mut self, now: i64) -> Option<Over> {
        let at = self.at(now);
        self.episode.well(at)
    }

    fn at(&mut self, now: i64) -> Duration {
        let last = self.last.replace(now).unwrap_or(now);
        let step = u64::try_from(now.saturating_sub(last)).unwrap_or(0);
        self.passed = self.passed.saturating_add(Duration::from_millis(step));
        self.passed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_set_back_silences_nothing() {
        let mut trouble = Trouble::default();
        let noon = 1_700_000_000_000;
        let mut lines = |from: i64| {
            (0..20)
                .filter(|second| trouble.failed(from + second * 1000).is_some())
                .count()
        };
        assert_eq!(lines(noon), 2);
        // Two years earlier, and before there were clocks.
        assert_eq!(lines(noon - 63_072_000_000), 0);
        assert_eq!(lines(i64::MIN), 1);
        assert_eq!(lines(i64::MAX - 20_000), 2);
        assert!(trouble.well(noon).is_some());
        assert!(trouble.well(noon).is_none());
    }
}
