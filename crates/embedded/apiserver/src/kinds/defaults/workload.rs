//! Defaults of pods and of what makes pods.

use serde_json::{Value, json};

use super::core::pull_policy;
use super::{Fields, Fill, is_absent, sub, text};
use crate::kinds::at::{drop_void, fill, fill_text};
use crate::kinds::batch::{NAME_LABELS, UID_LABELS};
use crate::kinds::pod::resources;

pub(super) const FILLS: &[(&str, Fill)] = &[
    ("io.k8s.api.core.v1.Pod", pod),
    ("io.k8s.api.core.v1.PodSpec", pod_spec),
    ("io.k8s.api.core.v1.PodTemplateSpec", |template| {
        // Only of a pod itself it matters whether an overhead is stated.
        drop_void(sub(template, "spec"), "overhead");
    }),
    ("io.k8s.api.core.v1.Container", container),
    ("io.k8s.api.core.v1.EphemeralContainer", container),
    (
        "io.k8s.api.core.v1.ReplicationController",
        replication_controller,
    ),
    ("io.k8s.api.apps.v1.Deployment", deployment),
    ("io.k8s.api.apps.v1.DaemonSet", daemon_set),
    ("io.k8s.api.apps.v1.StatefulSet", stateful_set),
    ("io.k8s.api.apps.v1.ReplicaSet", |fields| {
        fill(sub(fields, "spec"), "replicas", 1);
    }),
    ("io.k8s.api.batch.v1.Job", job),
    ("io.k8s.api.batch.v1.CronJob", cron_job),
    (
        "io.k8s.api.batch.v1.PodFailurePolicyOnPodConditionsPattern",
        |fields| fill_text(fields, "status", "True"),
    ),
];

fn pod(fields: &mut Fields) {
    let spec = sub(fields, "spec");
    let host_network = spec.get("hostNetwork").and_then(Value::as_bool) == Some(true);
    for list in ["containers", "initContainers"] {
        let Some(Value::Array(containers)) = spec.get_mut(list) else {
            continue;
        };
        for container in containers.iter_mut().filter_map(Value::as_object_mut) {
            requests_from_limits(container);
            if host_network {
                host_ports(container);
            }
        }
    }
    resources::default_pod_level(spec);
    let grace = spec
        .get("terminationGracePeriodSeconds")
        .and_then(Value::as_i64);
    if grace.is_some_and(|seconds| seconds < 0) {
        spec.insert("terminationGracePeriodSeconds".to_owned(), json!(1));
    }
    fill(spec, "enableServiceLinks", true);
}

fn requests_from_limits(container: &mut Fields) {
    let Some(Value::Object(resources)) = container.get_mut("resources") else {
        return;
    };
    let Some(Value::Object(limits)) = resources.get("limits").cloned() else {
        return;
    };
    if limits.is_empty() {
        return;
    }
    let requests = sub(resources, "requests");
    for (resource, amount) in limits {
        requests.entry(resource).or_insert(amount);
    }
}

fn host_ports(container: &mut Fields) {
    let Some(Value::Array(ports)) = container.get_mut("ports") else {
        return;
    };
    for port in ports.iter_mut().filter_map(Value::as_object_mut) {
        let number = port.get("containerPort").and_then(Value::as_i64);
        super::fill_zero(port, "hostPort", number.unwrap_or_default());
        if port.get("hostPort").and_then(Value::as_i64) == Some(0) {
            port.remove("hostPort");
        }
    }
}

fn pod_spec(spec: &mut Fields) {
    fill(spec, "dnsPolicy", "ClusterFirst");
    fill(spec, "restartPolicy", "Always");
    fill(spec, "securityContext", json!({}));
    fill(spec, "terminationGracePeriodSeconds", 30);
    fill(spec, "schedulerName", "default-scheduler");
    // The account has two names, of which the older one follows.
    match text(spec, "serviceAccountName").to_owned() {
        name if name.is_empty() => {
            if let Some(old) = spec.get("serviceAccount").cloned() {
                spec.insert("serviceAccountName".to_owned(), old);
            }
        }
        name => {
            spec.insert("serviceAccount".to_owned(), name.into());
        }
    }
}

fn container(fields: &mut Fields) {
    let policy = pull_policy(text(fields, "image"));
    fill(fields, "imagePullPolicy", policy);
    fill(fields, "terminationMessagePath", "/dev/termination-log");
    fill(fields, "terminationMessagePolicy", "File");
}

