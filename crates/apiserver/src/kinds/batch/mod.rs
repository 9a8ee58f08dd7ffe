//! Jobs, and the schedules that make them.

mod schedule;
mod status;

use serde_json::{Value, json};

use super::at::{At, Errors, IMMUTABLE, carry, field, same, text};
use super::rules::Rules;
use super::workloads::template_warnings_at;
use super::{diff, metadata, names, pod, shown};
use crate::field::{FieldError, Problem, quote};

pub(super) static KINDS: &[&Rules] = &[&JOB, &CRON_JOB];

const GROUP: &str = "batch";
const ACTIONS: &[&str] = &["Count", "FailIndex", "FailJob", "Ignore"];
const NEEDS_INDEX: &str = "requires indexed completion mode";

static JOB: Rules = Rules {
    kind: "Job",
    status: true,
    generation: true,
    prepare_create: |job| {
        if field(job, &["spec", "manualSelector"]) != true {
            generate_selector(job);
        }
        drop_unfilled_labels(job);
    },
    prepare_update: |new, _| drop_unfilled_labels(new),
    validate: |job, errors| {
        generated_selector(job, errors);
        job_spec(&job.get("spec"), errors);
        selector(&job.get("spec"), errors);
        indexed_name(job, errors);
    },
    validate_update: Some(update),
    validate_status: status::check,
    warnings: |new, old| warnings(new, old, &["spec"]),
    ..Rules::namespaced(GROUP)
};

static CRON_JOB: Rules = Rules {
    kind: "CronJob",
    status: true,
    generation: true,
    validate: |job, errors| {
        cron_job(job, None, errors);
        let name = job.dig(&["metadata", "name"]);
        if name.len() > 52 {
            errors.invalid(&name, name.text(), "must be no more than 52 characters");
        }
    },
    validate_update: Some(|new, old, errors| cron_job(new, Some(old), errors)),
    warnings: |new, old| warnings(new, old, &["spec", "jobTemplate", "spec"]),
    ..Rules::namespaced(GROUP)
};

