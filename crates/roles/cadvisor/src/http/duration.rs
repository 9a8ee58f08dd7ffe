//! Durations as the original's options spell them: `1h30m`, `1.5s`, `-10ms`, `0`.

use std::time::Duration;

use crate::rest::quote;

/// Negative spans are legal and mean none; the error text is the original's.
pub fn parse(text: &str) -> Result<Duration, String> {
    let invalid = || format!("time: invalid duration {}", quote(text));
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let negative = text.starts_with('-');
    if unsigned == "0" {
        return Ok(Duration::ZERO);
    }
    if unsigned.is_empty() {
        return Err(invalid());
    }
    let mut total = 0f64;
    let mut rest = unsigned;
    while !rest.is_empty() {
        let digits = rest.len()
            - rest
                .trim_start_matches(|c: char| c.is_ascii_digit() || c == '.')
                .len();
        let (number, after) = rest.split_at(digits);
        let number: f64 = match number {
            "" | "." => return Err(invalid()),
            number => number.parse().map_err(|_| invalid())?,
        };
        let end = after
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(after.len());
        let (unit, next) = after.split_at(end);
        let nanos = match unit {
            "ns" => 1.0,
            "us" | "µs" | "μs" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "m" => 60e9,
            "h" => 3600e9,
            "" => return Err(format!("time: missing unit in duration {}", quote(text))),
            unit => {
                return Err(format!(
                    "time: unknown unit {} in duration {}",
                    quote(unit),
                    quote(text)
                ));
            }
        };
        total += number * nanos;
        rest = next;
    }
    if total > i64::MAX as f64 {
        return Err(invalid());
    }
    Ok(match negative {
        true => Duration::ZERO,
        false => Duration::from_nanos(total as u64),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn spellings() {
        for (text, expected) in [
            ("0", 0),
            ("0s", 0),
            ("-1s", 0),
            ("1.5s", 1_500_000_000),
            ("1h", 3_600_000_000_000),
            ("1m30s", 90_000_000_000),
            ("2us", 2_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_nanos(expected)), "{text}");
        }
        for (text, expected) in [
            ("bad", r#"time: invalid duration "bad""#),
            ("5", r#"time: missing unit in duration "5""#),
            ("5y", r#"time: unknown unit "y" in duration "5y""#),
            ("", r#"time: invalid duration """#),
            (".s", r#"time: invalid duration ".s""#),
            ("99999999999h", r#"time: invalid duration "99999999999h""#),
        ] {
            assert_eq!(parse(text), Err(expected.to_owned()), "{text}");
        }
    }

    proptest! {
        #[test]
        fn nothing_panics(text: String) {
            let _ = parse(&text);
        }
    }
}
