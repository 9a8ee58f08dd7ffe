//! AppArmor profiles that are still given as annotations: they become fields, and whoever sends them is told.

use serde_json::{Value, json};

use super::{APP_ARMOR, all_containers};
use crate::kinds::at::{At, field, text};

const LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];
const LONGEST_PATH: usize = 4095;

/// What an annotation says, as a field; `None` where it says nothing that makes sense.
fn as_field(annotation: &str) -> Option<Value> {
    match annotation {
        "unconfined" => Some(json!({"type": "Unconfined"})),
        "runtime/default" => Some(json!({"type": "RuntimeDefault"})),
        _ => annotation
            .strip_prefix("localhost/")
            .filter(|path| !path.is_empty())
            .map(|path| json!({"type": "Localhost", "localhostProfile": path})),
    }
}

/// The same, if it can be used.
fn as_valid_field(annotation: &str) -> Option<Value> {
    as_field(annotation).filter(|profile| {
        let path = text(profile, &["localhostProfile"]);
        path.trim() == path && path.len() <= LONGEST_PATH
    })
}

fn annotation_of<'v>(annotations: &At<'v>, container: &Value) -> Option<At<'v>> {
    let name = text(container, &["name"]);
    annotations
        .entries()
        .find(|(key, _)| key.strip_prefix(APP_ARMOR) == Some(name))
        .map(|(_, value)| value)
}

fn has_own_profile(container: &Value) -> bool {
    !field(container, &["securityContext", "appArmorProfile"]).is_null()
}

fn is_for_windows(spec: &Value) -> bool {
    text(spec, &["os", "name"]) == "windows"
}

/// Gives containers the profiles that annotations have for them, where they differ from the pod's.
pub fn fields_from_annotations(pod: &mut Value) {
    let annotations = field(pod, &["metadata", "annotations"]).clone();
    let mentioned = |(key, _): (&String, &Value)| key.starts_with(APP_ARMOR);
    let any = annotations.as_object().into_iter().flatten().any(mentioned);
    if !any || is_for_windows(field(pod, &["spec"])) {
        return;
    }
    let annotations = At::root(&annotations);
    let of_pod = field(pod, &["spec", "securityContext", "appArmorProfile"]).clone();
    for list in LISTS {
        let containers = pod["spec"].get_mut(list).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            let profile = annotation_of(&annotations, container)
                .and_then(|annotation| as_valid_field(annotation.text()))
                .filter(|profile| *profile != of_pod && !has_own_profile(container));
            if let Some(profile) = profile {
                container["securityContext"]["appArmorProfile"] = profile;
            }
        }
    }
}

/// Of a pod as it was sent.
pub fn pod_warnings(pod: &Value) -> Vec<String> {
    if is_for_windows(field(pod, &["spec"])) {
        return Vec::new();
    }
    warnings(&At::root(pod), |annotation, of_pod| {
        as_valid_field(annotation).as_ref() != Some(of_pod)
    })
}

/// Of a template, whose annotations stay what they are.
pub fn template_warnings(template: &At<'_>) -> Vec<String> {
    warnings(template, |annotation, of_pod| {
        as_field(annotation).as_ref() != Some(of_pod)
    })
}

fn warnings(template: &At<'_>, is_news: impl Fn(&str, &Value) -> bool) -> Vec<String> {
    let annotations = template.dig(&["metadata", "annotations"]);
    let spec = template.get("spec");
    let of_pod = spec.dig(&["securityContext", "appArmorProfile"]).value;
    all_containers(&spec)
        .filter(|container| !has_own_profile(container.value))
        .filter_map(|container| annotation_of(&annotations, container.value))
        .filter(|annotation| is_news(annotation.text(), of_pod))
        .map(|annotation| {
            format!(
                "{}: deprecated since v1.30; use the \"appArmorProfile\" field instead",
                annotation.path()
            )
        })
        .collect()
}
