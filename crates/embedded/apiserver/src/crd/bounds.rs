//! How large values of a schema can be. The original's estimates of what rules cost begin here, so the numbers are its.

use std::collections::BTreeMap;

use plimsoll_expressions::{Bounds, Inside};
use serde_json::Value;

use super::visible::escape;

/// Bytes of the largest object.
const REQUEST: u64 = 3 << 20;
/// A text takes two bytes for its quotes.
const TEXT: u64 = REQUEST - 2;

/// `None` where the schema does not say: rules do not see such values. `root`: of a whole object.
pub fn bounds(schema: &Value, root: bool) -> Option<Bounds> {
    if schema["x-kubernetes-int-or-string"] == true {
        let most = longest(schema).map_or(TEXT, |length| length.saturating_mul(4));
        return Some(plain(most, 1));
    }
    Some(match schema["type"].as_str()? {
        "boolean" => plain(0, 4),
        "integer" | "number" => plain(0, 1),
        "string" => text(schema),
        "array" => {
            let items = within(&schema["items"])?;
            let most =
                limit(schema, "maxItems").unwrap_or((REQUEST - 2) / (items.least_written + 1));
            Bounds {
                most,
                least_written: 2,
                inside: Inside::List(Box::new(items)),
            }
        }
        "object" => match &schema["additionalProperties"] {
            further @ Value::Object(_) => {
                let of = within(further)?;
                let most = limit(schema, "maxProperties")
                    .unwrap_or((REQUEST - 2) / (of.least_written + 6));
                Bounds {
                    most,
                    least_written: 2,
                    inside: Inside::Map {
                        key: 0,
                        of: Box::new(of),
                        named: false,
                    },
                }
            }
            _ => object(
                schema,
                root || schema["x-kubernetes-embedded-resource"] == true,
            ),
        },
        _ => return None,
    })
}

fn within(schema: &Value) -> Option<Bounds> {
    bounds(schema, false)
}

fn plain(most: u64, least_written: u64) -> Bounds {
    Bounds {
        most,
        least_written,
        inside: Inside::Nothing,
    }
}

/// A limit below nothing is nothing.
fn limit(schema: &Value, name: &str) -> Option<u64> {
    let limit = schema[name].as_i64()?;
    Some(u64::try_from(limit).unwrap_or(0))
}

fn longest(schema: &Value) -> Option<u64> {
    limit(schema, "maxLength")
}

fn text(schema: &Value) -> Bounds {
    match schema["format"].as_str() {
        Some("byte") => plain(longest(schema).unwrap_or(TEXT), 2),
        Some("duration") => plain(32, 3),
        Some("date") => plain(12, 12),
        Some("date-time") => plain(32, 21),
        _ => {
            let values = schema["enum"]
                .as_array()
                .map(Vec::as_slice)
                .unwrap_or_default();
            let most = match longest(schema) {
                // Limits count letters, which may have four bytes.
                Some(length) => length.saturating_mul(4),
                None if values.is_empty() => TEXT,
                None => {
                    let lengths = values.iter().filter_map(Value::as_str).map(str::len);
                    lengths.max().unwrap_or(0) as u64
                }
            };
            plain(most, 2)
        }
    }
}

fn object(schema: &Value, root: bool) -> Bounds {
    let required = schema["required"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let mut least_written = 2_u64;
    let mut fields = BTreeMap::new();
    let mut add = |name: &str, of: Bounds, may_be_left_out: bool| {
        if !may_be_left_out && required.iter().any(|one| one == name) {
            least_written = least_written.saturating_add(name.len() as u64 + of.least_written + 4);
        }
        if let Some(escaped) = escape(name) {
            fields.insert(escaped, of);
        }
    };
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let is_meta = root && matches!(name.as_str(), "apiVersion" | "kind" | "metadata");
        if let Some(of) = within(property).filter(|_| !is_meta) {
            add(name, of, !property["default"].is_null());
        }
    }
    if root {
        let name = || plain(TEXT, 2);
        add("apiVersion", name(), false);
        add("kind", name(), false);
        let meta = ["name", "generateName"].map(|field| (field.to_owned(), name()));
        let meta = Bounds {
            most: 0,
            least_written: 2,
            inside: Inside::Object(meta.into()),
        };
        add("metadata", meta, false);
    }
    Bounds {
        most: 0,
        least_written,
        inside: Inside::Object(fields),
    }
}

/// How often a value of this size can be in an object at most.
pub fn repeated(least_written: u64) -> u64 {
    REQUEST / least_written.saturating_add(1)
}

/// How many values each of this has within, if that is limited.
pub fn factor(schema: &Value) -> Option<u64> {
    match schema["type"].as_str() {
        Some("array") => limit(schema, "maxItems"),
        Some("object") if !schema["additionalProperties"].is_null() => {
            limit(schema, "maxProperties")
        }
        _ => Some(1),
    }
}
