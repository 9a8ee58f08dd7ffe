//! Replays what a kube-apiserver 1.36.3 was asked and what it answered: `testdata/managed.jsonl`, one write a line.

use serde::Deserialize;
use serde_json::Value;

use super::*;
use crate::resource::builtin_type;
use crate::status::StatusError;

#[derive(Deserialize)]
struct Write {
    op: String,
    why: String,
    group: String,
    version: String,
    kind: String,
    plural: String,
    manager: String,
    subresource: String,
    force: bool,
    /// The text `previous`: what the write before left.
    before: Option<Value>,
    request: Value,
    code: u16,
    after: Value,
}

impl Write {
    fn api_version(&self) -> String {
        if self.group.is_empty() {
            return self.version.clone();
        }
        format!("{}/{}", self.group, self.version)
    }

    /// The time of the write: that of the newest entry.
    fn now(&self) -> String {
        let entries = self.after["metadata"]["managedFields"].as_array();
        let times = entries.into_iter().flatten();
        times
            .filter_map(|entry| entry["time"].as_str())
            .max()
            .unwrap_or("2026-01-01T00:00:00Z")
            .to_owned()
    }

    fn replay(&self, schemas: &Value) {
        let custom = schemas.get(&self.kind).map(|of| {
            let (types, shape) = structural::from_schema(&of["schema"]);
            (
                types,
                shape,
                Reset::custom(of["status"] == true, &self.subresource),
            )
        });
        let builtin;
        let (types, shape, reset) = match &custom {
            Some((types, shape, reset)) => (types, shape, reset),
            None => {
                let id = builtin_type(&self.group, &self.version, &self.kind).unwrap();
                let reset = Reset::builtin(&self.group, &self.plural, &self.subresource);
                builtin = (Shape::Struct(id), reset);
                (Types::builtin(), &builtin.0, &builtin.1)
            }
        };
        let api_version = self.api_version();
        let tracking = Tracking {
            types,
            shape,
            api_version: &api_version,
            kind: &self.kind,
            subresource: &self.subresource,
            reset,
            versions: &[&api_version],
        };
        match (self.op.as_str(), self.code) {
            ("update", 200..300) => self.replay_update(tracking),
            ("apply", _) => self.replay_apply(tracking),
            _ => {}
        }
    }

    fn replay_update(&self, tracking: Tracking<'_>) {
        let mut new = self.after.clone();
        let given = &self.request["metadata"]["managedFields"];
        let before = self.before.as_ref();
        new["metadata"]["managedFields"] = match (given, before) {
            (Value::Null, Some(before)) => before["metadata"]["managedFields"].clone(),
            (given, _) => given.clone(),
        };
        tracking.update(before, &mut new, &self.manager, &self.now());
        if let Some(before) = before {
            keep_times(before, &mut new);
        }
        self.check_entries(&new);
    }

    fn replay_apply(&self, tracking: Tracking<'_>) {
        let before = self.before.as_ref();
        let applied = tracking.apply(
            before,
            &self.request,
            &self.manager,
            self.force,
            &self.now(),
        );
        match (applied, self.code) {
            (Ok(object), 200..300) => {
                self.check_entries(&object);
                // What a door does not let through is put back later on.
                match self.subresource.as_str() {
                    _ if self.why.ends_with("later") => {}
                    "" => self.check_within(&object, &self.after, ""),
                    _ => self.check_within(&object["status"], &self.after["status"], ".status"),
                }
            }
            (Err(failure), 400..) => self.check_failure(&failure),
            // Refused later on.
            (Ok(_), 409 | 422) => {}
            (Ok(_), 500) => {
                let message = self.after["message"].as_str().unwrap();
                let (_, why) = message.split_once(": json: ").unwrap();
                let why = format!("json: {why}");
                self.check_failure(&tracking.refuse_undecodable(&self.request, &why));
            }
            (other, code) => panic!("{}: {code} in place of {other:?}", self.why),
        }
    }

    fn check_failure(&self, failure: &StatusError) {
        assert_eq!(failure.to_value(), self.after, "{}", self.why);
    }

    fn check_entries(&self, object: &Value) {
        let (ours, theirs) = (
            &object["metadata"]["managedFields"],
            &self.after["metadata"]["managedFields"],
        );
        let why = &self.why;
        assert!(
            ours == theirs,
            "{why}: {} {}\n{ours:#}\n{theirs:#}",
            self.op,
            self.kind
        );
    }

    /// What was merged is in the answer, which has defaults on top.
    fn check_within(&self, ours: &Value, theirs: &Value, path: &str) {
        match (ours, theirs) {
            (Value::Null, _) => {}
            (Value::Object(ours), theirs) => {
                for (name, ours) in ours {
                    let volatile = ["managedFields", "resourceVersion", "generation"];
                    if !volatile.contains(&name.as_str()) {
                        self.check_within(ours, &theirs[name], &format!("{path}.{name}"));
                    }
                }
            }
            (Value::Array(ours), Value::Array(theirs)) => {
                assert_eq!(ours.len(), theirs.len(), "{}: {path}", self.why);
                for (index, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
                    self.check_within(ours, theirs, &format!("{path}[{index}]"));
                }
            }
            // Left out of answers.
            (Value::Array(ours), Value::Null) if ours.is_empty() => {}
            (Value::String(ours), Value::Null) if ours.is_empty() => {}
            (ours, theirs) => {
                let same = path::values_equal(ours, theirs);
                assert!(same, "{}: {path}: {ours} {theirs}", self.why);
            }
        }
    }
}

#[test]
fn writes_are_tracked_as_by_the_original() {
    let schemas = include_str!("../../testdata/managed-schemas.json");
    let schemas: Value = serde_json::from_str(schemas).unwrap();
    let mut previous = None;
    let mut count = 0;
    for line in include_str!("../../testdata/managed.jsonl").lines() {
        let mut write: Write = serde_json::from_str(line).unwrap();
        if write
            .before
            .as_ref()
            .is_some_and(|before| before == "previous")
        {
            write.before = previous;
        }
        write.replay(&schemas);
        count += 1;
        previous = match write.code {
            200..300 => Some(write.after),
            _ => write.before,
        };
    }
    assert!(count > 150, "{count}");
}
