//! The structural schema of a custom resource as a table of types, for tracking and applying.

use rustc_hash::FxHashMap;
use serde_json::Value;

use crate::schema::{Field, ListType, Shape, Struct, TypeId, Types};

const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";

/// The types of a version's `openAPIV3Schema`, and the shape of the whole object among them.
pub fn from_schema(schema: &Value) -> (Types, Shape) {
    let mut reader = Reader {
        types: Types::default(),
        copied: FxHashMap::default(),
    };
    let shape = reader.object(schema, "", false, true);
    (reader.types, shape)
}

struct Reader {
    types: Types,
    /// Built-in types that are in the table already.
    copied: FxHashMap<TypeId, TypeId>,
}

impl Reader {
    /// `open`: an object further up keeps fields that nobody declared.
    fn shape(&mut self, schema: &Value, path: &str, open: bool) -> Shape {
        let open = open || is_set(schema, PRESERVE);
        if is_set(schema, "x-kubernetes-int-or-string") {
            return Shape::IntOrString;
        }
        match schema["type"].as_str() {
            Some("object") => {
                let embedded = is_set(schema, "x-kubernetes-embedded-resource");
                self.object(schema, path, open, embedded)
            }
            Some("array") => {
                let element = self.shape(&schema["items"], &format!("{path}[]"), open);
                Shape::List(Box::new(element), None)
            }
            Some("string") => Shape::Text(None),
            Some("boolean") => Shape::Bool,
            Some("integer") => Shape::Int64,
            Some("number") => Shape::Float,
            _ => Shape::Any,
        }
    }

    /// `resource`: has an apiVersion, a kind and metadata whether or not the schema says so.
    fn object(&mut self, schema: &Value, path: &str, open: bool, resource: bool) -> Shape {
        let open = open || is_set(schema, PRESERVE);
        let mut fields: Vec<Field> = Vec::new();
        let properties = schema["properties"].as_object();
        for (name, property) in properties.into_iter().flatten() {
            let provided = resource && ["apiVersion", "kind", "metadata"].contains(&name.as_str());
            if !provided {
                fields.push(self.field(name, property, path, open));
            }
        }
        if resource {
            fields.push(Field::new("apiVersion", Shape::Text(None)));
            fields.push(Field::new("kind", Shape::Text(None)));
            fields.push(Field::new("metadata", self.object_meta()));
        }
        let rest = match &schema["additionalProperties"] {
            Value::Null if open || fields.is_empty() => Some(Shape::Any),
            Value::Null | Value::Bool(false) => None,
            Value::Bool(true) => Some(Shape::Any),
            further => Some(self.shape(further, &format!("{path}.*"), open)),
        };
        let atomic = schema["x-kubernetes-map-type"] == "atomic";
        if fields.is_empty() && !atomic && rest == Some(Shape::Any) {
            return Shape::Any;
        }
        Shape::Struct(self.types.add(Struct {
            name: path.into(),
            go_name: "".into(),
            atomic,
            fields,
            rest,
        }))
    }

    fn field(&mut self, name: &str, schema: &Value, path: &str, open: bool) -> Field {
        let mut field = Field::new(name, self.shape(schema, &format!("{path}.{name}"), open));
        field.default = schema.get("default").cloned();
        field.format = schema["format"].as_str().map(Into::into);
        field.list = match schema["x-kubernetes-list-type"].as_str() {
            Some("set") => ListType::Set,
            Some("map") => {
                let keys = schema["x-kubernetes-list-map-keys"].as_array();
                let keys = keys.into_iter().flatten().filter_map(Value::as_str);
                ListType::Map(keys.map(Into::into).collect())
            }
            _ => ListType::Atomic,
        };
        field
    }

    fn object_meta(&mut self) -> Shape {
        match Types::builtin().find(OBJECT_META) {
            Some(id) => Shape::Struct(self.copy(id)),
            None => Shape::Any,
        }
    }

    /// A built-in type, with those that it refers to.
    fn copy(&mut self, id: TypeId) -> TypeId {
        if let Some(copied) = self.copied.get(&id) {
            return *copied;
        }
        let mut copied = Types::builtin().get(id).clone();
        for field in &mut copied.fields {
            field.shape = self.copy_shape(&field.shape);
        }
        let copied = self.types.add(copied);
        self.copied.insert(id, copied);
        copied
    }

    fn copy_shape(&mut self, shape: &Shape) -> Shape {
        match shape {
            Shape::Struct(id) => Shape::Struct(self.copy(*id)),
            Shape::List(element, name) => {
                Shape::List(Box::new(self.copy_shape(element)), name.clone())
            }
            Shape::Map(element, name) => {
                Shape::Map(Box::new(self.copy_shape(element)), name.clone())
            }
            other => other.clone(),
        }
    }
}

fn is_set(schema: &Value, extension: &str) -> bool {
    schema[extension] == true
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_schema_becomes_types() {
        let (types, shape) = from_schema(&json!({
            "type": "object",
            "properties": {
                "metadata": {"type": "object"},
                "spec": {
                    "type": "object",
                    "properties": {
                        "ports": {
                            "type": "array",
                            "x-kubernetes-list-type": "map",
                            "x-kubernetes-list-map-keys": ["port"],
                            "items": {"type": "object", "properties": {"port": {"type": "integer"}}},
                        },
                        "tags": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                        "open": {"type": "object", PRESERVE: true},
                        "whole": {
                            "type": "object",
                            "x-kubernetes-map-type": "atomic",
                            "additionalProperties": {"type": "string"},
                        },
                        "size": {"x-kubernetes-int-or-string": true},
                    },
                },
            },
        }));
        let Shape::Struct(id) = shape else { panic!() };
        let root = types.get(id);
        let names: Vec<&str> = root
            .fields
            .iter()
            .map(|field| field.name.as_ref())
            .collect();
        assert_eq!(names, ["apiVersion", "kind", "metadata", "spec"]);
        assert_eq!(root.rest, None);
        let Shape::Struct(meta) = root.field("metadata").unwrap().shape else {
            panic!()
        };
        assert_eq!(
            types.get(meta).field("finalizers").unwrap().list,
            ListType::Set
        );
        let Shape::Struct(spec) = root.field("spec").unwrap().shape else {
            panic!()
        };
        let spec = types.get(spec);
        assert_eq!(
            spec.field("ports").unwrap().list,
            ListType::Map(vec!["port".into()])
        );
        assert_eq!(spec.field("tags").unwrap().list, ListType::Set);
        assert_eq!(spec.field("open").unwrap().shape, Shape::Any);
        assert_eq!(spec.field("size").unwrap().shape, Shape::IntOrString);
        let Shape::Struct(whole) = spec.field("whole").unwrap().shape else {
            panic!()
        };
        assert!(types.get(whole).atomic);
        assert_eq!(types.get(whole).rest, Some(Shape::Text(None)));
    }
}
