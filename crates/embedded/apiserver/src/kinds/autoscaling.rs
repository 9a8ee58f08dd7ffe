//! Horizontal pod autoscalers, old and new.

use super::at::{At, Errors};
use super::names;
use super::pod::resources::container_resource_name;
use super::quantity::Quantity;
use super::rules::Rules;

pub(super) static KINDS: &[&Rules] = &[&AUTOSCALER];

static AUTOSCALER: Rules = Rules {
    kind: "HorizontalPodAutoscaler",
    status: true,
    validate: spec,
    validate_status: |new, _, errors| {
        for name in ["currentReplicas", "desiredReplicas"] {
            errors.non_negative(&new.dig(&["status", name]));
        }
    },
    ..Rules::namespaced("autoscaling")
};

/// With the field of a metric that goes with each type.
const METRICS: &[(&str, &str)] = &[
    ("ContainerResource", "containerResource"),
    ("External", "external"),
    ("Object", "object"),
    ("Pods", "pods"),
    ("Resource", "resource"),
];

fn spec(autoscaler: &At<'_>, errors: &mut Errors) {
    let spec = autoscaler.get("spec");
    let (min, max) = (spec.get("minReplicas"), spec.get("maxReplicas"));
    const AT_LEAST_ONE: &str = "must be greater than or equal to 1";
    if min.is_set() && min.number() < 1 {
        errors.invalid(&min, min.number(), AT_LEAST_ONE);
    }
    if max.number() == 0 {
        errors.required(&max, "must be set and greater than 0");
    } else if max.number() < 0 {
        errors.invalid(&max, max.number(), AT_LEAST_ONE);
    }
    if min.is_set() && max.number() < min.number() {
        errors.invalid(
            &max,
            max.number(),
            "must be greater than or equal to `minReplicas`",
        );
    }
    let target = spec.get("scaleTargetRef");
    reference(&target, errors);
    let version = target.get("apiVersion");
    if !version.text().contains('/') {
        errors.invalid(
            &version,
            version.text(),
            "apiVersion must specify API group",
        );
    }
    for metric in spec.get("metrics").items() {
        self::metric(&metric, errors);
    }
    let percentage = spec.get("targetCPUUtilizationPercentage");
    if percentage.is_set() && percentage.number() < 1 {
        // The old form is one metric in the new one.
        let place = spec
            .get("metrics")
            .item(0)
            .dig(&["resource", "target", "averageUtilization"]);
        errors.invalid(&place, percentage.number(), "must be greater than 0");
    }
    let scales_from_zero = spec
        .get("metrics")
        .items()
        .any(|metric| ["Object", "External"].contains(&metric.get("type").text()));
    if min.int() == Some(0) && !scales_from_zero {
        errors.forbidden(
            &spec.get("metrics"),
            "must specify at least one Object or External metric to support scaling to zero replicas",
        );
    }
    for direction in ["scaleUp", "scaleDown"] {
        let rules = spec.dig(&["behavior", direction]);
        if rules.is_set() {
            scaling_rules(&rules, errors);
        }
    }
}

fn reference(at: &At<'_>, errors: &mut Errors) {
    for name in ["kind", "name"] {
        let part = at.get(name);
        if part.is_empty() {
            errors.required(&part, "");
        } else {
            errors.format(&part, names::path_segment);
        }
    }
    let version = at.get("apiVersion");
    if version.text().matches('/').count() > 1 {
        let detail = format!("unexpected GroupVersion string: {}", version.text());
        errors.invalid(&version, version.text(), detail);
    }
}

fn metric(metric: &At<'_>, errors: &mut Errors) {
    let kind = metric.get("type");
    let types: Vec<&str> = METRICS.iter().map(|(kind, _)| *kind).collect();
    let expected = METRICS.iter().find(|(known, _)| *known == kind.text());
    if kind.is_empty() {
        errors.required(&kind, "must specify a metric source type");
    }
    if expected.is_none() {
        errors.not_supported(&kind, &types);
    }
    let present: Vec<&str> = [
        "object",
        "external",
        "pods",
        "resource",
        "containerResource",
    ]
    .into_iter()
    .filter(|name| metric.get(name).is_set())
    .collect();
    if let Some(first) = present.first() {
        source(&metric.get(first), first, errors);
    }
    match expected {
        Some((_, name)) => {
            if !metric.get(name).is_set() {
                errors.required(
                    &metric.get(name),
                    "must populate information for the given metric source",
                );
            }
        }
        None => errors.not_supported(&kind, &types),
    }
    if present.len() != 1 {
        let wanted = expected.map(|(_, name)| *name);
        for name in present.into_iter().filter(|name| Some(*name) != wanted) {
            errors.forbidden(
                &metric.get(name),
                "must populate the given metric source only",
            );
        }
    }
}

