//! Holds answers against a recording and says where they differ.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

use crate::placeholder::{Kind, Placeholder};
use crate::run::Outcome;

/// One place where an answer is not what was recorded.
#[derive(Debug)]
pub struct Difference {
    /// JSON pointer into the answer.
    pub place: String,
    pub expected: String,
    pub got: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            place,
            expected,
            got,
        } = self;
        write!(f, "{place}: expected {expected}, got {got}")
    }
}

const ABSENT: &str = "(absent)";

/// The differences of each step, in order.
pub fn compare(recorded: &[Value], outcome: &Outcome) -> Vec<Vec<Difference>> {
    let mut comparison = Comparison {
        namespace: &outcome.namespace,
        bound: BTreeMap::new(),
        differences: Vec::new(),
    };
    recorded
        .iter()
        .zip(&outcome.answers)
        .map(|(expected, got)| {
            let mut expected = expected.clone();
            if let Value::Object(fields) = &mut expected {
                fields.remove("do");
            }
            comparison.value("", &expected, got);
            std::mem::take(&mut comparison.differences)
        })
        .collect()
}

struct Comparison<'a> {
    namespace: &'a str,
    /// What each numbered placeholder stood for when it was first met in this run.
    bound: BTreeMap<Placeholder, String>,
    differences: Vec<Difference>,
}

