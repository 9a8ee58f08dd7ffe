//! Durations as Go's texts have them.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Nanoseconds; may be negative, which validation refuses in its own words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct GoDuration(pub i64);

const NANOS: [(&str, f64); 7] = [
    ("ns", 1.0),
    ("us", 1e3),
    ("µs", 1e3),
    ("ms", 1e6),
    ("s", 1e9),
    ("m", 60e9),
    ("h", 3600e9),
];

impl GoDuration {
    pub const fn from_secs(seconds: i64) -> Self {
        Self(seconds.saturating_mul(1_000_000_000))
    }

    pub fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// Zero if it is negative.
    pub fn duration(self) -> Duration {
        Duration::from_nanos(u64::try_from(self.0).unwrap_or(0))
    }

    pub fn parse(text: &str) -> Option<Self> {
        let (unsigned, sign) = match text.strip_prefix('-') {
            Some(rest) => (rest, -1.0),
            None => (text.strip_prefix('+').unwrap_or(text), 1.0),
        };
        if unsigned == "0" {
            return Some(Self(0));
        }
        let mut rest = unsigned;
        let mut nanos = 0.0;
        while !rest.is_empty() {
            let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
            let number: f64 = rest[..digits].parse().ok()?;
            rest = &rest[digits..];
            let end = rest
                .find(|c: char| c.is_ascii_digit() || c == '.')
                .unwrap_or(rest.len());
            let (_, scale) = NANOS.iter().find(|(unit, _)| *unit == &rest[..end])?;
            nanos += number * scale;
            rest = &rest[end..];
        }
        (!unsigned.is_empty() && nanos < i64::MAX as f64).then_some(Self((sign * nanos) as i64))
    }
}

impl From<Duration> for GoDuration {
    fn from(duration: Duration) -> Self {
        Self(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX))
    }
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.0.unsigned_abs();
        if self.0 < 0 {
            f.write_str("-")?;
        }
        let fraction = |value: u64, scale: u64| -> String {
            let text = format!(
                "{}.{:0width$}",
                value / scale,
                value % scale,
                width = scale.ilog10() as usize
            );
            text.trim_end_matches('0').trim_end_matches('.').to_owned()
        };
        match nanos {
            0 => f.write_str("0s"),
            1..1_000 => write!(f, "{nanos}ns"),
            1_000..1_000_000 => write!(f, "{}µs", fraction(nanos, 1_000)),
            1_000_000..1_000_000_000 => write!(f, "{}ms", fraction(nanos, 1_000_000)),
            _ => {
                let seconds = nanos / 1_000_000_000;
                let rest = nanos - seconds / 60 * 60_000_000_000;
                match seconds {
                    0..60 => write!(f, "{}s", fraction(rest, 1_000_000_000)),
                    60..3600 => write!(f, "{}m{}s", seconds / 60, fraction(rest, 1_000_000_000)),
                    _ => write!(
                        f,
                        "{}h{}m{}s",
                        seconds / 3600,
                        seconds / 60 % 60,
                        fraction(rest, 1_000_000_000)
                    ),
                }
            }
        }
    }
}

impl Serialize for GoDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for GoDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?.unwrap_or_default();
        if text.is_empty() {
            return Ok(Self(0));
        }
        Self::parse(&text)
            .ok_or_else(|| serde::de::Error::custom(format!("time: invalid duration {text:?}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        for (text, shown) in [
            ("15s", "15s"),
            ("-1s", "-1s"),
            ("600s", "10m0s"),
            ("1h", "1h0m0s"),
            ("500ms", "500ms"),
            ("1.5s", "1.5s"),
            ("0s", "0s"),
            ("0", "0s"),
            ("90m1.25s", "1h30m1.25s"),
            ("2us", "2µs"),
        ] {
            assert_eq!(
                GoDuration::parse(text).unwrap().to_string(),
                shown,
                "{text}"
            );
        }
        for bad in ["", "foo", "5", "s", "1s2", "1x"] {
            assert_eq!(GoDuration::parse(bad), None, "{bad}");
        }
    }
}
