//! What may change in a pod, and through which door.

use serde_json::{Value, json};

use super::{APP_ARMOR, MIRROR, check as check_pod, containers, scheduling};
use std::collections::HashSet;

use crate::field::{FieldError, Path};
use crate::kinds::at::canonical;
use crate::kinds::at::{At, Errors, carry, field, same};
use crate::kinds::diff;
use crate::kinds::gated;
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
    let known = old.get("schedulingGates").each("name");
    for gate in gates.items() {
        let name = gate.get("name");
        if !known.contains(&name.text()) {
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
pub(super) fn whole(pod: &At<'_>, errors: &mut Errors) {
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
        canonical(&toleration)
    };
    let present: HashSet<Value> = new.items().map(|one| without_seconds(one.value)).collect();
    for kept in old.as_array().into_iter().flatten() {
        if !present.contains(&without_seconds(kept)) {
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
    gated::forget(&super::POD, new);
    let changed = !same(field(new, &["spec"]), field(old, &["spec"]));
    raise_generation(new, changed);
}

pub(super) fn keep_all_but_metadata(new: &mut Value, old: &Value) {
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
    let by_name = list.by("name");
    for before in old.dig(&["spec", "ephemeralContainers"]).items() {
        let name = before.get("name").text();
        match by_name.get(name) {
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

pub(super) fn is_mirror(pod: &At<'_>) -> bool {
    pod.dig(&["metadata", "annotations", MIRROR]).is_set()
}
