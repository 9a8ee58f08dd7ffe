//! Columns of custom resources: each a JSONPath into the object.

use std::sync::Arc;

use serde_json::Value;

use super::jsonpath::JsonPath;
use super::view::View;
use super::words;
use crate::resource::Column;
use plimsoll_golang::human_duration;
use plimsoll_golang::strconv::format_float;

/// Where a column of a custom resource comes from.
#[derive(Debug, Clone, PartialEq)]
pub enum CustomColumn {
    Name,
    Path { path: JsonPath, description: String },
}

impl CustomColumn {
    pub fn description(&self) -> String {
        match self {
            Self::Name => words::of("Name").to_owned(),
            Self::Path { description, .. } => description.clone(),
        }
    }
}

/// The columns of a custom resource from `additionalPrinterColumns`; those after one that cannot be read are left
/// out, as the original does.
pub fn columns(definitions: &[Value]) -> Vec<Column> {
    let mut columns = vec![Column(
        "Name".into(),
        "string".into(),
        "name".into(),
        0,
        Some(Arc::new(CustomColumn::Name)),
    )];
    for definition in definitions {
        let text = |field: &str| definition[field].as_str().unwrap_or_default().to_owned();
        let json_path = text("jsonPath");
        let Ok(path) = JsonPath::parse(&json_path) else {
            break;
        };
        let description = match text("description") {
            given if given.is_empty() => {
                format!("Custom resource definition column (in JSONPath format): {json_path}")
            }
            given => given,
        };
        columns.push(Column(
            text("name"),
            text("type"),
            text("format"),
            definition["priority"].as_i64().unwrap_or_default() as i32,
            Some(Arc::new(CustomColumn::Path { path, description })),
        ));
    }
    columns
}

/// The `additionalPrinterColumns` of a version that has none.
pub fn default_custom_columns() -> Vec<Value> {
    vec![serde_json::json!({
        "name": "Age",
        "type": "date",
        "description": words::of("Age"),
        "jsonPath": ".metadata.creationTimestamp",
    })]
}

pub fn row(columns: &[Column], view: View<'_>) -> Vec<Value> {
    columns
        .iter()
        .map(|Column(_, kind, _, _, custom)| match custom.as_deref() {
            None | Some(CustomColumn::Name) => view.name().into(),
            Some(CustomColumn::Path { path, .. }) => match path.find(view.value) {
                Ok(found) => found
                    .first()
                    .map_or(Value::Null, |value| cell(kind, value, view)),
                Err(_) => Value::Null,
            },
        })
        .collect()
}

fn cell(kind: &str, value: &Value, view: View<'_>) -> Value {
    match (kind, value) {
        ("string", Value::String(_)) => value.clone(),
        ("string", Value::Null) => "<no value>".into(),
        ("string", Value::Number(number)) if number.is_f64() => {
            format_float(number.as_f64().unwrap_or_default()).into()
        }
        ("string", other) => go_json(other).into(),
        ("integer", Value::Number(number)) => match number.as_i64() {
            Some(whole) => whole.into(),
            None => (number.as_f64().unwrap_or_default() as i64).into(),
        },
        ("number", Value::Number(number)) => match number.as_i64() {
            Some(whole) => whole.into(),
            None => value.clone(),
        },
        ("boolean", Value::Bool(_)) => value.clone(),
        ("date", Value::String(text)) => match text.parse::<jiff::Timestamp>() {
            Ok(then) => human_duration::between(then, view.now).into(),
            Err(_) if text.is_empty() => "<unknown>".into(),
            Err(_) => "<invalid>".into(),
        },
        _ => Value::Null,
    }
}

/// JSON as Go writes it: fit to stand within HTML.
fn go_json(value: &Value) -> String {
    let mut out = String::new();
    for c in value.to_string().chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                out.push_str(&format!("\\u{:04x}", c as u32));
            }
            other => out.push(other),
        }
    }
    out
}
