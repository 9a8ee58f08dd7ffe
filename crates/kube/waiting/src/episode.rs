//! When to say it: a state machine that is told the time.

use std::time::Duration;

/// From one line to the next, as long as the trouble goes on. The last one holds from then on.
const PAUSES: [Duration; 6] = [
    Duration::from_secs(10),
    Duration::from_secs(30),
    Duration::from_secs(60),
    Duration::from_secs(120),
    Duration::from_secs(300),
    Duration::from_secs(600),
];
/// Trouble that begins again after it was said to be over is said once it has lasted so long. Shorter trouble that comes
/// and goes is only counted.
const LASTS: Duration = Duration::from_secs(4);
/// How often that may happen before only the pauses count.
const EARLY: u32 = 3;
/// After so long without a failure, everything is as if there had never been one.
const CALM: Duration = Duration::from_secs(300);

/// Trouble of one kind, from its first failure until it has been calm for a while. Times are since any fixed moment.
#[derive(Debug, Clone, Default)]
pub struct Episode {
    /// Since when it has failed every time.
    failing_since: Option<Duration>,
    last_failure: Option<Duration>,
    said_at: Option<Duration>,
    /// The last thing that was said is that it fails.
    is_said: bool,
    /// Lines of this episode, and those among them that did not wait for a pause to end.
    lines: usize,
    early: u32,
    /// Failures that were not said yet, and all of them.
    untold: u64,
    failures: u64,
    began: Duration,
}

/// A failure that is to be said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Times {
    /// Failures since the last line, this one included.
    pub times: u64,
    /// Since the first failure of the episode.
    pub lasted: Duration,
}

/// An end that is to be said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Over {
    /// Failures of the episode.
    pub failures: u64,
    pub lasted: Duration,
}

impl Episode {
    /// It failed. `Some`: say so.
    pub fn failed(&mut self, now: Duration) -> Option<Times> {
        self.forget_if_calm(now);
        if self.last_failure.is_none() {
            self.began = now;
        }
        self.last_failure = Some(now);
        self.failing_since.get_or_insert(now);
        self.untold = self.untold.saturating_add(1);
        self.failures = self.failures.saturating_add(1);
        self.due(now)
    }

    /// It still fails, without a new failure. `Some`: say so.
    pub fn look(&mut self, now: Duration) -> Option<Times> {
        self.failing_since?;
        self.due(now)
    }

    /// It works. `Some`: say that it does again.
    pub fn well(&mut self, now: Duration) -> Option<Over> {
        self.failing_since.take()?;
        if !std::mem::take(&mut self.is_said) {
            return None;
        }
        Some(Over {
            failures: self.failures,
            lasted: now.saturating_sub(self.began),
        })
    }

    pub fn is_failing(&self) -> bool {
        self.failing_since.is_some()
    }

    /// How long it has failed every time.
    pub fn failing_for(&self, now: Duration) -> Option<Duration> {
        self.failing_since.map(|since| now.saturating_sub(since))
    }

    fn due(&mut self, now: Duration) -> Option<Times> {
        let since_line = self.said_at.map(|at| now.saturating_sub(at));
        let pause = PAUSES[self.lines.saturating_sub(1).min(PAUSES.len() - 1)];
        let lasts = self.failing_for(now).is_some_and(|time| time >= LASTS);
        match since_line {
            None => {}
            Some(time) if time >= pause => {}
            Some(_) if !self.is_said && lasts && self.early < EARLY => self.early += 1,
            Some(_) => return None,
        }
        self.said_at = Some(now);
        self.is_said = true;
        self.lines += 1;
        Some(Times {
            times: std::mem::take(&mut self.untold),
            lasted: now.saturating_sub(self.began),
        })
    }

    /// Whether it has not failed for so long that nothing of it is worth remembering.
    pub fn is_calm(&self, now: Duration) -> bool {
        self.last_failure
            .is_none_or(|last| now.saturating_sub(last) >= CALM)
    }

    fn forget_if_calm(&mut self, now: Duration) {
        if self.is_calm(now) {
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Seconds at which a line is written, with the failures it counts, for failures at every `step`.
    fn lines(episode: &mut Episode, seconds: std::ops::Range<u64>, step: usize) -> Vec<(u64, u64)> {
        let failures = seconds.step_by(step);
        let said = failures.filter_map(|second| {
            let said = episode.failed(at(second * 1000))?;
            Some((second, said.times))
        });
        said.collect()
    }

    #[test]
    fn trouble_that_goes_on_is_said_at_growing_intervals_with_its_count() {
        let mut episode = Episode::default();
        let said = lines(&mut episode, 0..2000, 1);
        let expected = [
            (0, 1),
            (10, 10),
            (40, 30),
            (100, 60),
            (220, 120),
            (520, 300),
            (1120, 600),
            (1720, 600),
        ];
        assert_eq!(said, expected);
        let over = episode.well(at(2_000_000)).unwrap();
        assert_eq!((over.failures, over.lasted.as_secs()), (2000, 2000));
        assert_eq!(episode.well(at(2_001_000)), None);
    }

    #[test]
    fn what_comes_and_goes_is_counted() {
        let mut episode = Episode::default();
        let (mut bad, mut good) = (0, 0);
        // Twenty pairs a minute, ten minutes long.
        for second in (0..600).step_by(3) {
            bad += u32::from(episode.failed(at(second * 1000)).is_some());
            good += u32::from(episode.well(at(second * 1000 + 1500)).is_some());
        }
        assert_eq!((bad, good), (6, 6));
    }

    #[test]
    fn trouble_that_comes_back_and_stays_is_said_soon() {
        let mut episode = Episode::default();
        assert!(episode.failed(at(0)).is_some());
        assert!(episode.well(at(1000)).is_some());
        assert!(episode.failed(at(2000)).is_none());
        assert!(episode.failed(at(4000)).is_none());
        let said = episode.failed(at(6000)).unwrap();
        assert_eq!((said.times, said.lasted), (3, at(6000)));
        assert!(episode.well(at(7000)).is_some());
    }

    #[test]
    fn after_a_calm_it_is_new() {
        let mut episode = Episode::default();
        lines(&mut episode, 0..200, 1);
        assert!(episode.well(at(200_000)).is_some());
        let said = episode.failed(at(500_000)).unwrap();
        assert_eq!((said.times, said.lasted), (1, Duration::ZERO));
    }

    #[test]
    fn silence_is_looked_at() {
        let mut episode = Episode::default();
        assert!(episode.look(at(0)).is_none());
        assert!(episode.failed(at(0)).is_some());
        assert!(episode.look(at(9000)).is_none());
        assert_eq!(episode.look(at(10_000)).unwrap().times, 0);
    }
}
