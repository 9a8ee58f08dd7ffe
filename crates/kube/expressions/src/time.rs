//! Points in time and zones.

use jiff::civil::Date;
use jiff::tz::{Offset, TimeZone};
use jiff::{Timestamp, Zoned};

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
    fn moments_need_a_time_and_a_zone() {
        assert!(timestamp("2024-01-05T00:00:00Z").is_some());
        assert!(timestamp("2024-01-05T00:00:00.5+02:00").is_some());
        assert!(timestamp("2024-01-05").is_none());
        assert!(timestamp("yesterday").is_none());
    }
}
