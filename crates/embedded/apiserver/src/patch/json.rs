//! JSON patch (RFC 6902) with the liberties of Kubernetes: `replace` adds what is missing, negative indices count from
//! the end, whatever does not apply is refused without a word about it.

use http::StatusCode;
use serde_json::{Map, Value};

use super::shown::Touched;
use super::{Evidence, Patched, does_not_apply};
use crate::codec::document::Document;
use crate::codec::objections::Objections;
use crate::depth::{MAX_DEPTH, TooDeep};
use crate::status::StatusError;
use plimsoll_golang::format;

const MAX_OPERATIONS: usize = 10_000;
/// `copy` operations may add this many bytes in total, lest a short patch grow an object without end.
const MAX_COPIED_BYTES: usize = 3 * 1024 * 1024;
/// This many values may be looked at or moved in all: a short operation may concern all of a large object.
const MAX_EFFORT: usize = 50_000_000;
const FIELDS: [&str; 4] = ["op", "path", "from", "value"];

/// Why a patch is not applied.
#[derive(Debug)]
enum Stop {
    /// Nothing is said about it.
    DoesNotApply,
    TooDeep,
    TooLaborious,
}

impl From<TooDeep> for Stop {
    fn from(TooDeep: TooDeep) -> Self {
        Self::TooDeep
    }
}

impl From<Stop> for StatusError {
    fn from(stop: Stop) -> Self {
        match stop {
            Stop::DoesNotApply => does_not_apply(),
            Stop::TooDeep => Self::bad_request(format!("the patch does not apply: {TooDeep}")),
            Stop::TooLaborious => Self::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                "RequestEntityTooLarge",
                "Request entity too large: the JSON patch moves too much of the object too often",
            ),
        }
    }
}

/// What a patch has used up.
#[derive(Debug, Default)]
struct Spent {
    copied_bytes: usize,
    effort: usize,
}

impl Spent {
    fn effort(&mut self, values: usize) -> Result<(), Stop> {
        self.effort = self.effort.saturating_add(values);
        match self.effort {
            ..=MAX_EFFORT => Ok(()),
            _ => Err(Stop::TooLaborious),
        }
    }

    /// Looks at a value that is to stand this many levels down. It must not be too deep there.
    fn place(&mut self, value: &Value, level: usize) -> Result<(), Stop> {
        let levels = MAX_DEPTH.saturating_sub(level);
        let values = count_within(value, levels)?;
        self.effort(values)
    }
}

/// How many values there are in this one, which must nest within `levels`.
fn count_within(value: &Value, levels: usize) -> Result<usize, TooDeep> {
    let below = levels.checked_sub(1).ok_or(TooDeep);
    let mut count = 1_usize;
    match value {
        Value::Array(items) => {
            for one in items {
                count += count_within(one, below?)?;
            }
        }
        Value::Object(fields) => {
            for one in fields.values() {
                count += count_within(one, below?)?;
            }
        }
        _ => return Ok(count),
    }
    below.map(|_| count)
}

