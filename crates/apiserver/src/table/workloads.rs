//! Rows of the groups that run pods: apps, batch, autoscaling, policy.

use serde_json::Value;

use super::human;
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
        (Some(start), end) => human::between(start, end.unwrap_or(view.now)),
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
    let current: Vec<View<'_>> = view.list("/status/currentMetrics").collect();
    let mut shown: Vec<String> = view
        .list("/spec/metrics")
        .enumerate()
        .map(|(index, metric)| target(metric, current.get(index).copied()))
        .collect();
    // The older version knows one metric only.
    if let Some(wanted) = view.scalar("/spec/targetCPUUtilizationPercentage") {
        let current = view
            .scalar("/status/currentCPUUtilizationPercentage")
            .map_or("<unknown>".to_owned(), |percent| format!("{percent}%"));
        shown.insert(0, format!("cpu: {current}/{wanted}%"));
    }
    match shown.len() {
        0 => "<none>".to_owned(),
        1 | 2 => shown.join(", "),
        count => format!("{} + {} more...", shown[..2].join(", "), count - 2),
    }
}

fn target(metric: View<'_>, current: Option<View<'_>>) -> String {
    let (field, per_object) = match metric.text("/type") {
        "External" => ("external", true),
        "Object" => ("object", true),
        "Pods" => ("pods", false),
        "Resource" => ("resource", false),
        "ContainerResource" => ("containerResource", false),
        _ => return "<unknown type>".to_owned(),
    };
    let wanted = |what: &str| metric.scalar(&format!("/{field}/target/{what}"));
    let measured = |what: &str| {
        current
            .and_then(|current| current.scalar(&format!("/{field}/current/{what}")))
            .unwrap_or_else(|| "<unknown>".to_owned())
    };
    if field == "pods" {
        return format!(
            "{}/{}",
            measured("averageValue"),
            wanted("averageValue").unwrap_or_else(|| "<nil>".to_owned())
        );
    }
    if per_object {
        return match wanted("averageValue") {
            Some(average) => format!("{}/{average} (avg)", measured("averageValue")),
            None => format!(
                "{}/{}",
                measured("value"),
                wanted("value").unwrap_or_else(|| "<nil>".to_owned())
            ),
        };
    }
    let name = metric.text(&format!("/{field}/name"));
    if let Some(average) = wanted("averageValue") {
        return format!("{name}: {}/{average}", measured("averageValue"));
    }
    let percent = |text: String| match text.as_str() {
        "<unknown>" => text,
        _ => format!("{text}%"),
    };
    format!(
        "{name}: {}/{}",
        percent(measured("averageUtilization")),
        wanted("averageUtilization").map_or("<auto>".to_owned(), |value| format!("{value}%"))
    )
}
