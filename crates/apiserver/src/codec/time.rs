//! Points in time as Kubernetes writes and reads them.

use jiff::Timestamp;

/// RFC 3339 in, whole seconds in UTC out: `2026-01-02T15:04:05Z`. The error is Go's text.
pub fn seconds(text: &str) -> Result<String, String> {
    Ok(show_seconds(parse(text, "2006-01-02T15:04:05Z07:00")?))
}

/// As [`seconds`], but exactly six digits of fraction in and out.
pub fn micros(text: &str) -> Result<String, String> {
    const LAYOUT: &str = "2006-01-02T15:04:05.000000Z07:00";
    let fraction = text.split_once('.').map_or(0, |(_, rest)| {
        rest.bytes().take_while(u8::is_ascii_digit).count()
    });
    if fraction != 6 && parse(text, LAYOUT).is_ok() {
        let rest = text.get(19..).unwrap_or_default();
        return Err(format!(
            "parsing time {} as {}: cannot parse {} as {}",
            crate::field::quote(text),
            crate::field::quote(LAYOUT),
            crate::field::quote(rest),
            crate::field::quote(".000000")
        ));
    }
    Ok(show_micros(parse(text, LAYOUT)?))
}

pub fn show_seconds(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

pub fn show_micros(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

/// What Go expects next at each point of the layout, for the complaint.
const STEPS: [(&str, usize); 11] = [
    ("2006", 4),
    ("-", 1),
    ("01", 2),
    ("-", 1),
    ("02", 2),
    ("T", 1),
    ("15", 2),
    (":", 1),
    ("04", 2),
    (":", 1),
    ("05", 2),
];

fn parse(text: &str, layout: &str) -> Result<Timestamp, String> {
    let complain = |rest: &str, step: &str| {
        format!(
            "parsing time {} as {}: cannot parse {} as {}",
            crate::field::quote(text),
            crate::field::quote(layout),
            crate::field::quote(rest),
            crate::field::quote(step)
        )
    };
    let mut rest = text;
    for (step, width) in STEPS {
        let Some(part) = rest.get(..width) else {
            return Err(complain(rest, step));
        };
        let fits = match step {
            "-" | "T" | ":" => part == step,
            _ => part.bytes().all(|byte| byte.is_ascii_digit()),
        };
        if !fits {
            return Err(complain(rest, step));
        }
        rest = &rest[width..];
    }
    let zone = rest.trim_start_matches(|c: char| c == '.' || c.is_ascii_digit());
    let zone_fits = zone == "Z"
        || (zone.len() == 6 && zone.starts_with(['+', '-']) && zone.as_bytes()[3] == b':');
    if !zone_fits {
        return Err(complain(zone, "Z07:00"));
    }
    text.parse::<Timestamp>().map_err(|_| {
        // Digits are there, but there is no such day or hour.
        let field = |range: std::ops::Range<usize>| text[range].parse::<u32>().unwrap_or(99);
        let part = if !(1..=12).contains(&field(5..7)) {
            "month"
        } else if field(11..13) > 23 {
            "hour"
        } else if field(14..16) > 59 {
            "minute"
        } else if field(17..19) > 59 {
            "second"
        } else {
            "day"
        };
        format!(
            "parsing time {}: {part} out of range",
            crate::field::quote(text)
        )
    })
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
