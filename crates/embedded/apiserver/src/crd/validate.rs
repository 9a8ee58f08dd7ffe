//! Checking objects against a schema, in the words and the order of the original. What an update leaves as it was
//! is not held against it.

use serde_json::Value;

use super::findings::{Findings, Kind};
use super::formats::Format;
use super::schema::{Additional, Schema, Type};
use crate::field::{FieldError, Path, extend_path};
use plimsoll_golang::strconv::{format_float, quote};

/// Of values that are told with the problems they have.
const MOST_BYTES: usize = 1 << 20;

/// `old` is the earlier value, if any; paths of errors start at `base`.
pub fn validate(
    schema: &Schema,
    value: &Value,
    old: Option<&Value>,
    base: &Path,
) -> Vec<FieldError> {
    let findings = checked(schema, value, old, "");
    let mut told = 0;
    let errors = findings.problems.into_iter().map_while(|finding| {
        let error = (told < MOST_BYTES).then(|| finding.into_error(base))?;
        told += error.len();
        Some(error)
    });
    errors.collect()
}

/// A name as it is told.
fn joined(parts: &[&str]) -> String {
    let mut name = String::new();
    parts.iter().for_each(|part| extend_path(&mut name, part));
    name
}

/// A value that is as it was is let be.
fn checked(schema: &Schema, value: &Value, old: Option<&Value>, name: &str) -> Findings {
    let mut findings = check(schema, value, old, name);
    if old.is_some_and(|old| schema.unchanged(value, old)) {
        findings.problems.clear();
    }
    findings
}

fn check(schema: &Schema, value: &Value, old: Option<&Value>, name: &str) -> Findings {
    let mut out = Findings::default();
    if value.is_null() {
        if !schema.types.is_empty() && !schema.nullable {
            mismatch(&mut out, schema, name, "null");
        } else {
            out.passed += 1;
        }
        allowed(&mut out, schema, value, name);
        return out;
    }
    if !schema.types.is_empty() || schema.limits.format.is_some() {
        check_type(&mut out, schema, value, name);
        out.passed += 1;
    }
    out.merge(combinations(schema, value, old, name));
    out.passed += 1;
    match value {
        Value::String(text) => {
            check_text(&mut out, schema, text, name);
            out.passed += 1;
            if let Some((format, Format::Text(fits))) = &schema.limits.format {
                if !fits(text) {
                    let words = format!("{name} in body must be of type {format}: {}", quote(text));
                    out.add(name, words, Kind::Type(value.clone()));
                }
                out.passed += 1;
            }
        }
        Value::Number(_) => {
            check_number(&mut out, schema, value, name);
            out.passed += 2;
        }
        Value::Array(items) => {
            check_list(&mut out, schema, items, old, name);
            out.passed += 2;
        }
        _ => {}
    }
    allowed(&mut out, schema, value, name);
    out.passed += 1;
    if let Value::Object(_) = value {
        check_object(&mut out, schema, value, old, name);
        out.passed += 1;
    }
    out.passed += 1;
    out
}

fn type_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(number) if number.is_f64() => "number",
        Value::Number(_) => "integer",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

fn mismatch(out: &mut Findings, schema: &Schema, name: &str, found: &str) {
    let wanted: Vec<&str> = schema.types.iter().map(|one| one.name()).collect();
    let text = format!(
        "{name} in body must be of type {}: {}",
        wanted.join(","),
        quote(found)
    );
    out.add(name, text, Kind::Type(found.into()));
}

/// Up to here a float says exactly which whole number it is.
const MAX_WHOLE: f64 = 9_007_199_254_740_991.0;
/// Floats from here on are no 64-bit integers.
const I64_BOUND: f64 = 9_223_372_036_854_775_808.0;

fn check_type(out: &mut Findings, schema: &Schema, value: &Value, name: &str) {
    let found = type_of(value);
    let wants = |one: Type| schema.types.contains(&one);
    let has_type = schema.types.iter().any(|one| one.name() == found);
    let whole = value
        .as_f64()
        .is_some_and(|float| float.fract() == 0.0 && float.abs() <= MAX_WHOLE);
    let number_fits = match found {
        "number" => whole && wants(Type::Integer),
        "integer" => wants(Type::Number),
        _ => false,
    };
    let numeric = wants(Type::Number) || wants(Type::Integer);
    let formatted = schema.limits.format.is_some();
    // A format says enough about a text.
    let by_format = formatted && !numeric && matches!(found, "string" | "array");
    if has_type || number_fits || by_format {
        out.passed += 1;
        return;
    }
    if let Some((format, _)) = &schema.limits.format
        && !matches!(found, "string" | "array")
    {
        let own = match found {
            "integer" => "int64",
            "number" => "float64",
            _ => "",
        };
        let text = format!("{name} in body must be of type {format}: {}", quote(own));
        out.add(name, text, Kind::Type(own.into()));
        return;
    }
    mismatch(out, schema, name, found);
}

