//! What is wrong with an object by its schema, on the way to becoming field errors.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::Value;

use crate::field::{FieldError, Path};

/// Problems, and how many checks went well: of alternatives the one that fits best speaks for all.
#[derive(Default)]
pub struct Findings {
    pub problems: Vec<Finding>,
    pub passed: usize,
    /// The words of the problems.
    said: HashSet<String>,
}

/// Of an object with more problems, the rest is not told.
const MOST: usize = 1000;

#[derive(Clone)]
pub struct Finding {
    /// `spec.x`; empty for those that are about the object as a whole.
    name: String,
    text: String,
    kind: Kind,
}

#[derive(Clone)]
pub enum Kind {
    Required,
    Unsupported {
        value: Value,
        allowed: Arc<[Value]>,
    },
    TooLong(u64),
    TooMany {
        actual: usize,
        max: u64,
    },
    Type(Value),
    Invalid(Value),
    /// Of no field.
    General,
}

impl Finding {
    pub fn into_error(self, base: &Path) -> FieldError {
        let name = self.name.trim_start_matches('.');
        let path = if name.is_empty() {
            base.clone()
        } else {
            base.child(name)
        };
        match self.kind {
            Kind::Required => FieldError::required(&path, ""),
            Kind::Unsupported { value, allowed } => {
                let texts: Vec<String> = allowed
                    .iter()
                    .map(|value| match value {
                        Value::String(text) => text.clone(),
                        other => other.to_string(),
                    })
                    .collect();
                let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
                FieldError::not_supported(&path, value, &texts)
            }
            Kind::TooLong(max) => FieldError::too_long(&path, max as usize),
            Kind::TooMany { actual, max } => FieldError::too_many(&path, actual, max as usize),
            Kind::Type(value) => FieldError::type_invalid(&path, value, self.text),
            Kind::Invalid(value) => FieldError::invalid(&path, value, self.text),
            Kind::General => FieldError::invalid(base, "", self.text),
        }
    }
}

impl Findings {
    pub fn add(&mut self, name: &str, text: String, kind: Kind) {
        self.push(Finding {
            name: name.to_owned(),
            text,
            kind,
        });
    }

    /// The same words are not said twice.
    fn push(&mut self, finding: Finding) {
        if self.problems.len() < MOST && self.said.insert(finding.text.clone()) {
            self.problems.push(finding);
        }
    }

    pub fn invalid(&mut self, name: &str, what: String, value: impl Into<Value>) {
        self.add(
            name,
            format!("{name} in body {what}"),
            Kind::Invalid(value.into()),
        );
    }

    pub fn general(&mut self, text: String) {
        self.add("", text, Kind::General);
    }

    pub fn merge(&mut self, other: Findings) {
        self.passed += other.passed;
        if self.fine() {
            (self.problems, self.said) = (other.problems, other.said);
            return;
        }
        for finding in other.problems {
            self.push(finding);
        }
    }

    pub fn fine(&self) -> bool {
        self.problems.is_empty()
    }
}
