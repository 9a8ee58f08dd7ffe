//! Bringing objects into the shape of their schema: fields it does not know dropped, nulls it does not allow
//! dropped, defaults filled in, metadata of embedded resources put in order.

use serde_json::{Map, Value};

use super::schema::{Additional, Schema};
use crate::codec::decode::{self, TypeError};
use crate::codec::json::Node;
use crate::codec::objections::Objections;
use crate::field::{FieldError, Path};
use crate::schema::Types;

const META: [&str; 3] = ["apiVersion", "kind", "metadata"];

/// Drops what the schema does not know, and says what: sorted paths.
pub fn prune(object: &mut Value, schema: &Schema) -> Vec<String> {
    let mut pruner = Pruner {
        path: String::new(),
        dropped: Objections::default(),
    };
    pruner.value(object, Some(schema), true);
    let mut dropped = pruner.dropped.into_words();
    dropped.sort();
    dropped
}

/// `1.0` is kept as `1`, which is how Go writes it.
pub fn write_whole_numbers_so(value: &mut Value) {
    match value {
        Value::Number(number) => {
            let whole = number.as_f64().filter(|_| number.is_f64());
            // Beyond this not every whole number is a float.
            let exact = whole.filter(|float| float.fract() == 0.0 && float.abs() < 9e15);
            if let Some(float) = exact {
                *value = (float as i64).into();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(write_whole_numbers_so),
        Value::Object(map) => map.values_mut().for_each(write_whole_numbers_so),
        _ => {}
    }
}

struct Pruner {
    path: String,
    dropped: Objections,
}

impl Pruner {
    fn value(&mut self, value: &mut Value, schema: Option<&Schema>, root: bool) {
        if let Some(open) = schema.filter(|schema| schema.preserve_unknown) {
            return self.open(value, open, root);
        }
        match value {
            Value::Object(map) => {
                let names: Vec<String> = map.keys().cloned().collect();
                for name in names {
                    let is_meta = META.contains(&name.as_str());
                    let resource = root || schema.is_some_and(|schema| schema.embedded);
                    if resource && is_meta {
                        continue;
                    }
                    match schema.filter(|schema| schema.knows(&name)) {
                        Some(schema) => self.child(map, &name, schema),
                        None => {
                            map.remove(&name);
                            let path = &self.path;
                            self.dropped.add(|| match path.as_str() {
                                "" => name,
                                path => format!("{path}.{name}"),
                            });
                        }
                    }
                }
            }
            Value::Array(items) => {
                let items_schema = schema.and_then(|schema| schema.items.as_deref());
                for (index, item) in items.iter_mut().enumerate() {
                    self.at_index(index, |this| this.value(item, items_schema, false));
                }
            }
            _ => {}
        }
    }

    /// Where unknown fields are kept, those that are known have their own schema still.
    fn open(&mut self, value: &mut Value, schema: &Schema, root: bool) {
        match value {
            Value::Object(map) => {
                let names: Vec<String> = map.keys().cloned().collect();
                for name in names {
                    let is_meta = META.contains(&name.as_str());
                    if !((root || schema.embedded) && is_meta) && schema.knows(&name) {
                        self.child(map, &name, schema);
                    }
                }
            }
            Value::Array(items) => {
                let Some(items_schema) = schema.items.as_deref() else {
                    return;
                };
                for (index, item) in items.iter_mut().enumerate() {
                    self.at_index(index, |this| this.open(item, items_schema, false));
                }
            }
            _ => {}
        }
    }

    fn child(&mut self, map: &mut Map<String, Value>, name: &str, schema: &Schema) {
        let outer = self.path.len();
        if outer > 0 {
            self.path.push('.');
        }
        self.path.push_str(name);
        if let Some(value) = map.get_mut(name) {
            self.value(value, schema.field(name), false);
        }
        self.path.truncate(outer);
    }

    fn at_index(&mut self, index: usize, go: impl FnOnce(&mut Self)) {
        let outer = self.path.len();
        self.path.push_str(&format!("[{index}]"));
        go(self);
        self.path.truncate(outer);
    }
}

/// A float that is whole is written as a whole number.
pub fn whole_numbers(value: &mut Value) {
    /// Beyond this a float is not exact to the unit.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    match value {
        Value::Number(number) if number.is_f64() => {
            let float = number.as_f64().unwrap_or_default();
            if float.fract() == 0.0 && float.abs() < EXACT {
                *value = (float as i64).into();
            }
        }
        Value::Array(items) => items.iter_mut().for_each(whole_numbers),
        Value::Object(map) => map.values_mut().for_each(whole_numbers),
        _ => {}
    }
}

/// Drops nulls where they are not allowed; those that have a default are left for it.
pub fn drop_nulls(value: &mut Value, schema: Option<&Schema>) {
    match value {
        Value::Object(map) => map.retain(|name, value| {
            let schema = schema.and_then(|schema| schema.field(name));
            if value.is_null() {
                return schema.is_none_or(|schema| schema.nullable || schema.default.is_some());
            }
            drop_nulls(value, schema);
            true
        }),
        Value::Array(items) => {
            let schema = schema.and_then(|schema| schema.items.as_deref());
            for item in items {
                drop_nulls(item, schema);
            }
        }
        _ => {}
    }
}

/// Fills in what is absent, or null where null is not allowed.
pub fn fill_defaults(value: &mut Value, schema: &Schema) {
    let replace_null = |value: &mut Value, schema: &Schema| {
        if value.is_null() && !schema.nullable {
            *value = schema.default.clone().unwrap_or(Value::Null);
        }
    };
    match value {
        Value::Object(map) => {
            for (name, property) in &schema.properties {
                let Some(default) = &property.default else {
                    continue;
                };
                let unset = map
                    .get(name)
                    .is_none_or(|value| value.is_null() && !property.nullable);
                if unset {
                    map.insert(name.clone(), default.clone());
                }
            }
            for (name, value) in map.iter_mut() {
                if let Some(property) = schema.properties.get(name) {
                    fill_defaults(value, property);
                } else if let Additional::Of(further) = &schema.additional {
                    replace_null(value, further);
                    fill_defaults(value, further);
                }
            }
        }
        Value::Array(items) => {
            let Some(items_schema) = schema.items.as_deref() else {
                return;
            };
            for item in items {
                replace_null(item, items_schema);
                fill_defaults(item, items_schema);
            }
        }
        _ => {}
    }
}

/// An object's metadata as if it had gone through the Go type. Paths of objections are from the object's root.
pub fn coerce_metadata(
    map: &mut Map<String, Value>,
    path: &str,
    objections: &mut Vec<String>,
) -> Result<(), TypeError> {
    const OBJECT_META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
    let types = Types::builtin();
    let (Some(metadata), Some(id)) = (map.get("metadata"), types.find(OBJECT_META)) else {
        return Ok(());
    };
    if metadata.is_null() {
        map.remove("metadata");
        return Ok(());
    }
    let decoded = decode::decode(types, id, &Node::of(metadata))?;
    for objection in decoded.objections {
        let prefix = if path.is_empty() {
            "metadata".to_owned()
        } else {
            format!("{path}.metadata")
        };
        if let Some(field) = objection.strip_prefix("unknown field \"") {
            objections.push(format!("unknown field \"{prefix}.{field}"));
        }
    }
    let mut value = decoded.value;
    if let Some(fields) = value.as_object_mut()
        && fields.get("creationTimestamp").is_some_and(Value::is_null)
    {
        fields.remove("creationTimestamp");
    }
    map.insert("metadata".into(), value);
    Ok(())
}

/// Puts the metadata of resources within the object in order.
pub fn coerce_embedded(
    value: &mut Value,
    schema: &Schema,
    path: &Path,
    objections: &mut Vec<String>,
) -> Result<(), FieldError> {
    match value {
        Value::Object(map) => {
            if schema.embedded {
                for name in ["apiVersion", "kind"] {
                    if let Some(value) = map.get(name)
                        && !value.is_string()
                    {
                        let path = path.child(name);
                        return Err(FieldError::invalid(
                            &path,
                            value.clone(),
                            "must be a string",
                        ));
                    }
                }
                let before = map.get("metadata").cloned().unwrap_or_default();
                let text = path.to_string();
                coerce_metadata(map, &text, objections).map_err(|error| {
                    FieldError::invalid(&path.child("metadata"), before, error.to_string())
                })?;
            }
            for (name, value) in map {
                if let Some(property) = schema.properties.get(name) {
                    coerce_embedded(value, property, &path.child(name), objections)?;
                } else if let Additional::Of(further) = &schema.additional {
                    coerce_embedded(value, further, &path.key(name), objections)?;
                }
            }
        }
        Value::Array(items) => {
            if let Some(schema) = schema.items.as_deref() {
                for (index, item) in items.iter_mut().enumerate() {
                    coerce_embedded(item, schema, &path.index(index), objections)?;
                }
            }
        }
        _ => {}
    }
    Ok(())
}
