//! Answers recorded from a kube-apiserver 1.36.3 about objects of a few definitions.

use serde_json::Value;

use super::*;
use crate::codec::json::Node;
use crate::field::FieldError;
use plimsoll_golang::strconv::quote;

/// Ours of the same form as what was recorded.
fn answer(definition: &Definition, case: &Value) -> Value {
    let version = definition.version("v1").unwrap();
    let text = case["new"].as_str().unwrap();
    let node = Node::parse(text).unwrap();
    let mut decoded = match version.decode(&node) {
        Ok(decoded) => decoded,
        Err(error) => {
            let message =
                format!("Widget in version \"v1\" cannot be handled as a Widget: {error}");
            return serde_json::json!({"message": message});
        }
    };
    let object = &mut decoded.value;
    let mut warnings = decoded.objections;
    let errors = match case["old"].as_str() {
        None => {
            version.prepare_create(object);
            warnings.extend(version.warnings(object, None));
            version.validate_create(object, Vec::new())
        }
        Some(old) => {
            let old: Value = serde_json::from_str(old).unwrap();
            version.prepare_update(object, &old);
            version.validate_update(object, &old, Vec::new())
        }
    };
    let warnings: Vec<String> = warnings
        .iter()
        .map(|warning| format!("299 - {}", quote(warning)))
        .collect();
    let mut answer = if errors.is_empty() {
        let kept = definition.to_storage(decoded.value);
        serde_json::json!({"object": definition.present(kept, version)})
    } else {
        let causes: Vec<Value> = errors.iter().map(FieldError::cause).collect();
        serde_json::json!({"causes": causes})
    };
    if !warnings.is_empty() {
        answer["warnings"] = warnings.into();
    }
    answer
}

#[test]
fn objects_are_judged_as_by_the_original() {
    replay(include_str!("recorded.json"));
}

#[test]
fn rules_are_those_of_the_original() {
    replay(include_str!("recorded-rules.json"));
}

#[track_caller]
fn replay(recorded: &str) {
    let recorded: Value = serde_json::from_str(recorded).unwrap();
    let definitions: std::collections::BTreeMap<&str, Definition> = recorded["definitions"]
        .as_object()
        .unwrap()
        .iter()
        .map(|(name, definition)| (name.as_str(), Definition::read(definition).unwrap()))
        .collect();
    let mut wrong = Vec::new();
    for case in recorded["cases"].as_array().unwrap() {
        let name = case["definition"].as_str().unwrap();
        let definition = &definitions[name];
        let mut ours = answer(definition, case);
        let mut theirs = case.clone();
        for field in ["definition", "new", "old"] {
            theirs.as_object_mut().unwrap().remove(field);
        }
        // Theirs come in the order of a Go map.
        for answer in [&mut ours, &mut theirs] {
            if let Some(causes) = answer["causes"].as_array_mut() {
                causes.sort_by_key(Value::to_string);
            }
            if answer["causes"].is_null() {
                answer.as_object_mut().unwrap().remove("causes");
            }
        }
        if ours != theirs {
            wrong.push(format!(
                "{}\n  ours   {ours}\n  theirs {theirs}",
                case["new"]
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} wrong\n{}",
        wrong.len(),
        wrong.join("\n")
    );
}

fn definition(plural: &str, names: Value) -> Value {
    let mut definition = serde_json::json!({
        "metadata": {"name": format!("{plural}.example.com")},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": names,
            "versions": [
                {"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "properties": {"spec": {"type": "object", "properties": {
                        "a": {"type": "string", "default": "x"}, "b": {"type": "string"},
                    }}},
                }}},
                {"name": "v2", "served": true, "storage": false, "deprecated": true,
                 "subresources": {"scale": {
                    "specReplicasPath": ".spec.replicas",
                    "statusReplicasPath": ".status.replicas",
                    "labelSelectorPath": ".status.selector",
                 }},
                 "selectableFields": [{"jsonPath": ".spec.a"}],
                 "schema": {"openAPIV3Schema": {
                    "type": "object",
                    "properties": {"spec": {"type": "object", "properties": {"a": {"type": "string"}}}},
                }}},
            ],
        },
    });
    names::prepare_create(&mut definition);
    definition
}

fn names_of(plural: &str, kind: &str, short: &[&str]) -> Value {
    serde_json::json!({
        "plural": plural,
        "singular": kind.to_lowercase(),
        "kind": kind,
        "listKind": format!("{kind}List"),
        "shortNames": short,
    })
}

