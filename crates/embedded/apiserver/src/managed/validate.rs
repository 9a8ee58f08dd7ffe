//! Whether an applied configuration is of its type, with the complaints of the original.

use std::collections::BTreeSet;

use serde_json::Value;

use super::path::Step;
use super::typed::{Atom, List, Scalar, Type};
use plimsoll_golang::format;
use plimsoll_golang::strconv::quote;

/// The complaints as one text; `None` where there are none.
pub fn validate(value: &Value, of: Type<'_>) -> Option<String> {
    let mut complaints = Vec::new();
    check(value, of, "", &mut complaints);
    match complaints.as_slice() {
        [] => None,
        [one] => Some(one.clone()),
        many => {
            let lines: Vec<String> = many.iter().map(|one| format!("\n  {one}")).collect();
            Some(format!("errors:{}", lines.concat()))
        }
    }
}

fn check(value: &Value, of: Type<'_>, path: &str, complaints: &mut Vec<String>) {
    let complaint = match (of.atom(Some(value)), value) {
        (_, Value::Null) => return,
        (Atom::Scalar(kind), value) => wrong_scalar(kind, value),
        (Atom::List(list), Value::Array(values)) => {
            check_elements(values, list, path, complaints);
            return;
        }
        (Atom::List(_), other) => Some(format!("expected list, got &{{{}}}", format::shown(other))),
        (Atom::Map(fields), Value::Object(values)) => {
            for (name, value) in values {
                let path = format!("{path}.{name}");
                match fields.get(name) {
                    Some(inner) => check(value, inner, &path, complaints),
                    None => {
                        complaints.push(format!("{path}: field not declared in schema"));
                        return;
                    }
                }
            }
            return;
        }
        (Atom::Map(_), other) => Some(format!("expected map, got &{{{}}}", format::shown(other))),
    };
    complaints.extend(complaint.map(|what| said(path, &what)));
}

fn said(path: &str, what: &str) -> String {
    if path.is_empty() {
        what.to_owned()
    } else {
        format!("{path}: {what}")
    }
}

fn check_elements(values: &[Value], list: List<'_>, path: &str, complaints: &mut Vec<String>) {
    let mut seen: BTreeSet<Step> = BTreeSet::new();
    for (index, value) in values.iter().enumerate() {
        let step = if list.is_atomic() {
            Step::Index(index as i64)
        } else {
            match list.step(value) {
                Ok(step) => step,
                Err(what) => {
                    complaints.push(said(path, &format!("element {index}: {what}")));
                    return;
                }
            }
        };
        if seen.contains(&step) {
            complaints.push(said(path, &format!("duplicate entries for key {step}")));
        }
        check(value, list.element, &format!("{path}{step}"), complaints);
        seen.insert(step);
    }
}

fn wrong_scalar(kind: Scalar, value: &Value) -> Option<String> {
    match kind {
        Scalar::Number if !value.is_number() => Some(format!(
            "expected numeric (int or float), got {}",
            format::type_name(value)
        )),
        Scalar::Text if !value.is_string() => Some(format!(
            "expected string, got &value.valueUnstructured{{Value:{}}}",
            in_go_syntax(value)
        )),
        Scalar::Bool if !value.is_boolean() => Some(format!(
            "expected boolean, got &{{{}}}",
            format::shown(value)
        )),
        Scalar::Any if value.is_array() || value.is_object() => Some(format!(
            "expected any scalar, got &{{{}}}",
            format::shown(value)
        )),
        _ => None,
    }
}

/// As `%#v` shows it.
fn in_go_syntax(value: &Value) -> String {
    match value {
        Value::Null => "interface {}(nil)".to_owned(),
        Value::String(text) => quote(text),
        Value::Array(values) => {
            let shown: Vec<String> = values.iter().map(in_go_syntax).collect();
            format!("{}{{{}}}", format::LIST, shown.join(", "))
        }
        Value::Object(fields) => {
            let shown: Vec<String> = fields
                .iter()
                .map(|(name, value)| format!("{}:{}", quote(name), in_go_syntax(value)))
                .collect();
            format!("{}{{{}}}", format::MAP, shown.join(", "))
        }
        other => format::shown(other),
    }
}
