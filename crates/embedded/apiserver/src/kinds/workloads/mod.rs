//! What makes pods and keeps them: deployments, sets, controllers.

mod sets;
mod status;
mod strategy;

pub(super) use strategy::{at_most_all, int_or_percent};

use serde_json::{Value, json};

use sets::{daemon_set, stateful_set};
use status::{collisions, not_above, replica_counts, replica_status};
use strategy::{bad_strategy, share};

use super::at::{At, Errors, carry, field, same, text};
use super::names::{self, NameRule};
use super::rules::Rules;
use super::shown;
use super::{metadata, pod, raise_generation, storage};

pub(super) static KINDS: &[&Rules] = &[
    &DEPLOYMENT,
    &REPLICA_SET,
    &STATEFUL_SET,
    &DAEMON_SET,
    &REPLICATION_CONTROLLER,
    &CONTROLLER_REVISION,
];

const GROUP: &str = "apps";
const TEMPLATE: &[&str] = &["spec", "template"];

static DEPLOYMENT: Rules = Rules {
    kind: "Deployment",
    pods: "/spec/template/spec",
    status: true,
    prepare_create: |deployment| deployment["metadata"]["generation"] = json!(1),
    prepare_update: |new, old| {
        // Revisions are kept in annotations, so these count as well.
        let changed = [&["spec"][..], &["metadata", "annotations"]]
            .iter()
            .any(|path| !same(field(new, path), field(old, path)));
        raise_generation(new, changed);
    },
    prepare_status_update: |new, old| carry_labels(new, old),
    validate: deployment,
    validate_update: Some(|new, old, errors| {
        deployment(new, errors);
        same_selector(new, old, errors);
    }),
    validate_status: |new, old, errors| {
        let status = new.get("status");
        for field in [
            "observedGeneration",
            "replicas",
            "updatedReplicas",
            "readyReplicas",
            "availableReplicas",
            "unavailableReplicas",
            "terminatingReplicas",
            "collisionCount",
        ] {
            errors.non_negative(&status.get(field));
        }
        replica_counts(
            &status,
            &["updatedReplicas", "readyReplicas", "availableReplicas"],
            errors,
        );
        not_above(
            &status,
            "availableReplicas",
            "readyReplicas",
            "readyReplicas",
            errors,
        );
        collisions(new, old, errors);
    },
    warnings: |new, old| {
        let mut out = hostname_warnings(new, old);
        out.extend(template_warnings(new, old));
        out
    },
    ..Rules::namespaced(GROUP)
};

static REPLICA_SET: Rules = Rules {
    kind: "ReplicaSet",
    pods: "/spec/template/spec",
    status: true,
    generation: true,
    validate: replica_set,
    validate_update: Some(|new, old, errors| {
        replica_set(new, errors);
        same_selector(new, old, errors);
    }),
    validate_status: |new, _, errors| replica_status(&new.get("status"), errors),
    warnings: |new, old| {
        let mut out = hostname_warnings(new, old);
        out.extend(template_warnings(new, old));
        out
    },
    ..Rules::namespaced(GROUP)
};

static STATEFUL_SET: Rules = Rules {
    kind: "StatefulSet",
    pods: "/spec/template/spec",
    names: NameRule::Label,
    status: true,
    generation: true,
    validate: |set, errors| stateful_set(set, true, errors),
    validate_update: Some(|new, old, errors| {
        stateful_set(new, false, errors);
        let mut masked = new.get("spec").value.clone();
        for name in [
            "replicas",
            "template",
            "updateStrategy",
            "minReadySeconds",
            "ordinals",
            "revisionHistoryLimit",
            "persistentVolumeClaimRetentionPolicy",
        ] {
            carry(&mut masked, old.get("spec").value, name);
        }
        if !same(&masked, old.get("spec").value) {
            errors.forbidden(&new.get("spec"), "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and 'minReadySeconds' are forbidden");
        }
    }),
    validate_status: |new, old, errors| {
        let status = new.get("status");
        let counts = [
            "readyReplicas",
            "currentReplicas",
            "updatedReplicas",
            "availableReplicas",
        ];
        errors.non_negative(&status.get("replicas"));
        for field in counts
            .into_iter()
            .chain(["observedGeneration", "collisionCount"])
        {
            errors.non_negative(&status.get(field));
        }
        replica_counts(&status, &counts, errors);
        not_above(
            &status,
            "availableReplicas",
            "readyReplicas",
            "status.readyReplicas",
            errors,
        );
        collisions(new, old, errors);
    },
    warnings: |new, old| {
        let mut out = template_warnings(new, old);
        for claim in At::root(new).dig(&["spec", "volumeClaimTemplates"]).items() {
            // Only updates name the whole way.
            let place = match old {
                None => claim.clone(),
                Some(_) => claim.get("Spec"),
            };
            out.extend(storage::size_warnings(
                &claim.get("spec").reported_at(&place),
            ));
        }
        if field(new, &["spec", "revisionHistoryLimit"])
            .as_i64()
            .is_some_and(|limit| limit < 0)
        {
            out.push("spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended".to_owned());
        }
        out
    },
    ..Rules::namespaced(GROUP)
};

