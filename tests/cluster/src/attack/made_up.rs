//! Pieces that requests are made of: sound objects of many kinds, values at every extreme, and nesting.

use fastrand::Rng;
use serde_json::{Value, json};

/// One of these numbers of levels: around limits that servers have, and far beyond.
const DEPTHS: [usize; 14] = [
    2, 30, 63, 100, 127, 128, 129, 200, 499, 500, 501, 2_000, 20_000, 300_000,
];

pub fn depth(random: &mut Rng) -> usize {
    pick(random, &DEPTHS)
}

pub fn pick<T: Copy>(random: &mut Rng, of: &[T]) -> T {
    of[random.usize(..of.len())]
}

/// JSON that nests this deep, as text: a program that builds it as a tree has the problem it is to cause.
pub fn nested(random: &mut Rng, depth: usize) -> String {
    let style = random.u8(..5);
    let mut text = String::with_capacity(depth * 8);
    let mut closing = String::with_capacity(depth);
    for level in 0..depth {
        let object = match style {
            0 => true,
            1 => false,
            2 => level % 2 == 0,
            3 => level % 17 == 0,
            _ => level < depth / 2,
        };
        text.push_str(if object { "{\"a\":" } else { "[" });
        closing.push(if object { '}' } else { ']' });
    }
    text.push_str(pick(random, &["null", "1", "\"x\"", "{}", "[]", "true"]));
    text.extend(closing.chars().rev());
    text
}

/// Nesting as field sets have it.
pub fn nested_fields(depth: usize) -> String {
    let mut text = "{\"f:a\":".repeat(depth);
    text.push_str("{}");
    text.push_str(&"}".repeat(depth));
    text
}

/// A value that some reader takes for impossible.
pub fn extreme(random: &mut Rng) -> Value {
    const TEXTS: [&str; 40] = [
        "",
        " ",
        "\0",
        "0",
        "-0",
        "-1",
        "1e400",
        "-1e400",
        "1e-400",
        "NaN",
        "Infinity",
        "9223372036854775807",
        "9223372036854775808",
        "-9223372036854775808",
        "18446744073709551616",
        "999999999999999999999999999Ei",
        "9223372036854775807Ei",
        "0.0000000000000001n",
        "1E",
        "1Ei",
        "-1m",
        "0x10",
        "1_000",
        "１２",
        "true",
        "null",
        "9999-12-31T23:59:59Z",
        "0000-01-01T00:00:00Z",
        "-0001-01-01T00:00:00Z",
        "2026-13-45T99:99:99Z",
        "9223372036854775807s",
        "2562047h47m16.854775807s",
        "999999999h",
        "-1h",
        "100%",
        "2147483647%",
        "255.255.255.255/33",
        "::/129",
        "*",
        "../../../etc/passwd",
    ];
    match random.u8(..10) {
        0..4 => json!(pick(random, &TEXTS)),
        4 => json!(pick(random, &[i64::MAX, i64::MIN, -1, 0, 1, i64::MAX - 1])),
        5 => json!(pick(
            random,
            &[
                i64::from(i32::MAX),
                i64::from(i32::MIN),
                1 << 31,
                1 << 32,
                65_535,
                65_536
            ]
        )),
        6 => json!(pick(random, &[u64::MAX, 1 << 63, 1 << 53])),
        7 => json!(pick(
            random,
            &[f64::MAX, f64::MIN_POSITIVE, -0.0, 1e308, 0.1, -1.5]
        )),
        8 => json!("x".repeat(pick(random, &[64, 254, 1_100, 70_000]))),
        _ => match random.u8(..6) {
            0 => Value::Null,
            1 => json!([]),
            2 => json!({}),
            3 => json!([[]]),
            4 => json!({"": {"": ""}}),
            _ => json!(random.bool()),
        },
    }
}

/// A sound object of some kind, and the collection it goes to.
pub fn object(random: &mut Rng, number: u64) -> (String, Value) {
    let index = random.usize(..KINDS.len());
    object_of(KINDS[index], number)
}

