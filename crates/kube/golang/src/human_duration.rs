//! Spans of time as people read them in tables: `5s`, `3m2s`, `47h`, `2y11d`.

use jiff::Timestamp;

/// From seconds; a second or so of clock difference counts as now.
pub fn duration(seconds: i64) -> String {
    let two = |whole: i64, unit: &str, rest: i64, small: &str| {
        if rest == 0 {
            format!("{whole}{unit}")
        } else {
            format!("{whole}{unit}{rest}{small}")
        }
    };
    let minutes = seconds / 60;
    let hours = seconds / 3600;
    let days = hours / 24;
    match seconds {
        ..-1 => "<invalid>".to_owned(),
        -1 => "0s".to_owned(),
        0..120 => format!("{seconds}s"),
        _ if minutes < 10 => two(minutes, "m", seconds % 60, "s"),
        _ if minutes < 180 => format!("{minutes}m"),
        _ if hours < 8 => two(hours, "h", minutes % 60, "m"),
        _ if hours < 48 => format!("{hours}h"),
        _ if hours < 24 * 8 => two(days, "d", hours % 24, "h"),
        _ if days < 365 * 2 => format!("{days}d"),
        _ if days < 365 * 8 => two(days / 365, "y", days % 365, "d"),
        _ => format!("{}y", days / 365),
    }
}

/// How long ago a timestamp was; `<unknown>` where there is none.
pub fn since(timestamp: Option<&str>, now: Timestamp) -> String {
    match timestamp.and_then(|text| text.parse::<Timestamp>().ok()) {
        Some(then) => between(then, now),
        None => "<unknown>".to_owned(),
    }
}

pub fn between(from: Timestamp, to: Timestamp) -> String {
    duration(to.duration_since(from).as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans() {
        for (seconds, expected) in [
            (-2, "<invalid>"),
            (-1, "0s"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (121, "2m1s"),
            (599, "9m59s"),
            (600, "10m"),
            (3 * 3600 - 1, "179m"),
            (3 * 3600, "3h"),
            (8 * 3600 - 1, "7h59m"),
            (8 * 3600, "8h"),
            (48 * 3600, "2d"),
            (49 * 3600, "2d1h"),
            (8 * 86400, "8d"),
            (730 * 86400, "2y"),
            (731 * 86400, "2y1d"),
            (9 * 365 * 86400 + 86400, "9y"),
        ] {
            assert_eq!(duration(seconds), expected, "{seconds}");
        }
    }

    #[test]
    fn since_a_timestamp() {
        let now: Timestamp = "2026-01-02T00:01:00Z".parse().unwrap();
        assert_eq!(since(Some("2026-01-02T00:00:00Z"), now), "60s");
        assert_eq!(since(Some("2026-01-02T00:00:00.500000Z"), now), "59s");
        assert_eq!(since(None, now), "<unknown>");
        assert_eq!(since(Some("x"), now), "<unknown>");
    }
}
