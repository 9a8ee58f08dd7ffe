//! What is wrong with a question about permissions.

use serde_json::{Value, json};

use crate::field::{ErrorType, FieldError, Path};
use crate::kinds::names;

pub(super) fn subject_access(review: &Value) -> Vec<FieldError> {
    let mut errors = Vec::from_iter(check_attributes(&review["spec"]));
    errors.extend(check_subject(&review["spec"]));
    errors.extend(check_selectors(&review["spec"]));
    errors.extend(check_metadata(review, false));
    errors
}

pub(super) fn self_subject_access(review: &Value) -> Vec<FieldError> {
    let mut errors = Vec::from_iter(check_attributes(&review["spec"]));
    errors.extend(check_selectors(&review["spec"]));
    errors.extend(check_metadata(review, false));
    errors
}

pub(super) fn local_subject_access(review: &Value) -> Vec<FieldError> {
    let spec = &review["spec"];
    let mut errors = Vec::from_iter(check_attributes(spec));
    errors.extend(check_subject(spec));
    errors.extend(check_selectors(spec));
    errors.extend(check_metadata(review, true));
    let path = Path::new("spec");
    let attributes = &spec["resourceAttributes"];
    let namespace = attributes["namespace"].as_str().unwrap_or_default();
    if attributes.is_object() && review["metadata"]["namespace"] != namespace {
        let path = path.child("resourceAttributes").child("namespace");
        let why = "must match metadata.namespace";
        errors.push(FieldError::invalid(&path, namespace, why));
    }
    if spec["nonResourceAttributes"].is_object() {
        let path = path.child("nonResourceAttributes");
        let why = "disallowed on this kind of request";
        errors.push(FieldError::invalid(&path, path_attributes(spec), why));
    }
    errors
}

fn check_attributes(spec: &Value) -> Option<FieldError> {
    let path = Path::new("spec");
    let has = |field: &str| spec[field].is_object();
    match (has("resourceAttributes"), has("nonResourceAttributes")) {
        (true, true) => {
            let path = path.child("nonResourceAttributes");
            let why = "cannot be specified in combination with resourceAttributes";
            Some(FieldError::invalid(&path, path_attributes(spec), why))
        }
        (false, false) => {
            let path = path.child("resourceAttributes");
            let why =
                "exactly one of nonResourceAttributes or resourceAttributes must be specified";
            Some(FieldError::invalid(&path, Value::Null, why))
        }
        _ => None,
    }
}

fn check_subject(spec: &Value) -> Option<FieldError> {
    let user = spec["user"].as_str().unwrap_or_default();
    let groups = spec["groups"]
        .as_array()
        .is_some_and(|list| !list.is_empty());
    let path = Path::new("spec").child("user");
    let why = "at least one of user or group must be specified";
    (user.is_empty() && !groups).then(|| FieldError::invalid(&path, user, why))
}

/// Shown with the names that the original has inside.
fn path_attributes(spec: &Value) -> Value {
    let attributes = &spec["nonResourceAttributes"];
    let text = |field: &str| attributes[field].as_str().unwrap_or_default().to_owned();
    json!({"Path": text("path"), "Verb": text("verb")})
}

/// Reviews are not stored, so they have no name, labels or anything; a local one has its namespace.
fn check_metadata(review: &Value, local: bool) -> Option<FieldError> {
    let metadata = review["metadata"].as_object()?;
    let expected = |field: &str| field == "managedFields" || (local && field == "namespace");
    if metadata.keys().all(|field| expected(field)) {
        return None;
    }
    let why = match local {
        true => "must be empty except for namespace",
        false => "must be empty",
    };
    let path = Path::new("metadata");
    let shown = shown_metadata(&review["metadata"]);
    Some(FieldError::with_shown(
        ErrorType::Invalid,
        &path,
        &shown,
        why,
    ))
}

/// In the order of the original's fields, of which a client sees the text.
fn shown_metadata(metadata: &Value) -> String {
    const METADATA: [&str; 15] = [
        "name",
        "generateName",
        "namespace",
        "selfLink",
        "uid",
        "resourceVersion",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "labels",
        "annotations",
        "ownerReferences",
        "finalizers",
        "managedFields",
    ];
    const OWNER: [&str; 6] = [
        "apiVersion",
        "kind",
        "name",
        "uid",
        "controller",
        "blockOwnerDeletion",
    ];
    const MANAGED: [&str; 7] = [
        "manager",
        "operation",
        "apiVersion",
        "time",
        "fieldsType",
        "fieldsV1",
        "subresource",
    ];
    let plain = |_: &str, value: &Value| value.to_string();
    let list = |value: &Value, order: &[&str]| {
        let items = value.as_array().into_iter().flatten();
        let items: Vec<String> = items.map(|item| in_order(item, order, plain)).collect();
        format!("[{}]", items.join(","))
    };
    in_order(metadata, &METADATA, |field, value| match field {
        "ownerReferences" => list(value, &OWNER),
        "managedFields" => list(value, &MANAGED),
        _ => value.to_string(),
    })
}

