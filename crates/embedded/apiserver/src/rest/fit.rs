//! Whether an object can be kept: what can be read back can be written back, and everybody who reads it accepts it.

use http::StatusCode;
use serde_json::Value;

use super::body::MAX_BODY;
use crate::depth::{MAX_DEPTH, TooDeep};
use crate::status::StatusError;

/// The last look at an object before it is stored. Who owns its fields is part of it, and may be deeper and larger than
/// the rest.
pub fn check(object: &Value) -> Result<(), StatusError> {
    let size = size(object, MAX_DEPTH).map_err(|TooDeep| {
        StatusError::bad_request(format!("the object cannot be kept: {TooDeep}"))
    })?;
    if size <= MAX_BODY {
        return Ok(());
    }
    Err(StatusError::new(
        StatusCode::PAYLOAD_TOO_LARGE,
        "RequestEntityTooLarge",
        format!("Request entity too large: limit is {MAX_BODY}"),
    ))
}

/// About as many bytes as the value has as JSON.
fn size(value: &Value, levels: usize) -> Result<usize, TooDeep> {
    let below = levels.checked_sub(1).ok_or(TooDeep);
    let mut sum = 2;
    match value {
        Value::Array(items) => {
            let below = below?;
            for item in items {
                sum += size(item, below)?;
            }
        }
        Value::Object(fields) => {
            let below = below?;
            for (name, item) in fields {
                sum += name.len() + 3 + size(item, below)?;
            }
        }
        Value::String(text) => sum += text.len() + 1,
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_kept_can_be_written_again() {
        let nested = |levels: usize| (0..levels).fold(json!(1), |inner, _| json!([inner]));
        assert_eq!(check(&nested(MAX_DEPTH)), Ok(()));
        let refused = check(&nested(MAX_DEPTH + 1)).unwrap_err();
        assert_eq!(refused.code, StatusCode::BAD_REQUEST);
        assert_eq!(
            refused.message,
            "the object cannot be kept: the document nests deeper than 100 levels"
        );
        assert_eq!(check(&json!({"a": "x".repeat(MAX_BODY / 2)})), Ok(()));
        let refused = check(&json!({"a": "x".repeat(MAX_BODY)})).unwrap_err();
        assert_eq!(refused.code, StatusCode::PAYLOAD_TOO_LARGE);
    }
}
