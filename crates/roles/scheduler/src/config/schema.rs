//! Which fields there are and of which type: what makes reading strict, in the words of the original's decoder.

use serde_json::Value;

/// What a field may hold. `null` is always as good as nothing.
#[derive(Debug, Clone, Copy)]
pub enum Type {
    Text,
    Bool,
    Int32,
    Int64,
    Float,
    Duration,
    Object(&'static Schema),
    List(&'static Type),
    /// Read by somebody else.
    Anything,
}

#[derive(Debug)]
pub struct Schema {
    /// As the original calls it.
    pub name: &'static str,
    pub fields: &'static [(&'static str, Type)],
}

impl Schema {
    /// Unknown fields, by path; `Err`: a value of another type.
    pub fn check(&self, value: &Value) -> Result<Vec<String>, String> {
        let mut unknown = Vec::new();
        self.walk(value, "", &mut unknown)?;
        Ok(unknown)
    }

    /// With its package: what all programs of Kubernetes have in common is in another.
    fn type_name(&self) -> String {
        let package = match self.name {
            "LeaderElectionConfiguration" | "ClientConnectionConfiguration" => "v1alpha1",
            _ => "v1",
        };
        format!("{package}.{}", self.name)
    }

    fn walk(&self, value: &Value, path: &str, unknown: &mut Vec<String>) -> Result<(), String> {
        let Value::Object(map) = value else {
            return Err(mismatch(value, self.name, path, &self.type_name()));
        };
        for (key, value) in map {
            let here = match path {
                "" => key.clone(),
                path => format!("{path}.{key}"),
            };
            if path.is_empty() && matches!(key.as_str(), "apiVersion" | "kind") {
                continue;
            }
            match self.fields.iter().find(|(name, _)| name == key) {
                Some((_, kind)) => kind.walk(value, self.name, &here, unknown)?,
                None => unknown.push(here),
            }
        }
        Ok(())
    }
}

impl Type {
    fn walk(
        &self,
        value: &Value,
        owner: &str,
        path: &str,
        unknown: &mut Vec<String>,
    ) -> Result<(), String> {
        if value.is_null() {
            return Ok(());
        }
        let wrong = |kind: &str| Err(mismatch(value, owner, path, kind));
        match self {
            Self::Anything => Ok(()),
            Self::Text if !value.is_string() => wrong("string"),
            Self::Bool if !value.is_boolean() => wrong("bool"),
            Self::Float if !value.is_number() => wrong("float32"),
            Self::Int32 if value.as_i64().is_none_or(|n| i32::try_from(n).is_err()) => {
                wrong("int32")
            }
            Self::Int64 if value.as_i64().is_none() => wrong("int64"),
            Self::Duration => match value.as_str() {
                None => wrong("string"),
                Some(text) => super::GoDuration::parse(text)
                    .map(drop)
                    .map_err(|error| error.to_string()),
            },
            Self::Object(schema) => match value.is_object() {
                true => schema.walk(value, path, unknown),
                false => wrong(&schema.type_name()),
            },
            Self::List(kind) => {
                let Value::Array(list) = value else {
                    return match kind {
                        Self::Object(schema) => wrong(&format!("[]{}", schema.type_name())),
                        _ => wrong("[]string"),
                    };
                };
                for (index, item) in list.iter().enumerate() {
                    kind.walk(item, owner, &format!("{path}[{index}]"), unknown)?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

pub fn mismatch(value: &Value, owner: &str, path: &str, kind: &str) -> String {
    let found = match value {
        Value::Number(number) if kind.starts_with("int") => format!("number {number}"),
        Value::Number(_) => "number".to_owned(),
        Value::String(_) => "string".to_owned(),
        Value::Bool(_) => "bool".to_owned(),
        Value::Array(_) => "array".to_owned(),
        Value::Object(_) | Value::Null => "object".to_owned(),
    };
    // The decoder does not tell which of a list it was.
    let mut field = String::new();
    let mut inside = false;
    for c in path.chars() {
        match c {
            '[' => inside = true,
            ']' => inside = false,
            c if !inside => field.push(c),
            _ => {}
        }
    }
    // Two fields are in a struct of their own that does not show otherwise.
    if matches!(
        field.as_str(),
        "enableProfiling" | "enableContentionProfiling"
    ) {
        field.insert_str(0, "DebuggingConfiguration.");
    }
    match field.as_str() {
        "" => format!("json: cannot unmarshal {found} into Go value of type {kind}"),
        field => {
            format!(
                "json: cannot unmarshal {found} into Go struct field {owner}.{field} of type {kind}"
            )
        }
    }
}
