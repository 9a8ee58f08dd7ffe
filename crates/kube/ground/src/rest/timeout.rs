//! How long a client is ready to wait: `?timeout=`, in Go's words.

use std::time::Duration;

use super::field::quote;
use super::request::Query;
use super::status::Failure;

/// `timeout`, which any request may have. `None`: nothing that would limit it.
pub fn timeout(query: &Query) -> Result<Option<Duration>, Failure> {
    let Some(text) = query.get("timeout") else {
        return Ok(None);
    };
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let limit = duration(unsigned).map_err(|wrong| {
        let text = quote(text);
        let why = match wrong {
            Wrong::Whole => format!("time: invalid duration {text}"),
            Wrong::NoUnit => format!("time: missing unit in duration {text}"),
            Wrong::Unit(unit) => {
                format!("time: unknown unit {} in duration {text}", quote(unit))
            }
        };
        Failure::bad_request(format!(
            "invalid timeout specified in the request URL - {why}"
        ))
    })?;
    let limits = !limit.is_zero() && !text.starts_with('-');
    Ok(limits.then_some(limit))
}

/// What keeps a text from being a duration.
#[derive(Debug, PartialEq, Eq)]
enum Wrong<'a> {
    Whole,
    NoUnit,
    Unit(&'a str),
}

/// Go's: `0`, or numbers with units.
fn duration(text: &str) -> Result<Duration, Wrong<'_>> {
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
    let mut sum = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let mut length = digits(rest);
        if rest[length..].starts_with('.') {
            length += 1 + digits(&rest[length + 1..]);
        }
        let (number, after) = rest.split_at(length);
        if !number.bytes().any(|byte| byte.is_ascii_digit()) {
            return Err(Wrong::Whole);
        }
        let unit = after
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(after.len());
        let (unit, after) = after.split_at(unit);
        let unit = match unit {
            "" => return Err(Wrong::NoUnit),
            "ns" => 1e-9,
            "us" | "µs" | "μs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            unknown => return Err(Wrong::Unit(unknown)),
        };
        let number: f64 = number.parse().map_err(|_| Wrong::Whole)?;
        let seconds = number * unit;
        // Go's durations are nanoseconds in 63 bits.
        if sum.as_secs_f64() + seconds > i64::MAX as f64 / 1e9 {
            return Err(Wrong::Whole);
        }
        sum += Duration::from_secs_f64(seconds);
        rest = after;
    }
    match text.is_empty() {
        true => Err(Wrong::Whole),
        false => Ok(sum),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_a_timeout() {
        for (text, expected) in [
            ("5x", "time: unknown unit \"x\" in duration \"5x\""),
            ("1h5", "time: missing unit in duration \"1h5\""),
            ("1..2s", "time: missing unit in duration \"1..2s\""),
            ("s", "time: invalid duration \"s\""),
            ("99999999999h", "time: invalid duration \"99999999999h\""),
        ] {
            let query = Query::parse(&format!("timeout={text}"));
            let refused = timeout(&query).unwrap_err();
            let expected = format!("invalid timeout specified in the request URL - {expected}");
            assert_eq!(refused.message, expected);
        }
    }

    #[test]
    fn timeouts() {
        for (text, expected) in [
            ("1s", Some(Some(Duration::from_secs(1)))),
            ("1h2m3.5s", Some(Some(Duration::from_millis(3_723_500)))),
            ("1ns", Some(Some(Duration::from_nanos(1)))),
            ("0", Some(None)),
            ("-1s", Some(None)),
            ("", Some(None)),
            ("1", None),
            ("x", None),
            ("s", None),
            ("1.2.3s", None),
        ] {
            let query = Query::parse(&format!("timeout={text}"));
            let expected = expected.ok_or(());
            assert_eq!(timeout(&query).map_err(drop), expected, "{text}");
        }
    }
}
