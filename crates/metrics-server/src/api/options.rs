//! What a list may be asked for, and the words in which the rest is refused.

use std::time::Duration;

use plimsoll_ground::rest::field::{self, FieldError, Path};
use plimsoll_ground::rest::request::Query;
use plimsoll_ground::rest::selector::{Selector, parse_fields, parse_labels};
use plimsoll_ground::rest::status::{Failure, Subject};

const FIELDS: [&str; 2] = ["metadata.name", "metadata.namespace"];

/// Whether options are what they should be, known to us or not.
pub fn are_readable(query: &Query) -> bool {
    read(query).is_ok()
}

fn read(query: &Query) -> Result<Selector, Failure> {
    numbers(query)?;
    let bad = |error: String| Failure::bad_request(error);
    Ok(Selector {
        labels: parse_labels(query.get("labelSelector").unwrap_or_default()).map_err(bad)?,
        fields: parse_fields(query.get("fieldSelector").unwrap_or_default()).map_err(bad)?,
    })
}

/// Everything that is given must make sense, even what makes no difference.
pub fn selector(query: &Query, watched: bool) -> Result<Selector, Failure> {
    let Selector { labels, fields } = read(query)?;
    // `==` alone is a field without a name that must be empty, as it is.
    let fields: Vec<_> = fields
        .into_iter()
        .filter(|term| !(term.field.is_empty() && term.value.is_empty()))
        .collect();
    if let Some(term) = fields
        .iter()
        .find(|term| !FIELDS.contains(&term.field.as_str()))
    {
        return Err(Failure::bad_request(format!(
            "{} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
            field::quote(&term.field)
        )));
    }
    consistent(query, watched)?;
    Ok(Selector { labels, fields })
}

/// What may be asked for with a single object.
pub fn of_one(query: &Query) -> Result<(), Failure> {
    match query.flag("export") {
        false => Ok(()),
        true => Err(Failure::bad_request(
            "the export parameter, deprecated since v1.14, is no longer supported",
        )),
    }
}

fn numbers(query: &Query) -> Result<(), Failure> {
    for key in ["limit", "timeoutSeconds"] {
        let Some(text) = query.all(key).next() else {
            continue;
        };
        let Err(error) = text.parse::<i64>() else {
            continue;
        };
        use std::num::IntErrorKind::{NegOverflow, PosOverflow};
        let why = match error.kind() {
            PosOverflow | NegOverflow => "value out of range",
            _ => "invalid syntax",
        };
        return Err(Failure::bad_request(format!(
            "strconv.ParseInt: parsing {}: {why}",
            field::quote(text)
        )));
    }
    Ok(())
}

/// Options that contradict each other, though none of them counts here.
fn consistent(query: &Query, watched: bool) -> Result<(), Failure> {
    let errors = match watched {
        true => wrong_with_watch(query),
        false => wrong_with_list(query),
    };
    if errors.is_empty() {
        return Ok(());
    }
    let subject = Subject {
        group: "meta.k8s.io",
        kind: "ListOptions",
    };
    Err(Failure::invalid(subject, "", &errors))
}

fn wrong_with_watch(query: &Query) -> Vec<FieldError> {
    let at = Path::new("resourceVersionMatch");
    let initial = query.all("sendInitialEvents").next().is_some();
    let matching = query.get("resourceVersionMatch");
    let mut errors = Vec::new();
    let mut forbid = |why: &str| errors.push(FieldError::forbidden(&at, why));
    if initial && matching != Some("NotOlderThan") {
        forbid("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan");
    }
    let Some(matching) = matching else {
        return errors;
    };
    if !initial {
        forbid("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided");
    }
    if matching != "NotOlderThan" {
        errors.push(FieldError::not_supported(&at, matching, &["NotOlderThan"]));
    }
    if query.get("continue").is_some() {
        let why = "resourceVersionMatch is forbidden when continue is provided";
        errors.push(FieldError::forbidden(&at, why));
    }
    errors
}

