//! Field errors: what is wrong with which field, with the texts of Kubernetes' validation that clients match on.

use std::collections::HashSet;
use std::fmt::{self, Write};

use plimsoll_golang::strconv::{format_float, quote};
use serde_json::{Value, json};

/// Where in an object: `spec.containers[0].name`, `metadata.labels[app]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path(String);

impl Path {
    pub fn new(field: &str) -> Self {
        Self(field.to_owned())
    }

    /// The object itself.
    pub fn root() -> Self {
        Self(String::new())
    }

    pub fn child(&self, field: &str) -> Self {
        if self.0.is_empty() {
            return self.and(&[field]);
        }
        self.and(&[".", field])
    }

    pub fn index(&self, index: usize) -> Self {
        self.and(&["[", &index.to_string(), "]"])
    }

    pub fn key(&self, key: &str) -> Self {
        self.and(&["[", key, "]"])
    }

    fn and(&self, parts: &[&str]) -> Self {
        let mut path = self.0.clone();
        for part in parts {
            extend_path(&mut path, part);
        }
        Self(path)
    }
}

/// Further down, a path is not told. A client chooses its keys, and there may be a lot below a long one.
const MOST_PATH: usize = 4096;

/// Adds to a path that is told, as far as it is told.
pub fn extend_path(path: &mut String, part: &str) {
    let room = MOST_PATH.saturating_sub(path.len());
    path.push_str(beginning(part, room));
}

/// As many whole characters as fit.
fn beginning(text: &str, most: usize) -> &str {
    &text[..text.floor_char_boundary(most)]
}

impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Kubernetes writes the empty path so.
        f.write_str(if self.0.is_empty() { "<nil>" } else { &self.0 })
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorType {
    NotFound,
    Required,
    Duplicate,
    Invalid,
    NotSupported,
    Forbidden,
    TooLong,
    TooMany,
    Internal,
    TypeInvalid,
}

impl ErrorType {
    /// As in `details.causes[].reason`.
    pub fn reason(self) -> &'static str {
        match self {
            Self::NotFound => "FieldValueNotFound",
            Self::Required => "FieldValueRequired",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::Internal => "InternalError",
            Self::TypeInvalid => "FieldValueTypeInvalid",
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::NotFound => "Not found",
            Self::Required => "Required value",
            Self::Duplicate => "Duplicate value",
            Self::Invalid | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::Internal => "Internal error",
        }
    }
}

/// So much of a value is told, and so much about it.
const MOST_SHOWN: usize = 256 << 10;
/// So many problems are told, and so much of them in all.
const MOST_TOLD: usize = 1000;
const MOST_BYTES: usize = 1 << 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FieldError {
    pub problem: ErrorType,
    pub field: String,
    /// The text after the problem's words: the offending value (where the problem shows one) and the detail.
    body: String,
}

impl FieldError {
    fn with_value(problem: ErrorType, field: &Path, value: &Value, detail: &str) -> Self {
        Self::with_shown(problem, field, &shown(value), detail)
    }

    /// With a value that has been put into words already.
    pub fn with_shown(problem: ErrorType, field: &Path, shown: &str, detail: &str) -> Self {
        let [shown, detail] = [shown, detail].map(|text| beginning(text, MOST_SHOWN));
        let mut body = format!("{}: {shown}", problem.words());
        if !detail.is_empty() {
            let _ = write!(body, ": {detail}");
        }
        Self {
            problem,
            field: field.to_string(),
            body,
        }
    }

    /// Without the value that most problems of this sort show.
    pub fn without_shown(problem: ErrorType, field: &Path, detail: &str) -> Self {
        Self::without_value(problem, field, detail)
    }

    fn without_value(problem: ErrorType, field: &Path, detail: &str) -> Self {
        let detail = beginning(detail, MOST_SHOWN);
        let mut body = problem.words().to_owned();
        if !detail.is_empty() {
            let _ = write!(body, ": {detail}");
        }
        Self {
            problem,
            field: field.to_string(),
            body,
        }
    }

    pub fn required(field: &Path, detail: &str) -> Self {
        Self::without_value(ErrorType::Required, field, detail)
    }

    pub fn invalid(field: &Path, value: impl Into<Value>, detail: impl AsRef<str>) -> Self {
        Self::with_value(ErrorType::Invalid, field, &value.into(), detail.as_ref())
    }

    /// As [`Self::invalid`], of a value that is too much to show.
    pub fn invalid_omitted(field: &Path, detail: &str) -> Self {
        Self::without_value(ErrorType::Invalid, field, detail)
    }

    pub fn duplicate_omitted(field: &Path) -> Self {
        Self::without_value(ErrorType::Duplicate, field, "")
    }

    pub fn type_invalid(field: &Path, value: impl Into<Value>, detail: impl AsRef<str>) -> Self {
        Self::with_value(
            ErrorType::TypeInvalid,
            field,
            &value.into(),
            detail.as_ref(),
        )
    }

