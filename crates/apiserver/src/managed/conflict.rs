//! Fields that an applier wants and others own.

use http::StatusCode;
use serde_json::{Map, json};

use super::entries::Entry;
use super::fieldset::FieldSet;
use super::path::{Step, display_path};
use crate::field::quote;
use crate::status::Failure;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Conflict {
    /// As messages call the owner.
    pub owner: String,
    pub path: Vec<Step>,
}

/// One for each field of `set`.
pub(super) fn conflicts_with(owner: &Entry, set: &FieldSet) -> Vec<Conflict> {
    let owner = shown(owner);
    let conflict = |path| Conflict {
        owner: owner.clone(),
        path,
    };
    set.paths().into_iter().map(conflict).collect()
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

/// `conflicts` are grouped by owner.
pub(super) fn refuse(conflicts: &[Conflict]) -> Failure {
    let causes: Vec<_> = conflicts
        .iter()
        .map(|conflict| {
            json!({
                "reason": "FieldManagerConflict",
                "message": format!("conflict with {}", conflict.owner),
                "field": display_path(&conflict.path),
            })
        })
        .collect();
    let mut details = Map::new();
    details.insert("causes".to_owned(), causes.into());
    Failure::new(StatusCode::CONFLICT, "Conflict", message(conflicts)).with_details(details)
}

fn message(conflicts: &[Conflict]) -> String {
    if let [only] = conflicts {
        return format!(
            "Apply failed with 1 conflict: conflict with {}: {}",
            only.owner,
            display_path(&only.path)
        );
    }
    let mut lines = Vec::new();
    let mut owner = None;
    for conflict in conflicts {
        if owner != Some(&conflict.owner) {
            lines.push(format!("conflicts with {}:", conflict.owner));
            owner = Some(&conflict.owner);
        }
        lines.push(format!("- {}", display_path(&conflict.path)));
    }
    format!(
        "Apply failed with {} conflicts: {}",
        conflicts.len(),
        lines.join("\n")
    )
}
