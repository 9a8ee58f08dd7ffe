//! From JSON to typed settings. A value of the wrong kind is a problem with its place; it never panics, and every problem is
//! told, not only the first. Numbers out of range are taken: what they mean is for whoever acts by them.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

/// Values below a field are looked at no deeper than this, and lists no further.
const MOST_ENTRIES: usize = 1024;

/// A field that makes no sense.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Its place, `resourceQOSStrategy.beClass`.
    pub field: Box<str>,
    /// What it must be, and what it is.
    pub text: Box<str>,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.text)
    }
}

/// Something that can be read from JSON.
pub trait Read: Sized {
    /// `None`: it is of another kind, and `problems` has grown.
    fn read(value: &Value, at: &str, problems: &mut Vec<Problem>) -> Option<Self>;
}

/// A whole value. `null` is the default.
pub fn parse<T: Read + Default>(value: &Value, at: &str) -> Result<T, Vec<Problem>> {
    if value.is_null() {
        return Ok(T::default());
    }
    let mut problems = Vec::new();
    match T::read(value, at, &mut problems) {
        Some(read) if problems.is_empty() => Ok(read),
        _ => Err(problems),
    }
}

/// A field of an object. `null` says nothing.
pub fn field<T: Read>(
    value: &Value,
    name: &str,
    at: &str,
    problems: &mut Vec<Problem>,
) -> Option<T> {
    let value = value.get(name).filter(|value| !value.is_null())?;
    let at = match at.is_empty() {
        true => name.to_owned(),
        false => format!("{at}.{name}"),
    };
    T::read(value, &at, problems)
}

/// Says that a value is of another kind than it must be.
pub fn wrong<T>(value: &Value, kind: &str, at: &str, problems: &mut Vec<Problem>) -> Option<T> {
    let shown = match value {
        Value::Object(_) => "an object".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::String(text) => format!("{:?}", text.chars().take(40).collect::<String>()),
        other => other.to_string(),
    };
    problems.push(Problem {
        field: at.into(),
        text: format!("must be {kind}, and is {shown}").into(),
    });
    None
}

impl Read for bool {
    fn read(value: &Value, at: &str, problems: &mut Vec<Problem>) -> Option<Self> {
        value
            .as_bool()
            .or_else(|| wrong(value, "true or false", at, problems))
    }
}

impl Read for i64 {
    fn read(value: &Value, at: &str, problems: &mut Vec<Problem>) -> Option<Self> {
        value
            .as_i64()
            .or_else(|| wrong(value, "a whole number", at, problems))
    }
}

impl Read for i32 {
    fn read(value: &Value, at: &str, problems: &mut Vec<Problem>) -> Option<Self> {
        let number = value.as_i64().and_then(|number| number.try_into().ok());
        number.or_else(|| wrong(value, "a whole number of 32 bits", at, problems))
    }
}

impl Read for Box<str> {
    fn read(value: &Value, at: &str, problems: &mut Vec<Problem>) -> Option<Self> {
        let text = value.as_str().map(Into::into);
        text.or_else(|| wrong(value, "a text", at, problems))
    }
}

/// Whatever it is.
impl Read for Value {
    fn read(value: &Value, _: &str, _: &mut Vec<Problem>) -> Option<Self> {
        Some(value.clone())
    }
}

impl<T: Read> Read for Vec<T> {
    fn read(value: &Value, at: &str, problems: &mut Vec<Problem>) -> Option<Self> {
        let Some(values) = value.as_array() else {
            return wrong(value, "a list", at, problems);
        };
        let values = values.iter().take(MOST_ENTRIES).enumerate();
        let read =
            values.map(|(position, value)| T::read(value, &format!("{at}[{position}]"), problems));
        Some(read.collect::<Vec<_>>().into_iter().flatten().collect())
    }
}

impl<T: Read> Read for BTreeMap<Box<str>, T> {
    fn read(value: &Value, at: &str, problems: &mut Vec<Problem>) -> Option<Self> {
        let Some(values) = value.as_object() else {
            return wrong(value, "an object", at, problems);
        };
        let values = values.iter().take(MOST_ENTRIES);
        let read = values.map(|(name, value)| {
            let read = T::read(value, &format!("{at}.{name}"), problems)?;
            Some((name.as_str().into(), read))
        });
        Some(read.collect::<Vec<_>>().into_iter().flatten().collect())
    }
}

/// A struct whose fields may each be absent, with their names in JSON.
macro_rules! settings {
    ($(#[$about:meta])* pub struct $name:ident {
        $($(#[$said:meta])* $field:ident: $kind:ty = $json:literal,)*
    }) => {
        $(#[$about])*
        #[derive(Debug, Clone, PartialEq, Default)]
        pub struct $name {
            $($(#[$said])* pub $field: Option<$kind>,)*
        }

        impl $crate::node_slo::read::Read for $name {
            fn read(
                value: &serde_json::Value,
                at: &str,
                problems: &mut Vec<$crate::node_slo::read::Problem>,
            ) -> Option<Self> {
                if !value.is_object() {
                    return $crate::node_slo::read::wrong(value, "an object", at, problems);
                }
                Some(Self {
                    $($field: $crate::node_slo::read::field(value, $json, at, problems),)*
                })
            }
        }
    };
}

pub(super) use settings;
