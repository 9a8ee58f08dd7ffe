//! Autoscalers of version 1, which know one metric, the CPU. Everything else is in annotations, as JSON texts in the
//! order in which Go writes fields.

use serde_json::{Map, Value, json};

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";

/// A field in the annotation, where it is in version 2, and whether it is left out when absent.
type Field = (&'static str, &'static str, bool);

/// A source of metrics: its type, its field, and what the annotations say of its target and of its present value.
struct Source {
    kind: &'static str,
    field: &'static str,
    target: &'static [Field],
    current: &'static [Field],
}

const SOURCES: &[Source] = &[
    Source {
        kind: "Object",
        field: "object",
        target: &[
            ("target", "/describedObject", false),
            ("metricName", "/metric/name", false),
            ("targetValue", "/target/value", false),
            ("selector", "/metric/selector", true),
            ("averageValue", "/target/averageValue", true),
        ],
        current: &[
            ("target", "/describedObject", false),
            ("metricName", "/metric/name", false),
            ("currentValue", "/current/value", false),
            ("selector", "/metric/selector", true),
            ("averageValue", "/current/averageValue", true),
        ],
    },
    Source {
        kind: "Pods",
        field: "pods",
        target: &[
            ("metricName", "/metric/name", false),
            ("targetAverageValue", "/target/averageValue", false),
            ("selector", "/metric/selector", true),
        ],
        current: &[
            ("metricName", "/metric/name", false),
            ("currentAverageValue", "/current/averageValue", false),
            ("selector", "/metric/selector", true),
        ],
    },
    Source {
        kind: "Resource",
        field: "resource",
        target: &[
            ("name", "/name", false),
            (
                "targetAverageUtilization",
                "/target/averageUtilization",
                true,
            ),
            ("targetAverageValue", "/target/averageValue", true),
        ],
        current: &[
            ("name", "/name", false),
            (
                "currentAverageUtilization",
                "/current/averageUtilization",
                true,
            ),
            ("currentAverageValue", "/current/averageValue", false),
        ],
    },
    Source {
        kind: "ContainerResource",
        field: "containerResource",
        target: &[
            ("name", "/name", false),
            (
                "targetAverageUtilization",
                "/target/averageUtilization",
                true,
            ),
            ("targetAverageValue", "/target/averageValue", true),
            ("container", "/container", false),
        ],
        current: &[
            ("name", "/name", false),
            (
                "currentAverageUtilization",
                "/current/averageUtilization",
                true,
            ),
            ("currentAverageValue", "/current/averageValue", false),
            ("container", "/container", false),
        ],
    },
    Source {
        kind: "External",
        field: "external",
        target: &[
            ("metricName", "/metric/name", false),
            ("metricSelector", "/metric/selector", true),
            ("targetValue", "/target/value", true),
            ("targetAverageValue", "/target/averageValue", true),
        ],
        current: &[
            ("metricName", "/metric/name", false),
            ("metricSelector", "/metric/selector", true),
            ("currentValue", "/current/value", false),
            ("currentAverageValue", "/current/averageValue", true),
        ],
    },
];

fn source(metric: &Value) -> Option<&'static Source> {
    SOURCES.iter().find(|source| metric["type"] == source.kind)
}

/// A JSON object whose fields keep their order.
fn text_of(fields: &[(&str, String)]) -> String {
    let parts: Vec<String> = fields
        .iter()
        .map(|(name, value)| format!("{}:{value}", Value::from(*name)))
        .collect();
    format!("{{{}}}", parts.join(","))
}

fn list_of(texts: Vec<String>) -> Value {
    format!("[{}]", texts.join(",")).into()
}

fn reference(object: &Value) -> String {
    let fields: Vec<(&str, String)> = ["kind", "name", "apiVersion"]
        .into_iter()
        .filter(|name| object.get(name).is_some())
        .map(|name| (name, object[name].to_string()))
        .collect();
    text_of(&fields)
}

