//! JSON patch (RFC 6902) with the liberties of Kubernetes: `replace` adds what is missing, negative indices count from
//! the end, whatever does not apply is refused without a word about it.

use http::StatusCode;
use serde_json::{Map, Value};

use super::shown::Touched;
use super::{Evidence, Patched, does_not_apply};
use crate::codec::document::Document;
use crate::golang;
use crate::status::Failure;

const MAX_OPERATIONS: usize = 10_000;
/// `copy` operations may add this many bytes in total, lest a short patch grow an object without end.
const MAX_COPIED_BYTES: usize = 3 * 1024 * 1024;
const FIELDS: [&str; 4] = ["op", "path", "from", "value"];

pub fn apply(current: &Value, body: &[u8], strict: bool) -> Result<Patched, Failure> {
    let (operations, complaints) = parse(body, strict)?;
    if operations.len() > MAX_OPERATIONS {
        return Err(Failure::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "RequestEntityTooLarge",
            format!(
                "Request entity too large: The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
                operations.len()
            ),
        ));
    }
    let mut object = current.clone();
    let mut copied = 0;
    let mut touched = Touched::default();
    for operation in &operations {
        perform(&mut object, operation, &mut copied).ok_or_else(does_not_apply)?;
        for name in ["path", "from"] {
            if let Some(path) = operation.get(name).and_then(Value::as_str) {
                touched.note_path(path);
            }
        }
    }
    Ok(Patched {
        object,
        complaints,
        evidence: Evidence::Object(touched),
    })
}

type Operation = Map<String, Value>;

fn parse(body: &[u8], strict: bool) -> Result<(Vec<Operation>, Vec<String>), Failure> {
    let (prefix, list_type, item_type) = if strict {
        (
            "error decoding patch: ",
            "[]handlers.jsonPatchOp",
            "handlers.jsonPatchOp",
        )
    } else {
        ("", "jsonpatch.Patch", "jsonpatch.Operation")
    };
    let malformed = |what: String| Failure::bad_request(format!("{prefix}{what}"));
    let wrong_type = |value: &Value, wanted: &str| {
        malformed(format!(
            "json: cannot unmarshal {} into Go {wanted}",
            golang::json_kind(value)
        ))
    };
    let mut document = Document::parse(body).map_err(malformed)?;
    let items = match document.value.take() {
        Value::Null => Vec::new(),
        Value::Array(items) => items,
        other => return Err(wrong_type(&other, &format!("value of type {list_type}"))),
    };
    let mut complaints = document.complaints;
    let mut operations = Vec::with_capacity(items.len());
    for (index, item) in items.into_iter().enumerate() {
        let operation = match item {
            Value::Null => Operation::new(),
            Value::Object(fields) => fields,
            other => return Err(wrong_type(&other, &format!("value of type {item_type}"))),
        };
        for (name, value) in operation.iter().filter(|_| strict) {
            if !FIELDS.contains(&name.as_str()) {
                complaints.push(format!("unknown field \"[{index}].{name}\""));
            } else if name != "value" && !value.is_string() && !value.is_null() {
                let wanted = format!("struct field jsonPatchOp.{name} of type string");
                return Err(wrong_type(value, &wanted));
            }
        }
        operations.push(operation);
    }
    let complaints = if strict {
        complaints
            .iter()
            .map(|one| format!("json patch {one}"))
            .collect()
    } else {
        Vec::new()
    };
    Ok((operations, complaints))
}

/// `None`: the operation does not apply.
fn perform(document: &mut Value, operation: &Operation, copied: &mut usize) -> Option<()> {
    let text = |name: &str| operation.get(name)?.as_str();
    let value = operation.get("value");
    match text("op")? {
        "add" => add(document, text("path")?, value.cloned().unwrap_or_default()),
        "remove" => remove(document, text("path")?).map(drop),
        "replace" => replace(document, text("path")?, value),
        "test" => test(document, text("path")?, value),
        "move" => {
            let moved = remove(document, text("from")?)?;
            add(document, text("path")?, moved)
        }
        "copy" => {
            let found = get(document, text("from")?)?.unwrap_or_default();
            *copied += found.to_string().len();
            if *copied > MAX_COPIED_BYTES {
                return None;
            }
            add(document, text("path")?, found)
        }
        _ => None,
    }
}