fn check_text(out: &mut Findings, schema: &Schema, text: &str, name: &str) {
    let limits = &schema.limits;
    let length = text.chars().count() as u64;
    if let Some(max) = limits.max_length.filter(|max| length > *max) {
        let words = format!("{name} in body should be at most {max} chars long");
        out.add(name, words, Kind::TooLong(max));
    } else if let Some(min) = limits.min_length.filter(|min| length < *min) {
        out.invalid(name, format!("should be at least {min} chars long"), text);
    } else if let Some(pattern) = &limits.pattern {
        match pattern.compiled() {
            Ok(regex) if regex.is_match(text) => {}
            Ok(_) => out.invalid(name, format!("should match '{}'", pattern.text), text),
            Err(error) => out.invalid(
                name,
                format!(
                    "should match '{}, but pattern is invalid: {error}'",
                    pattern.text
                ),
                text,
            ),
        }
    }
}

fn check_number(out: &mut Findings, schema: &Schema, value: &Value, name: &str) {
    let limits = &schema.limits;
    let number = value.as_f64().unwrap_or_default();
    let fits = match (schema.types.as_slice(), &limits.format) {
        ([Type::Integer], Some((_, Format::Int32))) => {
            number.fract() == 0.0 && (f64::from(i32::MIN)..=f64::from(i32::MAX)).contains(&number)
        }
        ([Type::Integer], _) => {
            value.is_i64() || (number.fract() == 0.0 && number.abs() < I64_BOUND)
        }
        (_, Some((_, Format::Float))) => number.abs() <= f64::from(f32::MAX),
        _ => true,
    };
    if !fits && let Some(kind) = schema.types.first() {
        let format = match &limits.format {
            Some((format, _)) => format!("with format {format}"),
            None => "(default format)".to_owned(),
        };
        out.general(format!(
            "Checked value must be of type {} {format} in {name}",
            kind.name()
        ));
    }
    // Whole numbers are compared with bounds made whole.
    let shown = |bound: f64| match value.as_i64() {
        Some(_) => (bound as i64).to_string(),
        None => format_float(bound),
    };
    let bound = |bound: f64| match value.as_i64() {
        Some(_) => bound.trunc(),
        None => bound,
    };
    if let Some(factor) = limits.multiple_of {
        let multiple = match value.as_i64() {
            Some(whole) => factor.trunc() != 0.0 && whole % factor.trunc() as i64 == 0,
            None if factor < 1.0 => (1.0 / factor * number).fract() == 0.0,
            None => (number / factor).fract() == 0.0,
        };
        if value.is_i64() && factor.trunc() == 0.0 {
            // The original makes a whole number of the factor of a whole number, and then of nothing else.
            let words = format!("factor MultipleOf declared for {name} must be positive: 0");
            out.add(name, words, Kind::Invalid(0.into()));
        } else if !multiple {
            let words = format!("should be a multiple of {}", shown(factor));
            out.invalid(name, words, value.clone());
        }
    }
    if let Some(min) = limits.minimum {
        let (short, words) = if limits.exclusive_minimum {
            (number <= bound(min), "greater than")
        } else {
            (number < bound(min), "greater than or equal to")
        };
        if short {
            out.invalid(
                name,
                format!("should be {words} {}", shown(min)),
                value.clone(),
            );
        }
    }
    if let Some(max) = limits.maximum {
        let (over, words) = if limits.exclusive_maximum {
            (number >= bound(max), "less than")
        } else {
            (number > bound(max), "less than or equal to")
        };
        if over {
            out.invalid(
                name,
                format!("should be {words} {}", shown(max)),
                value.clone(),
            );
        }
    }
}

fn check_list(
    out: &mut Findings,
    schema: &Schema,
    items: &[Value],
    old: Option<&Value>,
    name: &str,
) {
    if let Some(items_schema) = schema.items.as_deref() {
        let earlier = old.and_then(|old| schema.earlier_elements(old));
        for (index, item) in items.iter().enumerate() {
            let old = earlier.as_ref().and_then(|earlier| earlier.of(item));
            let name = joined(&[name, "[", &index.to_string(), "]"]);
            out.merge(checked(items_schema, item, old, &name));
        }
    }
    let count = items.len();
    if let Some(min) = schema.limits.min_items.filter(|min| (count as u64) < *min) {
        out.invalid(name, format!("should have at least {min} items"), count);
    }
    if let Some(max) = schema.limits.max_items.filter(|max| count as u64 > *max) {
        let words = format!("{name} in body should have at most {max} items");
        out.add(name, words, Kind::TooMany { actual: count, max });
    }
}

