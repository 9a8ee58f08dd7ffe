//! Points in time as Kubernetes writes and reads them.

use jiff::Timestamp;
use plimsoll_ground::rest::moment::{self, Layout};

/// RFC 3339 in, whole seconds in UTC out: `2026-01-02T15:04:05Z`. The error is Go's text.
pub fn seconds(text: &str) -> Result<String, String> {
    Ok(show_seconds(moment::parse(text, Layout::Seconds)?))
}

/// As [`seconds`], but exactly six digits of fraction in and out.
pub fn micros(text: &str) -> Result<String, String> {
    Ok(show_micros(moment::parse(text, Layout::Micros)?))
}

/// A time zone can bring a time before the year 0, which nobody could read again.
fn readable(time: Timestamp) -> Timestamp {
    const YEAR_0: i64 = -62_167_219_200;
    match time.as_second() < YEAR_0 {
        true => Timestamp::from_second(YEAR_0).unwrap_or(time),
        false => time,
    }
}

pub fn show_seconds(time: Timestamp) -> String {
    readable(time).strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

pub fn show_micros(time: Timestamp) -> String {
    readable(time)
        .strftime("%Y-%m-%dT%H:%M:%S.%6fZ")
        .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_in_and_out() {
        assert_eq!(
            seconds("2026-01-02T15:04:05+02:00").unwrap(),
            "2026-01-02T13:04:05Z"
        );
        assert_eq!(
            seconds("2026-01-02T15:04:05.9Z").unwrap(),
            "2026-01-02T15:04:05Z"
        );
        assert_eq!(
            micros("2026-01-02T15:04:05.123456+01:00").unwrap(),
            "2026-01-02T14:04:05.123456Z"
        );
        assert!(micros("2026-01-02T15:04:05Z").is_err());
        // As far back as can be read again.
        let first = seconds("0000-01-01T00:00:00+23:59").unwrap();
        assert_eq!(first, "0000-01-01T00:00:00Z");
        assert_eq!(seconds(&first).unwrap(), first);
        let first = micros("0000-01-01T00:00:00.000000+01:00").unwrap();
        assert_eq!(micros(&first).unwrap(), first);
    }

    #[test]
    fn complaints_in_gos_words() {
        for (text, expected) in [
            (
                "x",
                "parsing time \"x\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"x\" as \"2006\"",
            ),
            (
                "2026-01-02",
                "parsing time \"2026-01-02\" as \"2006-01-02T15:04:05Z07:00\": cannot parse \"\" as \"T\"",
            ),
            (
                "2026-13-02T15:04:05Z",
                "parsing time \"2026-13-02T15:04:05Z\": month out of range",
            ),
        ] {
            assert_eq!(seconds(text).unwrap_err(), expected);
        }
    }
}
