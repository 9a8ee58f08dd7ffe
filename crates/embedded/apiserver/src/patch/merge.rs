//! JSON merge patch (RFC 7386). Beyond the standard, nulls are also dropped from objects within new lists.

use serde_json::{Map, Value};

use super::shown::Touched;
use super::{Evidence, Patched, parse_object};
use crate::codec::document::Document;
use crate::status::StatusError;

pub fn apply(current: &Value, body: &[u8], strict: bool) -> Result<Patched, StatusError> {
    let (patch, complaints) = if strict {
        let (fields, document) = parse_object(body)
            .map_err(|what| StatusError::bad_request(format!("error decoding patch: {what}")))?;
        (fields.map(Value::Object), document.complaints)
    } else {
        (
            Document::parse(body).ok().map(|document| document.value),
            Vec::new(),
        )
    };
    let mut touched = Touched::default();
    let object = match patch {
        Some(Value::Object(patch)) => {
            let patch = Value::Object(patch);
            touched = Touched::by_merge(Some(current), &patch);
            let mut object = current.clone();
            merge(&mut object, patch);
            object
        }
        // Cannot be the object that is wanted, which its decoding will say.
        Some(mut list @ Value::Array(_)) => {
            drop_nulls(&mut list);
            list
        }
        _ => return Err(StatusError::bad_request("Invalid JSON Patch")),
    };
    Ok(Patched {
        object,
        complaints,
        evidence: Evidence::Object(touched),
    })
}

fn merge(current: &mut Value, mut patch: Value) {
    let Value::Object(fields) = current else {
        drop_nulls(&mut patch);
        *current = patch;
        return;
    };
    match patch {
        Value::Object(patch) => merge_fields(fields, patch),
        other => *current = other,
    }
}

fn merge_fields(fields: &mut Map<String, Value>, patch: Map<String, Value>) {
    for (name, mut value) in patch {
        if value.is_null() {
            fields.remove(&name);
            continue;
        }
        match fields.get_mut(&name) {
            Some(current) => merge(current, value),
            None => {
                drop_nulls(&mut value);
                fields.insert(name, value);
            }
        }
    }
}

/// Fields that are null; elements of lists stay.
pub(super) fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(values) => values.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn patched(current: Value, patch: Value) -> Value {
        apply(&current, patch.to_string().as_bytes(), true)
            .unwrap()
            .object
    }

    #[test]
    fn examples_of_the_standard() {
        for (current, patch, expected) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (
                json!({"a": "b"}),
                json!({"b": "c"}),
                json!({"a": "b", "b": "c"}),
            ),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (
                json!({"a": {"b": "c"}}),
                json!({"a": {"b": "d", "c": null}}),
                json!({"a": {"b": "d"}}),
            ),
            (
                json!({"a": [{"b": "c"}]}),
                json!({"a": [1]}),
                json!({"a": [1]}),
            ),
            (
                json!({}),
                json!({"a": {"bb": {"ccc": null}}}),
                json!({"a": {"bb": {}}}),
            ),
        ] {
            assert_eq!(patched(current, patch), expected);
        }
    }

    #[test]
    fn nulls_vanish_from_new_lists_of_objects() {
        let patch = json!({"a": [{"b": null, "c": 1}, null]});
        assert_eq!(patched(json!({}), patch), json!({"a": [{"c": 1}, null]}));
    }

    #[test]
    fn malformed_patches() {
        for (body, complaint) in [
            ("null", "Invalid JSON Patch"),
            ("{", "error decoding patch: unexpected end of JSON input"),
            (
                "[1]",
                "error decoding patch: json: cannot unmarshal array into Go value of type map[string]interface {}",
            ),
        ] {
            let failure = apply(&json!({}), body.as_bytes(), true).unwrap_err();
            assert_eq!(failure, StatusError::bad_request(complaint));
        }
        let failure = apply(&json!({}), b"{", false).unwrap_err();
        assert_eq!(failure.message, "Invalid JSON Patch");
        assert_eq!(apply(&json!({}), b"[1]", false).unwrap().object, json!([1]));
    }

    #[test]
    fn duplicates_are_noted() {
        let body = br#"{"data":{"k":"1","k":"2"}}"#;
        assert_eq!(
            apply(&json!({}), body, true).unwrap().complaints,
            ["duplicate field \"data.k\""]
        );
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            (0..5i64).prop_map(Value::from),
            "[a-c]{0,2}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 20, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
                prop::collection::btree_map("[a-c]", inner, 0..4)
                    .prop_map(|fields| Value::Object(fields.into_iter().collect())),
            ]
        })
    }

    fn any_object() -> impl Strategy<Value = Value> {
        prop::collection::btree_map("[a-c]", any_json(), 0..4)
            .prop_map(|fields| Value::Object(fields.into_iter().collect()))
    }

    proptest! {
        #[test]
        fn patching_twice_is_patching_once(current in any_object(), patch in any_object()) {
            let mut current = current;
            drop_nulls(&mut current);
            let mut once = patched(current, patch.clone());
            let mut twice = patched(once.clone(), patch);
            // A list in place of an object keeps the nulls within its elements until it is patched again.
            drop_nulls(&mut once);
            drop_nulls(&mut twice);
            prop_assert_eq!(twice, once);
        }

        #[test]
        fn an_empty_patch_changes_nothing(current in any_object()) {
            prop_assert_eq!(patched(current.clone(), json!({})), current);
        }
    }
}