fn allowed(out: &mut Findings, schema: &Schema, value: &Value, name: &str) {
    let allowed = &schema.limits.allowed;
    if allowed.allows(value) {
        return;
    }
    // The text only tells one such problem from another; there may be many values.
    let allowed = allowed.all.clone();
    let text = format!("{name} in body should be one of {:p}", allowed.as_ptr());
    let kind = Kind::Unsupported {
        value: value.clone(),
        allowed,
    };
    out.add(name, text, kind);
}

fn check_object(
    out: &mut Findings,
    schema: &Schema,
    value: &Value,
    old: Option<&Value>,
    name: &str,
) {
    let Some(map) = value.as_object() else {
        return;
    };
    let limits = &schema.limits;
    let count = map.len();
    if let Some(min) = limits.min_properties.filter(|min| (count as u64) < *min) {
        out.invalid(
            name,
            format!("should have at least {min} properties"),
            count,
        );
    }
    if let Some(max) = limits.max_properties.filter(|max| count as u64 > *max) {
        let words = format!("{name} in body should have at most {max} properties");
        out.add(name, words, Kind::TooMany { actual: count, max });
    }
    let earlier = |field: &str| {
        // The version in which the client speaks is not part of what is kept.
        if name.is_empty() && matches!(field, "kind" | "apiVersion") {
            return None;
        }
        schema.earlier_field(field, old?)
    };
    if let Additional::Of(further) = &schema.additional {
        for (field, value) in map {
            if !schema.properties.contains_key(field) {
                let name = joined(&[name, ".", field]);
                out.merge(checked(further, value, earlier(field), &name));
            }
        }
    }
    for (field, property) in &schema.properties {
        if let Some(value) = map.get(field) {
            let name = match name {
                "" => joined(&[field]),
                name => joined(&[name, ".", field]),
            };
            out.merge(checked(property, value, earlier(field), &name));
        }
    }
    for field in &limits.required {
        if !map.contains_key(field) {
            let name = joined(&[name, ".", field]);
            out.add(&name, format!("{name} in body is required"), Kind::Required);
        }
    }
}

/// `anyOf`, `oneOf`, `allOf`, `not`.
fn combinations(schema: &Schema, value: &Value, old: Option<&Value>, name: &str) -> Findings {
    let mut out = Findings::default();
    let results = |schemas: &[Schema]| -> Vec<Findings> {
        schemas
            .iter()
            .map(|schema| check(schema, value, old, name))
            .collect()
    };
    if !schema.any_of.is_empty() {
        let mut best: Option<Findings> = None;
        let mut fits = false;
        for result in results(&schema.any_of) {
            if result.fine() {
                fits = true;
                best = Some(result);
                break;
            }
            if best.as_ref().is_none_or(|best| result.passed > best.passed) {
                best = Some(result);
            }
        }
        if !fits {
            out.general(format!(
                "{} must validate at least one schema (anyOf)",
                quote(name)
            ));
        }
        out.merge(best.unwrap_or_default());
    }
    if !schema.one_of.is_empty() {
        let mut best: Option<Findings> = None;
        let mut first = None;
        let mut fitting = 0;
        for result in results(&schema.one_of) {
            if result.fine() {
                fitting += 1;
                best = None;
                first.get_or_insert(result);
            } else if fitting == 0 && best.as_ref().is_none_or(|best| result.passed > best.passed) {
                best = Some(result);
            }
        }
        if fitting == 1 {
            out.merge(first.unwrap_or_default());
        } else {
            let found = match fitting {
                0 => "Found none valid".to_owned(),
                count => format!("Found {count} valid alternatives"),
            };
            out.general(format!(
                "{} must validate one and only one schema (oneOf). {found}",
                quote(name)
            ));
            out.merge(best.unwrap_or_default());
        }
    }
    if !schema.all_of.is_empty() {
        let results = results(&schema.all_of);
        let fitting = results.iter().filter(|result| result.fine()).count();
        let all = results.len();
        for result in results {
            out.merge(result);
        }
        if fitting != all {
            let none = if fitting == 0 { ". None validated" } else { "" };
            out.general(format!(
                "{} must validate all the schemas (allOf){none}",
                quote(name)
            ));
        }
    }
    if let Some(not) = schema.not.as_deref()
        && check(not, value, old, name).fine()
    {
        out.general(format!(
            "{} must not validate the schema (not)",
            quote(name)
        ));
    }
    out.passed += 1;
    out
}