impl Comparison<'_> {
    fn value(&mut self, place: &str, expected: &Value, got: &Value) {
        match (expected, got) {
            (Value::Object(expected), Value::Object(got)) => self.fields(place, expected, got),
            (Value::Array(expected), Value::Array(got)) => {
                for index in 0..expected.len().max(got.len()) {
                    let place = format!("{place}/{index}");
                    self.optional(&place, expected.get(index), got.get(index));
                }
            }
            (Value::String(expected), Value::String(got)) => self.text(place, expected, got),
            (Value::String(expected), Value::Number(got))
                if Placeholder::at_start(expected).is_some() =>
            {
                self.text(place, expected, &got.to_string());
            }
            _ if expected == got => {}
            _ => self.differ(place, expected.to_string(), got.to_string()),
        }
    }

    fn fields(
        &mut self,
        place: &str,
        expected: &serde_json::Map<String, Value>,
        got: &serde_json::Map<String, Value>,
    ) {
        // A recorded key may hold a placeholder; the answer's key that it stands for is no surprise then.
        let mut met = Vec::new();
        for (name, field) in expected {
            let key = self.real_key(name, got);
            let escaped = key.replace('~', "~0").replace('/', "~1");
            self.optional(&format!("{place}/{escaped}"), Some(field), got.get(&key));
            met.push(key);
        }
        for (name, field) in got {
            if !met.contains(name) {
                let escaped = name.replace('~', "~0").replace('/', "~1");
                self.optional(&format!("{place}/{escaped}"), None, Some(field));
            }
        }
    }

    fn real_key(&mut self, name: &str, got: &serde_json::Map<String, Value>) -> String {
        if got.contains_key(name) || !name.contains('<') {
            return name.to_owned();
        }
        let found = got.keys().find(|key| self.matches(name, key).is_ok());
        found.map_or_else(|| name.to_owned(), Clone::clone)
    }

    fn optional(&mut self, place: &str, expected: Option<&Value>, got: Option<&Value>) {
        match (expected, got) {
            (Some(expected), Some(got)) => self.value(place, expected, got),
            (Some(expected), None) => self.differ(place, expected.to_string(), ABSENT.to_owned()),
            (None, Some(got)) => self.differ(place, ABSENT.to_owned(), got.to_string()),
            (None, None) => {}
        }
    }

    fn text(&mut self, place: &str, expected: &str, got: &str) {
        if let Err(reason) = self.matches(expected, got) {
            let reason = reason.map_or(String::new(), |reason| format!(" ({reason})"));
            self.differ(place, format!("{expected:?}"), format!("{got:?}{reason}"));
        }
    }

    /// `Err` with a reason where the words alone do not show it.
    fn matches(&mut self, expected: &str, got: &str) -> Result<(), Option<String>> {
        let (mut expected, mut got) = (expected, got);
        while !expected.is_empty() {
            let Some((placeholder, length)) = Placeholder::at_start(expected) else {
                let mut letters = expected.char_indices().skip(1);
                let next = letters.find(|(_, letter)| *letter == '<');
                let next = next.map_or(expected.len(), |(at, _)| at);
                got = got.strip_prefix(&expected[..next]).ok_or(None)?;
                expected = &expected[next..];
                continue;
            };
            expected = &expected[length..];
            if placeholder.kind == Kind::Namespace {
                got = got.strip_prefix(self.namespace).ok_or(None)?;
                continue;
            }
            let extent = placeholder.extent(got).ok_or(None)?;
            if placeholder.number.is_some() {
                self.bind(placeholder, &got[..extent]).map_err(Some)?;
            }
            got = &got[extent..];
        }
        if got.is_empty() { Ok(()) } else { Err(None) }
    }

    /// The same placeholder is the same thing everywhere in a case, and another one is another thing.
    fn bind(&mut self, placeholder: Placeholder, value: &str) -> Result<(), String> {
        if let Some(known) = self.bound.get(&placeholder) {
            if known == value {
                return Ok(());
            }
            return Err(format!("{} was {known} before", placeholder.text()));
        }
        let same_kind = self
            .bound
            .iter()
            .filter(|(other, _)| other.kind == placeholder.kind);
        for (other, known) in same_kind {
            if known == value {
                return Err(format!("that is {}", other.text()));
            }
            if placeholder.kind != Kind::Version {
                continue;
            }
            let (number, known_number) = (value.parse::<u64>().ok(), known.parse::<u64>().ok());
            if (placeholder < *other) != (number < known_number) {
                return Err(format!("{} is {known}", other.text()));
            }
        }
        self.bound.insert(placeholder, value.to_owned());
        Ok(())
    }

    fn differ(&mut self, place: &str, expected: String, got: String) {
        self.differences.push(Difference {
            place: if place.is_empty() { "/" } else { place }.to_owned(),
            expected,
            got,
        });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(recorded: &[Value], answers: &[Value], expected: &[&str]) {
        let outcome = Outcome {
            namespace: "t-abc".to_owned(),
            host: "127.0.0.1:1".to_owned(),
            answers: answers.to_vec(),
        };
        let found: Vec<String> = compare(recorded, &outcome)
            .iter()
            .flatten()
            .map(Difference::to_string)
            .collect();
        assert_eq!(found, expected);
    }

    fn object(version: &str) -> Value {
        json!({"metadata": {"resourceVersion": version, "namespace": "<ns>"}})
    }

    fn answer(version: &str) -> Value {
        json!({"metadata": {"resourceVersion": version, "namespace": "t-abc"}})
    }

    #[test]
    fn versions_keep_their_order() {
        let recorded = [object("<rv-1>"), object("<rv-2>"), object("<rv-1>")];
        check(&recorded, &[answer("7"), answer("9"), answer("7")], &[]);
        check(
            &recorded,
            &[answer("9"), answer("7"), answer("8")],
            &[
                "/metadata/resourceVersion: expected \"<rv-2>\", got \"7\" (<rv-1> is 9)",
                "/metadata/resourceVersion: expected \"<rv-1>\", got \"8\" (<rv-1> was 9 before)",
            ],
        );
    }

    #[test]
    fn what_is_missing_or_too_much() {
        check(
            &[json!({"do": "GET /", "a": 1, "b": [1, 2], "c": "<none>"})],
            &[json!({"b": [1], "c": "<none>", "d": true})],
            &[
                "/a: expected 1, got (absent)",
                "/b/1: expected 2, got (absent)",
                "/d: expected (absent), got true",
            ],
        );
    }

    #[test]
    fn placeholders_inside_text_and_keys() {
        let uid = "0b7c6a5e-1111-4222-8333-444444444444";
        check(
            &[json!({"m": "uid <uid-1> in <ns>", "k:<uid-1>": 1, "p": "<nodeport-1>"})],
            &[json!({"m": format!("uid {uid} in t-abc"), (format!("k:{uid}")): 1, "p": 30123})],
            &[],
        );
    }
}