/// The container that holds what `path` names, and the name within it. What stands before the first slash is ignored.
fn find<'a>(document: &'a mut Value, path: &str) -> Option<(&'a mut Value, String)> {
    let mut parts = path.split('/').skip(1);
    let mut name = unescape(parts.next()?);
    let mut container = document;
    for next in parts {
        container = match container {
            Value::Object(fields) => fields.get_mut(&name)?,
            Value::Array(values) => {
                let index = index_below(&name, values.len())?;
                &mut values[index]
            }
            _ => return None,
        };
        name = unescape(next);
    }
    (container.is_object() || container.is_array()).then_some((container, name))
}

fn unescape(part: &str) -> String {
    part.replace("~1", "/").replace("~0", "~")
}

/// Negative indices count from the end.
fn index_below(text: &str, end: usize) -> Option<usize> {
    let index: i64 = text.parse().ok()?;
    let end = i64::try_from(end).ok()?;
    let index = if index < 0 { index + end } else { index };
    (0..end)
        .contains(&index)
        .then(|| usize::try_from(index).ok())?
}

/// The inner option: an object that has no such field, which is as good as null to some operations.
fn get(document: &mut Value, path: &str) -> Option<Option<Value>> {
    let (container, name) = find(document, path)?;
    match container {
        Value::Object(fields) => Some(fields.get(&name).cloned()),
        Value::Array(values) => {
            let index = index_below(&name, values.len())?;
            Some(Some(values[index].clone()))
        }
        _ => None,
    }
}

fn add(document: &mut Value, path: &str, value: Value) -> Option<()> {
    let (container, name) = find(document, path)?;
    match container {
        Value::Object(fields) => {
            fields.insert(name, value);
        }
        Value::Array(values) if name == "-" => values.push(value),
        Value::Array(values) => {
            let index = index_below(&name, values.len() + 1)?;
            values.insert(index, value);
        }
        _ => return None,
    }
    Some(())
}

fn remove(document: &mut Value, path: &str) -> Option<Value> {
    let (container, name) = find(document, path)?;
    match container {
        Value::Object(fields) => fields.remove(&name),
        Value::Array(values) => {
            let index = index_below(&name, values.len())?;
            Some(values.remove(index))
        }
        _ => None,
    }
}

fn replace(document: &mut Value, path: &str, value: Option<&Value>) -> Option<()> {
    if path.is_empty() {
        let value = value.filter(|value| value.is_object() || value.is_array())?;
        *document = value.clone();
        return Some(());
    }
    let (container, name) = find(document, path)?;
    let value = value.cloned().unwrap_or_default();
    match container {
        Value::Object(fields) => {
            fields.insert(name, value);
        }
        Value::Array(values) => {
            let index = index_below(&name, values.len())?;
            values[index] = value;
        }
        _ => return None,
    }
    Some(())
}

