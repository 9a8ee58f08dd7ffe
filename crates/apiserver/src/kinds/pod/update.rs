//! What may change in a pod, and through which door.

use serde_json::{Value, json};

use super::{APP_ARMOR, MIRROR, check as check_pod, containers, resources, scheduling};
use crate::field::{FieldError, Path};
use crate::kinds::at::{At, Errors, carry, field, same};
use crate::kinds::diff;
use crate::kinds::metadata;
use crate::kinds::names::NameRule;
use crate::kinds::raise_generation;

const UPDATABLE: &str = "`spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";

/// An ordinary update.
pub fn check(new: &At<'_>, old: &At<'_>, errors: &mut Errors) {
    whole(new, errors);
    annotation_updates(
        &new.dig(&["metadata", "annotations"]),
        old.dig(&["metadata", "annotations"]).value,
        &new.get("spec"),
        errors,
    );
    let (new, old) = (new.get("spec"), old.get("spec"));
    for list in ["containers", "initContainers"] {
        let (new, old) = (new.get(list), old.get(list));
        if new.len() != old.len() {
            errors.forbidden(&new, "pod updates may not add or remove containers");
            return;
        }
        for container in new.items() {
            errors.non_empty(&container.get("image"));
            containers::image_padding(&container, errors);
        }
    }
    if !deadline(&new, &old, errors) {
        return;
    }
    only_added_tolerations(
        &new.get("tolerations"),
        old.get("tolerations").value,
        errors,
    );
    let gates = new.get("schedulingGates");
    for gate in gates.items() {
        let name = gate.get("name");
        let known = old
            .get("schedulingGates")
            .items()
            .any(|one| one.get("name").text() == name.text());
        if !known {
            errors.forbidden(
                &name,
                format!(
                    "only deletion is allowed, but found new scheduling gate '{}'",
                    name.text()
                ),
            );
        }
    }
    let mut masked = new.value.clone();
    mask(&mut masked, old.value);
    if !old.get("schedulingGates").is_empty() {
        gated_changes(&new, &old, &mut masked, errors);
    }
    if !same(&masked, old.value) {
        let difference = diff::of("PodSpec", old.value, &masked);
        errors.forbidden(
            &new,
            format!("pod updates may not change fields other than {UPDATABLE}\n{difference}"),
        );
    }
}

/// The pod's metadata and specification as on creation.
fn whole(pod: &At<'_>, errors: &mut Errors) {
    let meta = pod.get("metadata");
    metadata::check(&meta, Some(true), NameRule::Subdomain, errors);
    metadata::check_known_finalizers(&meta, errors);
    check_pod(pod, errors);
}

/// `false`: nothing else is to be looked at.
fn deadline(new: &At<'_>, old: &At<'_>, errors: &mut Errors) -> bool {
    let (at, before) = (
        new.get("activeDeadlineSeconds"),
        old.get("activeDeadlineSeconds"),
    );
    match (at.int(), before.int()) {
        (Some(seconds), _) if !(0..=i64::from(i32::MAX)).contains(&seconds) => {
            errors.between(&at, 0, i32::MAX.into());
            false
        }
        (Some(seconds), Some(before)) if before < seconds => {
            errors.invalid(&at, seconds, "must be less than or equal to previous value");
            false
        }
        (None, Some(_)) => {
            errors.invalid(
                &at,
                Value::Null,
                "must not update from a positive integer to nil value",
            );
            true
        }
        _ => true,
    }
}

fn only_added_tolerations(new: &At<'_>, old: &Value, errors: &mut Errors) {
    let without_seconds = |toleration: &Value| {
        let mut toleration = toleration.clone();
        if let Some(fields) = toleration.as_object_mut() {
            fields.remove("tolerationSeconds");
        }
        toleration
    };
    for kept in old.as_array().into_iter().flatten() {
        let kept = without_seconds(kept);
        if !new
            .items()
            .any(|one| same(&without_seconds(one.value), &kept))
        {
            errors.forbidden(
                new,
                "existing toleration can not be modified except its tolerationSeconds",
            );
            return;
        }
    }
    scheduling::tolerations(new, errors);
}

