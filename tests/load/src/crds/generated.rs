//! Definitions as real projects have them: deep schemas with prose, defaults, lists with keys, formats and rules.

use serde_json::{Map, Value, json};

/// Further sections are nested in each other to this depth, as pod templates are.
const DEPTH: usize = 6;
const PROSE: &str = "What this is for, when it may be left out, and what happens then. Values that are not known are \
                     refused when the object is written; a controller looks at the others again whenever it starts.";

/// About so many bytes; the same index gives the same definition.
pub fn definition(index: usize, bytes: usize) -> Value {
    let group = format!("group-{}.bench.example.com", index / 4);
    let plural = format!("things{index}s");
    let properties = sections(bytes);
    let schema = json!({
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": {
                "type": "object",
                "properties": properties,
                "x-kubernetes-validations": [{"rule": "has(self.section0)", "message": "section0 is needed"}],
            },
            "status": {"type": "object", "properties": {
                "observedGeneration": {"type": "integer", "format": "int64"},
                "conditions": {
                    "type": "array",
                    "x-kubernetes-list-type": "map",
                    "x-kubernetes-list-map-keys": ["type"],
                    "items": {"type": "object", "required": ["type"], "properties": {
                        "type": {"type": "string", "maxLength": 316},
                        "status": {"type": "string", "enum": ["True", "False", "Unknown"]},
                        "message": {"type": "string", "maxLength": 32768},
                    }},
                },
            }},
        },
    });
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group,
            "scope": "Namespaced",
            "names": {
                "plural": plural,
                "singular": format!("thing{index}"),
                "kind": format!("Thing{index}"),
                "listKind": format!("Thing{index}List"),
                "shortNames": [format!("th{index}")],
                "categories": ["bench"],
            },
            "versions": [{
                "name": "v1",
                "served": true,
                "storage": true,
                "subresources": {"status": {}},
                "additionalPrinterColumns": [{"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"}],
                "schema": {"openAPIV3Schema": schema},
            }],
        },
    })
}

/// Where its objects are.
pub fn objects_of(definition: &Value) -> String {
    let text = |pointer: &str| {
        let found = definition.pointer(pointer).and_then(Value::as_str);
        found.unwrap_or_default().to_owned()
    };
    format!(
        "/apis/{}/v1/namespaces/default/{}",
        text("/spec/group"),
        text("/spec/names/plural")
    )
}

pub fn object_of(definition: &Value) -> Value {
    let group = definition["spec"]["group"].as_str().unwrap_or_default();
    json!({
        "apiVersion": format!("{group}/v1"),
        "kind": definition["spec"]["names"]["kind"],
        "metadata": {"name": "one"},
        "spec": {"section0": {"mode": "Fast", "minimum": 1, "maximum": 2}},
    })
}

/// One at least; every third is shallow, the others are nested as far as there is room.
fn sections(bytes: usize) -> Map<String, Value> {
    let mut sections = Map::new();
    let mut left = bytes;
    for number in 0.. {
        let fitting = [1 + number % 3, 1].into_iter().find_map(|depth| {
            let section = section(depth);
            let size = section.to_string().len();
            (size <= left || number == 0).then_some((section, size))
        });
        let Some((section, size)) = fitting else {
            break;
        };
        sections.insert(format!("section{number}"), section);
        left = left.saturating_sub(size);
    }
    sections
}

fn section(depth: usize) -> Value {
    let mut section = json!({
        "type": "object",
        "description": PROSE,
        "properties": {
            "name": {"type": "string", "description": PROSE, "maxLength": 63, "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"},
            "mode": {"type": "string", "description": PROSE, "enum": ["Fast", "Safe", "Off"], "default": "Safe"},
            "address": {"type": "string", "description": PROSE, "maxLength": 253},
            "minimum": {"type": "integer", "format": "int32", "minimum": 0, "maximum": 1000, "default": 0},
            "maximum": {"type": "integer", "format": "int32", "minimum": 0, "maximum": 1000},
            "limit": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}],
                      "description": PROSE, "maxLength": 32},
            "labels": {"type": "object", "maxProperties": 16, "additionalProperties": {"type": "string", "maxLength": 63}},
            "ports": {
                "type": "array",
                "description": PROSE,
                "maxItems": 16,
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["name"],
                "items": {"type": "object", "required": ["name", "port"], "properties": {
                    "name": {"type": "string", "maxLength": 63},
                    "port": {"type": "integer", "format": "int32", "minimum": 1, "maximum": 65535},
                    "protocol": {"type": "string", "enum": ["TCP", "UDP"], "default": "TCP"},
                }},
            },
            "hosts": {"type": "array", "maxItems": 16, "x-kubernetes-list-type": "set",
                      "items": {"type": "string", "maxLength": 253}},
        },
        "x-kubernetes-validations": [
            {"rule": "!has(self.maximum) || self.minimum <= self.maximum", "message": "minimum is above maximum"},
            {"rule": "self.mode != 'Off' || !has(self.ports) || size(self.ports) == 0",
             "messageExpression": "'ports are of no use with mode ' + self.mode"},
        ],
    });
    if depth < DEPTH && depth > 1 {
        section["properties"]["inner"] = self::section(depth + 1);
    }
    section
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_about_those_asked_for() {
        for bytes in [10_000, 60_000, 300_000] {
            let size = definition(1, bytes).to_string().len();
            assert!(size > bytes / 2 && size < bytes * 3 / 2, "{bytes}: {size}");
        }
        let (one, other) = (definition(5, 60_000), definition(200, 60_000));
        let (one, other) = (one.to_string().len(), other.to_string().len());
        assert!(one.abs_diff(other) < 100, "{one} and {other}");
    }
}