fn test(document: &mut Value, path: &str, value: Option<&Value>) -> Option<()> {
    let wanted = value.unwrap_or(&Value::Null);
    let found = if path.is_empty() {
        document.clone()
    } else {
        get(document, path)?.unwrap_or_default()
    };
    (found == *wanted).then_some(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object() -> Value {
        json!({"data": {"k": "v"}, "list": [1, 2, 3], "a/b": {"~": 1}})
    }

    fn check(operations: Value, expected: Value) {
        let patched = apply(&object(), operations.to_string().as_bytes(), true).unwrap();
        assert_eq!(patched.object, expected, "{operations}");
        assert_eq!(patched.complaints, [""; 0]);
    }

    fn check_refused(operations: Value) {
        let failure = apply(&object(), operations.to_string().as_bytes(), true).unwrap_err();
        assert_eq!(failure, does_not_apply(), "{operations}");
    }

    #[test]
    fn operations_as_in_the_standard() {
        check(
            json!([{"op": "add", "path": "/data/q", "value": "1"}, {"op": "remove", "path": "/data/k"}]),
            json!({"data": {"q": "1"}, "list": [1, 2, 3], "a/b": {"~": 1}}),
        );
        check(
            json!([
                {"op": "test", "path": "/a~1b/~0", "value": 1},
                {"op": "move", "from": "/a~1b", "path": "/list/1"},
                {"op": "copy", "from": "/list/0", "path": "/list/-"},
            ]),
            json!({"data": {"k": "v"}, "list": [1, {"~": 1}, 2, 3, 1]}),
        );
        check(
            json!([{"op": "replace", "path": "", "value": {"x": 1}}]),
            json!({"x": 1}),
        );
    }

    #[test]
    fn liberties_of_the_original() {
        check(
            json!([
                {"op": "replace", "path": "/data/none", "value": "1"},
                {"op": "add", "path": "/list/-1", "value": 4},
                {"op": "remove", "path": "/list/-4"},
                {"op": "replace", "path": "/list/-1", "value": 9},
                {"op": "add", "path": "ignored/q"},
            ]),
            json!({"data": {"k": "v", "none": "1"}, "list": [2, 3, 9], "a/b": {"~": 1}, "q": null}),
        );
        check(json!([{"op": "test", "path": "/data/none"}]), object());
        check(Value::Null, object());
    }

    #[test]
    fn what_does_not_apply_is_refused_without_a_word() {
        for operation in [
            json!({"op": "x"}),
            json!({"op": "add"}),
            json!({"op": "add", "path": "", "value": {}}),
            json!({"op": "add", "path": "/none/x", "value": 1}),
            json!({"op": "add", "path": "/data/k/x", "value": 1}),
            json!({"op": "add", "path": "/list/5", "value": 1}),
            json!({"op": "add", "path": "/list/x", "value": 1}),
            json!({"op": "replace", "path": "", "value": 1}),
            json!({"op": "replace", "path": "/list/3", "value": 1}),
            json!({"op": "remove", "path": ""}),
            json!({"op": "remove", "path": "/data/none"}),
            json!({"op": "remove", "path": "/list/-5"}),
            json!({"op": "test", "path": "/data/k"}),
            json!({"op": "test", "path": "/data/k", "value": "z"}),
            json!({"op": "move", "from": "/data/none", "path": "/data/x"}),
            Value::Null,
        ] {
            check_refused(json!([operation]));
        }
    }

    #[test]
    fn malformed_patches() {
        for (body, complaint) in [
            ("{", "error decoding patch: unexpected end of JSON input"),
            (
                "{}",
                "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
            ),
            (
                "[1]",
                "error decoding patch: json: cannot unmarshal number into Go value of type handlers.jsonPatchOp",
            ),
            (
                r#"[{"op":"add","path":1}]"#,
                "error decoding patch: json: cannot unmarshal number into Go struct field jsonPatchOp.path of type string",
            ),
        ] {
            let failure = apply(&object(), body.as_bytes(), true).unwrap_err();
            assert_eq!(failure, Failure::bad_request(complaint));
        }
        let failure = apply(&object(), b"{}", false).unwrap_err();
        assert_eq!(
            failure.message,
            "json: cannot unmarshal object into Go value of type jsonpatch.Patch"
        );
    }

    #[test]
    fn oddities_are_noted() {
        let body = br#"[{"op":"add","path":"/data/q","path":"/data/r","value":"1","foo":1}]"#;
        let patched = apply(&object(), body, true).unwrap();
        assert_eq!(
            patched.complaints,
            [
                "json patch duplicate field \"[0].path\"",
                "json patch unknown field \"[0].foo\""
            ]
        );
        assert_eq!(patched.object["data"]["r"], "1");
        assert_eq!(apply(&object(), body, false).unwrap().complaints, [""; 0]);
    }

    #[test]
    fn neither_many_operations_nor_copies_without_end() {
        let one = json!({"op": "test", "path": "/data/k", "value": "v"});
        let body = Value::Array(vec![one; MAX_OPERATIONS + 1]).to_string();
        let failure = apply(&object(), body.as_bytes(), true).unwrap_err();
        assert_eq!(failure.code, StatusCode::PAYLOAD_TOO_LARGE);
        assert!(failure.message.ends_with("JSON patch is 10000, got 10001"));
        // Every operation doubles the object.
        let doubling =
            (0..64).map(|n| json!({"op": "copy", "from": "/data", "path": format!("/data/{n}")}));
        let body = Value::Array(doubling.collect()).to_string();
        assert_eq!(
            apply(&object(), body.as_bytes(), true),
            Err(does_not_apply())
        );
    }
}
