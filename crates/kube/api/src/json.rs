//! JSON over JSON: what a more particular entry says replaces what a more general one does, field by field.

use serde_json::Value;

/// Objects are joined, anything else is replaced. A `null` says nothing.
pub fn merge(base: &mut Value, over: &Value) {
    match (base, over) {
        (_, Value::Null) => {}
        (Value::Object(base), Value::Object(over)) => {
            for (key, value) in over {
                merge(base.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (base, over) => *base = over.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_particular_wins() {
        let mut base = json!({"a": 1, "b": {"c": [1], "d": true}});
        merge(
            &mut base,
            &json!({"b": {"c": [2, 3], "e": null}, "f": "x", "a": null}),
        );
        assert_eq!(
            base,
            json!({"a": 1, "b": {"c": [2, 3], "d": true, "e": null}, "f": "x"})
        );
    }
}
