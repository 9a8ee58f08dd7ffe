//! What every object's metadata must be like.

use serde_json::Value;

use super::at::{At, Errors, IMMUTABLE};
use super::names::{self, NameRule};
use super::shown;
use crate::field::FieldError;
use crate::met::Met;
use plimsoll_golang::strconv::quote;

const ANNOTATIONS_LIMIT: usize = 256 * 1024;
const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// Problems with the metadata of an object that is to be created. `name_rule` is of its kind.
pub fn validate_metadata_create(
    meta: &Value,
    namespaced: bool,
    name_rule: NameRule,
) -> Vec<FieldError> {
    let object = serde_json::json!({ "metadata": meta });
    let mut errors = Errors::default();
    let meta = At::root(&object).get("metadata");
    check(&meta, Some(namespaced), name_rule, &mut errors);
    errors.0
}

/// Problems with an update of metadata, beyond what creation checks.
pub fn validate_metadata_update(new: &Value, old: &Value) -> Vec<FieldError> {
    let (new, old) = (
        serde_json::json!({ "metadata": new }),
        serde_json::json!({ "metadata": old }),
    );
    let mut errors = Errors::default();
    check_update(
        &At::root(&new).get("metadata"),
        &At::root(&old).get("metadata"),
        &mut errors,
    );
    errors.0
}

/// `namespaced` is `None` where the namespace does not matter.
pub(super) fn check(meta: &At<'_>, namespaced: Option<bool>, rule: NameRule, errors: &mut Errors) {
    let generate = meta.get("generateName");
    if !generate.is_empty() {
        errors.format(&generate, |name| rule.complaints(name, true));
    }
    let name = meta.get("name");
    if name.is_empty() {
        errors.required(&name, "name or generateName is required");
    } else {
        errors.format(&name, |name| rule.complaints(name, false));
    }
    let namespace = meta.get("namespace");
    match namespaced {
        Some(true) if namespace.is_empty() => errors.required(&namespace, ""),
        Some(true) => errors.format(&namespace, names::label),
        Some(false) if !namespace.is_empty() => {
            errors.forbidden(&namespace, "not allowed on this type");
        }
        _ => {}
    }
    errors.non_negative(&meta.get("generation"));
    labels(&meta.get("labels"), errors);
    annotations(&meta.get("annotations"), errors);
    owners(&meta.get("ownerReferences"), errors);
    finalizers(&meta.get("finalizers"), errors);
    managed_fields(&meta.get("managedFields"), errors);
}

/// Finalizers of built-in kinds are either known or qualified by a domain.
pub(super) fn check_known_finalizers(meta: &At<'_>, errors: &mut Errors) {
    for finalizer in meta.get("finalizers").items() {
        known_finalizer(&finalizer, errors);
    }
}

pub(super) fn known_finalizer(finalizer: &At<'_>, errors: &mut Errors) {
    let name = finalizer.text();
    if !name.contains('/') && !["kubernetes", ORPHAN, FOREGROUND].contains(&name) {
        errors.invalid(
            finalizer,
            name,
            "name is neither a standard finalizer name nor is it fully qualified",
        );
    }
}

pub(super) fn check_update(new: &At<'_>, old: &At<'_>, errors: &mut Errors) {
    if old.get("deletionTimestamp").is_set() {
        no_new_finalizers(&new.get("finalizers"), &old.get("finalizers"), errors);
    }
    let version = new.get("resourceVersion");
    if version.is_empty() {
        errors.invalid(&version, "", "must be specified for an update");
    }
    let generation = new.get("generation");
    if generation.number() < old.get("generation").number() {
        errors.invalid(&generation, generation.number(), "must not be decremented");
    }
    for field in ["name", "namespace", "uid"] {
        errors.immutable_text(&new.get(field), &old.get(field));
    }
    for field in [
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
    ] {
        let (new, old) = (new.get(field), old.get(field));
        if new.value != old.value {
            errors.invalid(&new, new.value.clone(), IMMUTABLE);
        }
    }
    labels(&new.get("labels"), errors);
    annotations(&new.get("annotations"), errors);
    owners(&new.get("ownerReferences"), errors);
    managed_fields(&new.get("managedFields"), errors);
}

