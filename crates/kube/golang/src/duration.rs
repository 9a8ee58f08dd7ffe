//! Durations as Go's `time` package reads and writes them: `1h30m`, `-1.5s`, `300ms`, `0`.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::time::quote;

const SECOND: u64 = 1_000_000_000;

/// Nanoseconds in 63 bits, and a sign.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct GoDuration(pub i64);

/// Why a text is no duration, in Go's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    #[error("time: invalid duration {}", quote(.0))]
    Invalid(String),
    #[error("time: missing unit in duration {}", quote(.0))]
    MissingUnit(String),
    #[error("time: unknown unit {} in duration {}", quote(.unit), quote(.text))]
    UnknownUnit { unit: String, text: String },
}

impl GoDuration {
    pub const fn from_secs(seconds: i64) -> Self {
        Self(seconds.saturating_mul(SECOND as i64))
    }

    pub fn nanos(self) -> i64 {
        self.0
    }

    pub fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// `None` if it is negative.
    pub fn positive(self) -> Option<Duration> {
        u64::try_from(self.0).ok().map(Duration::from_nanos)
    }

    /// Zero if it is negative.
    pub fn duration(self) -> Duration {
        self.positive().unwrap_or_default()
    }

    /// Go's `time.ParseDuration`. Digits beyond a nanosecond are cut off.
    pub fn parse(text: &str) -> Result<Self, DurationError> {
        let invalid = || DurationError::Invalid(text.to_owned());
        let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
        if unsigned == "0" {
            return Ok(Self(0));
        }
        if unsigned.is_empty() {
            return Err(invalid());
        }
        let mut total: u128 = 0;
        let mut rest = unsigned;
        while !rest.is_empty() {
            let (whole, after) = split_digits(rest);
            let (fraction, after) = match after.strip_prefix('.') {
                Some(after) => split_digits(after),
                None => ("", after),
            };
            if whole.is_empty() && fraction.is_empty() {
                return Err(invalid());
            }
            let end = after
                .find(|c: char| c.is_ascii_digit() || c == '.')
                .unwrap_or(after.len());
            let (name, after) = after.split_at(end);
            let unit = match unit(name) {
                Some(unit) => unit,
                None if name.is_empty() => return Err(DurationError::MissingUnit(text.to_owned())),
                None => {
                    return Err(DurationError::UnknownUnit {
                        unit: name.to_owned(),
                        text: text.to_owned(),
                    });
                }
            };
            let whole: u64 = match whole {
                "" => 0,
                digits => digits.parse().map_err(|_| invalid())?,
            };
            total += u128::from(whole) * unit + part_of(fraction, unit);
            if total > 1 << 63 {
                return Err(invalid());
            }
            rest = after;
        }
        let total = total as i128;
        let signed = if text.starts_with('-') { -total } else { total };
        i64::try_from(signed).map(Self).map_err(|_| invalid())
    }
}

fn split_digits(text: &str) -> (&str, &str) {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    text.split_at(digits)
}

/// Nanoseconds of a unit. There are two letters that look like `µ`.
fn unit(name: &str) -> Option<u128> {
    Some(match name {
        "ns" => 1,
        "us" | "µs" | "μs" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60_000_000_000,
        "h" => 3_600_000_000_000,
        _ => return None,
    })
}

/// The digits after a point, as nanoseconds. The digits beyond the eighteenth are less than one.
fn part_of(fraction: &str, unit: u128) -> u128 {
    let kept = &fraction[..fraction.len().min(18)];
    let number: u128 = kept.parse().unwrap_or(0);
    number * unit / 10u128.pow(kept.len() as u32)
}

impl From<Duration> for GoDuration {
    fn from(duration: Duration) -> Self {
        Self(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX))
    }
}

impl fmt::Display for GoDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write(f, self.0)
    }
}

