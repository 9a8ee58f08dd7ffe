//! What a list may be asked for, and the words in which the rest is refused.

use std::time::Duration;

use plimsoll_ground::rest::field::{self, FieldError, Path};
use plimsoll_ground::rest::request::Query;
use plimsoll_ground::rest::selector::{Selector, parse_fields, parse_labels};
use plimsoll_ground::rest::status::{Failure, Subject};

const FIELDS: [&str; 2] = ["metadata.name", "metadata.namespace"];

/// Everything that is given must make sense, even what makes no difference.
pub fn selector(query: &Query) -> Result<Selector, Failure> {
    numbers(query)?;
    let bad = |error: String| Failure::bad_request(error);
    let labels = parse_labels(query.get("labelSelector").unwrap_or_default()).map_err(bad)?;
    let fields = parse_fields(query.get("fieldSelector").unwrap_or_default()).map_err(bad)?;
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
    consistent(query)?;
    Ok(Selector { labels, fields })
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
fn consistent(query: &Query) -> Result<(), Failure> {
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
    if errors.is_empty() {
        return Ok(());
    }
    let subject = Subject {
        group: "meta.k8s.io",
        kind: "ListOptions",
    };
    Err(Failure::invalid(subject, "", &errors))
}

/// `timeout`, which any request may have. `None`: nothing that would limit it.
pub fn timeout(query: &Query) -> Result<Option<Duration>, Failure> {
    let Some(text) = query.get("timeout") else {
        return Ok(None);
    };
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let Some(limit) = duration(unsigned) else {
        return Err(Failure::bad_request(format!(
            "invalid timeout specified in the request URL - time: invalid duration {}",
            field::quote(text)
        )));
    };
    let limits = !limit.is_zero() && !text.starts_with('-');
    Ok(limits.then_some(limit))
}

/// Go's: `0`, or numbers with units.
fn duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut sum = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let number = rest
            .find(|c: char| !c.is_ascii_digit() && c != '.')
            .unwrap_or(rest.len());
        let (digits, after) = rest.split_at(number);
        let unit = after
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(after.len());
        let (unit, after) = after.split_at(unit);
        let unit = match unit {
            "ns" => 1e-9,
            "us" | "µs" | "μs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        let number: f64 = digits.parse().ok()?;
        sum = sum.saturating_add(Duration::try_from_secs_f64(number * unit).ok()?);
        rest = after;
    }
    (!text.is_empty()).then_some(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(query: &str, expected: Result<(), &str>) {
        let outcome = selector(&Query::parse(query)).map(|_| ());
        let outcome = outcome.map_err(|failure| failure.message);
        assert_eq!(outcome, expected.map_err(str::to_owned), "{query}");
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
            "resourceVersionMatch=Foo",
            Err(
                "ListOptions.meta.k8s.io \"\" is invalid: [resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided, resourceVersionMatch: Unsupported value: \"Foo\": supported values: \"Exact\", \"NotOlderThan\", \"\"]",
            ),
        );
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
