//! One step into an object, as field sets name it: a field, a list's element by its keys, by itself or by its index.

use std::cmp::Ordering;
use std::fmt::{self, Write};

use serde_json::{Number, Value};

use crate::depth;
use plimsoll_golang::format;
use plimsoll_golang::strconv::quote;

#[derive(Debug, Clone)]
pub enum Step {
    Field(Box<str>),
    /// Sorted by name.
    Key(Box<[(Box<str>, Value)]>),
    Value(Value),
    Index(i64),
}

impl Step {
    pub fn field(name: &str) -> Self {
        Self::Field(name.into())
    }

    pub fn key(mut parts: Vec<(Box<str>, Value)>) -> Self {
        parts.sort_by(|a, b| a.0.cmp(&b.0));
        Self::Key(parts.into())
    }

    /// As a key in FieldsV1: `f:spec`, `k:{"name":"a"}`, `v:"x"`, `i:0`.
    pub fn to_text(&self) -> String {
        let mut out = String::new();
        match self {
            Self::Field(name) => {
                out.push_str("f:");
                out.push_str(name);
            }
            Self::Key(parts) => {
                out.push_str("k:{");
                for (position, (name, value)) in parts.iter().enumerate() {
                    if position > 0 {
                        out.push(',');
                    }
                    write_string(&mut out, name);
                    out.push(':');
                    write_json(&mut out, value);
                }
                out.push('}');
            }
            Self::Value(value) => {
                out.push_str("v:");
                write_json(&mut out, value);
            }
            Self::Index(index) => {
                let _ = write!(out, "i:{index}");
            }
        }
        out
    }

    /// `Ok(None)`: a kind of step that later versions may know.
    pub fn parse(text: &str) -> Result<Option<Self>, String> {
        if text.len() < 2 {
            return Err("key must be 2 characters long:".to_owned());
        }
        let (kind, rest) = match (text.as_bytes()[0], text.as_bytes()[1]) {
            (kind, b':') => (kind, &text[2..]),
            _ => return Err(format!("missing colon: {text}")),
        };
        match kind {
            b'f' => Ok(Some(Self::field(rest))),
            b'v' => Ok(Some(Self::Value(parse_json(rest)?))),
            b'k' => match parse_json(rest)? {
                Value::Object(parts) => Ok(Some(Self::key(
                    parts
                        .into_iter()
                        .map(|(name, value)| (name.into(), value))
                        .collect(),
                ))),
                _ => Err(format!("expected an object: {rest}")),
            },
            b'i' => rest
                .parse()
                .map(|index| Some(Self::Index(index)))
                .map_err(|_| format!("strconv.Atoi: parsing {}: invalid syntax", quote(rest))),
            _ => Ok(None),
        }
    }
}

fn parse_json(text: &str) -> Result<Value, String> {
    let value: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    depth::check(&value).map_err(|error| error.to_string())?;
    Ok(value)
}

/// In messages: `.spec`, `[name="a"]`, `[="x"]`, `[0]`.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(parts) => {
                f.write_char('[')?;
                for (position, (name, value)) in parts.iter().enumerate() {
                    if position > 0 {
                        f.write_char(',')?;
                    }
                    write!(f, "{name}={}", shown(value))?;
                }
                f.write_char(']')
            }
            Self::Value(value) => write!(f, "[={}]", shown(value)),
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}

/// A path in messages.
pub fn display_path(path: &[Step]) -> String {
    path.iter().map(Step::to_string).collect()
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::String(text) => quote(text),
        Value::Array(values) => {
            let shown: Vec<String> = values.iter().map(shown).collect();
            format!("[{}]", shown.join(","))
        }
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| format!("{name}={}", self::shown(value)))
            .collect(),
        other => format::shown(other),
    }
}

fn write_json(out: &mut String, value: &Value) {
    match value {
        Value::String(text) => write_string(out, text),
        Value::Number(number) => write_number(out, number),
        other => out.push_str(&other.to_string()),
    }
}

/// A float without fraction is written as a whole number.
fn write_number(out: &mut String, number: &Number) {
    match number.as_f64() {
        Some(float) if !number.is_i64() && float.fract() == 0.0 && float.abs() < 1e21 => {
            let _ = write!(out, "{float:.0}");
        }
        _ => {
            let _ = write!(out, "{number}");
        }
    }
}

/// With what HTML could mistake escaped, as Go does by default.
fn write_string(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' | '\0'..='\u{1f}' => {
                let _ = write!(out, "\\u{:04x}", c as u32);
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

impl Ord for Step {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Field(a), Self::Field(b)) => a.cmp(b),
            (Self::Key(a), Self::Key(b)) => compare_keys(a, b),
            (Self::Value(a), Self::Value(b)) => compare_values(a, b),
            (Self::Index(a), Self::Index(b)) => a.cmp(b),
            (a, b) => a.rank().cmp(&b.rank()),
        }
    }
}

