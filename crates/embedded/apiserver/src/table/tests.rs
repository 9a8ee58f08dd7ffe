//! Rows recorded from a kube-apiserver 1.36.3, object by object.

use serde_json::Value;

use super::*;
use crate::resource::{Resource, builtin};

fn resource(group: &str, version: &str, plural: &str) -> &'static Resource {
    builtin()
        .iter()
        .find(|one| one.group == group && one.version == version && one.plural == plural)
        .unwrap()
}

#[test]
fn cells_are_those_of_the_original() {
    let mut wrong = Vec::new();
    for line in include_str!("recorded.jsonl").lines() {
        let case: Value = serde_json::from_str(line).unwrap();
        let text = |field: &str| case[field].as_str().unwrap();
        let resource = resource(text("group"), text("version"), text("resource"));
        let now = text("now").parse().unwrap();
        let cells = Value::from(cells(resource, &case["object"], now));
        if cells != case["cells"] {
            wrong.push(format!(
                "{} {}\n  ours   {cells}\n  theirs {}",
                resource.qualified(),
                case["object"]["metadata"]["name"],
                case["cells"]
            ));
        }
        let conditions = table_row(resource, &case["object"], &Options::new(now))
            .get("conditions")
            .cloned();
        assert_eq!(conditions.as_ref(), case.get("conditions"));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_column_has_a_description() {
    for resource in builtin() {
        for column in resource.columns.iter().filter(|one| one.0 != "Handler") {
            let definition = definition(column);
            assert_ne!(definition["description"], "", "{}", column.0);
        }
    }
}

/// Recorded too.
#[test]
fn cells_of_custom_resources() {
    let path = |name: &str, kind: &str| serde_json::json!({"name": name, "type": kind, "jsonPath": format!(".spec.{name}")});
    let mut resource = scale_resource(false);
    resource.columns = custom_columns(&[
        path("a", "string"),
        path("b", "integer"),
        path("c", "number"),
        path("d", "date"),
        path("e", "string"),
        path("f", "string"),
        path("missing", "string"),
        path("e", "boolean"),
    ]);
    let object = serde_json::json!({
        "metadata": {"name": "n"},
        "spec": {"a": null, "b": 2.7, "c": 3, "d": "", "e": 1.5, "f": {"b": [1], "a": "<x>"}},
    });
    let now = "2026-01-01T00:00:00Z".parse().unwrap();
    assert_eq!(
        Value::from(cells(&resource, &object, now)),
        serde_json::json!([
            "n",
            "<no value>",
            2,
            3,
            "<unknown>",
            "1.5",
            "{\"a\":\"\\u003cx\\u003e\",\"b\":[1]}",
            null,
            null,
        ])
    );
}
