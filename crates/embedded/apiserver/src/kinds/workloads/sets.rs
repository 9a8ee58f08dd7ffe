//! Stateful sets and daemon sets.

use serde_json::{Value, json};

use super::strategy::{at_most_all, bad_strategy, int_or_percent, share, shown_set_strategy};
use super::{kept_running, mismatch, picks_template, selector_and_template};
use crate::kinds::at::{At, Errors, text};
use crate::kinds::{metadata, names, pod, shown, storage};
use crate::met::Met;

pub(super) fn stateful_set(set: &At<'_>, is_new: bool, errors: &mut Errors) {
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
            &shown_set_strategy(&strategy),
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

pub(super) fn add_claims(template: &mut Value, claims: &At<'_>) {
    let Some(spec) = template.get_mut("spec").and_then(Value::as_object_mut) else {
        return;
    };
    spec.remove("subdomain");
    spec.remove("hostname");
    // Claims of one name share a volume.
    let mut met = Met::default();
    let names = claims
        .items()
        .map(|claim| claim.dig(&["metadata", "name"]).text());
    let names: Vec<&str> = names.filter(|name| met.meet(*name) == 0).collect();
    if names.is_empty() {
        return;
    }
    let own = spec.get("volumes").and_then(Value::as_array).cloned();
    let kept = own
        .unwrap_or_default()
        .into_iter()
        .filter(|volume| !met.contains(&text(volume, &["name"])));
    let made = names
        .iter()
        .map(|name| json!({"name": name, "persistentVolumeClaim": {"claimName": name}}));
    let volumes: Vec<Value> = made.chain(kept).collect();
    spec.insert("volumes".to_owned(), volumes.into());
}

pub(super) fn daemon_set(set: &At<'_>, errors: &mut Errors) {
    let spec = set.get("spec");
    let selector = spec.get("selector");
    let mut own = Errors::default();
    metadata::selector(&selector, &mut own);
    let makes_sense = own.is_empty();
    errors.0.extend(own.0);
    let template = spec.get("template");
    let labels = template.dig(&["metadata", "labels"]);
    // Without a selector, nothing is picked.
    let picks = if !makes_sense {
        None
    } else if selector.is_set() {
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