/// Where the generation of the template is kept.
const TEMPLATE_GENERATION: &str = "deprecated.daemonset.template.generation";

static DAEMON_SET: Rules = Rules {
    kind: "DaemonSet",
    pods: "/spec/template/spec",
    status: true,
    prepare_create: |set| {
        set["metadata"]["generation"] = json!(1);
        let given = text(set, &["metadata", "annotations", TEMPLATE_GENERATION]).parse();
        let generation: i64 = given.unwrap_or(1);
        set["metadata"]["annotations"][TEMPLATE_GENERATION] = generation.max(1).to_string().into();
    },
    prepare_update: |new, old| {
        let before = text(old, &["metadata", "annotations", TEMPLATE_GENERATION]).parse();
        let before: i64 = before.unwrap_or(1);
        let template_changed = !same(field(new, TEMPLATE), field(old, TEMPLATE));
        let generation = before.saturating_add(i64::from(template_changed));
        new["metadata"]["annotations"][TEMPLATE_GENERATION] = generation.to_string().into();
        let changed = !same(field(new, &["spec"]), field(old, &["spec"]));
        raise_generation(new, changed);
    },
    // It is part of the specification, wherever it is kept.
    prepare_status_update: |new, old| {
        let before = text(old, &["metadata", "annotations", TEMPLATE_GENERATION]);
        new["metadata"]["annotations"][TEMPLATE_GENERATION] = before.into();
    },
    validate: daemon_set,
    validate_update: Some(|new, old, errors| {
        same_selector(new, old, errors);
        daemon_set(new, errors);
    }),
    validate_status: |new, old, errors| {
        for field in [
            "currentNumberScheduled",
            "numberMisscheduled",
            "desiredNumberScheduled",
            "numberReady",
            "observedGeneration",
            "updatedNumberScheduled",
            "numberAvailable",
            "numberUnavailable",
            "collisionCount",
        ] {
            errors.non_negative(&new.dig(&["status", field]));
        }
        collisions(new, old, errors);
    },
    warnings: template_warnings,
    ..Rules::namespaced(GROUP)
};

static REPLICATION_CONTROLLER: Rules = Rules {
    kind: "ReplicationController",
    names: NameRule::SubdomainInTheEnd,
    pods: "/spec/template/spec",
    status: true,
    generation: true,
    validate: replication_controller,
    validate_status: |new, _, errors| replica_status(&new.get("status"), errors),
    warnings: |new, old| {
        let mut out = hostname_warnings(new, old);
        if changes_spec(new, old) {
            // On updates, the original takes the old template for the new one.
            let template = At::root(old.unwrap_or(new)).dig(TEMPLATE);
            out.extend(pod::for_template(&template, TEMPLATE));
        }
        out
    },
    ..Rules::namespaced("")
};

static CONTROLLER_REVISION: Rules = Rules {
    kind: "ControllerRevision",
    validate: |revision, errors| {
        errors.non_negative(&revision.get("revision"));
        let data = revision.get("data");
        if !data.is_set() {
            errors.required(&data, "data is mandatory");
        } else if !data.value.is_object() {
            errors.required(&data, "data must be a valid JSON object");
        }
    },
    validate_update: Some(|new, old, errors| {
        super::core::again(new, true, NameRule::Subdomain, errors);
        errors.non_negative(&new.get("revision"));
        let (data, before) = (new.get("data"), old.get("data"));
        if data.value != before.value {
            errors.invalid(&data, data.value.clone(), "field is immutable");
        }
    }),
    ..Rules::namespaced(GROUP)
};

fn carry_labels(new: &mut Value, old: &Value) {
    if let (Some(new), Some(old)) = (new.get_mut("metadata"), old.get("metadata")) {
        carry(new, old, "labels");
    }
}

fn same_selector(new: &At<'_>, old: &At<'_>, errors: &mut Errors) {
    let (new, old) = (
        new.dig(&["spec", "selector"]),
        old.dig(&["spec", "selector"]),
    );
    errors.immutable_struct(&new, &old, shown::LABEL_SELECTOR);
}

/// The selector, and the template whose pods it must pick. `kind` as the messages call it.
fn selector_and_template(spec: &At<'_>, empty: &str, errors: &mut Errors) {
    let selector = spec.get("selector");
    if selector.is_set() {
        metadata::selector(&selector, errors);
        let parts = ["matchLabels", "matchExpressions"];
        if parts.iter().all(|part| selector.get(part).is_empty()) {
            let detail = format!("empty selector is invalid for {empty}");
            let shown = shown::published(selector.value, shown::LABEL_SELECTOR);
            errors.invalid_shown(&selector, &shown, detail);
        }
    } else {
        errors.required(&selector, "");
    }
}

fn picks_template(spec: &At<'_>, template: &At<'_>, complaint: &str, errors: &mut Errors) -> bool {
    let selector = spec.get("selector");
    let labels = template.dig(&["metadata", "labels"]);
    let mut own = Errors::default();
    metadata::selector(&selector, &mut own);
    if !own.is_empty() {
        let shown = shown::published(selector.value, shown::LABEL_SELECTOR);
        errors.invalid_shown(&selector, &shown, complaint);
        return false;
    }
    // Without a selector, nothing is picked.
    if !selector.is_set() || metadata::selects(selector.value, labels.value) != Some(true) {
        mismatch(&labels, errors);
    }
    true
}

