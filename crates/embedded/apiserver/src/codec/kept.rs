//! What of a built-in object survives being kept: no list that is there but empty. Where it may be left out it is; one
//! that is always written comes back as null from the real servers' protobuf, which has no word for it.

use serde_json::Value;

use crate::schema::{Omit, Shape, Types};

/// How objects are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum As {
    Protobuf,
    Json,
}

/// Takes out the empty lists.
pub fn forget_empty_lists(types: &Types, shape: &Shape, kept: As, value: &mut Value) {
    if has_empty_list(value) {
        forget(types, shape, kept, value);
    }
}

/// Few objects have one, and looking is cheaper than following the types. The one map that is told from an absent one
/// goes with them.
pub fn has_empty_list(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.is_empty() || items.iter().any(has_empty_list),
        Value::Object(fields) => fields.iter().any(|(name, value)| match value {
            Value::Object(inner) if inner.is_empty() => name == OVERHEAD,
            value => has_empty_list(value),
        }),
        _ => false,
    }
}

const OVERHEAD: &str = "overhead";

fn forget(types: &Types, shape: &Shape, kept: As, value: &mut Value) {
    match (shape, value) {
        (Shape::Struct(id), Value::Object(fields)) => {
            for field in &types.get(*id).fields {
                let Some(value) = fields.get_mut(field.name.as_ref()) else {
                    continue;
                };
                if !is_void(&field.shape, value) {
                    forget(types, &field.shape, kept, value);
                } else if field.omit != Omit::Never {
                    fields.remove(field.name.as_ref());
                } else if kept == As::Protobuf {
                    *value = Value::Null;
                }
            }
        }
        (Shape::List(element, _), Value::Array(items)) => {
            for item in items {
                forget(types, element, kept, item);
            }
        }
        (Shape::Map(element, _), Value::Object(entries)) => {
            for entry in entries.values_mut() {
                forget(types, element, kept, entry);
            }
        }
        _ => {}
    }
}

fn is_void(shape: &Shape, value: &Value) -> bool {
    match (shape, value) {
        (Shape::List(..), Value::Array(items)) => items.is_empty(),
        (Shape::Map(..), Value::Object(entries)) => entries.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::resource::builtin_type;

    #[test]
    fn lists_without_elements_are_left_out_or_null() {
        let id = builtin_type("batch", "v1", "Job").unwrap();
        let shape = Shape::Struct(id);
        let mut job = json!({"spec": {
            "podFailurePolicy": {"rules": []},
            "template": {"spec": {"overhead": {}, "containers": [{"name": "c", "command": []}]}},
        }});
        let mut as_json = job.clone();
        forget_empty_lists(Types::builtin(), &shape, As::Protobuf, &mut job);
        forget_empty_lists(Types::builtin(), &shape, As::Json, &mut as_json);
        let template = json!({"spec": {"containers": [{"name": "c"}]}});
        assert_eq!(
            job,
            json!({"spec": {"podFailurePolicy": {"rules": null}, "template": template}})
        );
        assert_eq!(
            as_json,
            json!({"spec": {"podFailurePolicy": {"rules": []}, "template": template}})
        );
    }
}