fn metric_text(metric: &Value, fields: impl Fn(&'static Source) -> &'static [Field]) -> String {
    let mut whole = vec![("type", metric["type"].to_string())];
    if let Some(source) = source(metric) {
        let from = &metric[source.field];
        let parts: Vec<(&str, String)> = fields(source)
            .iter()
            .filter_map(|(name, pointer, omitted)| {
                let value = from.pointer(pointer).filter(|value| !value.is_null());
                let shown = match value {
                    Some(value) if *name == "target" => reference(value),
                    Some(value) => value.to_string(),
                    None if *omitted => return None,
                    None => "\"0\"".to_owned(),
                };
                Some((*name, shown))
            })
            .collect();
        whole.push((source.field, text_of(&parts)));
    }
    text_of(&whole)
}

fn condition_text(condition: &Value) -> String {
    let mut fields = Vec::new();
    for name in ["type", "status", "lastTransitionTime", "reason", "message"] {
        match condition.get(name) {
            Some(value) if *value != "" => fields.push((name, value.to_string())),
            _ if name == "lastTransitionTime" => fields.push((name, "null".to_owned())),
            _ => {}
        }
    }
    text_of(&fields)
}

/// Of the two directions and their policies, named as in Go.
fn behavior_text(behavior: &Value) -> String {
    let direction = |rules: &Value| {
        if rules.is_null() {
            return "null".to_owned();
        }
        let policies = rules["policies"].as_array().map(|policies| {
            let policies: Vec<String> = policies
                .iter()
                .map(|policy| {
                    text_of(&[
                        ("Type", policy["type"].to_string()),
                        ("Value", policy["value"].to_string()),
                        ("PeriodSeconds", policy["periodSeconds"].to_string()),
                    ])
                })
                .collect();
            format!("[{}]", policies.join(","))
        });
        text_of(&[
            (
                "StabilizationWindowSeconds",
                rules["stabilizationWindowSeconds"].to_string(),
            ),
            ("SelectPolicy", rules["selectPolicy"].to_string()),
            ("Policies", policies.unwrap_or_else(|| "null".to_owned())),
            ("Tolerance", rules["tolerance"].to_string()),
        ])
    };
    text_of(&[
        ("ScaleUp", direction(&behavior["scaleUp"])),
        ("ScaleDown", direction(&behavior["scaleDown"])),
    ])
}

fn is_cpu(metric: &Value) -> bool {
    metric["type"] == "Resource" && metric["resource"]["name"] == "cpu"
}

pub fn to_v1(object: &mut Value) {
    let mut annotations = object["metadata"]["annotations"]
        .as_object()
        .cloned()
        .unwrap_or_default();
    let take = |object: &mut Value, part: &str, field: &str| {
        object[part]
            .as_object_mut()
            .and_then(|map| map.remove(field))
    };
    if let Some(Value::Array(mut metrics)) = take(object, "spec", "metrics") {
        let target = |metric: &Value| metric["resource"]["target"]["averageUtilization"].as_i64();
        let cpu = metrics
            .iter()
            .position(|metric| is_cpu(metric) && target(metric).is_some());
        if let Some(cpu) = cpu {
            object["spec"]["targetCPUUtilizationPercentage"] = json!(target(&metrics.remove(cpu)));
        }
        if !metrics.is_empty() {
            let old = metrics
                .iter()
                .map(|metric| metric_text(metric, |source| source.target));
            annotations.insert(METRICS.into(), list_of(old.collect()));
        }
    }
    if let Some(Value::Array(metrics)) = take(object, "status", "currentMetrics") {
        let value = |metric: &Value| metric["resource"]["current"]["averageUtilization"].as_i64();
        if let Some(cpu) = metrics
            .iter()
            .find(|one| is_cpu(one) && value(one).is_some())
        {
            object["status"]["currentCPUUtilizationPercentage"] = json!(value(cpu));
        }
        let old = metrics
            .iter()
            .map(|metric| metric_text(metric, |source| source.current));
        annotations.insert(CURRENT_METRICS.into(), list_of(old.collect()));
    }
    if let Some(Value::Array(conditions)) = take(object, "status", "conditions") {
        let old = conditions.iter().map(condition_text);
        annotations.insert(CONDITIONS.into(), list_of(old.collect()));
    }
    if let Some(behavior) = take(object, "spec", "behavior") {
        annotations.insert(BEHAVIOR.into(), behavior_text(&behavior).into());
    }
    if object["status"].get("currentReplicas").is_none() {
        object["status"]["currentReplicas"] = 0.into();
    }
    if !annotations.is_empty() {
        object["metadata"]["annotations"] = Value::Object(annotations);
    }
}

pub fn to_v2(object: &mut Value) {
    let mut metrics: Vec<Value> = Vec::new();
    let parsed = |annotations: &mut Map<String, Value>, key: &str| {
        annotations
            .remove(key)
            .and_then(|text| crate::depth::parse(text.as_str()?.as_bytes()))
    };
    let mut annotations = object["metadata"]["annotations"]
        .as_object()
        .cloned()
        .unwrap_or_default();
    if let Some(Value::Array(hidden)) = parsed(&mut annotations, METRICS) {
        let of_target = |metric| metric_of(metric, "target", |source| source.target);
        metrics.extend(hidden.iter().map(of_target));
    }
    let percentage = object["spec"]
        .as_object_mut()
        .and_then(|spec| spec.remove("targetCPUUtilizationPercentage"));
    if let Some(percentage) = percentage {
        metrics.insert(
            0,
            json!({"type": "Resource", "resource": {"name": "cpu", "target": {
                "type": "Utilization", "averageUtilization": percentage}}}),
        );
    }
    if !metrics.is_empty() {
        object["spec"]["metrics"] = json!(metrics);
    }
    if let Some(behavior) = parsed(&mut annotations, BEHAVIOR) {
        object["spec"]["behavior"] = in_json_names(behavior);
    }
    if let Some(conditions) = parsed(&mut annotations, CONDITIONS) {
        object["status"]["conditions"] = conditions;
    }
    let current = parsed(&mut annotations, CURRENT_METRICS);
    let percentage = object["status"]
        .as_object_mut()
        .and_then(|status| status.remove("currentCPUUtilizationPercentage"));
    if let Some(Value::Array(current)) = current {
        let of_current = |metric| metric_of(metric, "current", |source| source.current);
        object["status"]["currentMetrics"] = current.iter().map(of_current).collect();
    } else if let Some(percentage) = percentage {
        object["status"]["currentMetrics"] = json!([{"type": "Resource", "resource": {"name": "cpu",
            "current": {"averageUtilization": percentage}}}]);
    }
    if annotations.is_empty() {
        if let Some(meta) = object["metadata"].as_object_mut() {
            meta.remove("annotations");
        }
    } else {
        object["metadata"]["annotations"] = Value::Object(annotations);
    }
    if !object["status"].is_object() {
        object["status"] = json!({});
    }
    if let Some(status) = object["status"].as_object_mut()
        && status
            .get("currentReplicas")
            .is_some_and(|count| *count == 0)
    {
        status.remove("currentReplicas");
    }
    for (field, value) in [
        ("currentMetrics", Value::Null),
        ("desiredReplicas", json!(0)),
    ] {
        if object["status"].get(field).is_none() {
            object["status"][field] = value;
        }
    }
}

/// A metric of an annotation as version 2 has it. `part` is where its values are: `target` or `current`.
fn metric_of(
    metric: &Value,
    part: &str,
    fields: impl Fn(&'static Source) -> &'static [Field],
) -> Value {
    let mut new = json!({"type": metric["type"]});
    let Some(source) = source(metric) else {
        return new;
    };
    let old = &metric[source.field];
    let mut made = json!({});
    for (name, pointer, _) in fields(source) {
        let Some(value) = old.get(name) else {
            continue;
        };
        // The way there is made as it is looked at.
        let mut place = &mut made;
        for step in pointer.split('/').skip(1) {
            place = &mut place[step];
        }
        *place = value.clone();
    }
    if part == "target" {
        let has = |name: &str| made["target"].get(name).is_some();
        let kind = if has("averageUtilization") {
            "Utilization"
        } else if has("value") && !has("averageValue") {
            "Value"
        } else {
            "AverageValue"
        };
        made["target"]["type"] = kind.into();
    }
    new[source.field] = made;
    new
}

/// `ScaleUp` as `scaleUp`, all the way down; what is null is absent.
fn in_json_names(value: Value) -> Value {
    let first_lower = |text: String| {
        let mut letters = text.chars();
        let first = letters.next().map(|first| first.to_ascii_lowercase());
        first.into_iter().chain(letters).collect::<String>()
    };
    match value {
        Value::Object(map) => map
            .into_iter()
            .filter(|(_, value)| !value.is_null())
            .map(|(key, value)| (first_lower(key), in_json_names(value)))
            .collect::<Map<String, Value>>()
            .into(),
        Value::Array(items) => items.into_iter().map(in_json_names).collect(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_and_back() {
        let v2 = json!({
            "metadata": {"name": "h"},
            "spec": {"maxReplicas": 3,
                "behavior": {"scaleUp": {"selectPolicy": "Max", "stabilizationWindowSeconds": 0,
                    "policies": [{"type": "Pods", "value": 1, "periodSeconds": 15}]}},
                "metrics": [
                    {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}},
                    {"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}},
                    {"type": "Object", "object": {"describedObject": {"kind": "Service", "name": "s"}, "metric": {"name": "r"}, "target": {"type": "Value", "value": "10"}}},
                    {"type": "External", "external": {"metric": {"name": "e", "selector": {"matchLabels": {"a": "b"}}}, "target": {"type": "Value", "value": "5"}}},
                ]},
            "status": {"desiredReplicas": 0, "currentMetrics": [
                {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": 50, "averageValue": "100m"}}},
            ]},
        });
        let mut object = v2.clone();
        to_v1(&mut object);
        assert_eq!(object["spec"]["targetCPUUtilizationPercentage"], 80);
        assert_eq!(object["status"]["currentCPUUtilizationPercentage"], 50);
        to_v2(&mut object);
        assert_eq!(object, v2);
    }

    #[test]
    fn annotations_are_in_the_order_of_go() {
        let metric = json!({"type": "ContainerResource", "containerResource": {"name": "cpu", "container": "c",
            "target": {"type": "Utilization", "averageUtilization": 60}}});
        assert_eq!(
            metric_text(&metric, |source| source.target),
            r#"{"type":"ContainerResource","containerResource":{"name":"cpu","targetAverageUtilization":60,"container":"c"}}"#
        );
        assert_eq!(
            behavior_text(&json!({"scaleUp": {"selectPolicy": "Max"}})),
            r#"{"ScaleUp":{"StabilizationWindowSeconds":null,"SelectPolicy":"Max","Policies":null,"Tolerance":null},"ScaleDown":null}"#
        );
    }
}
