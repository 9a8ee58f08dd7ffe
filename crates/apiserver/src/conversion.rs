//! Between the versions of a kind: what a client sees and what is kept differ for the two event resources and for old
//! autoscalers; and some kinds keep the same fact in two fields.

use serde_json::{Map, Value, json};

/// Puts fields that say the same in step, as every pass through Kubernetes' own types does.
pub fn align(kind: &str, object: &mut Value) {
    match kind {
        "Secret" => fold_string_data(object),
        "Node" => align_cidrs(object),
        "DaemonSet" => {
            const GENERATION: &str = "deprecated.daemonset.template.generation";
            if object["metadata"]["annotations"].get(GENERATION).is_none() {
                object["metadata"]["annotations"][GENERATION] = "0".into();
            }
        }
        _ => {}
    }
}

/// `stringData` is a way of writing `data`.
fn fold_string_data(secret: &mut Value) {
    use base64::Engine;
    let Some(Value::Object(texts)) = secret
        .as_object_mut()
        .and_then(|map| map.remove("stringData"))
    else {
        return;
    };
    for (key, text) in texts {
        let text = text.as_str().unwrap_or_default();
        let encoded = base64::engine::general_purpose::STANDARD.encode(text);
        secret["data"][key] = encoded.into();
    }
}

fn align_cidrs(node: &mut Value) {
    let spec = &mut node["spec"];
    let first = spec["podCIDRs"][0].as_str().map(str::to_owned);
    let single = spec["podCIDR"]
        .as_str()
        .filter(|cidr| !cidr.is_empty())
        .map(str::to_owned);
    match (single, first) {
        (Some(single), first) if first.as_deref() != Some(&single) => {
            spec["podCIDRs"] = json!([single]);
        }
        (None, Some(first)) => spec["podCIDR"] = first.into(),
        _ => remove_nulls(spec, &["podCIDR", "podCIDRs"]),
    }
}

/// Looking at an absent member of a value that can be changed makes it.
fn remove_nulls(object: &mut Value, fields: &[&str]) {
    if let Some(map) = object.as_object_mut() {
        for field in fields {
            if map.get(*field).is_some_and(Value::is_null) {
                map.remove(*field);
            }
        }
    }
}

/// What the fields of an event are called in the core group, and in `events.k8s.io`.
const EVENT_FIELDS: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

/// Which conversion a resource needs; objects are kept as the other version has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Conversion {
    /// Events of `events.k8s.io`, kept as those of the core group.
    Events,
    /// Autoscalers of version 1, kept as version 2.
    Autoscalers,
}

impl Conversion {
    pub fn of(group: &str, version: &str, kind: &str) -> Option<Self> {
        match (group, version, kind) {
            ("events.k8s.io", "v1", "Event") => Some(Self::Events),
            ("autoscaling", "v1", "HorizontalPodAutoscaler") => Some(Self::Autoscalers),
            _ => None,
        }
    }

    pub fn as_kept(self, object: &mut Value) {
        match self {
            Self::Events => {
                rename(object, |(core, other)| (*other, *core));
                for always in ["reportingComponent", "reportingInstance"] {
                    if object.get(always).is_none() {
                        object[always] = "".into();
                    }
                }
            }
            Self::Autoscalers => autoscaler_to_v2(object),
        }
    }

    pub fn as_shown(self, object: &mut Value) {
        match self {
            Self::Events => {
                rename(object, |(core, other)| (*core, *other));
                if let Some(map) = object.as_object_mut() {
                    for omitted in ["reportingController", "reportingInstance"] {
                        if map.get(omitted).is_some_and(|text| text == "") {
                            map.remove(omitted);
                        }
                    }
                }
            }
            Self::Autoscalers => autoscaler_to_v1(object),
        }
    }
}

fn rename(
    object: &mut Value,
    direction: impl Fn(&(&'static str, &'static str)) -> (&'static str, &'static str),
) {
    let Some(map) = object.as_object_mut() else {
        return;
    };
    for pair in &EVENT_FIELDS {
        let (from, to) = direction(pair);
        if let Some(value) = map.remove(from) {
            map.insert(to.to_owned(), value);
        }
    }
}

const METRICS: &str = "autoscaling.alpha.kubernetes.io/metrics";
const CURRENT_METRICS: &str = "autoscaling.alpha.kubernetes.io/current-metrics";
const CONDITIONS: &str = "autoscaling.alpha.kubernetes.io/conditions";
const BEHAVIOR: &str = "autoscaling.alpha.kubernetes.io/behavior";

fn is_cpu(metric: &Value) -> bool {
    metric["type"] == "Resource" && metric["resource"]["name"] == "cpu"
}

/// Version 1 knows one metric, the CPU; everything else hides in annotations.
fn autoscaler_to_v1(object: &mut Value) {
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
            let old: Vec<Value> = metrics.iter().map(metric_to_v1).collect();
            annotations.insert(METRICS.into(), json!(old).to_string().into());
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
        let old: Vec<Value> = metrics.iter().map(current_to_v1).collect();
        annotations.insert(CURRENT_METRICS.into(), json!(old).to_string().into());
    }
    if let Some(conditions) = take(object, "status", "conditions") {
        annotations.insert(CONDITIONS.into(), conditions.to_string().into());
    }
    if let Some(behavior) = take(object, "spec", "behavior") {
        annotations.insert(BEHAVIOR.into(), behavior.to_string().into());
    }
    if object["status"].get("currentReplicas").is_none() {
        object["status"]["currentReplicas"] = 0.into();
    }
    if !annotations.is_empty() {
        object["metadata"]["annotations"] = Value::Object(annotations);
    }
}

