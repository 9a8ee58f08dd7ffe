//! Between the versions of a kind: what a client sees and what is kept differ for the two event resources and for old
//! autoscalers; and some kinds keep the same fact in two fields.

mod autoscaler;

use serde_json::{Value, json};

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
            Self::Autoscalers => autoscaler::to_v2(object),
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
            Self::Autoscalers => autoscaler::to_v1(object),
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