fn warnings(new: &Value, old: Option<&Value>, spec: &[&'static str]) -> Vec<String> {
    let mut out = Vec::new();
    let complaints = names::label(text(new, &["metadata", "name"]));
    if old.is_none() && !complaints.is_empty() {
        out.push(format!(
            "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; a DNS label is recommended: [{}]",
            complaints.join(" ")
        ));
    }
    let path: Vec<&'static str> = spec.iter().copied().chain(["template"]).collect();
    out.extend(template_warnings_at(new, old, &path));
    out
}

/// The labels by which a job finds its pods: its name and identity, under old and new keys.
pub(super) const NAME_LABELS: [&str; 2] = ["job-name", "batch.kubernetes.io/job-name"];
pub(super) const UID_LABELS: [&str; 2] = ["controller-uid", "batch.kubernetes.io/controller-uid"];

fn generate_selector(job: &mut Value) {
    let [name, uid] = ["name", "uid"].map(|part| field(job, &["metadata", part]).clone());
    for (keys, value) in [(NAME_LABELS, &name), (UID_LABELS, &uid)] {
        for key in keys {
            if field(job, &["spec", "template", "metadata", "labels", key]).is_null() {
                job["spec"]["template"]["metadata"]["labels"][key] = value.clone();
            }
            // Labels that came from the template get what the template gets.
            if field(job, &["metadata", "labels", key]) == "" {
                job["metadata"]["labels"][key] = value.clone();
            }
        }
    }
    let key = UID_LABELS[1];
    if field(job, &["spec", "selector", "matchLabels", key]).is_null() {
        job["spec"]["selector"]["matchLabels"][key] = uid;
    }
}

fn drop_unfilled_labels(job: &mut Value) {
    let labels = job
        .pointer_mut("/metadata/labels")
        .and_then(Value::as_object_mut);
    if let Some(labels) = labels {
        let generated = |key: &String| [NAME_LABELS, UID_LABELS].concat().contains(&key.as_str());
        labels.retain(|key, value| value != "" || !generated(key));
        if labels.is_empty()
            && let Some(meta) = job["metadata"].as_object_mut()
        {
            meta.remove("labels");
        }
    }
}

fn generated_selector(job: &At<'_>, errors: &mut Errors) {
    let spec = job.get("spec");
    let selector = spec.get("selector");
    if spec.get("manualSelector").flag() || !selector.is_set() {
        return;
    }
    let [name, uid] = ["name", "uid"].map(|part| job.dig(&["metadata", part]).text());
    let labels = spec.dig(&["template", "metadata", "labels"]);
    let mut expected = serde_json::Map::new();
    for (uid_key, name_key) in UID_LABELS.into_iter().zip(NAME_LABELS) {
        for (key, value) in [(uid_key, uid), (name_key, name)] {
            expected.insert(key.to_owned(), value.into());
            let label = labels.key(key);
            if !label.is_set() {
                errors.required(&label, &format!("must be '{value}'"));
            } else if label.text() != value {
                errors.invalid(&label, labels.value.clone(), format!("must be '{value}'"));
            }
        }
    }
    if metadata::selects(selector.value, &expected.into()) == Some(false) {
        errors.invalid_shown(
            &selector,
            &shown::published(selector.value, shown::LABEL_SELECTOR),
            "`selector` not auto-generated",
        );
    }
}

/// Pods of an indexed job are named after it, so the longest of their names must do.
fn indexed_name(job: &At<'_>, errors: &mut Errors) {
    let spec = job.get("spec");
    let completions = spec.get("completions").number();
    if spec.get("completionMode").text() == "Indexed" && completions > 0 {
        let name = job.dig(&["metadata", "name"]);
        let longest = format!("{}-{}", name.text(), completions - 1);
        if !names::label(&longest).is_empty() {
            let detail = format!("will not able to create pod with invalid DNS label: {longest}");
            errors.invalid(&name, name.text(), detail);
        }
    }
}

fn selector(spec: &At<'_>, errors: &mut Errors) {
    let selector = spec.get("selector");
    if selector.is_set() {
        metadata::selector(&selector, errors);
    } else {
        errors.required(&selector, "");
    }
    let labels = spec.dig(&["template", "metadata", "labels"]);
    let mut own = Errors::default();
    metadata::selector(&selector, &mut own);
    let picks = selector.is_set() && metadata::selects(selector.value, labels.value) != Some(false);
    if own.is_empty() && !picks {
        errors.invalid(
            &labels,
            labels.value.clone(),
            "`selector` does not match template `labels`",
        );
    }
}

fn job_spec(spec: &At<'_>, errors: &mut Errors) {
    for name in [
        "parallelism",
        "completions",
        "activeDeadlineSeconds",
        "backoffLimit",
        "ttlSecondsAfterFinished",
        "backoffLimitPerIndex",
        "maxFailedIndexes",
    ] {
        errors.non_negative(&spec.get(name));
    }
    let (per_index, max_failed) = (
        spec.get("backoffLimitPerIndex"),
        spec.get("maxFailedIndexes"),
    );
    if max_failed.is_set() && !per_index.is_set() {
        errors.required(&per_index, "when maxFailedIndexes is specified");
    }
    let manager = spec.get("managedBy");
    if manager.is_set() {
        domain_path(&manager, errors);
        if manager.len() > 63 {
            errors.too_long(&manager, 63);
        }
    }
    let mode = spec.get("completionMode");
    errors.optional_choice(&mode, &["NonIndexed", "Indexed"]);
    if mode.text() == "Indexed" {
        indexed(spec, errors);
    }
    if !mode.is_set() || mode.text() == "NonIndexed" {
        for at in [&per_index, &max_failed] {
            if at.is_set() {
                errors.invalid(at, at.number(), NEEDS_INDEX);
            }
        }
    }
    let failure = spec.get("podFailurePolicy");
    if failure.is_set() {
        failure_policy(&failure, spec, errors);
    }
    let success = spec.get("successPolicy");
    if success.is_set() {
        if mode.text() == "Indexed" {
            success_policy(&success, spec, errors);
        } else {
            errors.invalid(&success, success.value.clone(), NEEDS_INDEX);
        }
    }
    let replacement = spec.get("podReplacementPolicy");
    let allowed: &[&str] = if failure.is_set() {
        &["Failed"]
    } else {
        &["Failed", "TerminatingOrFailed"]
    };
    errors.optional_choice(&replacement, allowed);
    pod::spec::template(&spec.get("template"), errors);
    let restart = spec.dig(&["template", "spec", "restartPolicy"]);
    match restart.text() {
        "Always" | "" => {
            errors.required(&restart, "valid values: \"OnFailure\", \"Never\"");
        }
        "OnFailure" if failure.is_set() => errors.invalid(
            &restart,
            restart.text(),
            "only \"Never\" is supported when podFailurePolicy is specified",
        ),
        _ => errors.optional_choice(&restart, &["OnFailure", "Never"]),
    }
}

pub(super) fn domain_path(at: &At<'_>, errors: &mut Errors) {
    if at.is_empty() {
        errors.required(at, "");
        return;
    }
    match at.text().split_once('/') {
        Some((host, path)) if !host.is_empty() && !path.is_empty() => {
            errors.format_of(at, host, names::subdomain);
        }
        _ => errors.invalid(
            at,
            at.text(),
            "must be a domain-prefixed path (such as \"acme.io/foo\")",
        ),
    }
}

fn indexed(spec: &At<'_>, errors: &mut Errors) {
    let [completions, parallelism, max_failed, per_index] = [
        "completions",
        "parallelism",
        "maxFailedIndexes",
        "backoffLimitPerIndex",
    ]
    .map(|field| spec.get(field));
    let above = |at: &At<'_>, limit: i64, tail: &str, errors: &mut Errors| {
        if at.is_set() && at.number() > limit {
            let detail = format!("must be less than or equal to {limit}{tail}");
            errors.invalid(at, at.number(), detail);
        }
    };
    if !completions.is_set() {
        errors.required(&completions, "when completion mode is Indexed");
    }
    above(
        &parallelism,
        100_000,
        " when completion mode is Indexed",
        errors,
    );
    if completions.is_set() && max_failed.number() > completions.number() {
        errors.invalid(
            &max_failed,
            max_failed.number(),
            "must be less than or equal to completions",
        );
    }
    above(&max_failed, 100_000, "", errors);
    if completions.number() > 100_000 && per_index.is_set() {
        if !max_failed.is_set() {
            errors.required(
                &max_failed,
                "must be specified when completions is above 100000",
            );
        }
        let tail = " when completions are above 100000 and used with backoff limit per index";
        above(&parallelism, 10_000, tail, errors);
        above(&max_failed, 10_000, tail, errors);
    }
}

