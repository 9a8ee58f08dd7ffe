//! The parameters of a request, checked as Kubernetes checks them.

use std::num::IntErrorKind;

use serde_json::json;

use crate::field::{FieldError, Path};
use crate::managed;
use crate::request::Query;
use crate::status::{StatusError, Subject};

/// What to do about unknown and repeated fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FieldValidation {
    Ignore,
    Warn,
    Strict,
}

/// Of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WriteOptions {
    pub dry_run: bool,
    pub validation: FieldValidation,
}

/// `kind` is the options' kind: `CreateOptions`, `UpdateOptions`, `PatchOptions`.
pub fn write_options(
    query: &Query,
    kind: &str,
    is_apply: bool,
) -> Result<WriteOptions, StatusError> {
    let mut errors = Vec::new();
    let force = query.get("force");
    if kind == "PatchOptions" {
        let manager = query.get("fieldManager");
        if is_apply && manager.is_none() {
            errors.push(FieldError::required(
                &Path::new("fieldManager"),
                "is required for apply patch",
            ));
        }
        if !is_apply && force.is_some() {
            errors.push(FieldError::forbidden(
                &Path::new("force"),
                "may not be specified for non-apply patch",
            ));
        }
    }
    errors.extend(managed::validate_manager(
        query.get("fieldManager").unwrap_or_default(),
    ));
    let dry_run = check_dry_run(query, &mut errors);
    let validation = match query.get("fieldValidation") {
        None | Some("Warn") => FieldValidation::Warn,
        Some("Ignore") => FieldValidation::Ignore,
        Some("Strict") => FieldValidation::Strict,
        Some(other) => {
            errors.push(FieldError::not_supported(
                &Path::new("fieldValidation"),
                other,
                &["", "Ignore", "Strict", "Warn"],
            ));
            FieldValidation::Warn
        }
    };
    if errors.is_empty() {
        return Ok(WriteOptions {
            dry_run,
            validation,
        });
    }
    Err(invalid_options(kind, &errors))
}

pub fn invalid_options(kind: &str, errors: &[FieldError]) -> StatusError {
    let subject = Subject {
        group: "meta.k8s.io",
        kind,
    };
    StatusError::invalid(subject, "", errors)
}

/// Repeated values are allowed, as long as each is `All`.
fn check_dry_run(query: &Query, errors: &mut Vec<FieldError>) -> bool {
    let wishes: Vec<&str> = query.all("dryRun").collect();
    if wishes.iter().any(|wish| *wish != "All") {
        errors.push(FieldError::not_supported(
            &Path::new("dryRun"),
            json!(wishes),
            &["All"],
        ));
    }
    !wishes.is_empty()
}

/// A whole number, as Go parses it.
pub fn integer(query: &Query, key: &str) -> Result<Option<i64>, StatusError> {
    let Some(text) = query.get(key) else {
        return Ok(None);
    };
    text.parse::<i64>().map(Some).map_err(|error| {
        let why = match error.kind() {
            IntErrorKind::PosOverflow | IntErrorKind::NegOverflow => "value out of range",
            _ => "invalid syntax",
        };
        StatusError::bad_request(format!(
            "strconv.ParseInt: parsing {}: {why}",
            plimsoll_golang::strconv::quote(text)
        ))
    })
}

/// A resource version, as Go parses it.
pub fn revision(text: &str) -> Result<u64, String> {
    // Go's unsigned numbers have no sign at all.
    let unsigned = text.parse::<u64>().ok().filter(|_| !text.starts_with('+'));
    unsigned.ok_or_else(|| {
        let quoted = plimsoll_golang::strconv::quote(text);
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let why = if digits {
            "value out of range"
        } else {
            "invalid syntax"
        };
        format!(
            "resourceVersion: Invalid value: {quoted}: strconv.ParseUint: parsing {quoted}: {why}"
        )
    })
}
