//! Fields that an applier wants and others own.

use http::StatusCode;
use serde_json::{Map, json};

use super::entries::Entry;
use super::fieldset::FieldSet;
use super::path::display_path;
use crate::status::StatusError;
use plimsoll_golang::strconv::quote;

/// What one other manager owns of it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Conflict {
    /// As messages call the owner.
    pub owner: String,
    pub fields: FieldSet,
}

/// `None`: the owner has nothing of `wanted`.
pub(super) fn with(owner: &Entry, wanted: &FieldSet) -> Option<Conflict> {
    let fields = owner.set.intersection(wanted);
    (!fields.is_empty()).then(|| Conflict {
        owner: shown(owner),
        fields,
    })
}

fn shown(owner: &Entry) -> String {
    let mut text = quote(&owner.manager);
    if !owner.subresource.is_empty() {
        text.push_str(&format!(" with subresource {}", quote(&owner.subresource)));
    }
    if !owner.applied {
        text.push_str(&format!(" using {}", owner.api_version));
    }
    text
}

/// So much is told of the fields that are in conflict. Those that a client owns may be many, and far down.
const MOST_TOLD: usize = 1000;
const MOST_BYTES: usize = 256 << 10;

pub(super) fn refuse(conflicts: &[Conflict]) -> StatusError {
    let told = told(conflicts);
    let causes: Vec<_> = told
        .iter()
        .map(|(owner, field)| {
            json!({
                "reason": "FieldManagerConflict",
                "message": format!("conflict with {owner}"),
                "field": field,
            })
        })
        .collect();
    let mut details = Map::new();
    details.insert("causes".to_owned(), causes.into());
    let count = conflicts.iter().map(|one| one.fields.count()).sum();
    StatusError::new(StatusCode::CONFLICT, "Conflict", message(&told, count)).with_details(details)
}

/// Owners and fields, those of one owner together.
fn told(conflicts: &[Conflict]) -> Vec<(&str, String)> {
    let mut told = Vec::new();
    let mut bytes = 0;
    for conflict in conflicts {
        conflict.fields.each_path(|path| {
            let field = display_path(path);
            bytes += field.len();
            told.push((conflict.owner.as_str(), field));
            told.len() < MOST_TOLD && bytes < MOST_BYTES
        });
        if told.len() >= MOST_TOLD || bytes >= MOST_BYTES {
            break;
        }
    }
    told
}

fn message(told: &[(&str, String)], count: usize) -> String {
    if let ([(owner, field)], 1) = (told, count) {
        return format!("Apply failed with 1 conflict: conflict with {owner}: {field}");
    }
    let mut lines = Vec::new();
    let mut last = None;
    for (owner, field) in told {
        if last != Some(owner) {
            lines.push(format!("conflicts with {owner}:"));
            last = Some(owner);
        }
        lines.push(format!("- {field}"));
    }
    if told.len() < count {
        lines.push(format!("- and {} more", count - told.len()));
    }
    format!("Apply failed with {count} conflicts: {}", lines.join("\n"))
}
