//! Types that rules know a schema's values by.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_expressions::{Object, Type};
use serde_json::{Value, json};

use super::visible::escape;

/// `None` where the schema does not say: rules do not see such values. `root`: of a whole object.
pub fn declared(schema: &Value, root: bool) -> Option<Type> {
    named(schema, root, "selfType")
}

fn named(schema: &Value, root: bool, name: &str) -> Option<Type> {
    if schema["x-kubernetes-int-or-string"] == true {
        return Some(Type::Dyn);
    }
    Some(match schema["type"].as_str()? {
        "boolean" => Type::Bool,
        "integer" => Type::Int,
        "number" => Type::Double,
        "string" => match schema["format"].as_str() {
            Some("byte") => Type::Bytes,
            Some("duration") => Type::Duration,
            Some("date" | "date-time") => Type::Timestamp,
            _ => Type::String,
        },
        "array" => Type::list(named(&schema["items"], false, &format!("{name}.@idx"))?),
        "object" => {
            let further = &schema["additionalProperties"];
            if further.is_object() {
                let of = named(further, false, &format!("{name}.@elem"))?;
                return Some(Type::map(Type::String, of));
            }
            object(schema, root, name)
        }
        _ => return None,
    })
}

fn object(schema: &Value, root: bool, name: &str) -> Type {
    let mut fields = BTreeMap::new();
    for (field, schema) in schema["properties"].as_object().into_iter().flatten() {
        if let Some(escaped) = escape(field)
            && let Some(kind) = named(schema, false, &format!("{name}.{field}"))
        {
            fields.insert(escaped, kind);
        }
    }
    // What every object of the API has is seen in part, whatever the schema says.
    if root || schema["x-kubernetes-embedded-resource"] == true {
        let meta =
            json!({"properties": {"name": {"type": "string"}, "generateName": {"type": "string"}}});
        let meta = object(&meta, false, &format!("{name}.metadata"));
        fields.insert("metadata".to_owned(), meta);
        for text in ["apiVersion", "kind"] {
            fields.insert(text.to_owned(), Type::String);
        }
    }
    Type::Object(Arc::new(Object {
        name: name.to_owned(),
        fields,
    }))
}

/// The variables of a rule about such values.
pub fn variables(own: Type, optional_old: bool) -> BTreeMap<&'static str, Type> {
    let old = if optional_old {
        Type::optional(own.clone())
    } else {
        own.clone()
    };
    BTreeMap::from([("self", own), ("oldSelf", old)])
}