pub fn apply(current: &Value, body: &[u8], strict: bool) -> Result<Patched, StatusError> {
    let (operations, complaints) = parse(body, strict)?;
    if operations.len() > MAX_OPERATIONS {
        return Err(StatusError::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "RequestEntityTooLarge",
            format!(
                "Request entity too large: The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
                operations.len()
            ),
        ));
    }
    let mut object = current.clone();
    let mut spent = Spent::default();
    let mut touched = Touched::default();
    for operation in &operations {
        perform(&mut object, operation, &mut spent)?;
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

fn parse(body: &[u8], strict: bool) -> Result<(Vec<Operation>, Vec<String>), StatusError> {
    let (prefix, list_type, item_type) = if strict {
        (
            "error decoding patch: ",
            "[]handlers.jsonPatchOp",
            "handlers.jsonPatchOp",
        )
    } else {
        ("", "jsonpatch.Patch", "jsonpatch.Operation")
    };
    let malformed = |what: String| StatusError::bad_request(format!("{prefix}{what}"));
    let wrong_type = |value: &Value, wanted: &str| {
        malformed(format!(
            "json: cannot unmarshal {} into Go {wanted}",
            format::json_kind(value)
        ))
    };
    let mut document = Document::parse(body).map_err(malformed)?;
    let items = match document.value.take() {
        Value::Null => Vec::new(),
        Value::Array(items) => items,
        other => return Err(wrong_type(&other, &format!("value of type {list_type}"))),
    };
    let mut unknown = Objections::default();
    let mut operations = Vec::with_capacity(items.len());
    for (index, item) in items.into_iter().enumerate() {
        let operation = match item {
            Value::Null => Operation::new(),
            Value::Object(fields) => fields,
            other => return Err(wrong_type(&other, &format!("value of type {item_type}"))),
        };
        for (name, value) in operation.iter().filter(|_| strict) {
            if !FIELDS.contains(&name.as_str()) {
                unknown.add(|| format!("unknown field \"[{index}].{name}\""));
            } else if name != "value" && !value.is_string() && !value.is_null() {
                let wanted = format!("struct field jsonPatchOp.{name} of type string");
                return Err(wrong_type(value, &wanted));
            }
        }
        operations.push(operation);
    }
    let complaints = if strict {
        document
            .complaints
            .into_iter()
            .chain(unknown.into_words())
            .map(|one| format!("json patch {one}"))
            .collect()
    } else {
        Vec::new()
    };
    Ok((operations, complaints))
}

fn perform(document: &mut Value, operation: &Operation, spent: &mut Spent) -> Result<(), Stop> {
    let text = |name: &str| {
        let text = operation.get(name).and_then(Value::as_str);
        text.ok_or(Stop::DoesNotApply)
    };
    let value = operation.get("value");
    match text("op")? {
        "add" => {
            let value = value.cloned().unwrap_or_default();
            let place = find(document, text("path")?)?;
            spent.place(&value, place.level)?;
            place.add(value, spent)
        }
        "remove" => find(document, text("path")?)?.remove(spent).map(drop),
        "replace" => replace(document, text("path")?, value, spent),
        "test" => test(document, text("path")?, value),
        "move" => {
            let from = find(document, text("from")?)?;
            let was_at = from.level;
            let moved = from.remove(spent)?;
            let place = find(document, text("path")?)?;
            // Where it is no further down, it is no deeper.
            if place.level > was_at {
                spent.place(&moved, place.level)?;
            }
            place.add(moved, spent)
        }
        "copy" => {
            let from = find(document, text("from")?)?;
            let found = from.get()?.unwrap_or(&Value::Null);
            // Found out before there is a copy, which may be larger or deeper than anything should be.
            let (bytes, values) = (length(found), count_within(found, MAX_DEPTH)?);
            spent.copied_bytes = spent.copied_bytes.saturating_add(bytes);
            if spent.copied_bytes > MAX_COPIED_BYTES {
                return Err(Stop::DoesNotApply);
            }
            spent.effort(values)?;
            let copy = found.clone();
            let place = find(document, text("path")?)?;
            spent.place(&copy, place.level)?;
            place.add(copy, spent)
        }
        _ => Err(Stop::DoesNotApply),
    }
}

/// Of the value as JSON.
fn length(value: &Value) -> usize {
    struct Count(usize);
    impl std::io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // Neither counting nor writing a value can fail.
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}

/// What a path names: an object or list, and a name within it.
struct Place<'d> {
    container: &'d mut Value,
    name: String,
    /// How many containers are around the named value.
    level: usize,
}

/// What stands before the first slash is ignored.
fn find<'d>(document: &'d mut Value, path: &str) -> Result<Place<'d>, Stop> {
    let mut parts = path.split('/').skip(1);
    let mut name = unescape(parts.next().ok_or(Stop::DoesNotApply)?);
    let mut container = document;
    let mut level = 1;
    for next in parts {
        container = match container {
            Value::Object(fields) => fields.get_mut(&name),
            Value::Array(values) => {
                let index = index_below(&name, values.len());
                index.map(|index| &mut values[index])
            }
            _ => None,
        }
        .ok_or(Stop::DoesNotApply)?;
        name = unescape(next);
        level += 1;
    }
    if !container.is_object() && !container.is_array() {
        return Err(Stop::DoesNotApply);
    }
    Ok(Place {
        container,
        name,
        level,
    })
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

impl<'d> Place<'d> {
    /// The inner option: an object that has no such field, which is as good as null to some operations.
    fn get(self) -> Result<Option<&'d Value>, Stop> {
        match self.container {
            Value::Object(fields) => Ok(fields.get(&self.name)),
            Value::Array(values) => {
                let index = index_below(&self.name, values.len()).ok_or(Stop::DoesNotApply)?;
                Ok(Some(&values[index]))
            }
            _ => Err(Stop::DoesNotApply),
        }
    }

    fn add(self, value: Value, spent: &mut Spent) -> Result<(), Stop> {
        match self.container {
            Value::Object(fields) => {
                fields.insert(self.name, value);
            }
            Value::Array(values) if self.name == "-" => values.push(value),
            Value::Array(values) => {
                let index = index_below(&self.name, values.len() + 1).ok_or(Stop::DoesNotApply)?;
                spent.effort(values.len() - index)?;
                values.insert(index, value);
            }
            _ => return Err(Stop::DoesNotApply),
        }
        Ok(())
    }

    fn remove(self, spent: &mut Spent) -> Result<Value, Stop> {
        match self.container {
            Value::Object(fields) => fields.remove(&self.name).ok_or(Stop::DoesNotApply),
            Value::Array(values) => {
                let index = index_below(&self.name, values.len()).ok_or(Stop::DoesNotApply)?;
                spent.effort(values.len() - index)?;
                Ok(values.remove(index))
            }
            _ => Err(Stop::DoesNotApply),
        }
    }
}

