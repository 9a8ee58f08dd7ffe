//! What a list may be asked for, and the words in which the rest is refused.

use plimsoll_apimachinery::field::{FieldError, Path};
use plimsoll_apimachinery::request::Query;
use plimsoll_apimachinery::selector::{Selector, parse_fields, parse_labels};
use plimsoll_apimachinery::status::{StatusError, Subject};
use plimsoll_golang::strconv::quote;

const FIELDS: [&str; 2] = ["metadata.name", "metadata.namespace"];

/// Whether options are what they should be, known to us or not.
pub fn are_readable(query: &Query) -> bool {
    read(query).is_ok()
}

fn read(query: &Query) -> Result<Selector, StatusError> {
    numbers(query)?;
    let bad = |error: String| StatusError::bad_request(error);
    Ok(Selector {
        labels: parse_labels(query.get("labelSelector").unwrap_or_default()).map_err(bad)?,
        fields: parse_fields(query.get("fieldSelector").unwrap_or_default()).map_err(bad)?,
    })
}

/// Everything that is given must make sense, even what makes no difference.
pub fn selector(query: &Query, watched: bool) -> Result<Selector, StatusError> {
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
        return Err(StatusError::bad_request(format!(
            "{} is not a known field selector: only \"metadata.name\", \"metadata.namespace\"",
            quote(&term.field)
        )));
    }
    consistent(query, watched)?;
    Ok(Selector { labels, fields })
}

/// What may be asked for with a single object.
pub fn of_one(query: &Query) -> Result<(), StatusError> {
    match query.flag("export") {
        false => Ok(()),
        true => Err(StatusError::bad_request(
            "the export parameter, deprecated since v1.14, is no longer supported",
        )),
    }
}

fn numbers(query: &Query) -> Result<(), StatusError> {
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
        return Err(StatusError::bad_request(format!(
            "strconv.ParseInt: parsing {}: {why}",
            quote(text)
        )));
    }
    Ok(())
}

/// Options that contradict each other, though none of them counts here.
fn consistent(query: &Query, watched: bool) -> Result<(), StatusError> {
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
    Err(StatusError::invalid(subject, "", &errors))
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
}
