//! Objects as rules see them: values of the Common Expression Language.

use std::sync::Arc;

use base64::Engine;
use cel::Value as Cel;
use cel::objects::{Key, Map};
use plimsoll_expressions::time;
use plimsoll_expressions::values::{Moment, Span};
use plimsoll_golang::GoDuration;
use rustc_hash::FxHashMap;
use serde_json::Value;

use super::schema::{Additional, Schema, Type};

/// A value as rules see it: what the schema declares, under names that the language allows.
pub fn convert(schema: &Schema, value: &Value, root: bool) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(flag) => Cel::Bool(*flag),
        Value::Number(number) => {
            let is_float = schema.types == [Type::Number];
            match number.as_i64() {
                Some(whole) if !is_float => Cel::Int(whole),
                _ => {
                    let float = number.as_f64().unwrap_or_default();
                    let wants_whole = schema.types.first() == Some(&Type::Integer);
                    if wants_whole && float.fract() == 0.0 {
                        Cel::Int(float as i64)
                    } else {
                        Cel::Float(float)
                    }
                }
            }
        }
        Value::String(text) => match &schema.limits.format {
            Some((format, _)) if format == "byte" => {
                let decoded = base64::engine::general_purpose::STANDARD.decode(text);
                Cel::Bytes(Arc::new(decoded.unwrap_or_default()))
            }
            Some((format, _)) if format == "duration" => match GoDuration::parse(text) {
                Ok(duration) => Span(duration.nanos()).value(),
                Err(_) => Cel::Null,
            },
            Some((format, _)) if matches!(format.as_str(), "date" | "date-time") => {
                match time::of_field(format, text) {
                    Some(moment) => Moment(moment).value(),
                    None => Cel::Null,
                }
            }
            _ => text.as_str().into(),
        },
        Value::Array(items) => {
            let anything = Schema::default();
            let schema = schema.items.as_deref().unwrap_or(&anything);
            let items: Vec<Cel> = items
                .iter()
                .map(|item| convert(schema, item, false))
                .collect();
            Cel::List(Arc::new(items))
        }
        Value::Object(map) => {
            let mut fields: FxHashMap<Key, Cel> = FxHashMap::default();
            for (name, value) in map {
                if let Some(property) = schema.properties.get(name)
                    && !(root && name == "metadata")
                {
                    if let Some(escaped) = escape(name) {
                        fields.insert(escaped.into(), convert(property, value, false));
                    }
                } else if let Additional::Of(further) = &schema.additional {
                    fields.insert(name.clone().into(), convert(further, value, false));
                } else if root || schema.embedded {
                    add_meta(&mut fields, name, value);
                }
            }
            Cel::Map(Map {
                map: Arc::new(fields.into_iter().collect()),
            })
        }
    }
}

/// Of what every object has, rules see these.
fn add_meta(fields: &mut FxHashMap<Key, Cel>, name: &str, value: &Value) {
    let anything = Schema::default();
    match name {
        "apiVersion" | "kind" => {
            fields.insert(name.to_owned().into(), convert(&anything, value, false));
        }
        "metadata" => {
            let visible = ["name", "generateName"];
            let entries = visible.iter().filter_map(|field| {
                let text = value.get(field)?.as_str()?;
                Some((Key::from((*field).to_owned()), Cel::from(text)))
            });
            let metadata = Cel::Map(Map {
                map: Arc::new(entries.collect()),
            });
            fields.insert("metadata".to_owned().into(), metadata);
        }
        _ => {}
    }
}

/// A property's name as an identifier; `None` for those that rules cannot name.
pub fn escape(name: &str) -> Option<String> {
    const RESERVED: [&str; 21] = [
        "true",
        "false",
        "null",
        "in",
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    ];
    if RESERVED.contains(&name) {
        return Some(format!("__{name}__"));
    }
    let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || "_-./".contains(c));
    let plain = |c: char| c.is_ascii_alphanumeric() || "_-./".contains(c);
    if !starts || !name.chars().all(plain) {
        return None;
    }
    Some(
        name.replace("__", "__underscores__")
            .replace('.', "__dot__")
            .replace('-', "__dash__")
            .replace('/', "__slash__"),
    )
}