/// Takes back what an update may change, so that what remains shows what it may not.
fn mask(new: &mut Value, old: &Value) {
    for list in ["containers", "initContainers"] {
        let containers = new.get_mut(list).and_then(Value::as_array_mut);
        let before = field(old, &[list]).as_array().into_iter().flatten();
        for (container, before) in containers.into_iter().flatten().zip(before) {
            carry(container, before, "image");
        }
    }
    for name in ["activeDeadlineSeconds", "schedulingGates", "tolerations"] {
        carry(new, old, name);
    }
    let grace = |spec: &Value| field(spec, &["terminationGracePeriodSeconds"]).as_i64();
    if grace(old).is_some_and(|seconds| seconds < 0) && grace(new) == Some(1) {
        carry(new, old, "terminationGracePeriodSeconds");
    }
}

/// A pod that waits behind gates may still be directed to fewer nodes.
fn gated_changes(new: &At<'_>, old: &At<'_>, masked: &mut Value, errors: &mut Errors) {
    let (selector, before) = (new.get("nodeSelector"), old.get("nodeSelector"));
    let kept = before
        .entries()
        .all(|(key, value)| selector.value.get(key) == Some(value.value));
    if !kept {
        errors.invalid(
            &selector,
            selector.value.clone(),
            "only additions to spec.nodeSelector are allowed (no mutations or deletions)",
        );
    }
    carry(masked, old.value, "nodeSelector");
    let node_affinity = |spec: &At<'_>| field(spec.value, &["affinity", "nodeAffinity"]).clone();
    let (affinity, before) = (node_affinity(new), node_affinity(old));
    if same(&affinity, &before) {
        return;
    }
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    let terms = new.dig(&["affinity", "nodeAffinity", REQUIRED, "nodeSelectorTerms"]);
    let old_terms = old.dig(&["affinity", "nodeAffinity", REQUIRED, "nodeSelectorTerms"]);
    if !old_terms.is_empty() && old_terms.len() != terms.len() {
        errors.invalid(
            &terms,
            terms.value.clone(),
            "no additions/deletions to non-empty NodeSelectorTerms list are allowed",
        );
    } else {
        for (term, before) in terms.items().zip(old_terms.items()) {
            if !only_additions(&term, &before) {
                errors.invalid(
                    &term,
                    term.value.clone(),
                    "only additions are allowed (no mutations or deletions)",
                );
            }
        }
    }
    let others = ["podAffinity", "podAntiAffinity"]
        .iter()
        .any(|kind| !field(masked, &["affinity", kind]).is_null());
    match (
        field(masked, &["affinity"]).is_null(),
        old.get("affinity").is_set(),
    ) {
        (true, _) if before.is_null() => {}
        (true, _) => masked["affinity"] = json!({ "nodeAffinity": before }),
        (false, false) if !others => {
            if let Some(spec) = masked.as_object_mut() {
                spec.remove("affinity");
            }
        }
        (false, _) => {
            if let Some(affinity) = masked.get_mut("affinity") {
                carry(affinity, &json!({ "nodeAffinity": before }), "nodeAffinity");
            }
        }
    }
}

fn only_additions(new: &At<'_>, old: &At<'_>) -> bool {
    let lists = ["matchExpressions", "matchFields"];
    if lists.iter().all(|list| old.get(list).is_empty()) {
        return lists.iter().all(|list| new.get(list).is_empty());
    }
    lists.iter().all(|list| {
        let (new, old) = (new.get(list), old.get(list));
        new.len() >= old.len()
            && old
                .items()
                .zip(new.items())
                .all(|(a, b)| same(a.value, b.value))
    })
}