fn source(source: &At<'_>, kind: &str, errors: &mut Errors) {
    let target = source.get("target");
    let [value, average, utilization] =
        ["value", "averageValue", "averageUtilization"].map(|name| target.get(name));
    let identifier = |errors: &mut Errors| {
        let name = source.dig(&["metric", "name"]);
        if name.is_empty() {
            errors.required(&name, "must specify a metric name");
        } else {
            errors.format(&name, names::path_segment);
        }
    };
    match kind {
        "object" => {
            reference(&source.get("describedObject"), errors);
            identifier(errors);
            self::target(&target, errors);
            if !value.is_set() && !average.is_set() {
                errors.required(&average, "must set either a target value or averageValue");
            }
        }
        "external" => {
            identifier(errors);
            self::target(&target, errors);
            if !value.is_set() && !average.is_set() {
                errors.required(
                    &average,
                    "must set either a target value for metric or a per-pod target",
                );
            }
            if value.is_set() && average.is_set() {
                errors.forbidden(
                    &value,
                    "may not set both a target value for metric and a per-pod target",
                );
            }
        }
        "pods" => {
            identifier(errors);
            self::target(&target, errors);
            if !average.is_set() {
                errors.required(&average, "must specify a positive target averageValue");
            }
        }
        _ => {
            let name = source.get("name");
            if name.is_empty() {
                errors.required(&name, "must specify a resource name");
            } else if kind == "containerResource" {
                container_resource_name(&name, name.text(), errors);
            }
            if kind == "containerResource" {
                let container = source.get("container");
                if container.is_empty() {
                    errors.required(&container, "must specify a container");
                } else {
                    errors.format(&container, names::label);
                }
            }
            self::target(&target, errors);
            if !utilization.is_set() && !average.is_set() {
                errors.required(
                    &utilization,
                    "must set either a target raw value or a target utilization",
                );
            }
            if utilization.is_set() && average.is_set() {
                errors.forbidden(
                    &average,
                    "may not set both a target raw value and a target utilization",
                );
            }
        }
    }
}

fn target(target: &At<'_>, errors: &mut Errors) {
    let kind = target.get("type");
    if kind.is_empty() {
        errors.required(&kind, "must specify a metric target type");
    }
    if !["Utilization", "Value", "AverageValue"].contains(&kind.text()) {
        errors.invalid(
            &kind,
            kind.text(),
            "must be either Utilization, Value, or AverageValue",
        );
    }
    for name in ["value", "averageValue"] {
        let amount = target.get(name);
        if amount.is_set() && Quantity::of(amount.text()) <= Quantity(0) {
            errors.invalid(&amount, amount.text(), "must be positive");
        }
    }
    let utilization = target.get("averageUtilization");
    if utilization.is_set() && utilization.number() < 1 {
        errors.invalid(&utilization, utilization.number(), "must be greater than 0");
    }
}

fn scaling_rules(rules: &At<'_>, errors: &mut Errors) {
    let window = rules.get("stabilizationWindowSeconds");
    if window.number() < 0 {
        errors.invalid(
            &window,
            window.number(),
            "must be greater than or equal to zero",
        );
    }
    if window.number() > 3600 {
        errors.invalid(
            &window,
            window.number(),
            "must be less than or equal to 3600",
        );
    }
    errors.optional_choice(&rules.get("selectPolicy"), &["Disabled", "Max", "Min"]);
    let policies = rules.get("policies");
    if policies.is_empty() {
        errors.required(&policies, "must specify at least one Policy");
    }
    for policy in policies.items() {
        let kind = policy.get("type");
        if !["Percent", "Pods"].contains(&kind.text()) {
            errors.not_supported(&kind, &["Percent", "Pods"]);
        }
        errors.positive(&policy.get("value"));
        let period = policy.get("periodSeconds");
        errors.positive(&period);
        if period.number() > 1800 {
            errors.invalid(
                &period,
                period.number(),
                "must be less than or equal to 1800",
            );
        }
    }
    let tolerance = rules.get("tolerance");
    if tolerance.is_set() && Quantity::of(tolerance.text()) < Quantity(0) {
        errors.invalid(&tolerance, tolerance.text(), super::at::NOT_NEGATIVE);
    }
}