/// Without showing the value.
fn invalid_bare(at: &At<'_>, detail: &str, errors: &mut Errors) {
    errors.push(FieldError::without_shown(
        Problem::Invalid,
        &at.path(),
        detail,
    ));
}

fn failure_policy(policy: &At<'_>, spec: &At<'_>, errors: &mut Errors) {
    let rules = policy.get("rules");
    if rules.len() > 20 {
        errors.too_many(&rules, 20);
    }
    let listed = |words: &[&str]| -> String {
        let words: Vec<String> = words.iter().map(|word| quote(word)).collect();
        format!("valid values: [{}]", words.join(" "))
    };
    for rule in rules.items() {
        let action = rule.get("action");
        match action.text() {
            "" => errors.required(&action, &listed(ACTIONS)),
            "FailIndex" if !spec.get("backoffLimitPerIndex").is_set() => errors.invalid(
                &action,
                "FailIndex",
                "requires the backoffLimitPerIndex to be set",
            ),
            _ => errors.optional_choice(&action, ACTIONS),
        }
        let (codes, conditions) = (rule.get("onExitCodes"), rule.get("onPodConditions"));
        if codes.is_set() {
            let operator = codes.get("operator");
            if operator.is_empty() {
                errors.required(&operator, &listed(&["In", "NotIn"]));
            } else {
                errors.optional_choice(&operator, &["In", "NotIn"]);
            }
            exit_codes(&codes, spec, errors);
        }
        if conditions.len() > 20 {
            errors.too_many(&conditions, 20);
        }
        for pattern in conditions.items() {
            errors.format(&pattern.get("type"), names::qualified_name);
            let status = pattern.get("status");
            let allowed = &["False", "True", "Unknown"];
            if status.is_empty() {
                errors.required(&status, &listed(allowed));
            } else {
                errors.optional_choice(&status, allowed);
            }
        }
        match (codes.is_set(), conditions.is_empty()) {
            (true, false) => invalid_bare(
                &rule,
                "specifying both OnExitCodes and OnPodConditions is not supported",
                errors,
            ),
            (false, true) => invalid_bare(
                &rule,
                "specifying one of OnExitCodes and OnPodConditions is required",
                errors,
            ),
            _ => {}
        }
    }
}

