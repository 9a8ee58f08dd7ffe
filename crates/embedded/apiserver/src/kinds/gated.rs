//! Fields of features that are off unless an operator asks for them. Clients may send them, and servers forget them.

use serde_json::Value;

use super::rules::Rules;

/// Group, kind and way to the field. A step `*` is every element of a list or entry of a map; a step that ends in `?`
/// goes as well if nothing else is left in it.
const OF_KINDS: &[(&str, &str, &str)] = &[
    ("", "Node", "spec/configSource"),
    ("", "Node", "status/config"),
    ("", "Pod", "status/nodeAllocatableResourceClaimStatuses"),
    (
        "",
        "Pod",
        "status/containerStatuses/*/volumeMounts/*/volumeStatus",
    ),
    (
        "",
        "Pod",
        "status/initContainerStatuses/*/volumeMounts/*/volumeStatus",
    ),
    (
        "",
        "Pod",
        "status/ephemeralContainerStatuses/*/volumeMounts/*/volumeStatus",
    ),
    (
        "apps",
        "StatefulSet",
        "spec/updateStrategy/rollingUpdate/maxUnavailable",
    ),
    ("coordination.k8s.io", "Lease", "spec/preferredHolder"),
    ("coordination.k8s.io", "Lease", "spec/strategy"),
    (
        "resource.k8s.io",
        "ResourceSlice",
        "spec/devices/*/nodeAllocatableResourceMappings",
    ),
    (
        "resource.k8s.io",
        "ResourceSlice",
        "spec/devices/*/attributes/*/bools",
    ),
    (
        "resource.k8s.io",
        "ResourceSlice",
        "spec/devices/*/attributes/*/ints",
    ),
    (
        "resource.k8s.io",
        "ResourceSlice",
        "spec/devices/*/attributes/*/strings",
    ),
    (
        "resource.k8s.io",
        "ResourceSlice",
        "spec/devices/*/attributes/*/versions",
    ),
    (
        "storage.k8s.io",
        "CSIDriver",
        "spec/preventPodSchedulingIfMissing",
    ),
];

/// In every specification of pods, wherever a kind has one.
const OF_PODS: &[&str] = &[
    "containers/*/lifecycle?/stopSignal",
    "ephemeralContainers/*/lifecycle?/stopSignal",
    "initContainers/*/lifecycle?/stopSignal",
    "schedulingGroup",
    "volumes/*/projected/sources/*/clusterTrustBundle",
    "volumes/*/projected/sources/*/podCertificate",
];

/// Takes them out of an object that is to be written.
pub fn forget(rules: &Rules, object: &mut Value) {
    for (group, kind, way) in OF_KINDS {
        if (*group, *kind) == (rules.group, rules.kind) {
            remove(object, way);
        }
    }
    if rules.pods.is_empty() {
        return;
    }
    if let Some(spec) = object.pointer_mut(rules.pods) {
        for way in OF_PODS {
            remove(spec, way);
        }
    }
}

fn remove(value: &mut Value, way: &str) {
    let Some((step, rest)) = way.split_once('/') else {
        if let Some(fields) = value.as_object_mut() {
            fields.remove(way);
        }
        return;
    };
    match (step, value) {
        ("*", Value::Array(items)) => items.iter_mut().for_each(|item| remove(item, rest)),
        ("*", Value::Object(entries)) => entries.values_mut().for_each(|entry| remove(entry, rest)),
        (step, Value::Object(fields)) => {
            let name = step.trim_end_matches('?');
            let Some(inner) = fields.get_mut(name) else {
                return;
            };
            let was_void = is_void(inner);
            remove(inner, rest);
            if name != step && !was_void && is_void(inner) {
                fields.remove(name);
            }
        }
        _ => {}
    }
}

fn is_void(value: &Value) -> bool {
    value.as_object().is_some_and(serde_json::Map::is_empty)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_off_is_forgotten_in_templates_too() {
        let rules = Rules {
            kind: "Deployment",
            pods: "/spec/template/spec",
            ..Rules::namespaced("apps")
        };
        let mut deployment = json!({"spec": {"template": {"spec": {
            "schedulingGroup": {"podGroupName": "g"},
            "containers": [
                {"name": "a", "lifecycle": {"stopSignal": "SIGTERM"}},
                {"name": "b", "lifecycle": {"stopSignal": "SIGTERM", "preStop": {}}},
                {"name": "c", "lifecycle": {}},
            ],
        }}}});
        forget(&rules, &mut deployment);
        assert_eq!(
            deployment["spec"]["template"]["spec"],
            json!({"containers": [
                {"name": "a"},
                {"name": "b", "lifecycle": {"preStop": {}}},
                {"name": "c", "lifecycle": {}},
            ]})
        );
    }
}
