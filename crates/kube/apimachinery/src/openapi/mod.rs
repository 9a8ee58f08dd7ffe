//! OpenAPI documents in protobuf, as kubectl and aggregators ask for them.
//!
//! Which key of which object becomes which field is a table, one for each version of OpenAPI: [`v2`], [`v3`].

mod v2;
mod v3;

use plimsoll_golang::yaml;
use serde_json::{Map, Value, json};

use plimsoll_golang::protowire::Message;

/// A document of version 2 as protobuf.
pub fn v2_to_protobuf(document: &Value) -> Vec<u8> {
    message(&v2::DOCUMENT, document).0
}

/// A document of version 3 as protobuf.
pub fn v3_to_protobuf(document: &Value) -> Vec<u8> {
    message(&v3::DOCUMENT, document).0
}

/// How a value is written.
enum Kind {
    Text,
    /// Only said where it is so.
    Flag,
    Count,
    Number,
    /// As YAML, whatever it is.
    Any,
    /// One of the other kinds after another; what is no list is a list of one.
    Each(&'static Kind),
    Object(&'static Object),
    /// Alone in a message, as this field.
    Within(u64, &'static Kind),
    /// One alone in a message, by what it looks like; such a field is written whatever it says.
    Choice(fn(&Value) -> Option<(u64, &'static Kind)>),
}

struct Object {
    /// In the order of their numbers.
    fields: &'static [(u64, &'static str, Kind)],
    /// What becomes of other keys: pairs of name and value.
    others: &'static [(u64, Others, Kind)],
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Others {
    /// `x-…`
    Extensions,
    /// `/…`
    Paths,
    /// Neither.
    Names,
}

impl Others {
    fn of(key: &str) -> Self {
        match key.as_bytes() {
            [b'x', b'-', ..] => Self::Extensions,
            [b'/', ..] => Self::Paths,
            _ => Self::Names,
        }
    }
}

const EXTENSIONS: Others = Others::Extensions;

fn message(object: &Object, value: &Value) -> Message {
    let mut out = Message::default();
    let Some(map) = value.as_object() else {
        return out;
    };
    for (field, key, kind) in object.fields {
        if let Some(value) = map.get(*key) {
            put(&mut out, *field, kind, value);
        }
    }
    for (field, which, kind) in object.others {
        let is_field = |key: &str| object.fields.iter().any(|(_, known, _)| *known == key);
        for (key, value) in map {
            if Others::of(key) != *which || is_field(key) {
                continue;
            }
            let mut named = Message::default();
            named.text(1, key);
            put(&mut named, 2, kind, value);
            out.message(*field, &named);
        }
    }
    out
}

fn put(out: &mut Message, field: u64, kind: &Kind, value: &Value) {
    match kind {
        Kind::Text => {
            if let Some(text) = value.as_str().filter(|text| !text.is_empty()) {
                out.text(field, text);
            }
        }
        Kind::Flag => {
            if value.as_bool() == Some(true) {
                out.integer(field, 1);
            }
        }
        Kind::Count => {
            if let Some(count) = value.as_u64().filter(|count| *count != 0) {
                out.integer(field, count);
            }
        }
        Kind::Number => {
            if let Some(number) = value.as_f64().filter(|number| *number != 0.0) {
                out.double(field, number);
            }
        }
        Kind::Any => out.message(field, &any(value)),
        Kind::Each(kind) => match value {
            Value::Array(list) => list.iter().for_each(|one| put(out, field, kind, one)),
            one => put(out, field, kind, one),
        },
        Kind::Object(object) => out.message(field, &message(object, value)),
        Kind::Within(inner, kind) => {
            let mut wrapped = Message::default();
            put(&mut wrapped, *inner, kind, value);
            out.message(field, &wrapped);
        }
        Kind::Choice(choose) => {
            let mut chosen = Message::default();
            match (choose(value), value) {
                (None, _) => {}
                (Some((field, Kind::Text)), _) => {
                    chosen.text(field, value.as_str().unwrap_or_default());
                }
                (Some((field, Kind::Flag)), _) => {
                    chosen.integer(field, u64::from(value.as_bool() == Some(true)));
                }
                (Some((field, Kind::Number)), _) => {
                    chosen.double(field, value.as_f64().unwrap_or_default());
                }
                (Some((field, kind)), _) => put(&mut chosen, field, kind, value),
            }
            out.message(field, &chosen);
        }
    }
}

fn any(value: &Value) -> Message {
    // What an operation is about is a structure in Go, whose fields keep their order; all else is maps.
    const KIND: [&str; 3] = ["group", "version", "kind"];
    let is_kind = |map: &Map<String, Value>| {
        map.len() == KIND.len() && KIND.iter().all(|key| map.contains_key(*key))
    };
    let text = match value.as_object().filter(|map| is_kind(map)) {
        Some(map) => KIND
            .map(|key| yaml::to_string(&json!({ key: map[key] })))
            .concat(),
        None => yaml::to_string(value),
    };
    let mut out = Message::default();
    out.text(2, &text);
    out
}

fn is_reference(value: &Value) -> bool {
    value.get("$ref").is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_document_of_version_2() {
        let document = json!({"swagger": "2.0", "info": {"title": "T", "version": "v"},
            "paths": {"/p": {"parameters": [
                {"$ref": "#/r"}, {"name": "n", "in": "path", "required": true, "type": "string"}]}},
            "definitions": {"A": {"type": "object", "x-k": [1]}}});
        let bytes = v2_to_protobuf(&document);
        let expected = [
            b"\x0a\x032.0".as_slice(),
            b"\x12\x06\x0a\x01T\x12\x01v",
            b"\x42\x2c\x12\x2a\x0a\x02/p\x12\x24",
            b"\x4a\x07\x12\x05\x0a\x03#/r",
            b"\x4a\x19\x0a\x17\x12\x15\x22\x13\x08\x01\x12\x04path\x22\x01n\x2a\x06string",
            b"\x4a\x22\x0a\x20\x0a\x01A\x12\x1b",
            b"\xb2\x01\x08\x0a\x06object",
            b"\xfa\x01\x0d\x0a\x03x-k\x12\x06\x12\x04- 1\n",
        ];
        assert_eq!(bytes, expected.concat());
    }

    #[test]
    fn what_an_operation_is_about() {
        let kind = json!({"group": "", "version": "v1", "kind": "Pod"});
        let text = b"\x12\x23group: \"\"\nversion: v1\nkind: Pod\n";
        assert_eq!(any(&kind).0[2..], text[2..]);
        let kinds = any(&json!([kind])).0;
        assert_eq!(&kinds[2..], b"- group: \"\"\n  kind: Pod\n  version: v1\n");
    }

    #[test]
    fn a_small_document_of_version_3() {
        let document = json!({"openapi": "3.0.0", "info": {"title": "T", "version": "v"}, "paths": {},
            "components": {"schemas": {
                "A": {"type": "object", "default": {}, "properties": {"b": {"$ref": "#/r"}}},
                "C": {"type": "string", "default": ""}}}});
        let bytes = v3_to_protobuf(&document);
        let expected = [
            b"\x0a\x053.0.0".as_slice(),
            b"\x12\x06\x0a\x01T\x32\x01v",
            b"\x22\x00",
            b"\x2a\x3f\x0a\x3d",
            b"\x0a\x24\x0a\x01A\x12\x1f\x0a\x1d\xca\x01\x06object",
            b"\xfa\x01\x0e\x0a\x0c\x0a\x01b\x12\x07\x12\x05\x0a\x03#/r",
            b"\x8a\x02\x00",
            b"\x0a\x15\x0a\x01C\x12\x10\x0a\x0e\xca\x01\x06string\x8a\x02\x02\x1a\x00",
        ];
        assert_eq!(bytes, expected.concat());
    }
}