fn replace(
    document: &mut Value,
    path: &str,
    value: Option<&Value>,
    spent: &mut Spent,
) -> Result<(), Stop> {
    if path.is_empty() {
        let value = value.filter(|value| value.is_object() || value.is_array());
        let value = value.ok_or(Stop::DoesNotApply)?;
        spent.place(value, 0)?;
        *document = value.clone();
        return Ok(());
    }
    let place = find(document, path)?;
    let value = value.cloned().unwrap_or_default();
    spent.place(&value, place.level)?;
    match place.container {
        Value::Object(fields) => {
            fields.insert(place.name, value);
        }
        Value::Array(values) => {
            let index = index_below(&place.name, values.len()).ok_or(Stop::DoesNotApply)?;
            values[index] = value;
        }
        _ => return Err(Stop::DoesNotApply),
    }
    Ok(())
}

fn test(document: &mut Value, path: &str, value: Option<&Value>) -> Result<(), Stop> {
    let wanted = value.unwrap_or(&Value::Null);
    let is_same = if path.is_empty() {
        document == wanted
    } else {
        find(document, path)?.get()?.unwrap_or(&Value::Null) == wanted
    };
    match is_same {
        true => Ok(()),
        false => Err(Stop::DoesNotApply),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// A short patch that copies what it has made, again and again.
    fn doubling(copies: usize) -> Vec<u8> {
        let mut operations = vec![json!({"op": "add", "path": "/a", "value": {"a": {"a": 1}}})];
        let mut path = "/a/a/a".to_owned();
        for _ in 0..copies {
            operations.push(json!({"op": "copy", "from": "/a", "path": path}));
            path = format!("{path}{}", &path[2..]);
        }
        json!(operations).to_string().into_bytes()
    }

    #[test]
    fn what_copies_of_copies_make_is_bounded_in_depth() {
        assert!(apply(&json!({}), &doubling(3), true).is_ok());
        let failure = apply(&json!({}), &doubling(8), true).unwrap_err();
        assert_eq!(failure.code, StatusCode::BAD_REQUEST);
        assert_eq!(
            failure.message,
            "the patch does not apply: the document nests deeper than 100 levels"
        );
    }

    #[test]
    fn no_operation_makes_anything_too_deep() {
        let nested = |levels: usize| (0..levels).fold(json!(1), |inner, _| json!({"a": inner}));
        let deepest = "/a".repeat(MAX_DEPTH - 1);
        let object = json!({"a": nested(MAX_DEPTH - 1)["a"], "b": {"c": []}});
        for operation in [
            json!({"op": "add", "path": format!("{deepest}/b"), "value": {}}),
            json!({"op": "replace", "path": format!("{deepest}/a"), "value": []}),
            json!({"op": "copy", "from": "/b", "path": format!("{deepest}/b")}),
            json!({"op": "move", "from": "/b/c", "path": format!("{deepest}/b")}),
        ] {
            let object = merge_at(&object, &deepest);
            let body = json!([operation]).to_string();
            let refused = apply(&object, body.as_bytes(), true).unwrap_err();
            assert_eq!(refused.code, StatusCode::BAD_REQUEST, "{operation}");
        }
        for operation in [
            json!({"op": "add", "path": format!("{deepest}/b"), "value": 1}),
            json!({"op": "replace", "path": "", "value": nested(90)}),
            json!({"op": "copy", "from": "/b", "path": "/d"}),
        ] {
            let object = merge_at(&object, &deepest);
            let body = json!([operation]).to_string();
            assert!(apply(&object, body.as_bytes(), true).is_ok(), "{operation}");
        }
    }

    /// The object with an object at the path, which is made of fields called `a`.
    fn merge_at(object: &Value, path: &str) -> Value {
        let levels = path.len() / 2;
        let inner = (0..levels).fold(json!({"a": 1}), |inner, _| json!({"a": inner}));
        let mut object = object.clone();
        object["a"] = inner["a"].clone();
        object
    }

    /// A path that no operation follows is not followed either.
    #[test]
    fn a_path_beside_the_point_may_be_long() {
        let operation =
            json!({"op": "add", "path": "/x", "value": 1, "from": "/a".repeat(1 << 20)});
        let body = json!([operation]).to_string();
        assert!(apply(&json!({}), body.as_bytes(), false).is_ok());
    }

    #[test]
    fn what_takes_too_much_work_is_refused() {
        let object = json!({"list": vec![0; 100_000]});
        let push = json!({"op": "add", "path": "/list/0", "value": 1});
        let patch = |count: usize| json!(vec![&push; count]).to_string().into_bytes();
        assert!(apply(&object, &patch(100), true).is_ok());
        let refused = apply(&object, &patch(1000), true).unwrap_err();
        assert_eq!(refused.code, StatusCode::PAYLOAD_TOO_LARGE);
    }

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
            assert_eq!(failure, StatusError::bad_request(complaint));
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