fn wrong_with_list(query: &Query) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let version = query.get("resourceVersion").unwrap_or_default();
    if let Some(matching) = query.get("resourceVersionMatch") {
        let at = Path::new("resourceVersionMatch");
        let mut forbid = |why: &str| errors.push(FieldError::forbidden(&at, why));
        if version.is_empty() {
            forbid("resourceVersionMatch is forbidden unless resourceVersion is provided");
        }
        if query.get("continue").is_some() {
            forbid("resourceVersionMatch is forbidden when continue is provided");
        }
        if !matches!(matching, "Exact" | "NotOlderThan") {
            let known = ["Exact", "NotOlderThan", ""];
            errors.push(FieldError::not_supported(&at, matching, &known));
        }
        if matching == "Exact" && version == "0" {
            let why = "resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
            errors.push(FieldError::forbidden(&at, why));
        }
    }
    if query.all("sendInitialEvents").next().is_some() {
        let at = Path::new("sendInitialEvents");
        errors.push(FieldError::forbidden(
            &at,
            "sendInitialEvents is forbidden for list",
        ));
    }
    errors
}

/// `timeout`, which any request may have. `None`: nothing that would limit it.
pub fn timeout(query: &Query) -> Result<Option<Duration>, Failure> {
    let Some(text) = query.get("timeout") else {
        return Ok(None);
    };
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let limit = duration(unsigned).map_err(|wrong| {
        let text = field::quote(text);
        let why = match wrong {
            Wrong::Whole => format!("time: invalid duration {text}"),
            Wrong::NoUnit => format!("time: missing unit in duration {text}"),
            Wrong::Unit(unit) => {
                format!(
                    "time: unknown unit {} in duration {text}",
                    field::quote(unit)
                )
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

    #[track_caller]
    fn check(query: &str, expected: Result<(), &str>) {
        let query = Query::parse(query);
        let outcome = selector(&query, query.flag("watch")).map(|_| ());
        let outcome = outcome.map_err(|failure| failure.message);
        assert_eq!(outcome, expected.map_err(str::to_owned), "{query:?}");
    }

    #[test]
    fn what_lists_may_be_asked_for() {
        check(
            "limit=5&continue=x&timeoutSeconds=-1&resourceVersion=x",
            Ok(()),
        );
        check(
            "limit=",
            Err("strconv.ParseInt: parsing \"\": invalid syntax"),
        );
        check(
            "limit=9223372036854775808",
            Err("strconv.ParseInt: parsing \"9223372036854775808\": value out of range"),
        );
        check("fieldSelector=%3D%3D", Ok(()));
        check(
            "fieldSelector=spec.nodeName%3Da",
            Err(
                "\"spec.nodeName\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
            ),
        );
        check(
            "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
            Ok(()),
        );
        check(
            "watch=1&sendInitialEvents=true",
            Err(
                "ListOptions.meta.k8s.io \"\" is invalid: resourceVersionMatch: Forbidden: sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
            ),
        );
        check(
            "watch=1&resourceVersionMatch=Exact",
            Err(
                "ListOptions.meta.k8s.io \"\" is invalid: [resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided, resourceVersionMatch: Unsupported value: \"Exact\": supported values: \"NotOlderThan\"]",
            ),
        );
        check(
            "resourceVersionMatch=Foo",
            Err(
                "ListOptions.meta.k8s.io \"\" is invalid: [resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided, resourceVersionMatch: Unsupported value: \"Foo\": supported values: \"Exact\", \"NotOlderThan\", \"\"]",
            ),
        );
    }

    #[test]
    fn what_can_be_read() {
        for (query, expected) in [
            ("", true),
            (
                "fieldSelector=spec.nodeName%3Da&resourceVersionMatch=x",
                true,
            ),
            ("fieldSelector=metadata.name%3Da&limit=x", false),
            ("fieldSelector=metadata.name%3Da&labelSelector=a%20b", false),
            ("fieldSelector=a", false),
        ] {
            assert_eq!(are_readable(&Query::parse(query)), expected, "{query}");
        }
    }

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
