//! Rows of the groups that run pods: apps, batch, autoscaling, policy.

use plimsoll_golang::human_duration;
use serde_json::Value;

use super::view::{View, containers, labels, selector, selector_or_none};

pub fn apps(plural: &str, view: View<'_>) -> Option<Vec<Value>> {
    let [names, images] = containers(view, "/spec/template/spec/containers");
    let of_desired = format!(
        "{}/{}",
        view.int("/status/readyReplicas"),
        view.int("/spec/replicas")
    );
    let selected = || Value::from(selector_or_none(view.part("/spec/selector")));
    Some(match plural {
        "controllerrevisions" => vec![
            view.name().into(),
            controller(view).into(),
            view.int("/revision").into(),
            view.age().into(),
        ],
        "daemonsets" => vec![
            view.name().into(),
            view.int("/status/desiredNumberScheduled").into(),
            view.int("/status/currentNumberScheduled").into(),
            view.int("/status/numberReady").into(),
            view.int("/status/updatedNumberScheduled").into(),
            view.int("/status/numberAvailable").into(),
            labels(view.map("/spec/template/spec/nodeSelector")).into(),
            view.age().into(),
            names,
            images,
            selected(),
        ],
        "deployments" => vec![
            view.name().into(),
            of_desired.into(),
            view.int("/status/updatedReplicas").into(),
            view.int("/status/availableReplicas").into(),
            view.age().into(),
            names,
            images,
            selector(view.part("/spec/selector"))
                .unwrap_or_else(|| "<invalid>".to_owned())
                .into(),
        ],
        "replicasets" => vec![
            view.name().into(),
            view.int("/spec/replicas").into(),
            view.int("/status/replicas").into(),
            view.int("/status/readyReplicas").into(),
            view.age().into(),
            names,
            images,
            selected(),
        ],
        "statefulsets" => vec![
            view.name().into(),
            of_desired.into(),
            view.age().into(),
            names,
            images,
        ],
        _ => return None,
    })
}

/// `statefulset.apps/web`: the owner that controls the object.
fn controller(view: View<'_>) -> String {
    let owner = view
        .list("/metadata/ownerReferences")
        .find(|owner| owner.flag("/controller"));
    let Some(owner) = owner else {
        return "<none>".to_owned();
    };
    let mut kind = owner.text("/kind").to_lowercase();
    if let Some((group, _)) = owner.text("/apiVersion").split_once('/') {
        kind = format!("{kind}.{}", group.to_lowercase());
    }
    format!("{kind}/{}", owner.text("/name"))
}

pub fn batch(plural: &str, view: View<'_>) -> Option<Vec<Value>> {
    Some(match plural {
        "jobs" => job(view),
        "cronjobs" => cron_job(view),
        _ => return None,
    })
}

fn job(view: View<'_>) -> Vec<Value> {
    let succeeded = view.int("/status/succeeded");
    let completions = match (
        view.scalar("/spec/completions"),
        view.int("/spec/parallelism"),
    ) {
        (Some(wanted), _) => format!("{succeeded}/{wanted}"),
        (None, parallel) if parallel > 1 => format!("{succeeded}/1 of {parallel}"),
        (None, _) => format!("{succeeded}/1"),
    };
    let took = match (
        view.time("/status/startTime"),
        view.time("/status/completionTime"),
    ) {
        (None, _) => String::new(),
        (Some(start), end) => human_duration::between(start, end.unwrap_or(view.now)),
    };
    let is = |kind: &str| {
        view.condition("/status/conditions", kind)
            .is_some_and(|one| one.text("/status") == "True")
    };
    let status = if is("Complete") {
        "Complete"
    } else if is("Failed") {
        "Failed"
    } else if view.has("/metadata/deletionTimestamp") {
        "Terminating"
    } else {
        ["Suspended", "FailureTarget", "SuccessCriteriaMet"]
            .into_iter()
            .find(|kind| is(kind))
            .unwrap_or("Running")
    };
    let [names, images] = containers(view, "/spec/template/spec/containers");
    vec![
        view.name().into(),
        status.into(),
        completions.into(),
        took.into(),
        view.age().into(),
        names,
        images,
        selector_or_none(view.part("/spec/selector")).into(),
    ]
}

fn cron_job(view: View<'_>) -> Vec<Value> {
    let suspended = match view.get("/spec/suspend").and_then(Value::as_bool) {
        None => "<unset>",
        Some(true) => "True",
        Some(false) => "False",
    };
    let last = if view.has("/status/lastScheduleTime") {
        view.since("/status/lastScheduleTime")
    } else {
        "<none>".to_owned()
    };
    let [names, images] = containers(view, "/spec/jobTemplate/spec/template/spec/containers");
    vec![
        view.name().into(),
        view.text("/spec/schedule").into(),
        view.opt_text("/spec/timeZone").unwrap_or("<none>").into(),
        suspended.into(),
        view.count("/status/active").into(),
        last.into(),
        view.age().into(),
        names,
        images,
        selector_or_none(view.part("/spec/jobTemplate/spec/selector")).into(),
    ]
}