#[test]
fn a_definition_is_established_once_its_names_are_accepted() {
    let now = "2026-01-02T03:04:05Z".parse().unwrap();
    let mut first = definition("tools", names_of("tools", "Tool", &["to"]));
    assert!(!names::is_served(&first));
    assert!(names::reconcile(&mut first, &[], now));
    assert!(names::is_served(&first));
    assert_eq!(
        first["status"],
        serde_json::json!({
            "acceptedNames": names_of("tools", "Tool", &["to"]),
            "conditions": [
                {"type": "NamesAccepted", "status": "True", "lastTransitionTime": "2026-01-02T03:04:05Z",
                 "reason": "NoConflicts", "message": "no conflicts found"},
                {"type": "Established", "status": "True", "lastTransitionTime": "2026-01-02T03:04:05Z",
                 "reason": "InitialNamesAccepted", "message": "the initial names have been accepted"},
            ],
            "storedVersions": ["v1"],
        })
    );
    assert!(!names::reconcile(&mut first, &[], now));

    let mut second = definition("gears", names_of("gears", "Tool", &["to", "ge"]));
    names::reconcile(&mut second, &[&first["status"]["acceptedNames"]], now);
    assert!(!names::is_served(&second));
    let conditions = &second["status"]["conditions"];
    assert_eq!(conditions[0]["reason"], "ListKindConflict");
    assert_eq!(conditions[0]["message"], "\"ToolList\" is already in use");
    assert_eq!(conditions[1]["reason"], "NotAccepted");
    assert_eq!(second["status"]["acceptedNames"]["plural"], "gears");

    names::reconcile(&mut second, &[], now);
    assert!(names::is_served(&second));
}

#[test]
fn removal_in_two_steps() {
    let now = "2026-01-02T03:04:05Z".parse().unwrap();
    let mut tools = definition("tools", names_of("tools", "Tool", &[]));
    tools["metadata"]["finalizers"] = serde_json::json!([names::CLEANUP_FINALIZER, "own"]);
    names::reconcile(&mut tools, &[], now);
    names::start_removal(&mut tools, now);
    let served = Definition::read(&tools).unwrap();
    assert!(!served.versions[0].resource.has_verb("create"));
    names::finish_removal(&mut tools, now);
    assert_eq!(tools["metadata"]["finalizers"], serde_json::json!(["own"]));
    let last = &tools["status"]["conditions"][2];
    assert_eq!(last["reason"], "InstanceDeletionCompleted");
}

#[test]
fn versions_show_what_they_know() {
    let definition =
        Definition::read(&definition("tools", names_of("tools", "Tool", &[]))).unwrap();
    let v2 = definition.version("v2").unwrap();
    assert_eq!(
        v2.deprecation.as_deref(),
        Some("example.com/v2 Tool is deprecated")
    );
    let kept = serde_json::json!({
        "apiVersion": "example.com/v1", "kind": "Tool", "metadata": {"name": "t"}, "spec": {"b": "y"},
    });
    let shown = definition.present(kept, v2);
    assert_eq!(
        shown,
        serde_json::json!({
            "apiVersion": "example.com/v2", "kind": "Tool", "metadata": {"name": "t"}, "spec": {"a": "x"},
        })
    );
    assert_eq!(v2.selectable[0].name, "spec.a");
    assert_eq!(v2.selectable[0].of(&shown), "x");
    let stored = definition.to_storage(shown);
    assert_eq!(stored["apiVersion"], "example.com/v1");
}

#[test]
fn scaling() {
    let definition =
        Definition::read(&definition("tools", names_of("tools", "Tool", &[]))).unwrap();
    let scale = definition.version("v2").unwrap().scale.as_ref().unwrap();
    let object = serde_json::json!({
        "metadata": {"name": "t", "uid": "u", "labels": {"a": "b"}},
        "spec": {"replicas": 2},
        "status": {"selector": "a=b"},
    });
    let mut shown = scale.of(&object).unwrap();
    assert_eq!(
        shown,
        serde_json::json!({
            "apiVersion": "autoscaling/v1",
            "kind": "Scale",
            "metadata": {"name": "t", "uid": "u"},
            "spec": {"replicas": 2},
            "status": {"replicas": 0, "selector": "a=b"},
        })
    );
    shown["spec"]["replicas"] = 7.into();
    let changed = scale.apply(&object, &shown).unwrap();
    assert_eq!(changed["spec"]["replicas"], 7);
    let failure = scale.of(&serde_json::json!({"metadata": {}})).unwrap_err();
    assert_eq!(
        failure.message,
        "Internal error occurred: the spec replicas field \".spec.replicas\" does not exist"
    );
    let negative = serde_json::json!({"spec": {"replicas": -1}});
    assert_eq!(
        scale.validate_spec(&negative)[0].to_string(),
        ".spec.replicas: Invalid value: -1: should be a non-negative integer"
    );
    let wrong = serde_json::json!({"spec": {"replicas": "x"}});
    assert_eq!(
        scale.validate_spec(&wrong)[0].to_string(),
        ".spec.replicas: Invalid value: 0: .spec.replicas accessor error: x is of the type string, expected int64"
    );
}