/// `version/resource` of the kinds that editors may write.
pub const KINDS: [&str; 20] = [
    "v1/configmaps",
    "v1/secrets",
    "v1/pods",
    "v1/services",
    "v1/persistentvolumeclaims",
    "v1/replicationcontrollers",
    "v1/endpoints",
    "v1/podtemplates",
    "apps/v1/deployments",
    "apps/v1/replicasets",
    "apps/v1/statefulsets",
    "apps/v1/daemonsets",
    "apps/v1/controllerrevisions",
    "batch/v1/jobs",
    "batch/v1/cronjobs",
    "autoscaling/v2/horizontalpodautoscalers",
    "networking.k8s.io/v1/ingresses",
    "networking.k8s.io/v1/networkpolicies",
    "policy/v1/poddisruptionbudgets",
    "resource.k8s.io/v1/resourceclaims",
];

pub fn object_of(kind: &str, number: u64) -> (String, Value) {
    let pod = json!({
        "terminationGracePeriodSeconds": 1, "priority": null, "activeDeadlineSeconds": null,
        "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 9}],
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": {"app": "x"}}}],
        "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": 5, "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "y"}}}}]}},
        "containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80}],
            "env": [{"name": "E", "value": "v"}],
            "resources": {"requests": {"cpu": "1m", "memory": "1Mi"}, "limits": {"memory": "1Mi"}},
            "readinessProbe": {"httpGet": {"path": "/", "port": 80}, "periodSeconds": 1, "initialDelaySeconds": 0}}],
    });
    let template = |restart: &str| {
        let mut spec = pod.clone();
        spec["restartPolicy"] = json!(restart);
        json!({"metadata": {"labels": {"app": "x"}}, "spec": spec})
    };
    let selector = json!({"matchLabels": {"app": "x"}});
    let mut body = match kind {
        "v1/configmaps" => json!({"data": {"k": "v"}}),
        "v1/secrets" => json!({"data": {"k": "dg=="}, "type": "Opaque"}),
        "v1/pods" => json!({"spec": pod}),
        "v1/services" => {
            json!({"spec": {"selector": {"app": "x"}, "ports": [{"name": "p", "port": 80, "targetPort": 80, "nodePort": null}], "type": "ClusterIP",
                "sessionAffinityConfig": null}})
        }
        "v1/persistentvolumeclaims" => {
            json!({"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}})
        }
        "v1/replicationcontrollers" => {
            json!({"spec": {"replicas": 1, "minReadySeconds": 0, "selector": {"app": "x"}, "template": template("Always")}})
        }
        "v1/endpoints" => {
            json!({"subsets": [{"addresses": [{"ip": "10.9.8.7"}], "ports": [{"name": "p", "port": 80}]}]})
        }
        "v1/podtemplates" => json!({"template": template("Always")}),
        "apps/v1/deployments" => {
            json!({"spec": {"replicas": 1, "revisionHistoryLimit": 1, "progressDeadlineSeconds": 600, "selector": selector, "template": template("Always"),
                "strategy": {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 1}}}})
        }
        "apps/v1/replicasets" => {
            json!({"spec": {"replicas": 1, "selector": selector, "template": template("Always")}})
        }
        "apps/v1/statefulsets" => {
            json!({"spec": {"replicas": 1, "serviceName": "s", "ordinals": {"start": 0}, "selector": selector, "template": template("Always")}})
        }
        "apps/v1/daemonsets" => {
            json!({"spec": {"minReadySeconds": 0, "selector": selector, "template": template("Always"), "updateStrategy": {"rollingUpdate": {"maxUnavailable": 1}}}})
        }
        "apps/v1/controllerrevisions" => json!({"revision": 1, "data": {"a": 1}}),
        "batch/v1/jobs" => {
            json!({"spec": {"parallelism": 1, "completions": 1, "backoffLimit": 1, "activeDeadlineSeconds": 100, "ttlSecondsAfterFinished": 100, "template": template("Never")}})
        }
        "batch/v1/cronjobs" => {
            json!({"spec": {"schedule": "0 0 1 1 *", "startingDeadlineSeconds": 10, "successfulJobsHistoryLimit": 1,
                "jobTemplate": {"spec": {"template": template("Never")}}}})
        }
        "autoscaling/v2/horizontalpodautoscalers" => {
            json!({"spec": {"minReplicas": 1, "maxReplicas": 3, "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"},
                "behavior": {"scaleDown": {"stabilizationWindowSeconds": 10}},
                "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}]}})
        }
        "networking.k8s.io/v1/ingresses" => {
            json!({"spec": {"rules": [{"host": "a.b", "http": {"paths": [{"path": "/", "pathType": "Prefix",
                "backend": {"service": {"name": "s", "port": {"number": 80}}}}]}}]}})
        }
        "networking.k8s.io/v1/networkpolicies" => {
            json!({"spec": {"podSelector": {"matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}]},
                "egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16"]}}], "ports": [{"port": 80, "endPort": 90}]}]}})
        }
        "policy/v1/poddisruptionbudgets" => {
            json!({"spec": {"minAvailable": "50%", "selector": {"matchLabels": {"app": "x"}}}})
        }
        _ => {
            json!({"spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "c", "count": 1, "allocationMode": "ExactCount",
                "selectors": [{"cel": {"expression": "true"}}]}}]}}})
        }
    };
    body["metadata"] = json!({
        "name": format!("x-{number}"),
        "labels": {"app": "x"},
        "annotations": {"a": "b"},
        "ownerReferences": [],
        "finalizers": [],
    });
    let (version, resource) = kind.rsplit_once('/').unwrap_or(("v1", kind));
    let prefix = if version == "v1" { "/api" } else { "/apis" };
    (
        format!("{prefix}/{version}/namespaces/$ns/{resource}"),
        body,
    )
}

