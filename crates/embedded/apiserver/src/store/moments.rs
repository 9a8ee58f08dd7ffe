//! When which revision was written, in steps: what is needed to know how old an object is, without a time in each.

use std::collections::VecDeque;

use jiff::{SignedDuration, Timestamp};

/// Everything up to this revision was written at this time or before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Moment {
    pub revision: u64,
    pub at: Timestamp,
}

/// More than these are not remembered. What is older than the oldest counts as young as that.
const KEPT: usize = 128;

#[derive(Debug)]
pub(super) struct Moments {
    /// Ages are known to this.
    step: SignedDuration,
    /// A step apart, oldest first.
    past: VecDeque<Moment>,
    /// The last write.
    last: Option<Moment>,
}

/// What a write changes about the moments that are kept.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Passing {
    pub kept: Option<Moment>,
    pub dropped: Option<Moment>,
}

impl Moments {
    pub(super) fn new(step: SignedDuration) -> Self {
        Self {
            step: step.max(SignedDuration::from_millis(1)),
            past: VecDeque::new(),
            last: None,
        }
    }

    pub(super) fn restore(&mut self, past: Vec<Moment>, last: Option<Moment>) {
        self.past = past.into();
        self.last = last;
    }

    /// A clock that is set back stands still here.
    pub(super) fn not_before(&self, now: Timestamp) -> Timestamp {
        self.last.map_or(now, |last| last.at.max(now))
    }

    /// What has to be kept, and what no longer, when something is written now.
    pub(super) fn passing(&self, now: Timestamp) -> Passing {
        let Some(last) = self.last else {
            return Passing::default();
        };
        let is_due = match self.past.back() {
            None => true,
            Some(newest) => {
                last.revision > newest.revision && now.duration_since(newest.at) >= self.step
            }
        };
        if !is_due {
            return Passing::default();
        }
        let is_full = self.past.len() >= KEPT;
        Passing {
            kept: Some(last),
            dropped: self.past.front().copied().filter(|_| is_full),
        }
    }

    pub(super) fn note(&mut self, revision: u64, now: Timestamp) {
        let at = self.not_before(now);
        let Passing { kept, dropped } = self.passing(at);
        if dropped.is_some() {
            self.past.pop_front();
        }
        self.past.extend(kept);
        self.last = Some(Moment { revision, at });
    }

    /// What was written at `time` or before has this revision or a smaller one. 0: nothing.
    pub(super) fn reached(&self, time: Timestamp) -> u64 {
        let mut all = self.last.iter().chain(self.past.iter().rev());
        all.find(|moment| moment.at <= time)
            .map_or(0, |moment| moment.revision)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn ages_are_known_to_a_step() {
        let mut moments = Moments::new(SignedDuration::from_secs(10));
        for second in 0..10_000_i64 {
            moments.note(second.unsigned_abs() + 2, at(second));
        }
        assert!(moments.past.len() <= KEPT);
        for second in 9_000..10_000_i64 {
            let reached = moments.reached(at(second));
            let exact = second.unsigned_abs() + 2;
            assert!(
                reached <= exact && reached + 10 >= exact,
                "{second}: {reached}"
            );
        }
        assert_eq!(moments.reached(at(0)), 0);
    }

    #[test]
    fn a_quiet_time_makes_nothing_younger() {
        let mut moments = Moments::new(SignedDuration::from_secs(10));
        moments.note(2, at(0));
        moments.note(3, at(1));
        moments.note(4, at(2));
        moments.note(5, at(5_000));
        assert_eq!(moments.reached(at(1)), 2);
        assert_eq!(moments.reached(at(2)), 4);
        assert_eq!(moments.reached(at(4_999)), 4);
        assert_eq!(moments.reached(at(5_000)), 5);
    }

    #[test]
    fn a_clock_that_is_set_back_stands_still() {
        let mut moments = Moments::new(SignedDuration::from_secs(1));
        moments.note(2, at(100));
        moments.note(3, at(50));
        assert_eq!(moments.reached(at(99)), 0);
        assert_eq!(moments.reached(at(100)), 3);
    }

    #[test]
    fn what_was_kept_says_the_same_again() {
        let mut first = Moments::new(SignedDuration::from_secs(10));
        let mut kept: Vec<Moment> = Vec::new();
        for (revision, second) in [(2, 0), (5, 3), (9, 12), (11, 30), (12, 31), (40, 100)] {
            let Passing { kept: new, dropped } = first.passing(first.not_before(at(second)));
            kept.retain(|moment| Some(*moment) != dropped);
            kept.extend(new);
            first.note(revision, at(second));
        }
        let mut second = Moments::new(SignedDuration::from_secs(10));
        second.restore(kept, first.last);
        for time in 0..120 {
            assert_eq!(first.reached(at(time)), second.reached(at(time)), "{time}");
        }
    }
}
