//! OpenAPI 2 in protobuf: what kubectl asks for when it meets a kind that it does not find elsewhere (a `List`, say). It
//! carries the definitions; the paths, which no client reads from it, stay out.

use serde_json::Value;

use super::protobuf::Message;

fn text(message: &mut Message, field: u64, value: &Value) {
    if let Some(text) = value.as_str() {
        message.text(field, text);
    }
}

/// A document of version 2 as protobuf.
pub fn to_protobuf(document: &Value) -> Vec<u8> {
    let mut info = Message::default();
    text(&mut info, 1, &document["info"]["title"]);
    text(&mut info, 2, &document["info"]["version"]);
    let mut out = Message::default();
    text(&mut out, 1, &document["swagger"]);
    out.message(2, &info);
    out.message(8, &Message::default());
    out.message(9, &named_schemas(&document["definitions"]));
    out.0
}

fn named_schemas(schemas: &Value) -> Message {
    let mut out = Message::default();
    for (name, value) in schemas.as_object().into_iter().flatten() {
        let mut named = Message::default();
        named.bytes(1, name.as_bytes());
        named.message(2, &schema(value));
        out.message(1, &named);
    }
    out
}

fn schema(value: &Value) -> Message {
    let mut out = Message::default();
    let Some(map) = value.as_object() else {
        return out;
    };
    for (field, key) in [
        (1, "$ref"),
        (2, "format"),
        (3, "title"),
        (4, "description"),
        (13, "pattern"),
    ] {
        text(&mut out, field, &value[key]);
    }
    if let Some(default) = map.get("default") {
        out.message(5, &any(default));
    }
    for name in value["required"].as_array().into_iter().flatten() {
        text(&mut out, 19, name);
    }
    for one in value["enum"].as_array().into_iter().flatten() {
        out.message(20, &any(one));
    }
    if let Some(more) = map
        .get("additionalProperties")
        .filter(|more| more.is_object())
    {
        let mut item = Message::default();
        item.message(1, &schema(more));
        out.message(21, &item);
    }
    if let Some(kind) = map.get("type") {
        let mut item = Message::default();
        text(&mut item, 1, kind);
        out.message(22, &item);
    }
    if let Some(items) = map.get("items") {
        let mut item = Message::default();
        item.message(1, &schema(items));
        out.message(23, &item);
    }
    for part in value["allOf"].as_array().into_iter().flatten() {
        out.message(24, &schema(part));
    }
    if let Some(properties) = map.get("properties") {
        out.message(25, &named_schemas(properties));
    }
    for (key, extension) in map.iter().filter(|(key, _)| key.starts_with("x-")) {
        let mut named = Message::default();
        named.bytes(1, key.as_bytes());
        named.message(2, &any(extension));
        out.message(31, &named);
    }
    out
}

/// Any value, as YAML; JSON is YAML.
fn any(value: &Value) -> Message {
    let mut out = Message::default();
    out.bytes(2, value.to_string().as_bytes());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_document() {
        let document = serde_json::json!({"swagger": "2.0", "info": {"title": "T", "version": "v"},
            "definitions": {"A": {"type": "object", "x-k": [1]}}});
        let bytes = to_protobuf(&document);
        let expected = [
            b"\x0a\x032.0".as_slice(),
            b"\x12\x06\x0a\x01T\x12\x01v",
            b"\x42\x00",
            b"\x4a\x21\x0a\x1f\x0a\x01A\x12\x1a",
            b"\xb2\x01\x08\x0a\x06object",
            b"\xfa\x01\x0c\x0a\x03x-k\x12\x05\x12\x03[1]",
        ];
        assert_eq!(bytes, expected.concat());
    }
}
