//! Rates of counters.

use std::time::Duration;

use plimsoll_host::Timestamp;

/// A counter and its last value.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rate {
    last: Option<(Timestamp, u64)>,
}

impl Rate {
    /// Increase per nanosecond since the last reading. Of a CPU time in nanoseconds that is cores.
    ///
    /// `None`: the first reading, the last one is older than `forget`, no time has passed (or the clock was set back), or
    /// the counter fell (it was reset).
    pub fn next(&mut self, at: Timestamp, counter: u64, forget: Duration) -> Option<f64> {
        let (before, from) = self.last.replace((at, counter))?;
        let elapsed = at.since(before);
        if elapsed.is_zero() || elapsed > forget {
            return None;
        }
        let counted = counter.checked_sub(from)?;
        Some(counted as f64 / elapsed.as_nanos() as f64)
    }

    /// Time of the last reading.
    pub fn seen(&self) -> Option<Timestamp> {
        self.last.map(|(at, _)| at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks at (second, counter) pairs in turn; what the last look said.
    #[track_caller]
    fn check(looks: &[(f64, u64)], expected: Option<f64>) {
        let mut rate = Rate::default();
        let mut found = None;
        for &(second, counter) in looks {
            let at = Timestamp((second * 1e9) as i64);
            found = rate.next(at, counter, Duration::from_secs(20));
        }
        assert_eq!(found, expected, "{looks:?}");
    }

    #[test]
    fn rates() {
        check(&[(1.0, 5_000_000_000)], None);
        check(&[(1.0, 0), (2.0, 500_000_000)], Some(0.5));
        check(&[(1.0, 0), (3.0, 3_000_000_000)], Some(1.5));
        check(&[(1.0, 7), (2.0, 7)], Some(0.0));
        // Too long ago, no time, the past, a counter that fell.
        check(&[(1.0, 0), (22.0, 1)], None);
        check(&[(1.0, 0), (21.0, 20_000_000_000)], Some(1.0));
        check(&[(1.0, 0), (1.0, 9)], None);
        check(&[(5.0, 0), (4.0, 9)], None);
        check(&[(1.0, 9), (2.0, 3)], None);
        // What could not be compared is what the next look is compared with.
        check(
            &[(1.0, 9_000_000_000), (2.0, 0), (3.0, 250_000_000)],
            Some(0.25),
        );
    }
}