pub fn disruption_budget(view: View<'_>) -> Vec<Value> {
    let bound = |path| view.scalar(path).unwrap_or_else(|| "N/A".to_owned());
    vec![
        view.name().into(),
        bound("/spec/minAvailable").into(),
        bound("/spec/maxUnavailable").into(),
        view.int("/status/disruptionsAllowed").into(),
        view.age().into(),
    ]
}

/// A HorizontalPodAutoscaler of either version.
pub fn autoscaler(view: View<'_>) -> Vec<Value> {
    vec![
        view.name().into(),
        format!(
            "{}/{}",
            view.text("/spec/scaleTargetRef/kind"),
            view.text("/spec/scaleTargetRef/name")
        )
        .into(),
        targets(view).into(),
        view.scalar("/spec/minReplicas")
            .unwrap_or_else(|| "<unset>".to_owned())
            .into(),
        view.int("/spec/maxReplicas").into(),
        view.int("/status/currentReplicas").into(),
        view.age().into(),
    ]
}

fn targets(view: View<'_>) -> String {
    let mut shown = Vec::new();
    // The older version knows one metric, and keeps the others in annotations.
    if let Some(wanted) = view.scalar("/spec/targetCPUUtilizationPercentage") {
        let current = view
            .scalar("/status/currentCPUUtilizationPercentage")
            .map_or("<unknown>".to_owned(), |percent| format!("{percent}%"));
        shown.push(format!("cpu: {current}/{wanted}%"));
    }
    let annotated = |name: &str| {
        let path = format!("/metadata/annotations/autoscaling.alpha.kubernetes.io~1{name}");
        serde_json::from_str(view.text(&path)).unwrap_or(Value::Null)
    };
    let metrics = match view.get("/spec/metrics") {
        Some(metrics) => metrics.clone(),
        None => annotated("metrics"),
    };
    let current = match view.get("/status/currentMetrics") {
        Some(current) => current.clone(),
        None => annotated("current-metrics"),
    };
    let part = |value| View {
        value,
        now: view.now,
    };
    shown.extend(
        part(&metrics)
            .list("")
            .enumerate()
            .map(|(index, metric)| target(metric, current.get(index).map(part))),
    );
    match shown.len() {
        0 => "<none>".to_owned(),
        1 | 2 => shown.join(", "),
        count => format!("{} + {} more...", shown[..2].join(", "), count - 2),
    }
}

/// A number of a metric: `target.averageValue`, formerly `targetAverageValue` or `averageValue`.
fn amount(metric: View<'_>, field: &str, side: &str, what: &str) -> Option<String> {
    let mut older = what.to_owned();
    older[..1].make_ascii_uppercase();
    metric
        .scalar(&format!("/{field}/{side}/{what}"))
        .or_else(|| metric.scalar(&format!("/{field}/{side}{older}")))
        .or_else(|| metric.scalar(&format!("/{field}/{what}")))
}

fn target(metric: View<'_>, current: Option<View<'_>>) -> String {
    let field = match metric.text("/type") {
        "External" => "external",
        "Object" => "object",
        "Pods" => "pods",
        "Resource" => "resource",
        "ContainerResource" => "containerResource",
        _ => return "<unknown type>".to_owned(),
    };
    let wanted = |what: &str| amount(metric, field, "target", what);
    let wanted_or_nil = |what: &str| wanted(what).unwrap_or_else(|| "<nil>".to_owned());
    let measured = |what: &str| {
        current
            .and_then(|current| amount(current, field, "current", what))
            .unwrap_or_else(|| "<unknown>".to_owned())
    };
    let average = wanted("averageValue");
    if field == "pods" {
        let wanted = wanted_or_nil("averageValue");
        return format!("{}/{wanted}", measured("averageValue"));
    }
    if matches!(field, "external" | "object") {
        return match average {
            Some(average) => format!("{}/{average} (avg)", measured("averageValue")),
            None => format!("{}/{}", measured("value"), wanted_or_nil("value")),
        };
    }
    let name = metric.text(&format!("/{field}/name"));
    if let Some(average) = average {
        return format!("{name}: {}/{average}", measured("averageValue"));
    }
    let current = match measured("averageUtilization") {
        unknown if unknown.starts_with('<') => unknown,
        percent => format!("{percent}%"),
    };
    let wanted = match wanted("averageUtilization") {
        Some(percent) => format!("{percent}%"),
        None => "<auto>".to_owned(),
    };
    format!("{name}: {current}/{wanted}")
}