fn mismatch(labels: &At<'_>, errors: &mut Errors) {
    errors.invalid(
        labels,
        labels.value.clone(),
        "`selector` does not match template `labels`",
    );
}

/// Pods that are kept running always restart, and have no deadline.
fn kept_running(template: &At<'_>, kind: &str, errors: &mut Errors) {
    let policy = template.dig(&["spec", "restartPolicy"]);
    if policy.text() != "Always" {
        errors.not_supported(&policy, &["Always"]);
    }
    let deadline = template.dig(&["spec", "activeDeadlineSeconds"]);
    if deadline.is_set() {
        errors.forbidden(
            &deadline,
            format!("activeDeadlineSeconds in {kind} is not Supported"),
        );
    }
}

fn replica_template(spec: &At<'_>, errors: &mut Errors) {
    let template = spec.get("template");
    if picks_template(spec, &template, "invalid label selector", errors) {
        pod::spec::template(&template, errors);
        kept_running(&template, "ReplicaSet", errors);
    }
}

fn deployment(deployment: &At<'_>, errors: &mut Errors) {
    let spec = deployment.get("spec");
    errors.non_negative(&spec.get("replicas"));
    selector_and_template(&spec, "deployment", errors);
    replica_template(&spec, errors);
    let strategy = spec.get("strategy");
    let rolling = strategy.get("rollingUpdate");
    match strategy.get("type").text() {
        "Recreate" => {
            if rolling.is_set() {
                errors.forbidden(
                    &rolling,
                    "may not be specified when strategy `type` is 'Recreate'",
                );
            }
        }
        "RollingUpdate" => {
            let [unavailable, surge] =
                ["maxUnavailable", "maxSurge"].map(|field| rolling.get(field));
            int_or_percent(&unavailable, errors);
            int_or_percent(&surge, errors);
            if share(&unavailable) == 0 && share(&surge) == 0 {
                errors.invalid(
                    &unavailable,
                    unavailable.value.clone(),
                    "may not be 0 when `maxSurge` is 0",
                );
            }
            at_most_all(&unavailable, errors);
        }
        _ => bad_strategy(&strategy, &["Recreate", "RollingUpdate"], errors),
    }
    for field in [
        "minReadySeconds",
        "revisionHistoryLimit",
        "progressDeadlineSeconds",
    ] {
        errors.non_negative(&spec.get(field));
    }
    let deadline = spec.get("progressDeadlineSeconds");
    if deadline.is_set() && deadline.number() <= spec.get("minReadySeconds").number() {
        errors.invalid(
            &deadline,
            deadline.number(),
            "must be greater than minReadySeconds",
        );
    }
}

fn replica_set(set: &At<'_>, errors: &mut Errors) {
    let spec = set.get("spec");
    errors.non_negative(&spec.get("replicas"));
    errors.non_negative(&spec.get("minReadySeconds"));
    selector_and_template(&spec, "deployment", errors);
    replica_template(&spec, errors);
}

fn replication_controller(controller: &At<'_>, errors: &mut Errors) {
    let spec = controller.get("spec");
    errors.non_negative(&spec.get("minReadySeconds"));
    let selector = spec.get("selector");
    if selector.is_empty() {
        errors.required(&selector, "");
    }
    errors.non_negative(&spec.get("replicas"));
    let template = spec.get("template");
    if !template.is_set() {
        errors.required(&template, "");
        return;
    }
    let labels = template.dig(&["metadata", "labels"]);
    let picks = selector
        .entries()
        .all(|(key, value)| labels.value.get(key) == Some(value.value));
    if !picks {
        mismatch(&labels, errors);
    }
    pod::spec::template(&template, errors);
    kept_running(&template, "ReplicationController", errors);
}

fn hostname_warnings(new: &Value, old: Option<&Value>) -> Vec<String> {
    let complaints = names::label(text(new, &["metadata", "name"]));
    if old.is_some() || complaints.is_empty() {
        return Vec::new();
    }
    vec![format!(
        "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended: [{}]",
        complaints.join(" ")
    )]
}

fn template_warnings(new: &Value, old: Option<&Value>) -> Vec<String> {
    template_warnings_at(new, old, TEMPLATE)
}

/// Only changes of the specification are worth a warning.
pub(super) fn template_warnings_at(
    new: &Value,
    old: Option<&Value>,
    path: &[&'static str],
) -> Vec<String> {
    if !changes_spec(new, old) {
        return Vec::new();
    }
    pod::for_template(&At::root(new).dig(path), path)
}

/// Whether there is a specification that was not there before.
pub(super) fn changes_spec(new: &Value, old: Option<&Value>) -> bool {
    let generation = |object: &Value| field(object, &["metadata", "generation"]).clone();
    old.is_none_or(|old| generation(old) != generation(new))
}
