//! Changing what a running pod may use.

use serde_json::{Value, json};

use super::resources;
use super::update::{is_mirror, keep_all_but_metadata, whole};
use crate::field::{FieldError, Path};
use crate::kinds::at::{At, Errors, carry, field, same};
use crate::kinds::raise_generation;

/// Through `pods/resize` only resources and how they are changed do change.
pub fn prepare_resize(new: &mut Value, old: &Value) {
    let lists = ["containers", "initContainers"];
    let names = |pod: &Value, list: &str| -> Vec<Value> {
        let containers = field(pod, &["spec", list]).as_array().into_iter().flatten();
        containers
            .map(|one| field(one, &["name"]).clone())
            .collect()
    };
    let lengths_match = lists
        .iter()
        .all(|list| names(new, list).len() == names(old, list).len());
    if lengths_match {
        let wanted = new.clone();
        let own = field(&wanted, &["spec", "resources"]).clone();
        keep_all_but_metadata(new, old);
        for list in lists {
            let given = field(&wanted, &["spec", list]);
            if names(&wanted, list) != names(old, list) {
                // Shown as it was sent, so that validation can name what is wrong.
                new["spec"][list] = given.clone();
                continue;
            }
            let containers = new
                .pointer_mut(&format!("/spec/{list}"))
                .and_then(Value::as_array_mut);
            let given = given.as_array().into_iter().flatten();
            for (container, given) in containers.into_iter().flatten().zip(given) {
                carry(container, given, "resources");
                carry(container, given, "resizePolicy");
            }
        }
        if !own.is_null() {
            new["spec"]["resources"] = own;
        } else if let Some(spec) = new.get_mut("spec").and_then(Value::as_object_mut) {
            spec.remove("resources");
        }
    }
    let changed = !same(field(new, &["spec"]), field(old, &["spec"]));
    raise_generation(new, changed);
}

pub fn validate_resize(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let (pod, before) = (At::root(new), At::root(old));
    super::check_metadata_update(&pod, &before, &mut errors);
    whole(&pod, &mut errors);
    for (refused, detail) in [
        (is_mirror(&before), "static pods cannot be resized"),
        (
            before.dig(&["spec", "os", "name"]).text() == "windows",
            "windows pods cannot be resized",
        ),
    ] {
        if refused {
            return vec![FieldError::forbidden(&Path::new(""), detail)];
        }
    }
    let spec = pod.get("spec");
    let old_spec = before.get("spec");
    let class = before.dig(&["status", "qosClass"]).text();
    let old_class = if class.is_empty() {
        resources::quality_of_service(old_spec.value)
    } else {
        class
    };
    if old_class != resources::quality_of_service(spec.value) {
        errors.invalid(
            &spec,
            pod.dig(&["status", "qosClass"]).text(),
            "Pod QOS Class may not change as a result of resizing",
        );
    }
    let running = before
        .dig(&["status", "containerStatuses"])
        .items()
        .find(|status| status.dig(&["state", "running"]).is_set());
    if running.is_some_and(|status| !status.get("resources").is_set()) {
        errors.forbidden(&spec, "Pod running on node without support for resize");
    }
    let mut masked = spec.value.clone();
    pod_level_resize(&spec, &old_spec, &mut masked, &mut errors);
    if !same_order(&spec, &old_spec, &mut errors) {
        return errors.0;
    }
    for list in ["initContainers", "containers"] {
        for (now, then) in spec.get(list).items().zip(old_spec.get(list).items()) {
            for kind in ["requests", "limits"] {
                let (now, then) = (
                    now.dig(&["resources", kind]),
                    then.dig(&["resources", kind]),
                );
                if is_removed(now.value, then.value) {
                    errors.forbidden(&now, format!("resource {kind} cannot be removed"));
                }
            }
        }
    }
    for list in ["containers", "initContainers"] {
        let containers = masked.get_mut(list).and_then(Value::as_array_mut);
        let places = spec.get(list).items().zip(old_spec.get(list).items());
        for (container, (at, then)) in containers.into_iter().flatten().zip(places) {
            keep_cpu_and_memory(container, then.value);
            let other_change = !same(container, then.value);
            if list == "containers" {
                if other_change {
                    errors.forbidden(&spec, "only cpu and memory resources are mutable");
                }
                continue;
            }
            if other_change {
                errors.forbidden(
                    &at,
                    "only cpu and memory resources for init or sidecar containers are mutable",
                );
            }
            let sidecar = at.get("restartPolicy").text() == "Always";
            if !sidecar && !same(at.value, then.value) {
                let policies = at.get("resizePolicy");
                for _ in policies
                    .items()
                    .filter(|policy| policy.get("restartPolicy").text() == "RestartContainer")
                {
                    errors.forbidden(&at, "non-sidecar init containers with a resize policy of RestartContainer cannot be resized");
                }
            }
        }
    }
    if errors.is_empty() && !same(&masked, old_spec.value) {
        errors.forbidden(&spec, "only cpu and memory resources are mutable");
    }
    errors.0
}