fn metric_to_v1(metric: &Value) -> Value {
    let kind = metric["type"].as_str().unwrap_or_default();
    let mut old = json!({"type": kind});
    if kind == "Resource" {
        let mut resource = json!({"name": metric["resource"]["name"]});
        let target = &metric["resource"]["target"];
        for (from, to) in [
            ("averageUtilization", "targetAverageUtilization"),
            ("averageValue", "targetAverageValue"),
        ] {
            if !target[from].is_null() {
                resource[to] = target[from].clone();
            }
        }
        old["resource"] = resource;
    } else {
        let key = first_lower(kind);
        old[&key] = metric[&key].clone();
    }
    old
}

fn current_to_v1(metric: &Value) -> Value {
    let kind = metric["type"].as_str().unwrap_or_default();
    let mut old = json!({"type": kind});
    if kind == "Resource" {
        let mut resource = json!({"name": metric["resource"]["name"]});
        let current = &metric["resource"]["current"];
        if !current["averageUtilization"].is_null() {
            resource["currentAverageUtilization"] = current["averageUtilization"].clone();
        }
        resource["currentAverageValue"] = match &current["averageValue"] {
            Value::Null => "0".into(),
            value => value.clone(),
        };
        old["resource"] = resource;
    } else {
        let key = first_lower(kind);
        old[&key] = metric[&key].clone();
    }
    old
}

fn first_lower(text: &str) -> String {
    let mut chars = text.chars();
    chars
        .next()
        .map(|first| first.to_ascii_lowercase().to_string() + chars.as_str())
        .unwrap_or_default()
}

fn autoscaler_to_v2(object: &mut Value) {
    let mut metrics: Vec<Value> = Vec::new();
    let parsed = |annotations: &mut Map<String, Value>, key: &str| {
        annotations
            .remove(key)
            .and_then(|text| serde_json::from_str::<Value>(text.as_str()?).ok())
    };
    let mut annotations = object["metadata"]["annotations"]
        .as_object()
        .cloned()
        .unwrap_or_default();
    if let Some(Value::Array(hidden)) = parsed(&mut annotations, METRICS) {
        metrics.extend(hidden.iter().map(metric_to_v2));
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
        object["spec"]["behavior"] = behavior;
    }
    if let Some(conditions) = parsed(&mut annotations, CONDITIONS) {
        object["status"]["conditions"] = conditions;
    }
    parsed(&mut annotations, CURRENT_METRICS);
    let current = object["status"]
        .as_object_mut()
        .and_then(|status| status.remove("currentCPUUtilizationPercentage"));
    if let Some(current) = current {
        object["status"]["currentMetrics"] = json!([{"type": "Resource", "resource": {"name": "cpu",
            "current": {"averageUtilization": current}}}]);
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
    for field in ["currentMetrics", "desiredReplicas"] {
        if object["status"].get(field).is_none() {
            object["status"][field] = if field == "desiredReplicas" {
                json!(0)
            } else {
                Value::Null
            };
        }
    }
}

fn metric_to_v2(metric: &Value) -> Value {
    let kind = metric["type"].as_str().unwrap_or_default();
    let mut new = json!({"type": kind});
    if kind == "Resource" {
        let resource = &metric["resource"];
        let target = if resource["targetAverageUtilization"].is_null() {
            json!({"type": "AverageValue", "averageValue": resource["targetAverageValue"]})
        } else {
            json!({"type": "Utilization", "averageUtilization": resource["targetAverageUtilization"]})
        };
        new["resource"] = json!({"name": resource["name"], "target": target});
    } else {
        let key = first_lower(kind);
        new[&key] = metric[&key].clone();
    }
    new
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_there_and_back() {
        let core =
            json!({"involvedObject": {"name": "p"}, "message": "m", "count": 3, "reason": "R"});
        let mut event = core.clone();
        Conversion::Events.as_shown(&mut event);
        assert_eq!(event["note"], "m");
        assert_eq!(event["deprecatedCount"], 3);
        Conversion::Events.as_kept(&mut event);
        assert_eq!(event["message"], core["message"]);
        assert_eq!(event["reportingComponent"], "");
    }

    #[test]
    fn autoscalers_there_and_back() {
        let v2 = json!({
            "metadata": {"name": "h"},
            "spec": {"maxReplicas": 3, "metrics": [
                {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 80}}},
                {"type": "Resource", "resource": {"name": "memory", "target": {"type": "AverageValue", "averageValue": "1Gi"}}},
            ]},
            "status": {"currentMetrics": null, "desiredReplicas": 0},
        });
        let mut object = v2.clone();
        Conversion::Autoscalers.as_shown(&mut object);
        assert_eq!(object["spec"]["targetCPUUtilizationPercentage"], 80);
        Conversion::Autoscalers.as_kept(&mut object);
        assert_eq!(object, v2);
    }

    #[test]
    fn two_fields_for_one_fact() {
        let mut node = json!({"spec": {"podCIDR": "10.0.0.0/24"}});
        align("Node", &mut node);
        assert_eq!(node["spec"]["podCIDRs"], json!(["10.0.0.0/24"]));
        let mut plain = json!({"spec": {}});
        align("Node", &mut plain);
        assert_eq!(plain, json!({"spec": {}}));
        let mut secret = json!({"stringData": {"a": "b"}});
        align("Secret", &mut secret);
        assert_eq!(secret, json!({"data": {"a": "Yg=="}}));
    }
}
