//! What makes pods and keeps them: deployments, sets, controllers.

use serde_json::{Value, json};

use super::at::{At, Errors, carry, field, same, text};
use super::names::{self, NameRule};
use super::rules::Rules;
use super::shown;
use super::{metadata, pod, raise_generation, storage};
use crate::field::{FieldError, Problem, quote};

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
        let generation = before + i64::from(template_changed);
        new["metadata"]["annotations"][TEMPLATE_GENERATION] = generation.to_string().into();
        let changed = !same(field(new, &["spec"]), field(old, &["spec"]));
        raise_generation(new, changed);
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
    status: true,
    generation: true,
    validate: replication_controller,
    validate_status: |new, _, errors| replica_status(&new.get("status"), errors),
    warnings: |new, old| {
        let mut out = hostname_warnings(new, old);
        out.extend(template_warnings(new, old));
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

/// Kubernetes shows a strategy in its internal form.
fn bad_strategy(strategy: &At<'_>, allowed: &[&str], errors: &mut Errors) {
    let allowed: Vec<String> = allowed.iter().map(|one| quote(one)).collect();
    errors.push(FieldError::with_shown(
        Problem::NotSupported,
        &strategy.path(),
        &shown_strategy(strategy),
        &format!("supported values: {}", allowed.join(", ")),
    ));
}

fn shown_strategy(strategy: &At<'_>) -> String {
    let rolling = strategy.get("rollingUpdate");
    let inner = if rolling.is_set() {
        let fields = ["partition", "maxUnavailable", "maxSurge"];
        shown_rolling(&rolling, &fields)
    } else {
        "null".to_owned()
    };
    let kind = quote(strategy.get("type").text());
    format!("{{\"Type\":{kind},\"RollingUpdate\":{inner}}}")
}

fn shown_rolling(rolling: &At<'_>, fields: &[&'static str]) -> String {
    let shown: Vec<String> = fields
        .iter()
        .map(|field| (field, rolling.get(field)))
        .filter(|(_, at)| at.is_set())
        .map(|(field, at)| {
            let (head, tail) = field.split_at(1);
            format!("\"{}{tail}\":{}", head.to_uppercase(), at.value)
        })
        .collect();
    format!("{{{}}}", shown.join(","))
}

/// A count or a share.
pub(super) fn int_or_percent(at: &At<'_>, errors: &mut Errors) {
    match at.value.as_str() {
        Some(text) => {
            for complaint in names::percent(text) {
                errors.invalid(at, text, complaint);
            }
        }
        None => errors.non_negative(at),
    }
}

/// The number in a count or a share.
pub(super) fn share(at: &At<'_>) -> i64 {
    match at.value.as_str() {
        Some(text) => text
            .strip_suffix('%')
            .unwrap_or(text)
            .parse()
            .unwrap_or_default(),
        None => at.number(),
    }
}