/// Writes nanoseconds as Go's `Duration.String` does: `1m0.5s`, `980ms`. Does not allocate.
pub fn write(out: &mut impl fmt::Write, nanos: i64) -> fmt::Result {
    if nanos < 0 {
        out.write_str("-")?;
    }
    let nanos = nanos.unsigned_abs();
    let (unit, name) = match nanos {
        0 => return out.write_str("0s"),
        1..1_000 => (1, "ns"),
        1_000..1_000_000 => (1_000, "µs"),
        1_000_000..SECOND => (1_000_000, "ms"),
        _ => {
            let all = nanos / SECOND;
            let (hours, minutes) = (all / 3600, all / 60 % 60);
            if hours > 0 {
                write!(out, "{hours}h")?;
            }
            if all >= 60 {
                write!(out, "{minutes}m")?;
            }
            let rest = nanos - all / 60 * 60 * SECOND;
            return write_fraction(out, rest, SECOND, "s");
        }
    };
    write_fraction(out, nanos, unit, name)
}

/// `nanos / unit` with as many digits as it takes.
fn write_fraction(out: &mut impl fmt::Write, nanos: u64, unit: u64, name: &str) -> fmt::Result {
    let mut digits = itoa::Buffer::new();
    out.write_str(digits.format(nanos / unit))?;
    let mut rest = nanos % unit;
    if rest > 0 {
        out.write_str(".")?;
        let mut place = unit / 10;
        while rest > 0 {
            out.write_str(digits.format(rest / place))?;
            rest %= place;
            place /= 10;
        }
    }
    out.write_str(name)
}

impl Serialize for GoDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for GoDuration {
    /// No text and `null` are zero.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Option::<String>::deserialize(deserializer)?.unwrap_or_default();
        if text.is_empty() {
            return Ok(Self(0));
        }
        Self::parse(&text).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
            ("+0", "0s"),
            ("90m1.25s", "1h30m1.25s"),
            ("1.5h30m", "2h0m0s"),
            ("2us", "2µs"),
            ("2μs", "2µs"),
            ("-1.5h", "-1h30m0s"),
            (".5s", "500ms"),
            ("5.s", "5s"),
            ("1ms2us3ns", "1.002003ms"),
            ("0.9999999999s", "999.999999ms"),
            ("0.000000000000000000001h", "0s"),
            ("2562047h47m16.854775807s", "2562047h47m16.854775807s"),
            ("-2562047h47m16.854775808s", "-2562047h47m16.854775808s"),
        ] {
            let read = GoDuration::parse(text).unwrap();
            assert_eq!(read.to_string(), shown, "{text}");
        }
    }

    #[test]
    fn refusals_in_gos_words() {
        for (text, expected) in [
            ("bad", r#"time: invalid duration "bad""#),
            ("", r#"time: invalid duration """#),
            ("-", r#"time: invalid duration "-""#),
            ("--5s", r#"time: invalid duration "--5s""#),
            ("s", r#"time: invalid duration "s""#),
            (".s", r#"time: invalid duration ".s""#),
            ("5", r#"time: missing unit in duration "5""#),
            ("1s2", r#"time: missing unit in duration "1s2""#),
            ("1..2s", r#"time: missing unit in duration "1..2s""#),
            ("5y", r#"time: unknown unit "y" in duration "5y""#),
            ("1d", r#"time: unknown unit "d" in duration "1d""#),
            ("99999999999h", r#"time: invalid duration "99999999999h""#),
            (
                "9223372036854775808ns",
                r#"time: invalid duration "9223372036854775808ns""#,
            ),
            (
                "1é",
                r#"time: unknown unit "\xc3\xa9" in duration "1\xc3\xa9""#,
            ),
        ] {
            let refused = GoDuration::parse(text).unwrap_err();
            assert_eq!(refused.to_string(), expected, "{text}");
        }
    }

    #[test]
    fn spans() {
        for (nanos, expected) in [
            (0, "0s"),
            (1, "1ns"),
            (1_500, "1.5µs"),
            (980_000_000, "980ms"),
            (15_052_000_000, "15.052s"),
            (60_000_000_000, "1m0s"),
            (60_500_000_000, "1m0.5s"),
            (3_600_000_000_000, "1h0m0s"),
            (-1_000_000, "-1ms"),
            (i64::MAX, "2562047h47m16.854775807s"),
        ] {
            assert_eq!(GoDuration(nanos).to_string(), expected);
        }
    }

    proptest! {
        #[test]
        fn nothing_panics(text: String) {
            let _ = GoDuration::parse(&text);
        }

        #[test]
        fn what_is_written_reads_back(nanos: i64) {
            prop_assert_eq!(GoDuration::parse(&GoDuration(nanos).to_string()), Ok(GoDuration(nanos)));
        }
    }
}
