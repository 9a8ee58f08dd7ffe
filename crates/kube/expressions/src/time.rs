//! Durations and moments.

use jiff::civil::Date;
use jiff::tz::{Offset, TimeZone};
use jiff::{Timestamp, Zoned};

const SECOND: i128 = 1_000_000_000;

/// Nanoseconds of `1h30m`, as Go reads durations.
pub fn duration(text: &str) -> Option<i64> {
    let (negative, mut rest) = match text.strip_prefix(['-', '+']) {
        Some(rest) => (text.starts_with('-'), rest),
        None => (false, text),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let end = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
        let (number, after) = rest.split_at(end);
        let unit_end = after
            .find(|letter: char| letter.is_ascii_digit() || letter == '.')
            .unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_end);
        let unit: i128 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => SECOND,
            "m" => 60 * SECOND,
            "h" => 3_600 * SECOND,
            _ => return None,
        };
        let (whole, part) = number.split_once('.').unwrap_or((number, ""));
        if whole.is_empty() && part.is_empty() || part.contains('.') {
            return None;
        }
        let whole: i128 = if whole.is_empty() {
            0
        } else {
            whole.parse().ok()?
        };
        total = total.checked_add(whole.checked_mul(unit)?)?;
        let mut place = unit;
        for digit in part.bytes() {
            place /= 10;
            total += i128::from(digit - b'0') * place;
        }
        rest = after;
    }
    i64::try_from(if negative { -total } else { total }).ok()
}

/// The moment that RFC 3339 text names.
pub fn timestamp(text: &str) -> Option<Timestamp> {
    let is_plain = text.len() >= 20 && text.as_bytes().get(10) == Some(&b'T');
    let has_zone = text.ends_with('Z') || text.len() > 6 && text.as_bytes()[text.len() - 3] == b':';
    if !is_plain || !has_zone {
        return None;
    }
    text.parse().ok()
}

/// The start of a day, or the moment itself, of a field in that format.
pub fn of_field(format: &str, text: &str) -> Option<Timestamp> {
    if format == "date" {
        let date: Date = text.parse().ok()?;
        return Some(date.to_zoned(TimeZone::UTC).ok()?.timestamp());
    }
    timestamp(text)
}

/// A moment as clocks in a zone show it. Zones are names or `+01:00`.
pub fn in_zone(moment: Timestamp, zone: Option<&str>) -> Option<Zoned> {
    let zone = match zone {
        None | Some("" | "UTC") => TimeZone::UTC,
        Some(text) => match offset(text) {
            Some(offset) => TimeZone::fixed(offset),
            None => TimeZone::get(text).ok()?,
        },
    };
    Some(moment.to_zoned(zone))
}

fn offset(text: &str) -> Option<Offset> {
    let (hours, minutes) = text.split_once(':')?;
    let negative = hours.starts_with('-');
    let hours: i32 = hours.trim_start_matches(['-', '+']).parse().ok()?;
    let minutes: i32 = minutes.parse().ok()?;
    let seconds = hours * 3_600 + minutes * 60;
    Offset::from_seconds(if negative { -seconds } else { seconds }).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read_as_go_reads_them() {
        for (text, expected) in [
            ("10s", Some(10_000_000_000)),
            ("1h30m", Some(5_400_000_000_000)),
            ("-1.5h", Some(-5_400_000_000_000)),
            ("0", Some(0)),
            (".5s", Some(500_000_000)),
            ("1ms2us3ns", Some(1_002_003)),
            ("5", None),
            ("", None),
            ("1d", None),
            ("s", None),
        ] {
            assert_eq!(duration(text), expected, "{text}");
        }
    }

    #[test]
    fn moments_need_a_time_and_a_zone() {
        assert!(timestamp("2024-01-05T00:00:00Z").is_some());
        assert!(timestamp("2024-01-05T00:00:00.5+02:00").is_some());
        assert!(timestamp("2024-01-05").is_none());
        assert!(timestamp("yesterday").is_none());
    }
}
