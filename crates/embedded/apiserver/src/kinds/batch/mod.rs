//! Jobs, and the schedules that make them.

mod cron;
mod policies;
mod schedule;
mod status;

use serde_json::{Value, json};

use super::at::{At, Errors, IMMUTABLE, carry, field, same, text};
use super::core::again;
use super::names::{self, NameRule};
use super::rules::Rules;
use super::workloads::{changes_spec, template_warnings_at};
use super::{diff, metadata, pod, shown};

pub(super) static KINDS: &[&Rules] = &[&JOB, &CRON_JOB];

const GROUP: &str = "batch";
const NEEDS_INDEX: &str = "requires indexed completion mode";

static JOB: Rules = Rules {
    kind: "Job",
    pods: "/spec/template/spec",
    status: true,
    generation: true,
    update_checks_metadata: true,
    prepare_create: |job| {
        disown_unfilled_labels(job);
        if field(job, &["spec", "manualSelector"]) != true {
            generate_selector(job);
        }
        drop_unfilled_labels(job);
    },
    prepare_update: |new, _| {
        disown_unfilled_labels(new);
        drop_unfilled_labels(new);
    },
    prepare_status_update: |new, _| {
        disown_unfilled_labels(new);
        drop_unfilled_labels(new);
    },
    validate: |job, errors| {
        // The original gives the job the labels of its template only after its own have been checked.
        let [name, labels] = ["name", "labels"].map(|part| job.dig(&["metadata", part]));
        let mut early = Errors::default();
        early.format_of(&labels, name.text(), names::label_value);
        errors.0.retain(|error| !early.0.contains(error));
        self::job(job, errors);
        indexed_name(job, errors);
    },
    validate_update: Some(update),
    validate_status: status::check,
    warnings: |new, old| warnings(new, old, &["spec"]),
    ..Rules::namespaced(GROUP)
};

static CRON_JOB: Rules = Rules {
    kind: "CronJob",
    pods: "/spec/jobTemplate/spec/template/spec",
    status: true,
    generation: true,
    validate: |job, errors| {
        cron::cron_job(job, None, errors);
        let name = job.dig(&["metadata", "name"]);
        if name.len() > 52 {
            errors.invalid(&name, name.text(), "must be no more than 52 characters");
        }
    },
    validate_update: Some(|new, old, errors| cron::cron_job(new, Some(old), errors)),
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
    if changes_spec(new, old) {
        out.extend(too_many_indexes(&At::root(new).dig(spec)));
    }
    out.extend(template_warnings_at(new, old, &path));
    out
}

fn too_many_indexes(spec: &At<'_>) -> Option<String> {
    let is_large = spec.get("completionMode").text() == "Indexed"
        && spec.get("completions").number() > 100_000
        && spec.get("parallelism").number() > 10_000;
    is_large.then(|| {
        format!("{}: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, Kubernetes might not be able to track completedIndexes when a big number of indexes fail", spec.path())
    })
}

/// The labels by which a job finds its pods: its name and identity, under old and new keys.
pub(super) const NAME_LABELS: [&str; 2] = ["job-name", "batch.kubernetes.io/job-name"];
pub(super) const UID_LABELS: [&str; 2] = ["controller-uid", "batch.kubernetes.io/controller-uid"];

/// Nobody wrote the labels that wait for their values, hence nobody owns them.
fn disown_unfilled_labels(job: &mut Value) {
    let unfilled: Vec<&str> = [NAME_LABELS, UID_LABELS]
        .concat()
        .into_iter()
        .filter(|key| field(job, &["metadata", "labels", key]) == "")
        .collect();
    let entries = job
        .pointer_mut("/metadata/managedFields")
        .and_then(Value::as_array_mut);
    let Some(entries) = entries else { return };
    for entry in entries.iter_mut() {
        let Some(fields) = entry
            .pointer_mut("/fieldsV1")
            .and_then(Value::as_object_mut)
        else {
            continue;
        };
        let labels = fields
            .get_mut("f:metadata")
            .and_then(|metadata| metadata.get_mut("f:labels"))
            .and_then(Value::as_object_mut);
        let Some(labels) = labels else { continue };
        for key in &unfilled {
            labels.remove(&format!("f:{key}"));
        }
        if !labels.keys().any(|key| key != ".")
            && let Some(metadata) = fields.get_mut("f:metadata").and_then(Value::as_object_mut)
        {
            metadata.remove("f:labels");
            if metadata.is_empty() {
                fields.remove("f:metadata");
            }
        }
    }
    entries.retain(|entry| entry["fieldsV1"] != json!({}));
}

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

fn job(job: &At<'_>, errors: &mut Errors) {
    generated_selector(job, errors);
    job_spec(&job.get("spec"), errors);
    selector(&job.get("spec"), errors);
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
            if value.is_empty() {
                continue;
            }
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
        policies::failure_policy(&failure, spec, errors);
    }
    let success = spec.get("successPolicy");
    if success.is_set() {
        if mode.text() == "Indexed" {
            policies::success_policy(&success, spec, errors);
        } else {
            let shown = diff::compact("SuccessPolicy", success.value);
            errors.invalid_shown(&success, &shown, NEEDS_INDEX);
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
    if max_failed.is_set() && completions.is_set() && max_failed.number() > completions.number() {
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

fn update(new: &At<'_>, old: &At<'_>, errors: &mut Errors) {
    let (spec, before) = (new.get("spec"), old.get("spec"));
    // The original looks at the whole twice.
    again(new, true, NameRule::Subdomain, errors);
    job(new, errors);
    indexed_name(new, errors);
    pod::check_metadata_update(new, old, errors);
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
    let immutable_struct = |name: &'static str, kind: &str, errors: &mut Errors| {
        let at = spec.get(name);
        if !same(at.value, before.get(name).value) {
            errors.invalid_shown(&at, &diff::compact(kind, at.value), IMMUTABLE);
        }
    };
    errors.immutable(&spec.get("completionMode"), &before.get("completionMode"));
    immutable_struct("podFailurePolicy", "*PodFailurePolicy", errors);
    for name in ["backoffLimitPerIndex", "managedBy"] {
        errors.immutable(&spec.get(name), &before.get(name));
    }
    immutable_struct("successPolicy", "*SuccessPolicy", errors);
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
    }
    let spec = diff::compact("PodSpec", field(template.value, &["spec"]));
    if idle {
        let place = new.get("template.spec");
        if !same(field(template.value, &["spec"]), field(&before, &["spec"])) {
            errors.invalid_shown(&place, &spec, IMMUTABLE);
        }
        return;
    }
    if same(template.value, &before) {
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
