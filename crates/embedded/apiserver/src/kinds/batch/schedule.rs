//! Schedules of cron jobs: what is wrong with one.

use plimsoll_golang::GoDuration;

/// Lowest and highest value of a field, and names for its values.
struct Bounds {
    low: u32,
    high: u32,
    names: &'static [&'static str],
}

const FIELDS: [Bounds; 5] = [
    Bounds {
        low: 0,
        high: 59,
        names: &[],
    },
    Bounds {
        low: 0,
        high: 23,
        names: &[],
    },
    Bounds {
        low: 1,
        high: 31,
        names: &[],
    },
    Bounds {
        low: 1,
        high: 12,
        names: &[
            "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
        ],
    },
    Bounds {
        low: 0,
        high: 6,
        names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
    },
];

const DESCRIPTORS: &[&str] = &[
    "@yearly",
    "@annually",
    "@monthly",
    "@weekly",
    "@daily",
    "@midnight",
    "@hourly",
];

pub fn complaint(schedule: &str) -> Option<String> {
    check(schedule).err()
}

fn check(schedule: &str) -> Result<(), String> {
    let mut schedule = schedule;
    if schedule.starts_with("TZ=") || schedule.starts_with("CRON_TZ=") {
        schedule = schedule.split_once(' ').map_or("", |(_, rest)| rest.trim());
    }
    if schedule.starts_with('@') {
        if DESCRIPTORS.contains(&schedule) {
            return Ok(());
        }
        return match schedule.strip_prefix("@every ") {
            Some(duration) => match GoDuration::parse(duration) {
                Ok(_) => Ok(()),
                Err(error) => Err(format!("failed to parse duration {schedule}: {error}")),
            },
            None => Err(format!("unrecognized descriptor: {schedule}")),
        };
    }
    let fields: Vec<&str> = schedule.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        return Err(format!(
            "expected exactly 5 fields, found {}: [{}]",
            fields.len(),
            fields.join(" ")
        ));
    }
    for (field, bounds) in fields.iter().zip(&FIELDS) {
        for expression in field.split(',').filter(|one| !one.is_empty()) {
            range(expression, bounds)?;
        }
    }
    Ok(())
}

fn range(expression: &str, bounds: &Bounds) -> Result<(), String> {
    let parts: Vec<&str> = expression.split('/').collect();
    let ends: Vec<&str> = parts[0].split('-').collect();
    let (start, mut end) = if ends[0] == "*" || ends[0] == "?" {
        (bounds.low, bounds.high)
    } else {
        let start = value(ends[0], bounds)?;
        match ends.as_slice() {
            [_] => (start, start),
            [_, end] => (start, value(end, bounds)?),
            _ => return Err(format!("too many hyphens: {expression}")),
        }
    };
    let step = match parts.as_slice() {
        [_] => 1,
        [_, step] => {
            if ends.len() == 1 {
                end = bounds.high;
            }
            number(step)?
        }
        _ => return Err(format!("too many slashes: {expression}")),
    };
    let (low, high) = (bounds.low, bounds.high);
    if start < low {
        return Err(format!(
            "beginning of range ({start}) below minimum ({low}): {expression}"
        ));
    }
    if end > high {
        return Err(format!(
            "end of range ({end}) above maximum ({high}): {expression}"
        ));
    }
    if start > end {
        return Err(format!(
            "beginning of range ({start}) beyond end of range ({end}): {expression}"
        ));
    }
    if step == 0 {
        return Err(format!(
            "step of range should be a positive number: {expression}"
        ));
    }
    Ok(())
}

fn value(text: &str, bounds: &Bounds) -> Result<u32, String> {
    let lower = text.to_lowercase();
    match bounds.names.iter().position(|name| **name == lower) {
        Some(position) => Ok(bounds.low + position as u32),
        None => number(text),
    }
}

fn number(text: &str) -> Result<u32, String> {
    let parsed: i64 = text.parse().map_err(|_| {
        format!(
            "failed to parse int from {text}: strconv.Atoi: parsing {}: invalid syntax",
            plimsoll_golang::strconv::quote(text)
        )
    })?;
    u32::try_from(parsed).map_err(|_| format!("negative number ({parsed}) not allowed: {text}"))
}

#[cfg(test)]
mod tests {
    use super::complaint;

    #[test]
    fn good_schedules() {
        for schedule in [
            "* * * * *",
            "*/5 0-6,12 1 JAN sun",
            "@hourly",
            "@every 1h30m",
            "0 0 ? * *",
        ] {
            assert_eq!(complaint(schedule), None, "{schedule}");
        }
    }

    #[test]
    fn what_is_wrong_with_the_others() {
        for (schedule, expected) in [
            ("foo", "expected exactly 5 fields, found 1: [foo]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            (
                "5-1 * * * *",
                "beginning of range (5) beyond end of range (1): 5-1",
            ),
            (
                "*/0 * * * *",
                "step of range should be a positive number: */0",
            ),
            ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
            ("@never", "unrecognized descriptor: @never"),
            (
                "x * * * *",
                "failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax",
            ),
        ] {
            assert_eq!(complaint(schedule).as_deref(), Some(expected), "{schedule}");
        }
    }
}
