//! What a real server answered to the same objects: `testdata/kinds/*.jsonl`, one case to a line.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::at::{field, text};
use super::{Kind, Lookup, builtin, of};
use crate::codec::decode::decode;
use crate::codec::json::Node;
use crate::field::{FieldError, summary};
use crate::schema::Types;

const UID: &str = "00000000-0000-0000-0000-000000000000";

/// Objects that admission may look up, by resource.
#[derive(Default)]
struct World(HashMap<String, Vec<Value>>);

impl Lookup for World {
    fn get(&self, resource: &str, namespace: &str, name: &str) -> Option<Value> {
        let mut found = self.list(resource, namespace).into_iter();
        found.find(|object| text(object, &["metadata", "name"]) == name)
    }

    fn list(&self, resource: &str, namespace: &str) -> Vec<Value> {
        let all = self.0.get(resource).into_iter().flatten();
        all.filter(|object| {
            namespace.is_empty() || text(object, &["metadata", "namespace"]) == namespace
        })
        .cloned()
        .collect()
    }
}

fn kind_of(object: &Value) -> (&'static dyn Kind, &'static super::Builtin) {
    let version = text(object, &["apiVersion"]);
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let kind = text(object, &["kind"]);
    let known = builtin()[kind]
        .iter()
        .find(|one| (one.group, one.version) == (group, version))
        .unwrap();
    (of(group, version, kind), &known.kind)
}

/// What is left of an object once everything that differs between servers is gone.
fn comparable(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(meta) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        for name in [
            "uid",
            "resourceVersion",
            "creationTimestamp",
            "managedFields",
            "namespace",
        ] {
            meta.remove(name);
        }
    }
    forget_times(&mut object);
    object
}

fn forget_times(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, value| !is_time(name) || !value.is_string());
            fields.values_mut().for_each(forget_times);
        }
        Value::Array(items) => items.iter_mut().for_each(forget_times),
        _ => {}
    }
}

fn is_time(name: &str) -> bool {
    ["lastTransitionTime", "lastPhaseTransitionTime"].contains(&name)
}

fn refusal(errors: &[FieldError]) -> Value {
    json!({
        "message": summary(errors),
        "causes": errors.iter().map(FieldError::cause).collect::<Vec<_>>(),
    })
}

fn decoded(object: &Value, known: &super::Builtin) -> Value {
    let mut object = object.clone();
    drop_nulls(&mut object);
    let node = Node::of(&object);
    let mut object = decode(Types::builtin(), known.type_id, &node)
        .unwrap()
        .value;
    if known.rules.namespaced {
        object["metadata"]["namespace"] = json!("test");
    }
    object
}

/// Hands out what the real server did.
struct AsRecorded<'c>(&'c Value);

impl super::service::Addresses for AsRecorded<'_> {
    fn address(&self, wanted: Option<&str>) -> Result<String, String> {
        let given = match text(self.0, &["expect", "spec", "clusterIP"]) {
            "" => "10.0.0.10",
            given => given,
        };
        Ok(wanted.unwrap_or(given).to_owned())
    }

    fn port(&self, wanted: Option<u16>) -> Result<u16, String> {
        if let Some(port) = wanted {
            return match port {
                30000..=32767 => Ok(port),
                _ => Err("provided port is not in the valid range. The range of valid ports is 30000-32767".to_owned()),
            };
        }
        let spec = field(self.0, &["expect", "spec"]);
        let port = field(spec, &["ports"])
            .get(0)
            .and_then(|port| port["nodePort"].as_u64());
        Ok(port.unwrap_or(30001) as u16)
    }
}

fn drop_nulls(value: &mut Value) {
    if let Some(fields) = value.as_object_mut() {
        fields.retain(|_, value| !value.is_null());
        fields.values_mut().for_each(drop_nulls);
    }
}

fn refused(failure: crate::status::StatusError) -> Value {
    json!({
        "message": failure.message.split_once(" is invalid: ").unwrap().1,
        "causes": failure.details.unwrap()["causes"],
    })
}

fn create(case: &Value) -> Value {
    let (kind, known) = kind_of(&case["object"]);
    let mut object = decoded(&case["object"], known);
    object["metadata"]["creationTimestamp"] = json!("2026-01-01T00:00:00Z");
    object["metadata"]["uid"] = json!(UID);
    kind.default(&mut object);
    let world = World(serde_json::from_value(case["world"].clone()).unwrap_or_default());
    if let Err(failure) = kind.admit(&mut object, None, &world) {
        return json!({"message": failure.message});
    }
    if case["object"]["kind"] == "Service" {
        let allocated = super::service::allocate(&mut object, None, &AsRecorded(case));
        if let Err(failure) = allocated {
            return refused(failure);
        }
    }
    kind.prepare_create(&mut object);
    match kind.validate_create(&object).as_slice() {
        [] => {
            let charged = || super::quota::charge(&plural(&case["object"]), &object, None, &world);
            match kind.approve(&object, None, &world).and_then(|()| charged()) {
                Ok(_) => comparable(&object),
                Err(failure) => json!({"message": failure.message}),
            }
        }
        errors => refusal(errors),
    }
}

