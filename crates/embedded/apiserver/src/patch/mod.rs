//! Patches: from an object and a request body to the object that the client wants. What the server does with that
//! (decode it, default it, track who owns its fields) comes after.

pub mod json;
pub mod merge;
mod order;
mod shown;
pub mod strategic;

use http::StatusCode;
use serde_json::{Map, Value};

use crate::codec::document::Document;
use crate::field::{FieldError, Path};
use crate::schema::{Shape, Types};
use crate::status::{StatusError, Subject};
use plimsoll_golang::format;
use shown::Touched;

/// Which way of patching a request's content type asks for. Server-side apply is another thing: see `managed`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PatchKind {
    Json,
    Merge,
    Strategic,
}

impl PatchKind {
    /// By media type, without parameters.
    pub fn from_media_type(media_type: &str) -> Option<Self> {
        match media_type {
            "application/json-patch+json" => Some(Self::Json),
            "application/merge-patch+json" => Some(Self::Merge),
            "application/strategic-merge-patch+json" => Some(Self::Strategic),
            _ => None,
        }
    }
}

/// What a patch made.
#[derive(Debug, Clone, PartialEq)]
pub struct Patched {
    /// Not decoded yet: may lack what its type requires and have fields that its type does not know.
    pub object: Value,
    /// What strict field validation has against the patch itself, to be said together with what it has against
    /// the object. Empty unless asked for.
    pub complaints: Vec<String>,
    /// What refusals show.
    evidence: Evidence,
}

#[derive(Debug, Clone, PartialEq)]
enum Evidence {
    /// The patched object; the patch took this of it apart.
    Object(Touched),
    Patch(Value),
}

impl Patched {
    /// The refusal of a patched object that cannot be decoded, or that strict field validation does not accept.
    pub fn refuse(&self, types: &Types, shape: &Shape, why: &str) -> StatusError {
        let shown = match &self.evidence {
            Evidence::Patch(patch) => format::shown(patch),
            Evidence::Object(touched) => shown::shown(types, shape, &self.object, touched),
        };
        let nothing = Subject {
            group: "",
            kind: "",
        };
        let error = FieldError::invalid(&Path::new("patch"), shown, why);
        StatusError::invalid(nothing, "", &[error])
    }
}

/// Applies `body` to `current`, which is of `shape`. With `strict` (field validation is `Warn` or `Strict`), what is
/// odd about the patch is noted.
pub fn apply(
    kind: PatchKind,
    types: &Types,
    shape: &Shape,
    current: &Value,
    body: &[u8],
    strict: bool,
) -> Result<Patched, StatusError> {
    match kind {
        PatchKind::Json => json::apply(current, body, strict),
        PatchKind::Merge => merge::apply(current, body, strict),
        PatchKind::Strategic => strategic::apply(types, shape, current, body, strict),
    }
}

/// A patch that is well-formed but does not fit the object: nothing about it is said.
fn does_not_apply() -> StatusError {
    StatusError::new(
        StatusCode::UNPROCESSABLE_ENTITY,
        "Invalid",
        "the server rejected our request due to an error in our request",
    )
    .with_details(Map::new())
}

/// Decodes a body that is to be a JSON object; null is an empty one for Go, hence the option.
fn parse_object(body: &[u8]) -> Result<(Option<Map<String, Value>>, Document), String> {
    let mut document = Document::parse(body)?;
    match document.value.take() {
        Value::Null => Ok((None, document)),
        Value::Object(fields) => Ok((Some(fields), document)),
        other => Err(format!(
            "json: cannot unmarshal {} into Go value of type {}",
            format::json_kind(&other),
            format::MAP
        )),
    }
}

#[cfg(test)]
mod tests;