pub(super) fn labels(labels: &At<'_>, errors: &mut Errors) {
    for (key, value) in labels.entries() {
        errors.format_of(labels, key, names::qualified_name);
        errors.format_of(labels, value.text(), names::label_value);
    }
}

pub(super) fn annotations(annotations: &At<'_>, errors: &mut Errors) {
    let mut size = 0;
    for (key, value) in annotations.entries() {
        size += key.len() + value.len();
        for complaint in names::qualified_name(&key.to_lowercase()) {
            errors.invalid(annotations, key, complaint);
        }
    }
    if size > ANNOTATIONS_LIMIT {
        errors.too_long(annotations, ANNOTATIONS_LIMIT);
    }
}

fn owners(owners: &At<'_>, errors: &mut Errors) {
    let mut controller: Option<String> = None;
    for owner in owners.items() {
        let [version, kind, name, uid] =
            ["apiVersion", "kind", "name", "uid"].map(|field| owner.get(field).text());
        let mut complain = |field: &'static str, value: &str, detail: &str| {
            errors.invalid(&owners.get(field), value, detail);
        };
        let bare_version = version.rsplit('/').next().unwrap_or_default();
        if bare_version.is_empty() || version.matches('/').count() > 1 {
            complain("apiVersion", version, "version must not be empty");
        }
        for (field, value) in [("kind", kind), ("name", name), ("uid", uid)] {
            if value.is_empty() {
                complain(field, value, "must not be empty");
            }
        }
        if (version, kind) == ("v1", "Event") {
            errors.invalid_shown(
                owners,
                &shown::published(owner.value, shown::OWNER_REFERENCE),
                "/v1, Kind=Event is disallowed from being an owner",
            );
        }
        if owner.get("controller").flag() {
            let current = format!("{kind}/{name}");
            match &controller {
                None => controller = Some(current),
                Some(_) if errors.is_full() => {}
                Some(first) => errors.invalid_shown(
                    owners,
                    &shown::published(owners.value, &format!("[]{}", shown::OWNER_REFERENCE)),
                    format!("Only one reference can have Controller set to true. Found \"true\" in references for {first} and {current}"),
                ),
            }
        }
    }
}

fn finalizers(finalizers: &At<'_>, errors: &mut Errors) {
    for name in finalizers.texts() {
        errors.format_of(finalizers, name, names::qualified_name);
    }
    let has = |wanted| finalizers.texts().any(|name| name == wanted);
    if has(ORPHAN) && has(FOREGROUND) {
        errors.invalid(
            finalizers,
            finalizers.value.clone(),
            format!("finalizer {ORPHAN} and {FOREGROUND} cannot be both set"),
        );
    }
}

fn no_new_finalizers(new: &At<'_>, old: &At<'_>, errors: &mut Errors) {
    let known: Met<&str> = old.texts().collect();
    let mut extra: Vec<&str> = new.texts().filter(|name| !known.contains(name)).collect();
    extra.sort_unstable();
    extra.dedup();
    if !extra.is_empty() {
        let shown: Vec<String> = extra.iter().map(|name| quote(name)).collect();
        errors.forbidden(
            new,
            format!(
                "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
                shown.join(", ")
            ),
        );
    }
}

fn managed_fields(entries: &At<'_>, errors: &mut Errors) {
    for entry in entries.items() {
        let operation = entry.get("operation");
        if !["Apply", "Update"].contains(&operation.text()) {
            errors.invalid(&operation, operation.text(), "must be `Apply` or `Update`");
        }
        let format = entry.get("fieldsType");
        if !format.is_empty() && format.text() != "FieldsV1" {
            errors.invalid(&format, format.text(), "must be `FieldsV1`");
        }
        let manager = entry.get("manager");
        if manager.len() > 128 {
            errors.too_long(&manager, 128);
        }
        for (position, character) in manager.text().char_indices() {
            if character.is_control() {
                errors.invalid(
                    &manager,
                    manager.text(),
                    format!(
                        "invalid character U+{:04X} (at position {position})",
                        character as u32
                    ),
                );
            }
        }
        let subresource = entry.get("subresource");
        if subresource.len() > 256 {
            errors.too_long(&subresource, 256);
        }
    }
}

