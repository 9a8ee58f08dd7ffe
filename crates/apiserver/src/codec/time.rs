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

pub fn show_seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

pub fn show_micros(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
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