    pub fn forbidden(field: &Path, detail: impl AsRef<str>) -> Self {
        Self::without_value(ErrorType::Forbidden, field, detail.as_ref())
    }

    pub fn duplicate(field: &Path, value: impl Into<Value>) -> Self {
        Self::with_value(ErrorType::Duplicate, field, &value.into(), "")
    }

    pub fn not_found(field: &Path, value: impl Into<Value>) -> Self {
        Self::with_value(ErrorType::NotFound, field, &value.into(), "")
    }

    pub fn not_found_because(field: &Path, value: impl Into<Value>, detail: &str) -> Self {
        Self::with_value(ErrorType::NotFound, field, &value.into(), detail)
    }

    /// `supported` in the order in which it is to be shown; Kubernetes sorts it.
    pub fn not_supported(field: &Path, value: impl Into<Value>, supported: &[&str]) -> Self {
        let quoted: Vec<String> = supported.iter().map(|s| quote(s)).collect();
        let detail = if quoted.is_empty() {
            String::new()
        } else {
            format!("supported values: {}", quoted.join(", "))
        };
        Self::with_value(ErrorType::NotSupported, field, &value.into(), &detail)
    }

    pub fn too_long(field: &Path, max: usize) -> Self {
        Self::without_value(
            ErrorType::TooLong,
            field,
            &format!("may not be more than {max} bytes"),
        )
    }

    pub fn too_many(field: &Path, actual: usize, max: usize) -> Self {
        Self::with_value(
            ErrorType::TooMany,
            field,
            &Value::from(actual),
            &format!(
                "must have at most {max} item{}",
                if max == 1 { "" } else { "s" }
            ),
        )
    }

    pub fn internal(field: &Path, detail: impl AsRef<str>) -> Self {
        Self::without_value(ErrorType::Internal, field, detail.as_ref())
    }

    /// How long it is when it is told.
    #[expect(clippy::len_without_is_empty, reason = "no problem is empty")]
    pub fn len(&self) -> usize {
        self.field.len() + self.body.len()
    }

    /// As in `details.causes[]`.
    pub fn cause(&self) -> Value {
        json!({"reason": self.problem.reason(), "message": self.body, "field": self.field})
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.body)
    }
}

/// Those that are told, the first of all and at least one.
pub fn told(errors: &[FieldError]) -> &[FieldError] {
    let mut bytes = 0;
    let sizes = errors.iter().map(|error| {
        bytes += error.len();
        bytes
    });
    let count = sizes
        .take(MOST_TOLD)
        .take_while(|bytes| *bytes <= MOST_BYTES);
    &errors[..count.count().max(1).min(errors.len())]
}

/// Several problems in one line: one as it is, more in brackets, each said once.
pub fn summary(errors: &[FieldError]) -> String {
    let mut met = HashSet::new();
    let texts = told(errors).iter().map(FieldError::to_string);
    let said: Vec<String> = texts.filter(|text| met.insert(text.clone())).collect();
    match said.as_slice() {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}

/// An offending value as Go shows it: strings quoted, objects and lists as JSON.
fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => quote(text),
        Value::Null => "null".to_owned(),
        Value::Number(number) if number.is_f64() => {
            format_float(number.as_f64().unwrap_or_default())
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_each_problem() {
        let path = Path::new("spec").child("containers").index(0).child("name");
        assert_eq!(
            FieldError::required(&path, "").to_string(),
            "spec.containers[0].name: Required value"
        );
        assert_eq!(
            FieldError::invalid(&path, "A", "must be lower case").to_string(),
            "spec.containers[0].name: Invalid value: \"A\": must be lower case"
        );
        assert_eq!(
            FieldError::not_supported(&path, "x", &["a", "b"]).to_string(),
            "spec.containers[0].name: Unsupported value: \"x\": supported values: \"a\", \"b\""
        );
        assert_eq!(
            Path::new("metadata").child("labels").key("a/b").to_string(),
            "metadata.labels[a/b]"
        );
    }

    #[test]
    fn long_paths_and_values_are_cut() {
        let long = "\u{e9}".repeat(1 << 20);
        let path = Path::root().key(&long).child("b").index(1);
        assert!(path.to_string().len() <= MOST_PATH);
        let error = FieldError::invalid(&path, long.as_str(), &long);
        assert!(error.body.len() <= 2 * MOST_SHOWN + 100);
        let many = vec![error; 100];
        assert!(summary(&many).len() < 2 * MOST_BYTES);
        assert!(told(&many).len() < 5);
        let many = vec![FieldError::required(&Path::new("a"), ""); 5000];
        assert_eq!(told(&many).len(), MOST_TOLD);
        assert_eq!(told(&[]), []);
    }

    #[test]
    fn a_summary_says_each_problem_once() {
        let a = FieldError::required(&Path::new("a"), "");
        let b = FieldError::forbidden(&Path::new("b"), "no");
        assert_eq!(summary(std::slice::from_ref(&a)), "a: Required value");
        assert_eq!(
            summary(&[a.clone(), b, a]),
            "[a: Required value, b: Forbidden: no]"
        );
    }
}
