//! The object that creation starts from. Go's structs have fields that are there even when nobody set them, so that
//! setting them is a change and no addition.

use serde_json::{Map, Value, json};

use crate::schema::{Field, Omit, Shape, Struct, Types};

/// An object of `shape` that nobody has set anything in.
pub(super) fn object(types: &Types, shape: &Shape, api_version: &str, kind: &str) -> Value {
    match shape {
        Shape::Struct(id) if !types.get(*id).go_name.is_empty() => {
            let mut fields = struct_fields(types, types.get(*id));
            fields.insert("apiVersion".to_owned(), api_version.into());
            fields.insert("kind".to_owned(), kind.into());
            Value::Object(fields)
        }
        // A custom resource is a map, with nothing in it.
        _ => json!({"apiVersion": api_version, "kind": kind}),
    }
}

fn struct_fields(types: &Types, of: &Struct) -> Map<String, Value> {
    of.fields
        .iter()
        .filter_map(|field| Some((field.name.to_string(), zero(types, field)?)))
        .collect()
}

/// `None` for a field that is left out. Whatever is a struct in Go, a time as well, is never empty.
fn zero(types: &Types, field: &Field) -> Option<Value> {
    let is_struct = matches!(
        field.shape,
        Shape::Struct(_)
            | Shape::Time
            | Shape::MicroTime
            | Shape::Duration
            | Shape::Quantity
            | Shape::IntOrString
    );
    let written = match field.omit {
        Omit::Never => true,
        Omit::Empty => is_struct && !field.pointer,
        Omit::Zero => false,
    };
    if !written {
        return None;
    }
    Some(match &field.shape {
        _ if field.pointer => Value::Null,
        Shape::Text(_) => "".into(),
        Shape::Bool => false.into(),
        Shape::Int32 | Shape::Int64 | Shape::IntOrString => 0.into(),
        Shape::Float => 0.0.into(),
        Shape::Quantity => "0".into(),
        Shape::Duration => "0s".into(),
        Shape::Struct(id) => Value::Object(struct_fields(types, types.get(*id))),
        Shape::Bytes | Shape::Time | Shape::MicroTime | Shape::Any => Value::Null,
        Shape::List(..) | Shape::Map(..) => Value::Null,
    })
}