impl Step {
    fn rank(&self) -> u8 {
        match self {
            Self::Field(_) => 0,
            Self::Key(_) => 1,
            Self::Value(_) => 2,
            Self::Index(_) => 3,
        }
    }
}

impl PartialOrd for Step {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Step {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Step {}

fn compare_keys(a: &[(Box<str>, Value)], b: &[(Box<str>, Value)]) -> Ordering {
    for ((a_name, a_value), (b_name, b_value)) in a.iter().zip(b) {
        let order = a_name
            .cmp(b_name)
            .then_with(|| compare_values(a_value, b_value));
        if order.is_ne() {
            return order;
        }
    }
    a.len().cmp(&b.len())
}

/// Numbers, strings, booleans, lists, maps, null. Whole numbers and floats compare by what they are worth.
pub fn compare_values(a: &Value, b: &Value) -> Ordering {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => compare_numbers(a, b),
        (Value::String(a), Value::String(b)) => a.cmp(b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Array(a), Value::Array(b)) => {
            for (a, b) in a.iter().zip(b) {
                let order = compare_values(a, b);
                if order.is_ne() {
                    return order;
                }
            }
            a.len().cmp(&b.len())
        }
        (Value::Object(a), Value::Object(b)) => {
            for ((a_name, a), (b_name, b)) in a.iter().zip(b) {
                let order = a_name.cmp(b_name).then_with(|| compare_values(a, b));
                if order.is_ne() {
                    return order;
                }
            }
            a.len().cmp(&b.len())
        }
        (a, b) => value_rank(a).cmp(&value_rank(b)),
    }
}

pub fn values_equal(a: &Value, b: &Value) -> bool {
    compare_values(a, b).is_eq()
}

fn compare_numbers(a: &Number, b: &Number) -> Ordering {
    match (a.as_i64(), b.as_i64()) {
        (Some(a), Some(b)) => a.cmp(&b),
        _ => {
            let (a, b) = (a.as_f64().unwrap_or(0.0), b.as_f64().unwrap_or(0.0));
            // JSON has no NaN, and the two zeros are one.
            a.partial_cmp(&b).unwrap_or(Ordering::Equal)
        }
    }
}

fn value_rank(value: &Value) -> u8 {
    match value {
        Value::Number(_) => 0,
        Value::String(_) => 1,
        Value::Bool(_) => 2,
        Value::Array(_) => 3,
        Value::Object(_) => 4,
        Value::Null => 5,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn text_of_each_kind() {
        let key = Step::key(vec![
            ("protocol".into(), json!("TCP")),
            ("containerPort".into(), json!(80)),
        ]);
        for (step, text, path) in [
            (Step::field("spec"), "f:spec", ".spec"),
            (
                key,
                r#"k:{"containerPort":80,"protocol":"TCP"}"#,
                r#"[containerPort=80,protocol="TCP"]"#,
            ),
            (Step::Value(json!("a<b")), r#"v:"a\u003cb""#, r#"[="a<b"]"#),
            (Step::Value(json!(true)), "v:true", "[=true]"),
            (Step::Index(-1), "i:-1", "[-1]"),
        ] {
            assert_eq!(step.to_text(), text);
            assert_eq!(step.to_string(), path);
            assert_eq!(Step::parse(text), Ok(Some(step)));
        }
    }

    #[test]
    fn what_is_no_step() {
        assert_eq!(Step::parse("x:1"), Ok(None));
        assert!(Step::parse("f").is_err());
        assert!(Step::parse("foo").is_err());
        assert!(Step::parse("k:{").is_err());
        assert!(Step::parse("k:1").is_err());
        assert!(Step::parse("i:x").is_err());
    }

    #[test]
    fn floats_are_as_good_as_whole_numbers() {
        assert_eq!(Step::Value(json!(80.0)), Step::Value(json!(80)));
        assert_eq!(Step::Value(json!(80.0)).to_text(), "v:80");
        assert_eq!(Step::Value(json!(1.5)).to_text(), "v:1.5");
    }

    #[test]
    fn order_is_by_kind_and_then_by_content() {
        let sorted = [
            Step::field("a"),
            Step::field("b"),
            Step::key(vec![("a".into(), json!(2))]),
            Step::key(vec![("a".into(), json!(10))]),
            Step::key(vec![("a".into(), json!("1"))]),
            Step::Value(json!(3)),
            Step::Value(json!("3")),
            Step::Value(json!(false)),
            Step::Index(0),
        ];
        assert!(sorted.is_sorted_by(|a, b| a < b));
    }
}
