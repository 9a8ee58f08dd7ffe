//! The types of the documents: kept as OpenAPI 3 has them, explained in words of our own.

use std::sync::LazyLock;

use serde_json::{Map, Value, json};

use super::version::Announced;

const SCHEMAS: &str = include_str!("../../data/schemas.json");
pub const V3: &str = "#/components/schemas/";
pub const V2: &str = "#/definitions/";

/// Those that are named, and those that they are made of.
pub fn reachable(all: &Map<String, Value>, mut wanted: Vec<String>) -> Map<String, Value> {
    let mut found = Map::new();
    while let Some(name) = wanted.pop() {
        let Some(schema) = all.get(&name).filter(|_| !found.contains_key(&name)) else {
            continue;
        };
        references(schema, &mut wanted);
        found.insert(name, schema.clone());
    }
    found
}

pub fn references(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            if let Some(name) = map.get("$ref").and_then(Value::as_str) {
                found.extend(name.strip_prefix(V3).map(str::to_owned));
            }
            map.values().for_each(|inner| references(inner, found));
        }
        Value::Array(list) => list.iter().for_each(|inner| references(inner, found)),
        _ => {}
    }
}

/// As OpenAPI 3 has them; ours once for each version.
pub fn schemas(announced: Announced) -> Map<String, Value> {
    static PARSED: LazyLock<Map<String, Value>> =
        LazyLock::new(|| serde_json::from_str(SCHEMAS).unwrap_or_default());
    let mut all = Map::new();
    for (name, schema) in PARSED.iter() {
        if !name.contains("VERSION") {
            all.insert(name.clone(), schema.clone());
            continue;
        }
        for version in announced.versions() {
            let text = schema.to_string().replace("VERSION", version.name());
            let mut schema = serde_json::from_str(&text).unwrap_or_default();
            explain(name, &mut schema);
            all.insert(name.replace("VERSION", version.name()), schema);
        }
    }
    all
}

/// What `kubectl explain` says.
fn explain(name: &str, schema: &mut Value) {
    let kind = name.rsplit('.').next().unwrap_or_default();
    let about = match kind {
        "NodeMetrics" => "How much CPU and memory a node uses.",
        "PodMetrics" => "How much CPU and memory the containers of a pod use.",
        "ContainerMetrics" => "How much CPU and memory a container uses.",
        "NodeMetricsList" => "The usage of several nodes.",
        _ => "The usage of several pods.",
    };
    schema["description"] = about.into();
    for (field, text) in [
        ("timestamp", "When the usage was last measured."),
        (
            "window",
            "The time that CPU usage is the average of; it ends at the timestamp.",
        ),
        (
            "usage",
            "CPU in cores, averaged over the window, and memory in bytes: the working set at the timestamp.",
        ),
        ("containers", "Each container's usage, by name."),
        ("items", "Their usage, one by one."),
        ("name", "The container's name within its pod."),
    ] {
        if let Some(property) = schema
            .get_mut("properties")
            .and_then(|properties| properties.get_mut(field))
            // What refers to another says nothing beside that.
            .filter(|property| property.get("$ref").is_none())
        {
            property["description"] = text.into();
        }
    }
}

/// OpenAPI 2 has neither defaults nor choices, and refers without wrapping.
pub fn to_v2(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut out: Map<String, Value> = map
                .into_iter()
                .filter(|(key, _)| key != "default")
                .map(|(key, inner)| (key, to_v2(inner)))
                .collect();
            if out.contains_key("oneOf") {
                return json!({"type": "string"});
            }
            if let Some(Value::Array(mut parts)) = out.remove("allOf")
                && let Some(Value::Object(part)) = parts.pop()
            {
                out.extend(part);
            }
            if let Some(Value::String(reference)) = out.get_mut("$ref") {
                *reference = reference.replace(V3, V2);
            }
            out.into()
        }
        Value::Array(list) => list.into_iter().map(to_v2).collect(),
        other => other,
    }
}