/// Pointers of everything in the value, containers too.
pub fn pointers(value: &Value) -> Vec<String> {
    fn walk(value: &Value, at: &str, found: &mut Vec<String>) {
        found.push(at.to_owned());
        match value {
            Value::Object(fields) => {
                for (key, field) in fields {
                    let key = key.replace('~', "~0").replace('/', "~1");
                    walk(field, &format!("{at}/{key}"), found);
                }
            }
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    walk(item, &format!("{at}/{index}"), found);
                }
            }
            _ => {}
        }
    }
    let mut found = Vec::new();
    walk(value, "", &mut found);
    found.remove(0);
    found
}

/// The object as text, with raw text in the place of one of its values.
pub fn with_raw(object: &Value, pointer: &str, raw: &str) -> String {
    const MARK: &str = "a place that is taken by other text";
    let mut object = object.clone();
    if let Some(place) = object.pointer_mut(pointer) {
        *place = Value::from(MARK);
    }
    object.to_string().replacen(&format!("\"{MARK}\""), raw, 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nesting_is_as_deep_as_told() {
        let mut random = Rng::with_seed(1);
        for _ in 0..50 {
            let text = nested(&mut random, 40);
            let value: Value = serde_json::from_str(&text).unwrap();
            let mut deepest = 0_i64;
            let mut level = 0_i64;
            for letter in value.to_string().chars() {
                level += i64::from("[{".contains(letter)) - i64::from("]}".contains(letter));
                deepest = deepest.max(level);
            }
            assert!((40..=41).contains(&deepest), "{text}");
        }
    }

    #[test]
    fn every_kind_is_an_object_with_a_place_to_go() {
        for kind in KINDS {
            let (path, object) = object_of(kind, 3);
            assert!(path.contains("/namespaces/$ns/"), "{path}");
            assert_eq!(object["metadata"]["name"], "x-3");
            for pointer in pointers(&object) {
                assert!(object.pointer(&pointer).is_some(), "{pointer}");
                let text = with_raw(&object, &pointer, "[[7]]");
                let changed: Value = serde_json::from_str(&text).unwrap();
                assert_eq!(changed.pointer(&pointer), Some(&json!([[7]])), "{pointer}");
            }
        }
    }
}