pub(super) fn annotation_updates(new: &At<'_>, old: &Value, spec: &At<'_>, errors: &mut Errors) {
    let forbid = |key: &str, verb: &str, errors: &mut Errors| {
        let what = if key.starts_with(APP_ARMOR) {
            "AppArmor annotations"
        } else if key == MIRROR {
            "mirror pod annotation"
        } else {
            return;
        };
        let path = new.path().key(key);
        errors.push(FieldError::forbidden(
            &path,
            format!("may not {verb} {what}"),
        ));
    };
    let before = old.as_object().into_iter().flatten();
    for (key, _) in before.filter(|(key, value)| new.value.get(key.as_str()) != Some(*value)) {
        forbid(key, "remove or update", errors);
    }
    for (key, _) in new.entries().filter(|(key, _)| old.get(key).is_none()) {
        forbid(key, "add", errors);
    }
    super::annotations(new, spec, errors);
}

/// Through `pods/ephemeralcontainers` only these change.
pub fn prepare_ephemeral_containers(new: &mut Value, old: &Value) {
    let added = field(new, &["spec", "ephemeralContainers"]).clone();
    keep_all_but_metadata(new, old);
    if !added.is_null() {
        new["spec"]["ephemeralContainers"] = added;
    } else if let Some(spec) = new.get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove("ephemeralContainers");
    }
    let changed = !same(field(new, &["spec"]), field(old, &["spec"]));
    raise_generation(new, changed);
}

fn keep_all_but_metadata(new: &mut Value, old: &Value) {
    carry(new, old, "spec");
    carry(new, old, "status");
    if let (Some(new), Some(old)) = (new.get_mut("metadata"), old.get("metadata")) {
        for name in [
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
            "selfLink",
            "labels",
            "annotations",
            "finalizers",
            "ownerReferences",
        ] {
            carry(new, old, name);
        }
    }
}

pub fn validate_ephemeral_containers(new: &Value, old: &Value) -> Vec<FieldError> {
    let mut errors = Errors::default();
    let (new, old) = (At::root(new), At::root(old));
    super::check_metadata_update(&new, &old, &mut errors);
    whole(&new, &mut errors);
    annotation_updates(
        &new.dig(&["metadata", "annotations"]),
        old.dig(&["metadata", "annotations"]).value,
        &new.get("spec"),
        &mut errors,
    );
    if is_mirror(&old) {
        return vec![FieldError::forbidden(
            &Path::new(""),
            "static pods do not support ephemeral containers",
        )];
    }
    let list = new.dig(&["spec", "ephemeralContainers"]);
    for before in old.dig(&["spec", "ephemeralContainers"]).items() {
        let name = before.get("name").text();
        let found = list.items().find(|one| one.get("name").text() == name);
        match found {
            None => errors.forbidden(
                &list,
                format!("existing ephemeral containers \"{name}\" may not be removed\n"),
            ),
            Some(now) if !same(now.value, before.value) => errors.forbidden(
                &list,
                format!(
                    "existing ephemeral containers \"{name}\" may not be changed\n{}",
                    diff::of("EphemeralContainer", before.value, now.value)
                ),
            ),
            Some(_) => {}
        }
    }
    errors.0
}

fn is_mirror(pod: &At<'_>) -> bool {
    pod.dig(&["metadata", "annotations", MIRROR]).is_set()
}

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

fn pod_level_resize(new: &At<'_>, old: &At<'_>, masked: &mut Value, errors: &mut Errors) {
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

fn same_order(new: &At<'_>, old: &At<'_>, errors: &mut Errors) -> bool {
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

fn is_removed(new: &Value, old: &Value) -> bool {
    old.as_object()
        .into_iter()
        .flatten()
        .any(|(name, _)| new.get(name).is_none())
}

/// Takes back changes of cpu and memory in `resources`.
fn keep_cpu_and_memory(holder: &mut Value, old: &Value) {
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
    }
    if field(holder, &["resources"]) == &json!({})
        && field(old, &["resources"]).is_null()
        && let Some(fields) = holder.as_object_mut()
    {
        fields.remove("resources");
    }
}