pub(super) fn pod_level_resize(
    new: &At<'_>,
    old: &At<'_>,
    masked: &mut Value,
    errors: &mut Errors,
) {
    let (own, before) = (new.get("resources"), old.get("resources"));
    if !own.is_set() && !before.is_set() {
        return;
    }
    if !own.is_set() {
        errors.forbidden(&own, "pod-level resources cannot be removed");
        return;
    }
    for kind in ["requests", "limits"] {
        if is_removed(own.get(kind).value, before.get(kind).value) {
            errors.forbidden(
                &own.get(kind),
                format!("pod-level resource {kind} cannot be removed"),
            );
        }
    }
    keep_cpu_and_memory(masked, old.value);
    if !same(field(masked, &["resources"]), before.value) {
        errors.forbidden(
            new,
            "only cpu and memory resources are mutable at pod-level",
        );
    }
}

pub(super) fn same_order(new: &At<'_>, old: &At<'_>, errors: &mut Errors) -> bool {
    let before = errors.0.len();
    for list in ["containers", "initContainers"] {
        let (now, then) = (new.get(list), old.get(list));
        if now.len() != then.len() {
            errors.forbidden(
                &now,
                format!("{list} may not be added or removed on resize"),
            );
            continue;
        }
        for (now, then) in now.items().zip(then.items()) {
            if now.get("name").text() != then.get("name").text() {
                errors.forbidden(
                    &now.get("name"),
                    format!("{list} may not be renamed or reordered on resize"),
                );
            }
        }
    }
    errors.0.len() == before
}

pub(super) fn is_removed(new: &Value, old: &Value) -> bool {
    old.as_object()
        .into_iter()
        .flatten()
        .any(|(name, _)| new.get(name).is_none())
}

/// Takes back changes of cpu and memory in `resources`.
pub(super) fn keep_cpu_and_memory(holder: &mut Value, old: &Value) {
    for kind in ["requests", "limits"] {
        for resource in ["cpu", "memory"] {
            match field(old, &["resources", kind, resource]) {
                Value::Null => {
                    let list = holder.pointer_mut(&format!("/resources/{kind}"));
                    if let Some(list) = list.and_then(Value::as_object_mut) {
                        list.remove(resource);
                    }
                }
                amount => holder["resources"][kind][resource] = amount.clone(),
            }
        }
        // A list with nothing left in it is as good as none.
        let resources = holder.get_mut("resources").and_then(Value::as_object_mut);
        if let Some(resources) = resources
            && resources.get(kind) == Some(&json!({}))
        {
            resources.remove(kind);
        }
    }
    if field(holder, &["resources"]) == &json!({})
        && field(old, &["resources"]).is_null()
        && let Some(fields) = holder.as_object_mut()
    {
        fields.remove("resources");
    }
}
