//! An answer as data: what is kept of it, and what a step wants of it.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use crate::case::Step;
use crate::client::Exchange;

/// The headers that clients act on.
const HEADERS: &[&str] = &[
    "content-type",
    "location",
    "retry-after",
    "warning",
    "www-authenticate",
];

pub fn kept_headers(exchange: &Exchange) -> Value {
    let mut kept: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, value) in &exchange.headers {
        if HEADERS.contains(&name.as_str()) {
            kept.entry(name).or_default().push(value);
        }
    }
    json!(kept)
}

/// Not a bookmark that only tells how far other writers have come: when those are sent is chance.
pub fn is_telling(event: &Value) -> bool {
    event["type"] != "BOOKMARK" || event.pointer("/object/metadata/annotations").is_some()
}

/// The body and which kind it is; nothing for an empty one.
pub fn read_body(content_type: &str, bytes: &[u8]) -> Option<(&'static str, Value)> {
    if bytes.is_empty() {
        return None;
    }
    let Ok(text) = std::str::from_utf8(bytes) else {
        // Only how it begins: that tells the encoding.
        let start: String = bytes
            .iter()
            .take(4)
            .map(|byte| format!("{byte:02x}"))
            .collect();
        return Some(("binary", json!(start)));
    };
    if content_type.contains("yaml")
        && let Ok(value) = serde_saphyr::from_str::<Value>(text)
    {
        return Some(("yaml", value));
    }
    if let Ok(value) = serde_json::from_str::<Value>(text) {
        let is_event = value.as_object().is_some_and(|fields| {
            fields.len() == 2 && fields.contains_key("type") && fields.contains_key("object")
        });
        if is_event {
            return Some(("events", json!([value])));
        }
        return Some(("json", value));
    }
    let mut lines: Vec<Value> = text
        .lines()
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    if content_type.contains("json") && lines.len() == text.lines().count() {
        lines.retain(is_telling);
        return Some(("events", json!(lines)));
    }
    Some(("text", json!(text)))
}

/// Whether an answer is one that a preparing step cannot have.
pub fn is_refusal(answer: &Value) -> bool {
    let is_error = |status: u64| status >= 400;
    answer["status"].as_u64().is_some_and(is_error) || answer["exit"].as_u64() > Some(0)
}

/// What the step wants of its answer.
pub fn reduce(mut answer: Value, step: &Step, only: &[String]) -> Value {
    // Such a step must succeed; where it does not, the answer says why.
    let is_refused = answer["status"]
        .as_u64()
        .is_some_and(|status| status >= 400);
    if step.quiet && !is_refused {
        return json!({"status": answer["status"]});
    }
    sort_managers(&mut answer);
    for pointer in &step.sort {
        let list = answer
            .get_mut("json")
            .and_then(|body| body.pointer_mut(pointer));
        if let Some(Value::Array(items)) = list {
            items.sort_by_cached_key(Value::to_string);
        }
    }
    if !only.is_empty() {
        let body = answer.get("json").cloned().unwrap_or_default();
        let parts: BTreeMap<&str, Value> = only
            .iter()
            .map(|pointer| {
                let part = body.pointer(pointer).cloned();
                (pointer.as_str(), part.unwrap_or_else(|| json!("(absent)")))
            })
            .collect();
        return json!({"status": answer["status"], "headers": answer["headers"], "only": parts});
    }
    for pattern in &step.ignore {
        let parts: Vec<&str> = pattern.split('/').skip(1).collect();
        if let Some(body) = answer.get_mut("json") {
            remove(body, &parts);
        }
    }
    answer
}

/// Explanations of columns, schemas and classes are prose for people; no client acts on them.
pub fn leave_out_documentation(value: &mut Value, written: &str) {
    match value {
        Value::Array(items) => {
            for item in items {
                leave_out_documentation(item, written);
            }
        }
        Value::Object(fields) => {
            if let Some(Value::String(text)) = fields.get("description")
                && !written.contains(text.as_str())
            {
                fields.remove("description");
            }
            for field in fields.values_mut() {
                leave_out_documentation(field, written);
            }
        }
        _ => {}
    }
}

/// Managers are in the order of their times, so two of one second and two of two may change places.
fn sort_managers(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(sort_managers),
        Value::Object(fields) => {
            if let Some(Value::Array(managers)) = fields.get_mut("managedFields") {
                let order = ["operation", "manager", "subresource", "apiVersion"];
                managers.sort_by_cached_key(|entry| order.map(|name| entry[name].to_string()));
            }
            fields.values_mut().for_each(sort_managers);
        }
        _ => {}
    }
}

fn remove(value: &mut Value, parts: &[&str]) {
    let [first, rest @ ..] = parts else {
        return;
    };
    let key = first.replace("~1", "/").replace("~0", "~");
    match value {
        Value::Object(fields) if rest.is_empty() => {
            if *first == "*" {
                fields.clear();
            } else {
                fields.remove(&key);
            }
        }
        Value::Object(fields) => {
            for (name, field) in fields.iter_mut() {
                if *first == "*" || *name == key {
                    remove(field, rest);
                }
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                if *first == "*" || index.to_string() == key {
                    remove(item, rest);
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_are_told_apart() {
        let check = |content_type: &str, body: &str, expected: Option<(&str, Value)>| {
            assert_eq!(read_body(content_type, body.as_bytes()), expected, "{body}");
        };
        let event = r#"{"type":"ADDED","object":{}}"#;
        let progress = r#"{"type":"BOOKMARK","object":{"metadata":{}}}"#;
        check("application/json", "", None);
        check("application/json", "{}", Some(("json", json!({}))));
        check("text/plain", "ok", Some(("text", json!("ok"))));
        check("application/yaml", "a: 1", Some(("yaml", json!({"a": 1}))));
        let one = json!([{"type": "ADDED", "object": {}}]);
        check("application/json", event, Some(("events", one.clone())));
        check(
            "application/json",
            &format!("{event}\n{progress}\n"),
            Some(("events", one)),
        );
        assert_eq!(
            read_body("x", &[0x6b, 0x38, 0x73, 0, 0xff]),
            Some(("binary", json!("6b387300")))
        );
    }

    #[test]
    fn parts_are_removed_by_pattern() {
        let mut value = json!({"items": [{"a": 1, "b": 2}, {"a": 3}], "x/y": 1});
        remove(&mut value, &["items", "*", "a"]);
        remove(&mut value, &["x~1y"]);
        assert_eq!(value, json!({"items": [{"b": 2}, {}]}));
    }

    #[test]
    fn documentation_goes_unless_the_case_wrote_it() {
        let mut value = json!({"description": "ours", "deep": [{"description": "theirs", "a": 1}]});
        leave_out_documentation(&mut value, "body: ours");
        assert_eq!(value, json!({"description": "ours", "deep": [{"a": 1}]}));
    }
}