/// `pods`, `leases.coordination.k8s.io`.
fn plural(object: &Value) -> String {
    let served = crate::resource::builtin().iter().find(|served| {
        object["kind"] == served.kind.as_str() && object["apiVersion"] == served.api_version()
    });
    served.unwrap().qualified()
}

/// `case.old` is as the server stored it; `case.object` as the client sent it.
fn update(case: &Value) -> Value {
    let (kind, known) = kind_of(&case["object"]);
    let mut old = case["old"].clone();
    old["metadata"]["uid"] = json!(UID);
    old["metadata"]["resourceVersion"] = json!("1");
    let mut new = decoded(&case["object"], known);
    if known.rules.namespaced {
        old["metadata"]["namespace"] = json!("test");
    }
    for name in ["uid", "resourceVersion", "generation"] {
        super::at::carry(&mut new["metadata"], &old["metadata"].clone(), name);
    }
    kind.default(&mut new);
    if let Err(failure) = kind.admit(&mut new, Some(&old), &World::default()) {
        return json!({"message": failure.message});
    }
    let errors = match text(case, &["subresource"]) {
        "status" => {
            kind.prepare_status_update(&mut new, &old);
            super::at::carry(&mut new, &old, "spec");
            kind.validate_status_update(&new, &old)
        }
        "resize" => {
            super::pod::prepare_resize(&mut new, &old);
            super::pod::validate_resize(&new, &old)
        }
        "ephemeralcontainers" => {
            super::pod::prepare_ephemeral_containers(&mut new, &old);
            super::pod::validate_ephemeral_containers(&new, &old)
        }
        _ => {
            if case["object"]["kind"] == "Service" {
                let allocated = super::service::allocate(&mut new, Some(&old), &AsRecorded(case));
                if let Err(failure) = allocated {
                    return refused(failure);
                }
            }
            kind.prepare_update(&mut new, &old);
            kind.validate_update(&new, &old)
        }
    };
    match errors.as_slice() {
        [] => match kind.approve(&new, Some(&old), &World::default()) {
            Ok(()) => comparable(&new),
            Err(failure) => json!({"message": failure.message}),
        },
        errors => refusal(errors),
    }
}

/// Where Go walks a map, problems come in any order.
fn sorted(refusal: &Value) -> Vec<String> {
    let causes = refusal["causes"].as_array().into_iter().flatten();
    let mut causes: Vec<String> = causes.map(Value::to_string).collect();
    causes.sort();
    causes
}

/// The original tells a megabyte about a long expression, and we the beginning of that.
fn begins_equal(got: &Value, expected: &Value) -> bool {
    const LONG: usize = 256 << 10;
    let [got, expected] = [got, expected].map(|refusal| match refusal["causes"].as_array() {
        Some(causes) if causes.len() == 1 => causes[0]["message"].as_str().unwrap_or_default(),
        _ => "",
    });
    got.len() > LONG && expected.starts_with(got)
}

fn check(cases: &str) {
    let mut failures = Vec::new();
    for line in cases.lines().filter(|line| !line.is_empty()) {
        let case: Value = serde_json::from_str(line).unwrap();
        let got = if case["old"].is_null() {
            create(&case)
        } else {
            update(&case)
        };
        let expected = &comparable(&case["expect"]);
        let pretty = |value: &Value| match value["causes"].as_array() {
            None => serde_json::to_string_pretty(value).unwrap(),
            Some(causes) => {
                let lines = causes
                    .iter()
                    .map(|cause| format!("{} {}", cause["field"], cause["message"]));
                lines.collect::<Vec<_>>().join("\n")
            }
        };
        let equal = if case["unordered"] == true {
            sorted(&got) == sorted(expected)
        } else {
            got == *expected || begins_equal(&got, expected)
        };
        if !equal {
            failures.push(format!(
                "== {}\n-- expected\n{}\n-- got\n{}",
                text(&case, &["name"]),
                pretty(expected),
                pretty(&got)
            ));
        }
        if let Some(warnings) = case["warnings"].as_array() {
            let (kind, known) = kind_of(&case["object"]);
            let mut object = decoded(&case["object"], known);
            kind.default(&mut object);
            let got = json!(kind.warnings(&object, None));
            if got != json!(warnings) {
                failures.push(format!("== {}: warnings {got}", text(&case, &["name"])));
            }
        }
    }
    let total = cases.lines().count();
    assert!(
        failures.is_empty(),
        "{} of {total} differ\n{}",
        failures.len(),
        failures.join("\n")
    );
}

macro_rules! recorded {
    ($($name:ident),* $(,)?) => {
        $(
            #[test]
            fn $name() {
                check(include_str!(concat!("../../testdata/kinds/", stringify!($name), ".jsonl")));
            }
        )*
    };
}

recorded!(
    admission,
    autoscaling,
    batch,
    core,
    costs,
    crd,
    extensions,
    networking,
    pods,
    policy,
    rbac,
    services,
    storage,
    workloads,
);

#[test]
fn every_kind_that_is_served_is_known() {
    for served in crate::resource::builtin() {
        assert!(
            builtin().contains_key(served.kind.as_str()),
            "{}",
            served.kind
        );
    }
    let plain = of("example.com", "v1", "Widget");
    let mut widget = json!({"spec": {}});
    plain.default(&mut widget);
    assert_eq!(field(&widget, &["spec"]), &json!({}));
}
