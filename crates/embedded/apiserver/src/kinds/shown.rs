//! Values as problems show them: in the order in which Go declares fields, which JSON objects here do not keep.

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::OnceLock;

use serde_json::Value;

use crate::resource;

/// Field names and shapes by type, in the order of their declaration.
fn declared(of: &str) -> &'static [(&'static str, &'static str)] {
    type Declared = HashMap<&'static str, Vec<(&'static str, &'static str)>>;
    static DECLARED: OnceLock<Declared> = OnceLock::new();
    let declared = DECLARED.get_or_init(|| {
        let mut types: Declared = HashMap::new();
        let mut current = "";
        for line in resource::TYPES.lines() {
            match line.strip_prefix('\t') {
                None => current = line.split('\t').next().unwrap_or_default(),
                Some(line) => {
                    let mut parts = line.split('\t');
                    let mut part = || parts.next().unwrap_or_default();
                    types.entry(current).or_default().push((part(), part()));
                }
            }
        }
        types
    });
    declared.get(of).map_or(&[], Vec::as_slice)
}

/// A value of a published type, such as `io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector`; `[]` in front for lists.
pub fn published(value: &Value, of: &str) -> String {
    let mut out = String::new();
    write(&mut out, value, of);
    out
}

fn write(out: &mut String, value: &Value, shape: &str) {
    let inner = |prefix: &str| {
        let rest = shape.strip_prefix(prefix)?;
        // Lists and maps with a Go name of their own have it in brackets.
        Some(
            match rest.strip_prefix('(').and_then(|rest| rest.split_once(')')) {
                Some((_, rest)) => rest,
                None => rest,
            },
        )
    };
    match value {
        Value::Array(items) => {
            let inner = inner("[]").unwrap_or_default();
            out.push('[');
            for (index, item) in items.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                write(out, item, inner);
            }
            out.push(']');
        }
        Value::Object(fields) => {
            let of_map = inner("map:");
            let known = declared(shape);
            let place = |name: &str| known.iter().position(|(field, _)| *field == name);
            // What is published leaves out empty lists.
            let is_written = |value: &Value| value.as_array().is_none_or(|list| !list.is_empty());
            let mut fields: Vec<(&String, &Value)> = fields
                .iter()
                .filter(|(_, value)| is_written(value))
                .collect();
            fields.sort_by_key(|(name, _)| place(name));
            out.push('{');
            for (index, (name, item)) in fields.into_iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                let _ = write!(out, "{}:", Value::from(name.as_str()));
                let shape = place(name)
                    .and_then(|place| known.get(place))
                    .map(|field| field.1);
                write(out, item, of_map.or(shape).unwrap_or_default());
            }
            out.push('}');
        }
        other => {
            let _ = write!(out, "{other}");
        }
    }
}

/// A struct of an internal type, given field by field.
pub fn fields(fields: &[(&str, &Value)]) -> String {
    let shown: Vec<String> = fields
        .iter()
        .map(|(name, value)| format!("{}:{value}", Value::from(*name)))
        .collect();
    format!("{{{}}}", shown.join(","))
}

pub const LABEL_SELECTOR: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector";
pub const OWNER_REFERENCE: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.OwnerReference";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_come_in_their_declared_order() {
        let selector = json!({"matchExpressions": [{"key": "a", "values": ["b"], "operator": "In"}], "matchLabels": {"x": "y"}});
        assert_eq!(
            published(&selector, LABEL_SELECTOR),
            r#"{"matchLabels":{"x":"y"},"matchExpressions":[{"key":"a","operator":"In","values":["b"]}]}"#
        );
    }
}
