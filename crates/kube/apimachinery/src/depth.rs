//! The limit on how deep documents may nest. All code that walks documents is recursive, so the limit is checked
//! once, where a document is made.
//!
//! Whoever reads what was kept must accept it: `serde_json` reads 127 levels, and lists, tables, watch events and
//! reviews put an object at most four levels down. The original accepts 10 000 levels; what people write has not more
//! than about 50, in definitions with schemas of templates within templates.

use serde_json::Value;

/// How many lists and objects may be within each other. A scalar has none, an empty list one.
pub const MAX_DEPTH: usize = 100;

/// A document, or what an operation would make of one, nests deeper than anybody reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the document nests deeper than {MAX_DEPTH} levels")]
pub struct TooDeep;

/// Whether the value nests within the limit.
pub fn check(value: &Value) -> Result<(), TooDeep> {
    check_within(value, MAX_DEPTH)
}

/// Whether the value nests within `levels`. Goes no deeper than that, however deep the value is.
pub fn check_within(value: &Value, levels: usize) -> Result<(), TooDeep> {
    let Some(below) = levels.checked_sub(1) else {
        return match value {
            Value::Array(_) | Value::Object(_) => Err(TooDeep),
            _ => Ok(()),
        };
    };
    match value {
        Value::Array(items) => items.iter().try_for_each(|one| check_within(one, below)),
        Value::Object(fields) => fields.values().try_for_each(|one| check_within(one, below)),
        _ => Ok(()),
    }
}

/// Reads JSON that came from outside, or out of a text within an object.
pub fn parse(text: &[u8]) -> Option<Value> {
    let value = serde_json::from_slice(text).ok()?;
    check(&value).is_ok().then_some(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nested(levels: usize) -> Value {
        (0..levels).fold(Value::Null, |inner, level| match level % 2 {
            0 => Value::Array(vec![1.into(), inner]),
            _ => serde_json::json!({"a": inner}),
        })
    }

    #[test]
    fn the_limit_is_exact() {
        assert_eq!(check(&nested(MAX_DEPTH)), Ok(()));
        assert_eq!(check(&nested(MAX_DEPTH + 1)), Err(TooDeep));
        assert_eq!(check_within(&Value::Null, 0), Ok(()));
        assert_eq!(check_within(&serde_json::json!([]), 0), Err(TooDeep));
    }

    /// What is kept can be read wherever it is shown.
    #[test]
    fn every_reader_accepts_the_deepest() {
        let shown = (0..4).fold(nested(MAX_DEPTH), |inner, _| Value::Array(vec![inner]));
        let text = serde_json::to_vec(&shown).unwrap();
        assert_eq!(serde_json::from_slice::<Value>(&text).unwrap(), shown);
        assert_eq!(parse(&text), None);
    }
}