fn replication_controller(fields: &mut Fields) {
    let spec = sub(fields, "spec");
    let Some(labels) = template_labels(spec) else {
        return;
    };
    if is_empty(spec, "selector") {
        spec.insert("selector".to_owned(), labels.clone());
    }
    labels_from_template(fields, labels);
}

fn template_labels(spec: &Fields) -> Option<Value> {
    let labels = spec.get("template")?.pointer("/metadata/labels")?;
    labels
        .as_object()
        .is_some_and(|labels| !labels.is_empty())
        .then(|| labels.clone())
}

fn labels_from_template(fields: &mut Fields, labels: Value) {
    let meta = sub(fields, "metadata");
    if is_empty(meta, "labels") {
        meta.insert("labels".to_owned(), labels);
    }
}

fn is_empty(fields: &Fields, name: &str) -> bool {
    fields
        .get(name)
        .and_then(Value::as_object)
        .is_none_or(serde_json::Map::is_empty)
}

fn deployment(fields: &mut Fields) {
    let spec = sub(fields, "spec");
    fill(spec, "replicas", 1);
    let strategy = sub(spec, "strategy");
    fill(strategy, "type", "RollingUpdate");
    if text(strategy, "type") == "RollingUpdate" {
        let rolling = sub(strategy, "rollingUpdate");
        fill(rolling, "maxUnavailable", "25%");
        fill(rolling, "maxSurge", "25%");
    }
    fill(spec, "revisionHistoryLimit", 10);
    fill(spec, "progressDeadlineSeconds", 600);
}

fn daemon_set(fields: &mut Fields) {
    let spec = sub(fields, "spec");
    let strategy = sub(spec, "updateStrategy");
    fill(strategy, "type", "RollingUpdate");
    if text(strategy, "type") == "RollingUpdate" {
        let rolling = sub(strategy, "rollingUpdate");
        fill(rolling, "maxUnavailable", 1);
        fill(rolling, "maxSurge", 0);
    }
    fill(spec, "revisionHistoryLimit", 10);
}

fn stateful_set(fields: &mut Fields) {
    let spec = sub(fields, "spec");
    fill(spec, "podManagementPolicy", "OrderedReady");
    let strategy = sub(spec, "updateStrategy");
    if text(strategy, "type").is_empty() {
        fill(strategy, "type", "RollingUpdate");
        sub(strategy, "rollingUpdate");
    }
    if text(strategy, "type") == "RollingUpdate" && !is_absent(strategy, "rollingUpdate") {
        let rolling = sub(strategy, "rollingUpdate");
        fill(rolling, "partition", 0);
    }
    let retention = sub(spec, "persistentVolumeClaimRetentionPolicy");
    fill(retention, "whenDeleted", "Retain");
    fill(retention, "whenScaled", "Retain");
    fill(spec, "replicas", 1);
    fill(spec, "revisionHistoryLimit", 10);
    // Claim templates are written as whole objects, whatever they say they are.
    if let Some(Value::Array(claims)) = spec.get_mut("volumeClaimTemplates") {
        for claim in claims.iter_mut().filter_map(Value::as_object_mut) {
            claim.insert("apiVersion".to_owned(), json!("v1"));
            claim.insert("kind".to_owned(), json!("PersistentVolumeClaim"));
        }
    }
}

fn job(fields: &mut Fields) {
    let spec = sub(fields, "spec");
    if is_absent(spec, "completions") && is_absent(spec, "parallelism") {
        spec.insert("completions".to_owned(), json!(1));
    }
    fill(spec, "parallelism", 1);
    let per_index = !is_absent(spec, "backoffLimitPerIndex");
    fill(spec, "backoffLimit", if per_index { i32::MAX } else { 6 });
    fill(spec, "completionMode", "NonIndexed");
    fill(spec, "suspend", false);
    let has_policy = !is_absent(spec, "podFailurePolicy");
    let replacement = if has_policy {
        "Failed"
    } else {
        "TerminatingOrFailed"
    };
    fill(spec, "podReplacementPolicy", replacement);
    fill(spec, "manualSelector", false);
    // Labels that the template is about to get appear here too; empty until they are known.
    let mut labels = template_labels(spec).unwrap_or_else(|| json!({}));
    for key in [NAME_LABELS, UID_LABELS].concat() {
        if labels.get(key).is_none() {
            labels[key] = json!("");
        }
    }
    labels_from_template(fields, labels);
}

fn cron_job(fields: &mut Fields) {
    let spec = sub(fields, "spec");
    fill(spec, "concurrencyPolicy", "Allow");
    fill(spec, "suspend", false);
    fill(spec, "successfulJobsHistoryLimit", 3);
    fill(spec, "failedJobsHistoryLimit", 1);
}