fn in_order(object: &Value, order: &[&str], show: impl Fn(&str, &Value) -> String) -> String {
    let fields = order.iter().filter_map(|field| {
        let value = object.get(field)?;
        Some(format!("\"{field}\":{}", show(field, value)))
    });
    let fields: Vec<String> = fields.collect();
    format!("{{{}}}", fields.join(","))
}

const SELECTORS: [&str; 2] = ["fieldSelector", "labelSelector"];

fn check_selectors(spec: &Value) -> Vec<FieldError> {
    let attributes = &spec["resourceAttributes"];
    let mut errors = Vec::new();
    for kind in SELECTORS {
        let selector = &attributes[kind];
        if !selector.is_object() {
            continue;
        }
        let path = Path::new("spec").child("resourceAttributes").child(kind);
        let raw = selector["rawSelector"].as_str().unwrap_or_default();
        let requirements = list(&selector["requirements"]);
        if !raw.is_empty() && !requirements.is_empty() {
            let why = "may not specified at the same time as requirements";
            errors.push(FieldError::invalid(&path.child("rawSelector"), raw, why));
        }
        if raw.is_empty() && requirements.is_empty() {
            let why = format!("when {path} is specified, requirements or rawSelector is required");
            errors.push(FieldError::required(&path.child("requirements"), &why));
        }
        for (index, requirement) in requirements.iter().enumerate() {
            let path = path.child("requirements").index(index);
            // An empty key is no label either, but there its syntax says so.
            if kind == "fieldSelector" && requirement["key"].as_str().unwrap_or_default().is_empty()
            {
                let why = "must be specified";
                errors.push(FieldError::required(&path.child("key"), why));
            }
            errors.extend(check_values(requirement, &path.child("values")));
            if kind == "labelSelector" {
                errors.extend(check_label(requirement, &path));
            }
        }
    }
    errors
}

/// Labels that cannot be are not looked for.
fn check_label(requirement: &Value, path: &Path) -> Vec<FieldError> {
    let key = requirement["key"].as_str().unwrap_or_default();
    let mut errors: Vec<FieldError> = names::qualified_name(key)
        .iter()
        .map(|why| FieldError::invalid(&path.child("key"), key, why))
        .collect();
    for (index, value) in list(&requirement["values"]).iter().enumerate() {
        let value = value.as_str().unwrap_or_default();
        for why in names::label_value(value) {
            let path = path.child("values").index(index);
            errors.push(FieldError::invalid(&path, value, why));
        }
    }
    errors
}

/// Operators that are not known are no mistake: the client may be newer.
fn check_values(requirement: &Value, path: &Path) -> Option<FieldError> {
    let values = list(&requirement["values"]);
    match requirement["operator"].as_str().unwrap_or_default() {
        "In" | "NotIn" if values.is_empty() => {
            let why = "must be specified when `operator` is 'In' or 'NotIn'";
            Some(FieldError::required(path, why))
        }
        "Exists" | "DoesNotExist" if !values.is_empty() => {
            let why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'";
            Some(FieldError::forbidden(path, why))
        }
        _ => None,
    }
}

/// Which selectors do not count, wholly or in part, because they are not understood; empty where all do.
pub(super) fn ignored_selectors(attributes: &Value) -> String {
    let mut notes = Vec::new();
    for kind in SELECTORS {
        let requirements = list(&attributes[kind]["requirements"]);
        let understood = requirements.iter().filter(|requirement| {
            let operator = requirement["operator"].as_str().unwrap_or_default();
            match kind {
                // Fields can only be equal or unequal to one value.
                "fieldSelector" => {
                    matches!(operator, "In" | "NotIn") && list(&requirement["values"]).len() == 1
                }
                _ => matches!(operator, "In" | "NotIn" | "Exists" | "DoesNotExist"),
            }
        });
        let how_much = match understood.count() {
            count if count == requirements.len() => continue,
            0 => "ignored",
            _ => "partially ignored",
        };
        notes.push(format!(
            "spec.resourceAttributes.{kind} {how_much} due to parse error"
        ));
    }
    notes.join("; ")
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}
