//! How Go shows values: Kubernetes' messages contain what its formatting verbs write, and clients match on those.

use std::fmt::Write;

use serde_json::{Number, Value};

use crate::strconv::format_float;

/// A decoded JSON value as `%v` shows it: `map[a:1 b:[x <nil>]]`.
pub fn shown(value: &Value) -> String {
    let mut out = String::new();
    write_value(&mut out, value);
    out
}

/// Several values as `%v` shows a slice of them.
pub fn shown_list(values: &[Value]) -> String {
    let mut out = String::new();
    write_list(&mut out, values);
    out
}

fn write_value(out: &mut String, value: &Value) {
    match value {
        Value::Null => out.push_str("<nil>"),
        Value::Bool(flag) => {
            let _ = write!(out, "{flag}");
        }
        Value::Number(number) => out.push_str(&number_text(number)),
        Value::String(text) => out.push_str(text),
        Value::Array(values) => write_list(out, values),
        Value::Object(fields) => {
            let mut sorted: Vec<_> = fields.iter().collect();
            sorted.sort_unstable_by_key(|(name, _)| *name);
            out.push_str("map[");
            for (position, (name, value)) in sorted.into_iter().enumerate() {
                if position > 0 {
                    out.push(' ');
                }
                out.push_str(name);
                out.push(':');
                write_value(out, value);
            }
            out.push(']');
        }
    }
}

fn write_list(out: &mut String, values: &[Value]) {
    out.push('[');
    for (position, value) in values.iter().enumerate() {
        if position > 0 {
            out.push(' ');
        }
        write_value(out, value);
    }
    out.push(']');
}

/// A number as `%v` shows it.
pub fn number_text(number: &Number) -> String {
    match (number.as_i64(), number.as_f64()) {
        (Some(whole), _) => whole.to_string(),
        (None, Some(float)) => format_float(float),
        (None, None) => number.to_string(),
    }
}

/// The Go type that a JSON value is decoded to, as `%s` shows the type.
pub fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "%!s(<nil>)",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_i64() => "int64",
        Value::Number(_) => "float64",
        Value::String(_) => "string",
        Value::Array(_) => LIST,
        Value::Object(_) => MAP,
    }
}

/// What JSON lists and objects of unknown type are decoded to.
pub const LIST: &str = "[]interface {}";
pub const MAP: &str = "map[string]interface {}";

/// What the JSON decoder calls a value of the wrong type.
pub fn json_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_as_go_shows_them() {
        assert_eq!(
            shown(&json!({"b": [1, "x", null], "a": {"t": true, "f": 1.5}})),
            "map[a:map[f:1.5 t:true] b:[1 x <nil>]]"
        );
        assert_eq!(shown(&json!([])), "[]");
    }

    #[test]
    fn floats_as_go_shows_them() {
        for (float, text) in [
            (1.0, "1"),
            (0.1, "0.1"),
            (123456.0, "123456"),
            (1e6, "1e+06"),
            (1234567.0, "1.234567e+06"),
            (1.5e-7, "1.5e-07"),
            (0.0001, "0.0001"),
        ] {
            assert_eq!(shown(&json!(float)), text);
        }
    }
}