fn exit_codes(codes: &At<'_>, spec: &At<'_>, errors: &mut Errors) {
    let name = codes.get("containerName");
    let known = ["containers", "initContainers"].iter().any(|list| {
        let containers = spec.dig(&["template", "spec", list]);
        containers
            .items()
            .any(|one| one.get("name").text() == name.text())
    });
    if name.is_set() && !known {
        errors.invalid(
            &name,
            name.text(),
            "must be one of the container or initContainer names in the pod template",
        );
    }
    let values = codes.get("values");
    if values.is_empty() {
        errors.invalid(
            &values,
            values.value.clone(),
            "at least one value is required",
        );
    } else if values.len() > 255 {
        errors.too_many(&values, 255);
    }
    let mut seen: Vec<i64> = Vec::new();
    for value in values.items() {
        let code = value.number();
        if codes.get("operator").text() == "In" && code == 0 {
            errors.invalid(&value, 0, "must not be 0 for the In operator");
        }
        if seen.contains(&code) {
            errors.duplicate(&value, code);
        }
        seen.push(code);
    }
    if !seen.is_sorted() {
        errors.invalid(&values, values.value.clone(), "must be ordered");
    }
}

fn success_policy(policy: &At<'_>, spec: &At<'_>, errors: &mut Errors) {
    let rules = policy.get("rules");
    if rules.is_empty() {
        errors.required(
            &rules,
            "at least one rules must be specified when the successPolicy is specified",
        );
    }
    if rules.len() > 20 {
        errors.too_many(&rules, 20);
    }
    let completions = spec.get("completions").number();
    for rule in rules.items() {
        let (count, indexes) = (rule.get("succeededCount"), rule.get("succeededIndexes"));
        if !count.is_set() && !indexes.is_set() {
            errors.required(
                &rule,
                "at least one of succeededCount or succeededIndexes must be specified",
            );
        }
        let mut total = 0;
        if indexes.is_set() {
            match status::count_indexes(indexes.text(), completions) {
                Ok(counted) => total = counted,
                Err(why) => {
                    let detail = format!("error parsing succeededIndexes: {why}");
                    errors.invalid(&indexes, indexes.text(), detail);
                }
            }
        }
        errors.non_negative(&count);
        let above = |limit: i64, what: &str, errors: &mut Errors| {
            if count.number() > limit {
                let detail = format!("must be less than or equal to {limit} ({what})");
                errors.invalid(&count, count.number(), detail);
            }
        };
        above(completions, "the number of specified completions", errors);
        if indexes.is_set() {
            let what = "the number of indexes in the specified succeededIndexes field";
            above(total, what, errors);
        }
    }
}

fn update(new: &At<'_>, old: &At<'_>, errors: &mut Errors) {
    let (spec, before) = (new.get("spec"), old.get("spec"));
    job_spec(&spec, errors);
    selector(&spec, errors);
    let completions = spec.get("completions");
    if spec.get("completionMode").text() != "Indexed" {
        errors.immutable(&completions, &before.get("completions"));
    } else if completions.is_set()
        && completions.value != before.get("completions").value
        && completions.number() != spec.get("parallelism").number()
    {
        errors.invalid(
            &completions,
            completions.number(),
            "can only be modified in tandem with spec.parallelism",
        );
    }
    let (labels, old_labels) = (spec.get("selector"), before.get("selector"));
    errors.immutable_struct(&labels, &old_labels, shown::LABEL_SELECTOR);
    same_template(&spec, &before, old, errors);
    for name in [
        "completionMode",
        "podFailurePolicy",
        "backoffLimitPerIndex",
        "managedBy",
        "successPolicy",
    ] {
        errors.immutable(&spec.get(name), &before.get(name));
    }
}

