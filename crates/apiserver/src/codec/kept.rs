//! What of a built-in object survives being kept. Real servers keep such objects as protobuf, which has no word for a
//! list that is there but empty; a list that is always written comes back as null.

use serde_json::Value;

use crate::schema::{Omit, Shape, Types};

/// Makes null of the empty lists that are written whether they are there or not.
pub fn forget_empty_lists(types: &Types, shape: &Shape, value: &mut Value) {
    if has_empty_list(value) {
        forget(types, shape, value);
    }
}

/// Few objects have one, and looking is cheaper than following the types.
fn has_empty_list(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.is_empty() || items.iter().any(has_empty_list),
        Value::Object(fields) => fields.values().any(has_empty_list),
        _ => false,
    }
}

fn forget(types: &Types, shape: &Shape, value: &mut Value) {
    match (shape, value) {
        (Shape::Struct(id), Value::Object(fields)) => {
            for field in &types.get(*id).fields {
                let Some(value) = fields.get_mut(field.name.as_ref()) else {
                    continue;
                };
                let is_list = matches!(field.shape, Shape::List(..));
                if is_list && field.omit == Omit::Never && *value == Value::Array(Vec::new()) {
                    *value = Value::Null;
                } else {
                    forget(types, &field.shape, value);
                }
            }
        }
        (Shape::List(element, _), Value::Array(items)) => {
            for item in items {
                forget(types, element, item);
            }
        }
        (Shape::Map(element, _), Value::Object(entries)) => {
            for entry in entries.values_mut() {
                forget(types, element, entry);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::resource::builtin_type;

    #[test]
    fn only_lists_that_are_always_written_become_null() {
        let id = builtin_type("batch", "v1", "Job").unwrap();
        let mut job = json!({"spec": {
            "podFailurePolicy": {"rules": []},
            "template": {"spec": {"containers": [{"name": "c", "command": []}]}},
        }});
        forget_empty_lists(Types::builtin(), &Shape::Struct(id), &mut job);
        assert_eq!(job["spec"]["podFailurePolicy"]["rules"], Value::Null);
        let container = &job["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(container["command"], json!([]));
    }
}
