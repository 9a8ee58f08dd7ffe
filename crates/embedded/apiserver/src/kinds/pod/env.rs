//! Environment variables, and fields of the pod that they and files may show.

use super::volumes;
use crate::kinds::at::{At, Errors};
use crate::kinds::names;
use crate::kinds::quantity::Quantity;

pub(super) const ENV_FIELDS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

pub(super) fn env(vars: &At<'_>, errors: &mut Errors) {
    for var in vars.items() {
        let name = var.get("name");
        if name.is_empty() {
            errors.required(&name, "");
        } else {
            errors.format(&name, names::env_name);
        }
        let from = var.get("valueFrom");
        if from.is_set() {
            value_from(&from, !var.get("value").is_empty(), errors);
        }
    }
}

pub(super) fn value_from(from: &At<'_>, has_value: bool, errors: &mut Errors) {
    let mut sources = 0;
    let mut source = |name: &'static str| {
        let at = from.get(name);
        let set = at.is_set();
        sources += usize::from(set);
        set.then_some(at)
    };
    if let Some(at) = source("fieldRef") {
        field_ref(&at, ENV_FIELDS, errors);
    }
    if let Some(at) = source("resourceFieldRef") {
        resource_field_ref(&at, false, errors);
    }
    for name in ["configMapKeyRef", "secretKeyRef"] {
        if let Some(at) = source(name) {
            errors.format(&at.get("name"), names::subdomain);
            required_format(&at.get("key"), names::config_key, errors);
        }
    }
    if let Some(at) = source("fileKeyRef") {
        required_format(&at.get("key"), names::env_name, errors);
        required_format(&at.get("volumeName"), names::label, errors);
        if at.get("path").is_empty() {
            errors.required(&at.get("path"), "");
        } else {
            volumes::no_backsteps(&at.get("path"), errors);
        }
    }
    if sources == 0 {
        errors.invalid(
            from,
            "",
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`",
        );
    } else if has_value {
        errors.invalid(from, "", "may not be specified when `value` is not empty");
    } else if sources > 1 {
        errors.invalid(
            from,
            "",
            "may not have more than one field specified at a time",
        );
    }
}

pub(super) fn required_format(at: &At<'_>, rule: fn(&str) -> Vec<String>, errors: &mut Errors) {
    if at.is_empty() {
        errors.required(at, "");
    } else {
        errors.format(at, rule);
    }
}

/// A field of the pod, for a variable or a file.
pub fn field_ref(at: &At<'_>, allowed: &[&str], errors: &mut Errors) {
    for name in ["apiVersion", "fieldPath"] {
        if at.get(name).is_empty() {
            errors.required(&at.get(name), "");
            return;
        }
    }
    let path = at.get("fieldPath");
    let version = at.get("apiVersion").text();
    if version != "v1" {
        let detail = format!("error converting fieldPath: unsupported pod version: {version}");
        errors.invalid(&path, path.text(), detail);
        return;
    }
    let subscripted = path
        .text()
        .strip_suffix("']")
        .and_then(|head| head.split_once("['"));
    match subscripted {
        Some((map @ ("metadata.annotations" | "metadata.labels"), key)) => {
            let key = if map == "metadata.annotations" {
                key.to_lowercase()
            } else {
                key.to_owned()
            };
            errors.format_of(at, &key, names::qualified_name);
        }
        Some((other, _)) => errors.invalid(
            &path,
            path.text(),
            format!("error converting fieldPath: field label does not support subscript: {other}"),
        ),
        None if !allowed.contains(&path.text()) => {
            if KNOWN_FIELDS.contains(&path.text()) {
                let mut sorted = allowed.to_vec();
                sorted.sort_unstable();
                errors.not_supported(&path, &sorted);
            } else {
                let detail = format!(
                    "error converting fieldPath: field label not supported: {}",
                    path.text()
                );
                errors.invalid(&path, path.text(), detail);
            }
        }
        None => {}
    }
}

/// Fields that exist for this purpose, though not every use allows each.
pub(super) const KNOWN_FIELDS: &[&str] = &[
    "metadata.annotations",
    "metadata.labels",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.serviceAccountName",
    "spec.schedulerName",
    "status.phase",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

pub(super) const RESOURCE_FIELDS: &[&str] = &[
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

pub(super) const SIZE_DIVISORS: &[&str] = &[
    "1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei",
];

/// A request or limit of a container, for a variable or a file.
pub fn resource_field_ref(at: &At<'_>, in_volume: bool, errors: &mut Errors) {
    let resource = at.get("resource");
    let name = resource.text();
    let huge = name.starts_with("requests.hugepages-") || name.starts_with("limits.hugepages-");
    if in_volume && at.get("containerName").is_empty() {
        errors.required(&at.get("containerName"), "");
    } else if name.is_empty() {
        errors.required(&resource, "");
    } else if !RESOURCE_FIELDS.contains(&name) && !huge {
        errors.not_supported(&resource, RESOURCE_FIELDS);
    }
    let divisor = at.get("divisor");
    let text = divisor.text();
    if Quantity::of(text) == Quantity(0) {
        return;
    }
    let (allowed, words): (&[&str], &str) = match name.rsplit('.').next().unwrap_or_default() {
        "cpu" => (&["1m", "1"], "1m and 1 are supported with the cpu resource"),
        "memory" => (
            SIZE_DIVISORS,
            "1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are supported with the memory resource",
        ),
        "ephemeral-storage" => (
            SIZE_DIVISORS,
            "1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are supported with the local ephemeral storage resource",
        ),
        _ if huge => (
            SIZE_DIVISORS,
            "1, 1k, 1M, 1G, 1T, 1P, 1E, 1Ki, 1Mi, 1Gi, 1Ti, 1Pi, 1Ei are supported with the hugepages resource",
        ),
        _ => return,
    };
    if !allowed.contains(&text) {
        errors.invalid(&divisor, name, format!("only divisor's values {words}"));
    }
}

pub(super) fn env_from(sources: &At<'_>, errors: &mut Errors) {
    for source in sources.items() {
        let prefix = source.get("prefix");
        if !prefix.is_empty() {
            errors.format(&prefix, names::env_name);
        }
        let mut count = 0;
        for name in ["configMapRef", "secretRef"] {
            let reference = source.get(name);
            if reference.is_set() {
                count += 1;
                let name = reference.get("name");
                if name.is_empty() {
                    errors.required(&name, "");
                } else {
                    errors.format(&name, |text| {
                        names::NameRule::Subdomain.complaints(text, true)
                    });
                }
            }
        }
        if count == 0 {
            errors.invalid(
                sources,
                "",
                "must specify one of: `configMapRef` or `secretRef`",
            );
        } else if count > 1 {
            errors.invalid(
                sources,
                "",
                "may not have more than one field specified at a time",
            );
        }
    }
}