/// Whether values go with one of the operators that labels and nodes are selected by; `false`: it is another one.
pub(super) fn set_operator(operator: &str, values: &At<'_>, errors: &mut Errors) -> bool {
    match operator {
        "In" | "NotIn" => {
            if values.is_empty() {
                errors.required(
                    values,
                    "must be specified when `operator` is 'In' or 'NotIn'",
                );
            }
        }
        "Exists" | "DoesNotExist" => {
            if !values.is_empty() {
                errors.forbidden(
                    values,
                    "may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
                );
            }
        }
        _ => return false,
    }
    true
}

/// A label selector as workloads and policies have it.
pub(super) fn selector(selector: &At<'_>, errors: &mut Errors) {
    labels(&selector.get("matchLabels"), errors);
    for requirement in selector.get("matchExpressions").items() {
        let values = requirement.get("values");
        let operator = requirement.get("operator");
        if !set_operator(operator.text(), &values, errors) {
            errors.invalid(&operator, operator.text(), "not a valid selector operator");
        }
        errors.format(&requirement.get("key"), names::qualified_name);
        for value in values.items() {
            errors.format(&value, names::label_value);
        }
    }
}

/// Whether a selector picks these labels; `None` where it cannot be evaluated.
pub(crate) fn selects(selector: &Value, labels: &Value) -> Option<bool> {
    let label = |key: &str| labels.get(key).and_then(Value::as_str);
    let selector = At::root(selector);
    for (key, value) in selector.get("matchLabels").entries() {
        if label(key) != Some(value.text()) {
            return Some(false);
        }
    }
    for requirement in selector.get("matchExpressions").items() {
        let found = label(requirement.get("key").text());
        let among = found.is_some_and(|has| requirement.get("values").texts().any(|v| v == has));
        let good = match requirement.get("operator").text() {
            "In" => among,
            "NotIn" => !among,
            "Exists" => found.is_some(),
            "DoesNotExist" => found.is_none(),
            _ => return None,
        };
        if !good {
            return Some(false);
        }
    }
    Some(true)
}

/// Conditions of the common form.
pub(super) fn conditions(conditions: &At<'_>, errors: &mut Errors) {
    let mut seen = Met::default();
    for condition in conditions.items() {
        let kind = condition.get("type");
        if seen.contains(&kind.text()) {
            errors.duplicate(&kind, kind.text());
        } else {
            seen.push(kind.text());
        }
        errors.format(&kind, names::qualified_name);
        let status = condition.get("status");
        if !["False", "True", "Unknown"].contains(&status.text()) {
            errors.not_supported(&status, &["False", "True", "Unknown"]);
        }
        let observed = condition.get("observedGeneration");
        if observed.number() < 0 {
            errors.invalid(
                &observed,
                observed.number(),
                "must be greater than or equal to zero",
            );
        }
        if !condition.get("lastTransitionTime").is_set() {
            errors.required(&condition.get("lastTransitionTime"), "");
        }
        let reason = condition.get("reason");
        if reason.is_empty() {
            errors.required(&reason, "");
        } else {
            errors.format(&reason, condition_reason);
            if reason.len() > 1024 {
                errors.too_long(&reason, 1024);
            }
        }
        let message = condition.get("message");
        if message.len() > 32 * 1024 {
            errors.too_long(&message, 32 * 1024);
        }
    }
}

fn condition_reason(text: &str) -> Vec<String> {
    let good = text.starts_with(|c: char| c.is_ascii_alphabetic())
        && text.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_')
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b',' | b':'));
    if good {
        return Vec::new();
    }
    vec![names::pattern(
        "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric characters or '_,:', and must end with an alphanumeric character or '_'",
        "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?",
        &[
            "my_name",
            "MY_NAME",
            "MyName",
            "ReasonA,ReasonB",
            "ReasonA:ReasonB",
        ],
    )]
}