/// While a job is suspended, where its pods run and what they use may still change.
fn same_template(new: &At<'_>, old: &At<'_>, job: &At<'_>, errors: &mut Errors) {
    let template = new.get("template");
    let mut before = old.get("template").value.clone();
    let suspended = old.get("suspend").flag();
    let active = job.dig(&["status", "active"]).number() > 0;
    let idle = suspended && !active;
    if idle {
        let now = template.value;
        let node_affinity = field(now, &["spec", "affinity", "nodeAffinity"]).clone();
        if let Some(spec) = before.get_mut("spec") {
            for name in ["nodeSelector", "tolerations", "schedulingGates"] {
                carry(spec, field(now, &["spec"]), name);
            }
            match spec.get_mut("affinity") {
                Some(affinity) => {
                    carry(
                        affinity,
                        &json!({ "nodeAffinity": node_affinity }),
                        "nodeAffinity",
                    );
                    if field(affinity, &["nodeAffinity"]).is_null()
                        && let Some(fields) = affinity.as_object_mut()
                    {
                        fields.remove("nodeAffinity");
                    }
                    if same(affinity, &json!({}))
                        && field(now, &["spec", "affinity"]).is_null()
                        && let Some(fields) = spec.as_object_mut()
                    {
                        fields.remove("affinity");
                    }
                }
                None if !node_affinity.is_null() => {
                    spec["affinity"] = json!({ "nodeAffinity": node_affinity });
                }
                None => {}
            }
            for list in ["containers", "initContainers"] {
                let given = field(now, &["spec", list]).as_array().into_iter().flatten();
                let kept = spec.get_mut(list).and_then(Value::as_array_mut);
                for (kept, given) in kept.into_iter().flatten().zip(given) {
                    if kept["name"] == given["name"] {
                        carry(kept, given, "resources");
                    }
                }
            }
        }
        if let (Some(meta), Some(now)) = (before.get_mut("metadata"), now.get("metadata")) {
            carry(meta, now, "labels");
            carry(meta, now, "annotations");
        }
    }
    if same(template.value, &before) {
        return;
    }
    let spec = diff::compact("PodSpec", field(template.value, &["spec"]));
    if idle {
        let place = new.get("template.spec");
        errors.invalid_shown(&place, &spec, IMMUTABLE);
        return;
    }
    const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
    let meta = shown::published(field(template.value, &["metadata"]), META);
    let meta = meta.strip_suffix('}').unwrap_or(&meta);
    let comma = if meta.len() > 1 { "," } else { "" };
    errors.invalid_shown(
        &template,
        &format!("{meta}{comma}\"Spec\":{spec}}}"),
        IMMUTABLE,
    );
}

fn cron_job(job: &At<'_>, old: Option<&At<'_>>, errors: &mut Errors) {
    let spec = job.get("spec");
    let at = spec.get("schedule");
    let zone = spec.get("timeZone");
    if at.is_empty() {
        errors.required(&at, "");
    } else {
        if let Some(complaint) = schedule::complaint(at.text()) {
            errors.invalid(&at, at.text(), complaint);
        }
        let before = old.is_some_and(|old| old.dig(&["spec", "schedule"]).text().contains("TZ"));
        if at.text().contains("TZ") {
            if !before {
                errors.invalid(
                    &at,
                    at.text(),
                    "cannot use TZ or CRON_TZ in schedule, use timeZone field instead",
                );
            } else if zone.is_set() {
                errors.invalid(
                    &at,
                    at.text(),
                    "cannot use both timeZone field and TZ or CRON_TZ in schedule",
                );
            }
        }
    }
    errors.non_negative(&spec.get("startingDeadlineSeconds"));
    if old.is_none_or(|old| old.dig(&["spec", "timeZone"]).value != zone.value) {
        time_zone(&zone, errors);
    }
    errors.choice(
        &spec.get("concurrencyPolicy"),
        &["Allow", "Forbid", "Replace"],
    );
    let template = spec.dig(&["jobTemplate", "spec"]);
    job_spec(&template, errors);
    let selector = template.get("selector");
    if selector.is_set() {
        errors.invalid_shown(
            &selector,
            &shown::published(selector.value, shown::LABEL_SELECTOR),
            "`selector` will be auto-generated",
        );
    }
    let manual = template.get("manualSelector");
    if manual.flag() {
        errors.push(FieldError::not_supported(
            &manual.path(),
            true,
            &["nil", "false"],
        ));
    }
    for name in ["successfulJobsHistoryLimit", "failedJobsHistoryLimit"] {
        errors.non_negative(&spec.get(name));
    }
}

fn time_zone(zone: &At<'_>, errors: &mut Errors) {
    if !zone.is_set() {
        return;
    }
    let name = zone.text();
    if name.is_empty() {
        errors.invalid(zone, name, "timeZone must be nil or non-empty string");
        return;
    }
    let good = |part: &str| {
        (1..=14).contains(&part.len())
            && part != "."
            && part != ".."
            && !part.starts_with('-')
            && part
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b".-_+".contains(&byte))
    };
    let well_formed = name.split('/').all(good);
    if well_formed && name.eq_ignore_ascii_case("local") {
        errors.invalid(
            zone,
            name,
            "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones",
        );
    }
    let mut zones = include_str!("../../../data/timezones.txt").lines();
    let known = zones.any(|zone| zone == name);
    if !well_formed || (!known && name != "Local") {
        errors.invalid(zone, name, format!("unknown time zone {name}"));
    }
}
