//! Pods.

pub(super) mod admission;
mod app_armor;
pub(super) mod containers;
pub(super) mod env;
pub mod level_labels;
mod levels;
mod mounts;
pub(super) mod probes;
mod resize;
pub mod resources;
pub mod scheduling;
mod security;
pub mod spec;
mod status;
pub mod totals;
mod update;
mod volume_warnings;
pub mod volumes;
pub mod warnings;

pub use resize::{prepare_resize, validate_resize};
pub use update::{prepare_ephemeral_containers, validate_ephemeral_containers};
pub use warnings::for_template;

use serde_json::{Value, json};

use super::at::{At, Errors, carry, field, same};
use super::limits;
use super::names;
use super::rules::Rules;
use super::{metadata, raise_generation};

pub(super) static POD: Rules = Rules {
    kind: "Pod",
    pods: "/spec",
    prepare_create,
    prepare_update,
    prepare_status_update: status::prepare,
    validate: |pod, errors| {
        check(pod, errors);
        check_create(pod, errors);
    },
    validate_update: Some(update::check),
    validate_status: status::check,
    notices: app_armor::pod_warnings,
    warnings: warnings::for_pod,
    admit: admission::admit,
    approve: |pod, old, world| match old {
        None => {
            limits::approve_pod(pod, world)?;
            admission::approve_overhead(pod, world)?;
            level_labels::enforce(pod, world)
        }
        Some(_) => Ok(()),
    },
    ..Rules::namespaced("")
};

pub(super) static POD_TEMPLATE: Rules = Rules {
    kind: "PodTemplate",
    pods: "/template/spec",
    prepare_create: |template| template["metadata"]["generation"] = json!(1),
    prepare_update: |new, old| {
        let changed = !same(field(new, &["template"]), field(old, &["template"]));
        raise_generation(new, changed);
    },
    validate: |template, errors| spec::template(&template.get("template"), errors),
    warnings: |new, _| for_template(&At::root(new).get("template"), &["template"]),
    ..Rules::namespaced("")
};

const MIRROR: &str = "kubernetes.io/config.mirror";
const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io/";
const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

fn prepare_create(pod: &mut Value) {
    let class = resources::quality_of_service(field(pod, &["spec"]));
    let gated = field(pod, &["spec", "schedulingGates"])
        .as_array()
        .is_some_and(|gates| !gates.is_empty());
    let mut status = json!({"phase": "Pending", "qosClass": class});
    if gated {
        status["conditions"] = json!([{
            "type": "PodScheduled",
            "status": "False",
            "reason": "SchedulingGated",
            "message": "Scheduling is blocked due to non-empty scheduling gates",
            "lastProbeTime": null,
            "lastTransitionTime": field(pod, &["metadata", "creationTimestamp"]),
        }]);
    }
    pod["status"] = status;
    pod["metadata"]["generation"] = json!(1);
    scheduling::merge_label_keys(pod);
    app_armor::fields_from_annotations(pod);
}

fn prepare_update(new: &mut Value, old: &Value) {
    carry(new, old, "status");
    let changed = !same(field(new, &["spec"]), field(old, &["spec"]));
    raise_generation(new, changed);
}

/// What holds for pods at any time.
fn check(pod: &At<'_>, errors: &mut Errors) {
    let (meta, spec) = (pod.get("metadata"), pod.get("spec"));
    annotations(&meta.get("annotations"), &spec, errors);
    spec::check(&spec, &meta, true, errors);
    if spec.get("serviceAccountName").is_empty() {
        for volume in spec.get("volumes").items() {
            for source in volume.dig(&["projected", "sources"]).items() {
                let token = source.get("serviceAccountToken");
                if token.is_set() {
                    errors.forbidden(
                        &token,
                        "must not be specified when serviceAccountName is not set",
                    );
                }
            }
        }
    }
    for list in ["containers", "initContainers"] {
        for container in spec.get(list).items() {
            containers::image_padding(&container, errors);
        }
    }
}

fn check_create(pod: &At<'_>, errors: &mut Errors) {
    let spec = pod.get("spec");
    let ephemeral = spec.get("ephemeralContainers");
    if !ephemeral.is_empty() {
        errors.forbidden(&ephemeral, "cannot be set on create");
    }
    let node = spec.get("nodeName");
    if !node.is_empty() && !spec.get("schedulingGates").is_empty() {
        errors.forbidden(
            &node,
            "cannot be set until all schedulingGates have been cleared",
        );
    }
    profiles_match(&pod.dig(&["metadata", "annotations"]), &spec, errors);
}

