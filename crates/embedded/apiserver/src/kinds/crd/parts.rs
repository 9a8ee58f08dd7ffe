//! Subresources, printer columns, conversion and formats of custom resources.

use serde_json::Value;

use crate::field::FieldError;
use crate::kinds::at::{At, Errors};
use crate::met::Met;

pub(super) fn subresources(given: &At<'_>, errors: &mut Errors) {
    let scale = given.get("scale");
    if !scale.is_set() {
        return;
    }
    for (name, reported, root) in [
        ("specReplicasPath", "scale.specReplicasPath", ".spec."),
        ("statusReplicasPath", "scale.statusReplicasPath", ".status."),
    ] {
        let path = scale.get(name).reported_at(&given.get(reported));
        if path.is_empty() {
            errors.required(&path, "");
        } else if simple_path(&path, errors) && !path.text().starts_with(root) {
            let detail = format!("should be a json path under {}", root.trim_end_matches('.'));
            errors.invalid(&path, path.text(), detail);
        }
    }
    let selector = scale
        .get("labelSelectorPath")
        .reported_at(&given.get("scale.labelSelectorPath"));
    let roots = [".spec.", ".status."];
    if !selector.is_empty()
        && simple_path(&selector, errors)
        && !roots.iter().any(|root| selector.text().starts_with(root))
    {
        errors.invalid(
            &selector,
            selector.text(),
            "should be a json path under either .spec or .status",
        );
    }
}

/// A path that goes from field to field.
pub(super) fn simple_path(path: &At<'_>, errors: &mut Errors) -> bool {
    if path.text().starts_with('.') {
        return true;
    }
    errors.invalid(
        path,
        path.text(),
        "must be a simple json path starting with .",
    );
    false
}

pub(super) fn columns(columns: &At<'_>, errors: &mut Errors) {
    const TYPES: &[&str] = &["boolean", "date", "integer", "number", "string"];
    const FORMATS: &[&str] = &[
        "byte",
        "date",
        "date-time",
        "double",
        "float",
        "int32",
        "int64",
        "password",
    ];
    for column in columns.items() {
        errors.non_empty(&column.get("name"));
        let kind = column.get("type");
        let detail = format!("must be one of {}", TYPES.join(","));
        if kind.is_empty() {
            errors.required(&kind, &detail);
        } else if !TYPES.contains(&kind.text()) {
            errors.invalid(&kind, kind.text(), detail);
        }
        let format = column.get("format");
        if !format.is_empty() && !FORMATS.contains(&format.text()) {
            let detail = format!("must be one of {}", FORMATS.join(","));
            errors.invalid(&format, format.text(), detail);
        }
        let path = column.get("jsonPath").reported_at(&column.get("JSONPath"));
        if path.is_empty() {
            errors.required(&path, "");
        } else {
            simple_path(&path, errors);
        }
    }
}

pub(super) fn conversion(conversion: &At<'_>, errors: &mut Errors) {
    if !conversion.is_set() {
        return;
    }
    errors.choice(&conversion.get("strategy"), &["None", "Webhook"]);
    let webhook = conversion.get("webhook");
    let client = webhook
        .get("clientConfig")
        .reported_at(&conversion.get("webhookClientConfig"));
    let versions = webhook
        .get("conversionReviewVersions")
        .reported_at(&conversion.get("conversionReviewVersions"));
    if conversion.get("strategy").text() != "Webhook" {
        for at in [&client, &versions] {
            if at.is_set() {
                errors.forbidden(at, "should not be set when strategy is not set to Webhook");
            }
        }
        return;
    }
    if !client.is_set() {
        errors.required(&client, "required when strategy is set to Webhook");
    } else if client.get("url").is_set() == client.get("service").is_set() {
        errors.required(&client, "exactly one of url or service is required");
    }
    if versions.is_empty() {
        errors.required(&versions, "");
    } else if !versions
        .texts()
        .any(|version| version == "v1" || version == "v1beta1")
    {
        errors.push(FieldError::invalid(
            &versions.path(),
            versions.value.clone(),
            "must include at least one of v1, v1beta1",
        ));
    }
}

/// Fields that lists can be selected by have to be there, as plain values.
pub fn selectable(fields: &At<'_>, schema: &Value, errors: &mut Errors) {
    if !fields.is_empty() && schema.is_null() {
        errors.invalid(
            fields,
            "",
            "may only be set when validations.schema is included",
        );
        return;
    }
    let mut seen = Met::default();
    for field in fields.items() {
        let path = field.get("jsonPath");
        if path.is_empty() {
            errors.required(&path, "");
            continue;
        }
        match field_at(schema, path.text()) {
            Err(why) => {
                let detail = format!("is an invalid path: {why}");
                errors.invalid(&path, path.text(), detail);
                continue;
            }
            Ok(kind) if !["boolean", "integer", "string"].contains(&kind) => {
                let detail = "must point to a field of type string, boolean or integer. Enum string fields and \
                              strings with formats are allowed.";
                errors.invalid(&path, path.text(), detail);
                continue;
            }
            Ok(_) => {}
        }
        if seen.contains(&path.text()) {
            errors.duplicate(&path, path.text());
        }
        seen.push(path.text());
    }
}

/// The type of the field that a path like `.a.b` leads to.
fn field_at<'s>(schema: &'s Value, path: &str) -> Result<&'s str, String> {
    let Some(names) = path.strip_prefix('.') else {
        let first = path.split(['.', '[']).next().unwrap_or_default();
        return Err(format!("expected [ or . but got: {first}"));
    };
    if names.contains('[') {
        return Err("array notation is not allowed".to_owned());
    }
    if names.is_empty() || names.ends_with('.') {
        return Err("unexpected end of JSON path".to_owned());
    }
    let mut found = schema;
    for name in names.split('.') {
        found = &found["properties"][name];
    }
    if found.is_null() {
        return Err("does not refer to a valid field".to_owned());
    }
    Ok(found["type"].as_str().unwrap_or_default())
}

/// Formats that schemas name and nobody will check, each once.
pub(super) fn unrecognized_formats(definition: &Value) -> Vec<String> {
    let mut out = Vec::new();
    let mut met = Met::default();
    let versions = definition["spec"]["versions"].as_array();
    for version in versions.into_iter().flatten() {
        formats_below(&version["schema"]["openAPIV3Schema"], &mut met, &mut out);
    }
    out
}

fn formats_below<'v>(schema: &'v Value, met: &mut Met<&'v str>, out: &mut Vec<String>) {
    if !schema.is_object() {
        return;
    }
    let text = |name: &str| schema[name].as_str().unwrap_or_default();
    let format = text("format");
    // Alternatives do not say that they are texts.
    let is_known = crate::crd::knows_format(format, text("type"));
    if !format.is_empty() && !is_known && met.meet(format) == 0 {
        out.push(format.to_owned());
    }
    for one in ["items", "additionalProperties", "not"] {
        formats_below(&schema[one], met, out);
    }
    for all in ["allOf", "anyOf", "oneOf"] {
        for one in schema[all].as_array().into_iter().flatten() {
            formats_below(one, met, out);
        }
    }
    for one in schema["properties"].as_object().into_iter().flatten() {
        formats_below(one.1, met, out);
    }
}
