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
        for column in &resource.columns {
            let definition = definition(column);
            assert_ne!(definition["description"], "", "{}", column.0);
        }
    }
}