pub(super) fn at_most_all(at: &At<'_>, errors: &mut Errors) {
    if let Some(text) = at.value.as_str()
        && names::percent(text).is_empty()
        && share(at) > 100
    {
        errors.invalid(at, text, "must not be greater than 100%");
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

fn stateful_set(set: &At<'_>, is_new: bool, errors: &mut Errors) {
    let spec = set.get("spec");
    let policy = spec.get("podManagementPolicy");
    match policy.text() {
        "" => errors.required(&policy, ""),
        "OrderedReady" | "Parallel" => {}
        other => errors.invalid(&policy, other, "must be 'OrderedReady' or 'Parallel'"),
    }
    let strategy = spec.get("updateStrategy");
    let rolling = strategy.get("rollingUpdate");
    match strategy.get("type").text() {
        "" => errors.required(&strategy, ""),
        "OnDelete" => {
            if rolling.is_set() {
                let shown = shown::fields(&[
                    ("Partition", &rolling.get("partition").number().into()),
                    ("MaxUnavailable", rolling.get("maxUnavailable").value),
                ]);
                errors.invalid_shown(
                    &rolling,
                    &shown,
                    "only allowed for updateStrategy 'RollingUpdate'",
                );
            }
        }
        "RollingUpdate" => {
            errors.non_negative(&rolling.get("partition"));
            let unavailable = rolling.get("maxUnavailable");
            if unavailable.is_set() {
                int_or_percent(&unavailable, errors);
                if share(&unavailable) == 0 {
                    errors.invalid(&unavailable, unavailable.value.clone(), "cannot be 0");
                }
                at_most_all(&unavailable, errors);
            }
        }
        _ => errors.invalid_shown(
            &strategy,
            &shown_strategy(&strategy),
            "must be 'RollingUpdate' or 'OnDelete'",
        ),
    }
    let retention = spec.get("persistentVolumeClaimRetentionPolicy");
    for field in ["whenDeleted", "whenScaled"] {
        errors.optional_choice(&retention.get(field), &["Retain", "Delete"]);
    }
    let claims = spec.get("volumeClaimTemplates");
    if is_new {
        for claim in claims.items() {
            storage::claim_spec(&claim.get("spec"), errors);
        }
    }
    errors.non_negative(&spec.get("replicas"));
    errors.non_negative(&spec.get("minReadySeconds"));
    errors.non_negative(&spec.dig(&["ordinals", "start"]));
    let service = spec.get("serviceName");
    if is_new && !service.is_empty() {
        errors.format(&service, names::label);
    }
    selector_and_template(&spec, "statefulset", errors);
    let template = spec.get("template");
    let mut filled = template.value.clone();
    add_claims(&mut filled, &claims);
    // Checked as its pods will be: with a volume for each claim, and names from the set.
    let checked = At::root(&filled).reported_at(&template);
    if picks_template(&spec, &checked, "", errors) {
        pod::spec::template(&checked, errors);
        metadata::labels(
            &checked
                .dig(&["metadata", "labels"])
                .reported_at(&checked.get("labels")),
            errors,
        );
    }
    kept_running(&template, "StatefulSet", errors);
}

fn add_claims(template: &mut Value, claims: &At<'_>) {
    let Some(spec) = template.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    spec.remove("subdomain");
    spec.remove("hostname");
    let names: Vec<&str> = claims
        .items()
        .map(|claim| claim.dig(&["metadata", "name"]).text())
        .collect();
    if names.is_empty() {
        return;
    }
    let own = spec.get("volumes").and_then(Value::as_array).cloned();
    let kept = own
        .unwrap_or_default()
        .into_iter()
        .filter(|volume| !names.contains(&text(volume, &["name"])));
    let made = names
        .iter()
        .map(|name| json!({"name": name, "persistentVolumeClaim": {"claimName": name}}));
    let volumes: Vec<Value> = made.chain(kept).collect();
    spec.insert("volumes".to_owned(), volumes.into());
}

fn daemon_set(set: &At<'_>, errors: &mut Errors) {
    let spec = set.get("spec");
    let selector = spec.get("selector");
    metadata::selector(&selector, errors);
    let template = spec.get("template");
    let labels = template.dig(&["metadata", "labels"]);
    // Without a selector, nothing is picked.
    let picks = if selector.is_set() {
        metadata::selects(selector.value, labels.value)
    } else {
        Some(false)
    };
    if picks == Some(false) {
        mismatch(&labels, errors);
    }
    let parts = ["matchLabels", "matchExpressions"];
    if selector.is_set() && parts.iter().all(|part| selector.get(part).is_empty()) {
        errors.invalid_shown(&selector, "{}", "empty selector is invalid for daemonset");
    }
    pod::spec::template(&template, errors);
    kept_running(&template, "DaemonSet", errors);
    errors.non_negative(&spec.get("minReadySeconds"));
    let strategy = spec.get("updateStrategy");
    let rolling = strategy.get("rollingUpdate");
    match strategy.get("type").text() {
        "OnDelete" => {}
        "RollingUpdate" if !rolling.is_set() => errors.required(&rolling, ""),
        "RollingUpdate" => {
            let [unavailable, surge] =
                ["maxUnavailable", "maxSurge"].map(|field| rolling.get(field));
            int_or_percent(&unavailable, errors);
            int_or_percent(&surge, errors);
            at_most_all(&unavailable, errors);
            at_most_all(&surge, errors);
            match (share(&unavailable) != 0, share(&surge) != 0) {
                (true, true) => errors.invalid(
                    &surge,
                    surge.value.clone(),
                    "may not be set when maxUnavailable is non-zero",
                ),
                (false, false) => {
                    errors.required(&unavailable, "cannot be 0 when maxSurge is 0");
                }
                _ => {}
            }
        }
        _ => bad_strategy(&strategy, &["RollingUpdate", "OnDelete"], errors),
    }
    errors.non_negative(&spec.get("revisionHistoryLimit"));
}

fn replica_counts(status: &At<'_>, fields: &[&'static str], errors: &mut Errors) {
    for field in fields {
        not_above(status, field, "replicas", "status.replicas", errors);
    }
}

fn not_above(
    status: &At<'_>,
    field: &'static str,
    bound: &'static str,
    called: &str,
    errors: &mut Errors,
) {
    let at = status.get(field);
    if at.number() > status.get(bound).number() {
        errors.invalid(&at, at.number(), format!("cannot be greater than {called}"));
    }
}

fn replica_status(status: &At<'_>, errors: &mut Errors) {
    let counts = ["fullyLabeledReplicas", "readyReplicas", "availableReplicas"];
    errors.non_negative(&status.get("replicas"));
    for field in counts
        .into_iter()
        .chain(["observedGeneration", "terminatingReplicas"])
    {
        errors.non_negative(&status.get(field));
    }
    replica_counts(status, &counts, errors);
    not_above(
        status,
        "availableReplicas",
        "readyReplicas",
        "readyReplicas",
        errors,
    );
}

fn collisions(new: &At<'_>, old: &At<'_>, errors: &mut Errors) {
    let at = new.dig(&["status", "collisionCount"]);
    if old.dig(&["status", "collisionCount"]).number() > at.number() {
        errors.invalid(&at, at.number(), "cannot be decremented");
    }
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

pub(super) fn template_warnings(new: &Value, old: Option<&Value>) -> Vec<String> {
    let generation = |object: &Value| field(object, &["metadata", "generation"]).clone();
    if old.is_some_and(|old| generation(old) == generation(new)) {
        return Vec::new();
    }
    pod::for_template(&At::root(new).dig(TEMPLATE), TEMPLATE)
}
