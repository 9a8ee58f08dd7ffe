//! Zero values: what Go writes for a struct of which nothing has been set.

use serde_json::{Map, Value, json};

use crate::schema::{Field, Omit, Shape, TypeId, Types};

/// A struct with nothing but what is always written.
pub fn of(id: TypeId) -> Value {
    let mut fields = Map::new();
    complete_struct(&mut fields, id);
    fields.into()
}

/// Adds what is always written and absent, as decoding does.
#[cfg(test)]
pub fn complete(object: &mut Value, id: TypeId) {
    if let Some(fields) = object.as_object_mut() {
        complete_struct(fields, id);
    }
}

fn complete_struct(fields: &mut Map<String, Value>, id: TypeId) {
    for field in &Types::builtin().get(id).fields {
        match fields.get_mut(&*field.name) {
            Some(value) => complete_shape(value, &field.shape),
            None => {
                if let Some(zero) = written_when_unset(field) {
                    fields.insert(field.name.to_string(), zero);
                }
            }
        }
    }
}

fn complete_shape(value: &mut Value, shape: &Shape) {
    match (shape, value) {
        (Shape::Struct(id), Value::Object(fields)) => complete_struct(fields, *id),
        (Shape::List(inner, _), Value::Array(items)) => {
            for item in items {
                complete_shape(item, inner);
            }
        }
        (Shape::Map(inner, _), Value::Object(entries)) => {
            for entry in entries.values_mut() {
                complete_shape(entry, inner);
            }
        }
        _ => {}
    }
}

fn written_when_unset(field: &Field) -> Option<Value> {
    if field.pointer {
        return (field.omit == Omit::Never).then_some(Value::Null);
    }
    match (&field.shape, field.omit) {
        (Shape::Struct(id), Omit::Never | Omit::Empty) => Some(of(*id)),
        // Structs in Go as well, which are never left out for being empty.
        (Shape::Quantity, Omit::Empty) => Some(json!("0")),
        (Shape::IntOrString, Omit::Empty) => Some(json!(0)),
        (Shape::Time | Shape::MicroTime, Omit::Empty) => Some(Value::Null),
        (_, Omit::Empty | Omit::Zero) => None,
        (shape, Omit::Never) => Some(match shape {
            Shape::Text(_) => json!(""),
            Shape::Bool => json!(false),
            Shape::Int32 | Shape::Int64 | Shape::Float | Shape::IntOrString => json!(0),
            Shape::Quantity => json!("0"),
            Shape::Duration => json!("0s"),
            _ => Value::Null,
        }),
    }
}