/// Annotations that mean something to Kubernetes.
fn annotations(annotations: &At<'_>, spec: &At<'_>, errors: &mut Errors) {
    let mirror = annotations.key(MIRROR);
    if mirror.is_set() && spec.get("nodeName").is_empty() {
        errors.invalid(
            &mirror,
            mirror.text(),
            "must set spec.nodeName if mirror pod annotation is set",
        );
    }
    let cost = annotations.key(DELETION_COST);
    if cost.is_set() && !is_cost(cost.text()) {
        errors.invalid(&cost, cost.text(), "must be a 32bit integer");
    }
    for (key, value) in annotations.entries() {
        if key == SECCOMP_POD || key.starts_with(SECCOMP_CONTAINER) {
            seccomp_name(&value.reported_at(&annotations.get(key)), errors);
        }
    }
    for (key, value) in annotations.entries() {
        let Some(container) = key.strip_prefix(APP_ARMOR) else {
            continue;
        };
        if !all_containers(spec).any(|one| one.get("name").text() == container) {
            errors.invalid(&value, container, "container not found");
        }
        let profile = value.text();
        let known = ["", "runtime/default", "unconfined"].contains(&profile);
        if !known && !profile.starts_with("localhost/") {
            let detail = format!(
                "invalid AppArmor profile name: {}",
                plimsoll_golang::strconv::quote(profile)
            );
            errors.invalid(&value, profile, detail);
        }
    }
}

/// A number without decoration: no plus sign, no leading zeros.
fn is_cost(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    text.parse::<i32>().is_ok()
        && !text.starts_with('+')
        && (digits == "0" && digits == text || !digits.starts_with('0'))
}

fn seccomp_name(value: &At<'_>, errors: &mut Errors) {
    let profile = value.text();
    if ["runtime/default", "docker/default", "unconfined"].contains(&profile) {
        return;
    }
    match profile.strip_prefix("localhost/") {
        Some(path) => {
            if path.starts_with('/') {
                errors.invalid(value, path, "must be a relative path");
            }
            if path.split('/').any(|part| part == "..") {
                errors.invalid(value, path, "must not contain '..'");
            }
        }
        None => errors.invalid(value, profile, "must be a valid seccomp profile"),
    }
}

/// In the order in which Kubernetes visits them.
fn all_containers<'v>(spec: &At<'v>) -> impl Iterator<Item = At<'v>> + use<'v> {
    let spec = spec.clone();
    ["initContainers", "containers", "ephemeralContainers"]
        .into_iter()
        .flat_map(move |list| spec.get(list).items())
}

/// Profiles given both as annotations and as fields must agree.
fn profiles_match(annotations: &At<'_>, spec: &At<'_>, errors: &mut Errors) {
    let pod_context = spec.get("securityContext");
    let pod_seccomp = annotations.get(SECCOMP_POD);
    if pod_seccomp.is_set() {
        profile_matches(
            "seccomp",
            &pod_context.get("seccompProfile"),
            pod_seccomp.text(),
            errors,
        );
    }
    for container in all_containers(spec) {
        let profile = container.dig(&["securityContext", "seccompProfile"]);
        let name = container.get("name").text();
        if let Some((_, value)) = annotations
            .entries()
            .find(|(key, _)| key.strip_prefix(SECCOMP_CONTAINER) == Some(name))
        {
            profile_matches("seccomp", &profile, value.text(), errors);
        }
    }
    if spec.dig(&["os", "name"]).text() == "windows" {
        return;
    }
    for container in all_containers(spec) {
        let own = container.dig(&["securityContext", "appArmorProfile"]);
        let profile = if own.is_set() {
            own
        } else {
            pod_context.get("appArmorProfile").reported_at(&own)
        };
        let name = container.get("name").text();
        if let Some((_, value)) = annotations
            .entries()
            .find(|(key, _)| key.strip_prefix(APP_ARMOR) == Some(name))
        {
            profile_matches("apparmor", &profile, value.text(), errors);
        }
    }
}

fn profile_matches(what: &str, profile: &At<'_>, annotation: &str, errors: &mut Errors) {
    let local = annotation.strip_prefix("localhost/");
    let type_matches = match profile.get("type").text() {
        "Unconfined" => annotation == "unconfined",
        "RuntimeDefault" => {
            annotation == "runtime/default" || (what == "seccomp" && annotation == "docker/default")
        }
        "Localhost" => local.is_some(),
        _ => return,
    };
    if !type_matches {
        let detail = format!("{what} type in annotation and field must match");
        errors.forbidden(&profile.get("type"), detail);
    } else if profile.get("type").text() == "Localhost" {
        let place = profile.get("localhostProfile");
        if local != place.value.as_str() {
            errors.forbidden(
                &place,
                format!("{what} profile in annotation and field must match"),
            );
        }
    }
}

/// Names of pods become host names, which are shorter and have no dots.
fn hostname_warning(pod: &At<'_>) -> Option<String> {
    let complaints = names::label(pod.dig(&["metadata", "name"]).text());
    (!complaints.is_empty()).then(|| {
        format!(
            "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended: [{}]",
            complaints.join(" ")
        )
    })
}

pub(super) fn check_metadata_update(new: &At<'_>, old: &At<'_>, errors: &mut Errors) {
    let (new, old) = (new.get("metadata"), old.get("metadata"));
    metadata::check_update(&new, &old, errors);
    metadata::check_known_finalizers(&new, errors);
}
