//! How long a container may go on using more than its limit: a bucket of tokens.
//!
//! A token is one percent of the limit for one second. What a container uses above its limit is taken from the bucket; while
//! it uses little, the bucket fills.

use std::time::Duration;

const SPENDS_FROM: i64 = 100;
const SAVES_BELOW: i64 = 60;

#[derive(Debug, Clone, PartialEq)]
pub struct Limiter {
    capacity: i64,
    tokens: i64,
    last: Duration,
    expires_after: Duration,
}

impl Limiter {
    /// Containers begin with different amounts, so that not all of them are held back at once; which, is told by `id`.
    pub fn new(id: &str, period_seconds: i64, percent: i64, now: Duration) -> Self {
        let capacity = capacity(period_seconds, percent);
        let share = f64::from(fraction(id)) / f64::from(u32::MAX) / 2.0;
        let period = u64::try_from(period_seconds).unwrap_or_default();
        Self {
            capacity,
            tokens: (capacity as f64 * share) as i64,
            last: now,
            expires_after: Duration::from_secs(period.saturating_mul(2)),
        }
    }

    pub fn is_for(&self, period_seconds: i64, percent: i64) -> bool {
        self.capacity == capacity(period_seconds, percent)
    }

    /// Whether it may use more than its limit, now that it uses so many percent of it.
    pub fn allows(&mut self, now: Duration, percent: i64) -> bool {
        let seconds = now.saturating_sub(self.last).as_secs();
        // What is less than a second counts the next time.
        self.last = self.last.saturating_add(Duration::from_secs(seconds));
        let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
        if percent >= SPENDS_FROM {
            let spent = percent.saturating_sub(100).saturating_mul(seconds);
            self.tokens = self.tokens.saturating_sub(spent);
        } else if percent < SAVES_BELOW {
            let saved = 100_i64.saturating_sub(percent).saturating_mul(seconds);
            self.tokens = self.tokens.saturating_add(saved);
        }
        let most = self.capacity.max(0);
        self.tokens = self.tokens.clamp(most.saturating_neg(), most);
        self.tokens > 0
    }

    pub fn has_expired(&self, now: Duration) -> bool {
        now.saturating_sub(self.last) > self.expires_after.saturating_add(Duration::from_secs(1))
    }
}

fn capacity(period_seconds: i64, percent: i64) -> i64 {
    period_seconds.saturating_mul(percent.saturating_sub(100))
}

/// FNV-1a: the same for the same container, and different for others.
fn fraction(id: &str) -> u32 {
    id.bytes().fold(0x811C_9DC5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn tokens_are_spent_and_saved() {
        let mut limiter = Limiter::new("a", 10, 300, at(0));
        limiter.tokens = 150;
        assert_eq!(limiter.capacity, 2000);
        assert!(limiter.allows(at(1), 200));
        assert_eq!(limiter.tokens, 50);
        assert!(!limiter.allows(at(2), 150));
        assert_eq!(limiter.tokens, 0);
        // Neither spent nor saved between 60 and 100 percent.
        assert!(!limiter.allows(at(5), 60));
        assert!(!limiter.allows(at(6), 100));
        assert!(limiter.allows(at(8), 59));
        assert_eq!(limiter.tokens, 82);
        assert!(limiter.allows(at(100_000), 0));
        assert_eq!(limiter.tokens, 2000);
        assert!(!limiter.allows(at(200_000), 300));
        assert_eq!(limiter.tokens, -2000);
    }

    #[test]
    fn parts_of_seconds_are_not_lost() {
        let mut limiter = Limiter::new("a", 10, 300, at(0));
        limiter.tokens = 0;
        for step in 1..=4 {
            limiter.allows(Duration::from_millis(step * 999), 0);
        }
        assert_eq!(limiter.tokens, 300);
    }

    /// As koordlet 1.8.0 counted them.
    #[test]
    fn tokens_are_those_of_the_original() {
        let mut rows = 0;
        for line in include_str!("../../../testdata/burst.jsonl").lines() {
            let row: serde_json::Value = serde_json::from_str(line).unwrap();
            let number = |field: &str| row[field].as_i64().unwrap();
            let mut limiter = Limiter::new("a", number("period"), number("top"), at(0));
            limiter.tokens = number("start");
            let steps: Vec<[i64; 3]> = serde_json::from_value(row["steps"].clone()).unwrap();
            let mut now = 0;
            for [seconds, used, tokens] in steps {
                now += seconds as u64;
                assert_eq!(limiter.allows(at(now), used), tokens > 0, "{row}");
                assert_eq!(limiter.tokens, tokens, "{row}");
            }
            rows += 1;
        }
        assert!(rows >= 100);
    }

    proptest! {
        #[test]
        fn it_begins_less_than_half_full_and_stays_within_bounds(
            id: String, period: i64, percent: i64, uses in proptest::collection::vec((any::<u32>(), any::<i64>()), 0..8),
        ) {
            let mut limiter = Limiter::new(&id, period, percent, at(0));
            let most = limiter.capacity.max(0);
            prop_assert!(limiter.capacity < 0 || limiter.tokens <= most / 2 + 1024);
            for (now, used) in uses {
                limiter.allows(at(now.into()), used);
                prop_assert!((-most..=most).contains(&limiter.tokens));
            }
        }
    }
}
