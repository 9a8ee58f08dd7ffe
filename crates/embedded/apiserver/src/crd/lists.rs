//! What a schema's extensions demand of a whole object: lists without duplicates, and resources within resources
//! that say what they are.

use serde_json::{Map, Value};

use super::schema::{Additional, Schema};
use crate::field::{FieldError, Path};
use crate::met::Met;
use crate::schema::ListType;

/// Of an object with more problems, the rest is not told.
const MOST: usize = 1000;

/// Elements that are there twice, in lists that are sets or maps.
pub fn duplicates(schema: &Schema, value: &Value, path: &Path, out: &mut Vec<FieldError>) {
    if out.len() >= MOST {
        return;
    }
    match value {
        Value::Object(map) => for_each_field(schema, map, path, |schema, value, path| {
            duplicates(schema, value, path, out);
        }),
        Value::Array(items) => {
            match &schema.list {
                Some(ListType::Set) => {
                    for index in repeated(items.iter()) {
                        out.push(FieldError::duplicate(
                            &path.index(index),
                            items[index].clone(),
                        ));
                    }
                }
                Some(ListType::Map(keys)) => duplicate_keys(keys, items, path, out),
                _ => {}
            }
            if let Some(schema) = schema.items.as_deref() {
                for (index, item) in items.iter().enumerate() {
                    duplicates(schema, item, &path.index(index), out);
                }
            }
        }
        _ => {}
    }
}

fn duplicate_keys(keys: &[Box<str>], items: &[Value], path: &Path, out: &mut Vec<FieldError>) {
    let foreign = items
        .iter()
        .position(|item| !item.is_null() && !item.is_object());
    if let Some(index) = foreign {
        out.push(FieldError::invalid(
            &path.index(index),
            items[index].clone(),
            "must be an object for an array of list-type map",
        ));
        return;
    }
    let identities: Vec<Value> = items
        .iter()
        .map(|item| {
            let fields: Map<String, Value> = keys
                .iter()
                .filter_map(|key| Some((key.to_string(), item.get(key.as_ref())?.clone())))
                .collect();
            Value::Object(fields)
        })
        .collect();
    for index in repeated(identities.iter()) {
        out.push(FieldError::duplicate(
            &path.index(index),
            identities[index].clone(),
        ));
    }
}

/// Where an element is seen for the second time; a third time is not mentioned.
fn repeated<'v>(items: impl Iterator<Item = &'v Value>) -> Vec<usize> {
    let mut met = Met::default();
    let again = items.enumerate().filter(|(_, item)| met.meet(*item) == 1);
    again.map(|(index, _)| index).take(MOST).collect()
}

/// Resources within the object must say what they are.
pub fn embedded(schema: &Schema, value: &Value, path: &Path, out: &mut Vec<FieldError>) {
    if out.len() >= MOST {
        return;
    }
    match value {
        Value::Object(map) => {
            if schema.embedded {
                for field in ["apiVersion", "kind"] {
                    let path = path.child(field);
                    match map.get(field) {
                        None => out.push(FieldError::required(&path, "")),
                        Some(Value::String(text)) if text.is_empty() => {
                            out.push(FieldError::invalid(&path, "", "must not be empty"));
                        }
                        Some(Value::String(text)) if field == "apiVersion" => {
                            if text.matches('/').count() > 1 {
                                let words = format!("unexpected GroupVersion string: {text}");
                                out.push(FieldError::invalid(&path, text.as_str(), words));
                            }
                        }
                        Some(Value::String(text)) => kind_name(text, &path, out),
                        Some(other) => {
                            out.push(FieldError::invalid(
                                &path,
                                other.clone(),
                                "must be a string",
                            ));
                        }
                    }
                }
            }
            for_each_field(schema, map, path, |schema, value, path| {
                embedded(schema, value, path, out);
            });
        }
        Value::Array(items) => {
            if let Some(schema) = schema.items.as_deref() {
                for (index, item) in items.iter().enumerate() {
                    embedded(schema, item, &path.index(index), out);
                }
            }
        }
        _ => {}
    }
}

fn kind_name(kind: &str, path: &Path, out: &mut Vec<FieldError>) {
    let lower = kind.to_lowercase();
    let starts = lower.starts_with(|c: char| c.is_ascii_lowercase());
    let ends = lower.ends_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
    let fits = starts
        && ends
        && lower
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
    let mut complaints = Vec::new();
    if lower.len() > 63 {
        complaints.push("must be no more than 63 characters");
    }
    if !fits {
        complaints.push(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic \
             character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for \
             validation is '[a-z]([-a-z0-9]*[a-z0-9])?')",
        );
    }
    if !complaints.is_empty() {
        let words = format!(
            "may have mixed case, but should otherwise match: {}",
            complaints.join(",")
        );
        out.push(FieldError::invalid(path, kind, words));
    }
}

fn for_each_field(
    schema: &Schema,
    map: &Map<String, Value>,
    path: &Path,
    mut go: impl FnMut(&Schema, &Value, &Path),
) {
    for (name, value) in map {
        if let Some(property) = schema.properties.get(name) {
            go(property, value, &path.child(name));
        } else if let Additional::Of(further) = &schema.additional {
            go(further, value, &path.key(name));
        }
    }
}
