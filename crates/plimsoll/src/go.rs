//! Go's conventions on the command line, so that a command line written for cAdvisor works as it is: one dash is as
//! good as two, booleans take `=false`, and durations read `1m30s`.

use std::path::PathBuf;
use std::time::Duration;

use plimsoll_golang::GoDuration;

/// A Go duration: `300ms`, `1.5h`, `2h45m`, `0`. What a flag sets is never negative.
pub fn duration(text: &str) -> Result<Duration, String> {
    let hint = "write it like 10s, 500ms or 1m30s";
    if text.starts_with('-') {
        return Err(format!("{text:?} is less than nothing; {hint}"));
    }
    let parsed = GoDuration::parse(text).map_err(|error| format!("{error}; {hint}"))?;
    Ok(parsed.duration())
}

/// A duration that may be negative: whether that makes sense is said later, in the original's words.
pub fn signed_duration(text: &str) -> Result<GoDuration, String> {
    GoDuration::parse(text).map_err(|error| format!("{error}; write it like 10s, 500ms or 1m30s"))
}

/// A flag whose empty value means that it is not given.
pub fn path(text: &str) -> Option<PathBuf> {
    (!text.is_empty()).then(|| text.into())
}

/// A Go boolean flag's value.
pub fn boolean(text: &str) -> Result<bool, String> {
    match text {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(false),
        other => Err(format!("{other:?} is neither true nor false")),
    }
}

/// klog's levels by file, `pattern=N,...`.
pub fn modules(text: &str) -> Result<String, String> {
    let wrong = text.split(',').filter(|one| !one.is_empty()).find(|one| {
        one.split_once('=')
            .is_none_or(|(_, level)| level.parse::<u32>().is_err())
    });
    match wrong {
        Some(wrong) => Err(format!("{wrong:?} does not have the pattern=N format")),
        None => Ok(text.to_owned()),
    }
}

/// Turns `-housekeeping_interval=1s` into `--housekeeping_interval=1s`; leaves `-h`, `-v` and values alone.
pub fn double_dashes(argument: String) -> String {
    let long = argument.strip_prefix('-').is_some_and(|rest| {
        let name = rest.split('=').next().unwrap_or(rest);
        name.len() > 1 && name.starts_with(|c: char| c.is_ascii_alphabetic())
    });
    if long {
        format!("-{argument}")
    } else {
        argument
    }
}

/// cAdvisor's `type=value,default=value` lists: the value for each of `types`.
pub fn by_type<T: Clone>(
    list: &str,
    types: &[&str],
    fallback: T,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<Vec<T>, String> {
    let mut default = fallback;
    let mut named = Vec::new();
    for part in list.split(',').map(str::trim).filter(|p| !p.is_empty()) {
        let (key, value) = part
            .split_once('=')
            .ok_or_else(|| format!("{part:?} is not of the form type=value"))?;
        let value = parse(value.trim())?;
        match key.trim() {
            "default" => default = value,
            key if types.contains(&key) => named.push((key.to_owned(), value)),
            key => {
                return Err(format!(
                    "unknown event type {key:?}; the types are {} and default",
                    types.join(", ")
                ));
            }
        }
    }
    let value = |name: &&str| {
        let own = named.iter().rev().find(|(key, _)| key == name);
        own.map_or_else(|| default.clone(), |(_, value)| value.clone())
    };
    Ok(types.iter().map(value).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        for (text, millis) in [
            ("10s", 10_000),
            ("500ms", 500),
            ("1m30s", 90_000),
            ("1.5h", 5_400_000),
            ("0", 0),
            ("2m0s", 120_000),
        ] {
            assert_eq!(duration(text).unwrap().as_millis(), millis, "{text}");
        }
        for text in ["", "10", "s", "-1s", "1y", "1s2", "99999999999999999h"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn durations_below_nothing() {
        let text = |given| signed_duration(given).unwrap().to_string();
        assert_eq!(text("-90s"), "-1m30s");
        assert_eq!(text("5s"), "5s");
        assert_eq!(signed_duration("-1s").unwrap().positive(), None);
        signed_duration("x").unwrap_err();
    }

    #[test]
    fn dashes() {
        let turned = |text: &str| double_dashes(text.to_owned());
        assert_eq!(turned("-port=80"), "--port=80");
        assert_eq!(turned("--port"), "--port");
        assert_eq!(turned("-v=4"), "-v=4");
        assert_eq!(turned("-h"), "-h");
        assert_eq!(turned("-1"), "-1");
        assert_eq!(turned("value"), "value");
    }

    #[test]
    fn limits_by_type() {
        let number = |text: &str| text.parse::<u32>().map_err(|e| e.to_string());
        let found = by_type("oom=3,default=7", &["oom", "oomKill"], 9, number).unwrap();
        assert_eq!(found, [3, 7]);
        assert_eq!(by_type("", &["oom"], 9, number).unwrap(), [9]);
        assert!(by_type("nope=1", &["oom"], 9, number).is_err());
    }
}
