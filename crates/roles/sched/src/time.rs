//! Points in time, as they are told to the core.

use std::time::Duration;

/// Microseconds since the Unix epoch. The core owns no clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Time(pub i64);

const SECOND: i64 = 1_000_000;

impl Time {
    pub const fn from_secs(seconds: i64) -> Self {
        Self(seconds.saturating_mul(SECOND))
    }

    /// The whole second that this point lies in: back-offs expire together, not one by one.
    pub fn truncate_to_second(self) -> Self {
        Self(self.0.div_euclid(SECOND).saturating_mul(SECOND))
    }

    pub fn after(self, duration: Duration) -> Self {
        let micros = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        Self(self.0.saturating_add(micros))
    }

    /// How long after `earlier`; zero if it is not after it.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }

    /// RFC 3339, as the API server writes it.
    pub fn parse(text: &str) -> Option<Self> {
        let timestamp: jiff::Timestamp = text.parse().ok()?;
        Some(Self(timestamp.as_microsecond()))
    }

    /// The same, to the second.
    pub fn written(self) -> String {
        let timestamp = jiff::Timestamp::from_microsecond(self.0).unwrap_or_default();
        timestamp.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_parsed_and_truncated() {
        let time = Time::parse("2026-01-02T03:04:05.678901Z").unwrap();
        assert_eq!(time.truncate_to_second(), Time(time.0 - 678_901));
        assert_eq!(time.written(), "2026-01-02T03:04:05Z");
        assert_eq!(Time::parse("yesterday"), None);
        assert_eq!(Time(-1).truncate_to_second(), Time(-SECOND));
        assert_eq!(Time::from_secs(5).since(Time::from_secs(7)), Duration::ZERO);
    }
}
