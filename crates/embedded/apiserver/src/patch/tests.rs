//! Replays what a kube-apiserver 1.36.3 made of patches: `testdata/patches.jsonl`, one patch a line.

use serde::Deserialize;

use super::*;
use crate::resource::builtin_type;

#[derive(Deserialize)]
struct Recorded {
    case: String,
    group: String,
    version: String,
    kind: String,
    #[serde(rename = "type")]
    media_type: String,
    body: String,
    /// The text `previous`: what the patch before left.
    before: Value,
    code: u16,
    after: Value,
}

impl Recorded {
    fn replay(&self) {
        let id = builtin_type(&self.group, &self.version, &self.kind).unwrap();
        let (types, shape) = (Types::builtin(), Shape::Struct(id));
        let kind = PatchKind::from_media_type(&self.media_type).unwrap();
        let patched = apply(
            kind,
            types,
            &shape,
            &self.before,
            self.body.as_bytes(),
            true,
        );
        let about = format!("{}: {}", self.case, self.body);
        let message = self.after["message"].as_str().unwrap_or_default();
        match (patched, self.code) {
            (Ok(patched), 200) => {
                check_taken_over(&patched.object, &self.after, "", &about);
                check_gone(&self.before, &patched.object, &self.after, "", &about);
            }
            (Err(failure), 400..) => assert_eq!(failure.to_value(), self.after, "{about}"),
            (Ok(patched), 422) if message.starts_with(" \"\"") => {
                let ours = patched.refuse(types, &shape, "").message;
                assert!(message.starts_with(&ours), "{about}\n{ours}\n{message}");
            }
            // Refused later on, for what the object became.
            (Ok(_), 400 | 409 | 422 | 500) => {
                let of_kind = message.starts_with(&format!("{} ", self.kind));
                let of_object = message.starts_with("the name") || message.starts_with("strconv");
                assert!(of_kind || of_object, "{about}: {message}");
            }
            (other, code) => panic!("{about}: {code} in place of {other:?}"),
        }
    }
}

/// Not the patch's to decide.
const THE_SERVERS: [&str; 7] = [
    "managedFields",
    "resourceVersion",
    "generation",
    "uid",
    "creationTimestamp",
    "status",
    "unknown",
];

/// What the patch made is in the answer, which has defaults on top.
fn check_taken_over(ours: &Value, theirs: &Value, path: &str, about: &str) {
    match (ours, theirs) {
        (Value::Null, _) => {}
        (Value::Object(ours), theirs) => {
            for (name, ours) in ours {
                if !THE_SERVERS.contains(&name.as_str()) {
                    check_taken_over(ours, &theirs[name], &format!("{path}.{name}"), about);
                }
            }
        }
        (Value::Array(ours), Value::Array(theirs)) => {
            assert_eq!(ours.len(), theirs.len(), "{about}: {path}");
            for (index, (ours, theirs)) in ours.iter().zip(theirs).enumerate() {
                check_taken_over(ours, theirs, &format!("{path}[{index}]"), about);
            }
        }
        (ours, theirs) => assert_eq!(ours, theirs, "{about}: {path}"),
    }
}

/// What was there before and is no more has been taken away by us too.
fn check_gone(before: &Value, ours: &Value, theirs: &Value, path: &str, about: &str) {
    let (Value::Object(before), Value::Object(ours)) = (before, ours) else {
        return;
    };
    for (name, was) in before {
        if THE_SERVERS.contains(&name.as_str()) {
            continue;
        }
        let (path, is) = (format!("{path}.{name}"), ours.get(name));
        assert!(
            is.is_none() || !theirs[name].is_null() || is_empty(is),
            "{about}: {path}"
        );
        if let Some(is) = is {
            check_gone(was, is, &theirs[name], &path, about);
        }
    }
}

fn is_empty(value: Option<&Value>) -> bool {
    match value {
        Some(Value::Object(fields)) => fields.is_empty(),
        Some(Value::Array(values)) => values.is_empty(),
        _ => false,
    }
}

#[test]
fn patches_do_what_they_do_in_the_original() {
    let mut previous = Value::Null;
    let mut count = 0;
    for line in include_str!("../../testdata/patches.jsonl").lines() {
        let mut recorded: Recorded = serde_json::from_str(line).unwrap();
        if recorded.before == "previous" {
            recorded.before = previous;
        }
        recorded.replay();
        count += 1;
        previous = match recorded.code {
            200 => recorded.after,
            _ => recorded.before,
        };
    }
    assert!(count > 80, "{count}");
}
