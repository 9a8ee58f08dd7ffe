//! Schemas of custom resources, as their definitions have them, in either version of OpenAPI.

use serde_json::{Map, Value, json};

use super::schemas::{Dialect, META, Schemas};
use crate::crd::{Definition, Version};

/// Includes the schemas of a version's kind and of lists of it.
pub fn insert(schemas: &mut Schemas, dialect: Dialect, definition: &Definition, version: &Version) {
    let name = super::paths::schema_name(&definition.group, &version.name, &definition.kind);
    let kind =
        |kind: &str| json!([{"group": definition.group, "version": version.name, "kind": kind}]);
    let document = version.document();
    let preserve_unknown = document["x-kubernetes-preserve-unknown-fields"] == true;
    let mut schema = match dialect {
        Dialect::V3 => published_v3(&document, schemas),
        Dialect::V2 if preserve_unknown => json!({"type": "object"}),
        Dialect::V2 => published_v2(&document),
    };
    if dialect == Dialect::V3 || !preserve_unknown {
        let meta = referring(schemas, dialect, "ObjectMeta");
        let properties = properties_of(&mut schema);
        properties.insert("apiVersion".into(), json!({"type": "string"}));
        properties.insert("kind".into(), json!({"type": "string"}));
        properties.insert("metadata".into(), meta);
    }
    schema["x-kubernetes-group-version-kind"] = kind(&definition.kind);
    note_selectable(&mut schema, version);
    schemas.insert(name.clone(), schema);
    let mut list = json!({
        "description": format!("{} is a list of {}", definition.list_kind, definition.kind),
        "type": "object",
        "required": ["items"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": referring(schemas, dialect, "ListMeta"),
            "items": {"type": "array", "items": dialect.reference(&name)},
        },
        "x-kubernetes-group-version-kind": kind(&definition.list_kind),
    });
    note_selectable(&mut list, version);
    schemas.insert(format!("{name}List"), list);
}

/// The fields that lists can be selected by.
fn note_selectable(schema: &mut Value, version: &Version) {
    if version.selectable.is_empty() {
        return;
    }
    let fields = version.selectable.iter();
    let paths: Value = fields
        .map(|field| json!({"fieldPath": field.name}))
        .collect();
    schema["x-kubernetes-selectable-fields"] = paths;
}

fn referring(schemas: &mut Schemas, dialect: Dialect, name: &str) -> Value {
    let reference = schemas.refer(&format!("{META}{name}"));
    match dialect {
        Dialect::V2 => reference,
        Dialect::V3 => json!({"allOf": [reference]}),
    }
}

fn properties_of(schema: &mut Value) -> &mut Map<String, Value> {
    if !schema["properties"].is_object() {
        schema["properties"] = json!({});
    }
    match schema["properties"].as_object_mut() {
        Some(properties) => properties,
        None => unreachable!("was made an object just now"),
    }
}

/// As it is written, with what its extensions imply said in plain words too.
fn published_v3(schema: &Value, schemas: &mut Schemas) -> Value {
    let mut out = each_part(schema, &mut |part| published_v3(part, schemas));
    if out["x-kubernetes-int-or-string"] == true && out.get("anyOf").is_none() {
        out["anyOf"] = json!([{"type": "integer"}, {"type": "string"}]);
    }
    if out["x-kubernetes-embedded-resource"] == true {
        let meta = referring(schemas, Dialect::V3, "ObjectMeta");
        let properties = properties_of(&mut out);
        properties.insert("apiVersion".into(), json!({"type": "string"}));
        properties.insert("kind".into(), json!({"type": "string"}));
        properties.insert("metadata".into(), meta);
        out["required"] = json!(["kind", "apiVersion"]);
    }
    out
}

/// What OpenAPI 2 has no words for is left out, and with it what would then be wrong.
fn published_v2(schema: &Value) -> Value {
    let mut out = each_part(schema, &mut published_v2);
    let vague = out["nullable"] == true || out["x-kubernetes-preserve-unknown-fields"] == true;
    if let Some(map) = out.as_object_mut() {
        for word in ["default", "nullable", "oneOf", "anyOf", "allOf", "not"] {
            map.remove(word);
        }
        if vague {
            for word in ["type", "items", "properties", "required"] {
                map.remove(word);
            }
        }
    }
    out
}

/// A copy with the schemas within it replaced.
fn each_part(schema: &Value, go: &mut dyn FnMut(&Value) -> Value) -> Value {
    let mut out = schema.clone();
    let Some(map) = out.as_object_mut() else {
        return json!({});
    };
    for (word, value) in map.iter_mut() {
        match word.as_str() {
            "properties" => {
                for property in value.as_object_mut().into_iter().flat_map(Map::values_mut) {
                    *property = go(property);
                }
            }
            "items" | "additionalProperties" if value.is_object() => *value = go(value),
            _ => {}
        }
    }
    out
}
