//! The `scale` subresource of a custom resource: fields of the object that its definition names.

use http::StatusCode;
use serde_json::{Value, json};

use crate::field::{FieldError, Path};
use crate::status::StatusError;
use plimsoll_golang::strconv::quote;

/// Where in the object the numbers are, as the definition writes it: `.spec.replicas`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Scale {
    pub spec_replicas: String,
    pub status_replicas: String,
    pub selector: Option<String>,
}

/// What a Scale says of the object it is of.
pub fn metadata(object: &Value) -> Value {
    let fields = [
        "name",
        "namespace",
        "uid",
        "resourceVersion",
        "creationTimestamp",
    ];
    let kept = fields.into_iter().filter_map(|field| {
        let value = object["metadata"].get(field)?;
        Some((field.to_owned(), value.clone()))
    });
    Value::Object(kept.collect())
}

impl Scale {
    pub fn read(scale: &Value) -> Option<Self> {
        Some(Self {
            spec_replicas: scale["specReplicasPath"].as_str()?.to_owned(),
            status_replicas: scale["statusReplicasPath"].as_str()?.to_owned(),
            selector: scale["labelSelectorPath"].as_str().map(str::to_owned),
        })
    }

    /// What the numbers must be.
    pub fn validate_spec(&self, object: &Value) -> Vec<FieldError> {
        replicas_errors(object, &self.spec_replicas)
    }

    pub fn validate_status(&self, object: &Value) -> Vec<FieldError> {
        let mut errors = replicas_errors(object, &self.status_replicas);
        if let Some(path) = &self.selector
            && let Err(why) = nested(object, path, "string")
        {
            errors.push(FieldError::invalid(&Path::new(path), "", why));
        }
        errors
    }

    /// The object as an `autoscaling/v1` Scale.
    pub fn of(&self, object: &Value) -> Result<Value, StatusError> {
        let replicas =
            nested(object, &self.spec_replicas, "int64").map_err(StatusError::server_error)?;
        let Some(replicas) = replicas else {
            return Err(StatusError::internal(format!(
                "the spec replicas field {} does not exist",
                quote(&self.spec_replicas)
            )));
        };
        let current =
            nested(object, &self.status_replicas, "int64").map_err(StatusError::server_error)?;
        let mut scale = json!({
            "kind": "Scale",
            "apiVersion": "autoscaling/v1",
            "metadata": metadata(object),
            "spec": {},
            "status": {"replicas": current.cloned().unwrap_or_else(|| 0.into())},
        });
        // Go leaves a zero out.
        if replicas.as_i64() != Some(0) {
            scale["spec"]["replicas"] = replicas.clone();
        }
        if let Some(path) = &self.selector
            && let Some(selector) =
                nested(object, path, "string").map_err(StatusError::server_error)?
            && selector != ""
        {
            scale["status"]["selector"] = selector.clone();
        }
        Ok(scale)
    }

    /// The object with the replicas, and the resourceVersion if any, of a Scale that a client sent.
    pub fn apply(&self, object: &Value, scale: &Value) -> Result<Value, StatusError> {
        let mut object = object.clone();
        let replicas = scale["spec"]["replicas"].as_i64().unwrap_or(0);
        let mut place = &mut object;
        let mut walked = String::new();
        let mut parts = steps(&self.spec_replicas).peekable();
        while let Some(part) = parts.next() {
            let Some(map) = place.as_object_mut() else {
                return Err(StatusError::new(
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "",
                    format!(
                        "value cannot be set because {walked} is not a map[string]interface{{}}"
                    ),
                ));
            };
            walked = format!("{walked}.{part}");
            let is_last = parts.peek().is_none();
            place = map
                .entry(part)
                .or_insert_with(|| if is_last { Value::Null } else { json!({}) });
        }
        *place = replicas.into();
        if let Some(version) = scale.pointer("/metadata/resourceVersion")
            && version != ""
        {
            object["metadata"]["resourceVersion"] = version.clone();
        }
        Ok(object)
    }
}

fn steps(path: &str) -> std::str::Split<'_, char> {
    path.strip_prefix('.').unwrap_or(path).split('.')
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "<nil>",
        Value::Bool(_) => "bool",
        Value::Number(number) if number.is_f64() => "float64",
        Value::Number(_) => "int64",
        Value::String(_) => "string",
        Value::Array(_) => "[]interface {}",
        Value::Object(_) => "map[string]interface {}",
    }
}

/// A value within the object, if it is of the type; the complaint is that of the original.
fn nested<'a>(object: &'a Value, path: &str, wanted: &str) -> Result<Option<&'a Value>, String> {
    let mut value = object;
    let mut walked = String::new();
    for part in steps(path) {
        walked = format!("{walked}.{part}");
        // Below nothing there is nothing.
        if value.is_null() {
            return Ok(None);
        }
        let Some(map) = value.as_object() else {
            return Err(format!(
                "{walked} accessor error: {} is of the type {}, expected map[string]interface{{}}",
                shown(value),
                type_name(value)
            ));
        };
        match map.get(part) {
            None => return Ok(None),
            Some(found) => value = found,
        }
    }
    if type_name(value) == wanted {
        return Ok(Some(value));
    }
    Err(format!(
        "{walked} accessor error: {} is of the type {}, expected {wanted}",
        shown(value),
        type_name(value)
    ))
}

fn shown(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".to_owned(),
        Value::String(text) => text.clone(),
        Value::Number(number) if number.is_f64() => number.to_string().replace(".0", ""),
        other => other.to_string(),
    }
}

fn replicas_errors(object: &Value, path: &str) -> Vec<FieldError> {
    let field = Path::new(path);
    match nested(object, path, "int64") {
        Err(why) => vec![FieldError::invalid(&field, 0, why)],
        Ok(found) => match found.and_then(Value::as_i64).unwrap_or(0) {
            count if count < 0 => vec![FieldError::invalid(
                &field,
                count,
                "should be a non-negative integer",
            )],
            count if count > i64::from(i32::MAX) => vec![FieldError::invalid(
                &field,
                count,
                format!("should be less than or equal to {}", i32::MAX),
            )],
            _ => Vec::new(),
        },
    }
}
