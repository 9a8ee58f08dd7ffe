//! Placeholders for what a server chose anew in the run that is recorded.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use crate::case::Case;
use crate::placeholder::{self, Kind, Placeholder};
use crate::run::Outcome;

/// The answers with placeholders.
pub fn mask(case: &Case, outcome: &Outcome) -> Vec<Value> {
    mask_with(case.written(), case.generated_prefixes(), outcome)
}

fn mask_with(written: String, prefixes: Vec<String>, outcome: &Outcome) -> Vec<Value> {
    let mut seen = Seen {
        outcome,
        written,
        prefixes,
        uids: Vec::new(),
        versions: BTreeSet::new(),
        generated: Vec::new(),
        addresses: Vec::new(),
        ports: Vec::new(),
    };
    for answer in &outcome.answers {
        seen.learn(answer);
    }
    let versions: BTreeMap<u64, usize> = seen
        .versions
        .iter()
        .enumerate()
        .map(|(rank, version)| (*version, rank + 1))
        .collect();
    outcome
        .answers
        .iter()
        .map(|answer| {
            let mut answer = answer.clone();
            seen.mask_value(&mut answer, &versions);
            answer
        })
        .collect()
}

/// What the answers of one case name, in order of appearance; versions in their own order.
struct Seen<'a> {
    outcome: &'a Outcome,
    /// What the case itself says is no choice of the server.
    written: String,
    prefixes: Vec<String>,
    uids: Vec<String>,
    versions: BTreeSet<u64>,
    generated: Vec<String>,
    addresses: Vec<String>,
    ports: Vec<u64>,
}

/// Lists and their like have the version of the whole store, which other writers move; objects have their own.
fn is_object(fields: &Map<String, Value>) -> bool {
    let kind = fields
        .get("kind")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let is_list = kind.ends_with("List") || kind == "Table";
    !is_list && !fields.contains_key("items") && !fields.contains_key("rows")
}

fn is_bookmark(event: &Map<String, Value>) -> bool {
    event.get("type").is_some_and(|kind| kind == "BOOKMARK")
}

/// The version of an object, which is a number in every store of Kubernetes.
fn version_of(fields: &Map<String, Value>) -> Option<u64> {
    let version = fields.get("metadata")?.get("resourceVersion")?;
    version.as_str()?.parse().ok()
}

/// Phrases of messages after which a version stands.
const VERSION_PHRASES: &[&str] = &[
    "current: ",
    "ResourceVersion in precondition: ",
    "ResourceVersion in object meta: ",
    "too old resource version: ",
    "ResourceVersion in record (",
    "resourceVersion: \"",
    "\"resourceVersion\": \"",
    "Resource Version: ",
    r#"\"resourceVersion\":\""#,
    r#"\\\"resourceVersion\\\":\\\""#,
    r#""resourceVersion":""#,
];

impl Seen<'_> {
    fn learn(&mut self, value: &Value) {
        match value {
            Value::String(text) => self.learn_text(text),
            Value::Array(items) => items.iter().for_each(|item| self.learn(item)),
            Value::Object(fields) => {
                if is_bookmark(fields) {
                    return;
                }
                if is_object(fields) {
                    self.versions.extend(version_of(fields));
                }
                for (name, field) in fields {
                    self.learn_port(name, field);
                    self.learn(field);
                }
            }
            _ => {}
        }
    }

    fn learn_port(&mut self, name: &str, value: &Value) {
        if !matches!(name, "nodePort" | "healthCheckNodePort") {
            return;
        }
        if let Some(port) = value.as_u64()
            && !self.written.contains(&port.to_string())
            && !self.ports.contains(&port)
        {
            self.ports.push(port);
        }
    }

    fn learn_text(&mut self, text: &str) {
        for (start, _) in text.char_indices() {
            let rest = &text[start..];
            if let Some(length) = placeholder::uuid(rest) {
                remember(&mut self.uids, &rest[..length], &self.written);
            }
            if let Some((_, name)) = self.generated_name(rest) {
                remember(&mut self.generated, name, "");
            }
            if let Some(address) = self.service_address(text, start) {
                remember(&mut self.addresses, address, &self.written);
            }
        }
    }

    /// A name that the server made of a prefix: the prefix, and all of it.
    fn generated_name<'t>(&self, rest: &'t str) -> Option<(&'t str, &'t str)> {
        const SUFFIX: &str = "bcdfghjklmnpqrstvwxz2456789";
        self.prefixes.iter().find_map(|prefix| {
            let prefix = prefix.replace("$ns", &self.outcome.namespace);
            let suffix = rest.strip_prefix(prefix.as_str())?.get(..5)?;
            let whole = &rest[..prefix.len() + 5];
            suffix
                .chars()
                .all(|letter| SUFFIX.contains(letter))
                .then(|| (&whole[..prefix.len()], whole))
        })
    }

    /// An address of the range that the rig gives to services.
    fn service_address<'t>(&self, text: &'t str, start: usize) -> Option<&'t str> {
        let rest = &text[start..];
        if !rest.starts_with("10.0.0.") || text[..start].ends_with(|c: char| c.is_ascii_digit()) {
            return None;
        }
        let end = rest
            .find(|letter: char| !(letter.is_ascii_digit() || letter == '.'))
            .unwrap_or(rest.len());
        // 10.0.0.1 is the API server's own in every run.
        Some(&rest[..end]).filter(|address| *address != "10.0.0.1")
    }

    fn mask_value(&self, value: &mut Value, versions: &BTreeMap<u64, usize>) {
        match value {
            Value::String(text) => *text = self.mask_text(text),
            Value::Array(items) => {
                for item in items {
                    self.mask_value(item, versions);
                }
            }
            Value::Object(fields) => self.mask_fields(fields, versions),
            _ => {}
        }
    }

    fn mask_fields(&self, fields: &mut Map<String, Value>, versions: &BTreeMap<u64, usize>) {
        let bookmark = is_bookmark(fields);
        let own_version = if is_object(fields) {
            version_of(fields).and_then(|version| versions.get(&version).copied())
        } else {
            None
        };
        mask_ages(fields);
        // Keys can hold names and uids, too.
        let old = std::mem::take(fields);
        for (name, mut field) in old {
            if name == "metadata"
                && let Value::Object(metadata) = &mut field
            {
                mask_metadata(metadata, own_version);
            }
            if name == "object"
                && bookmark
                && let Some(Value::Object(metadata)) = field.get_mut("metadata")
            {
                mask_metadata(metadata, None);
            }
            if matches!(name.as_str(), "nodePort" | "healthCheckNodePort")
                && let Some(port) = field.as_u64()
                && let Some(index) = self.ports.iter().position(|known| *known == port)
            {
                field = Placeholder::numbered(Kind::NodePort, index + 1)
                    .text()
                    .into();
            }
            if name == "serverAddress" {
                field = Placeholder::any(Kind::Host).text().into();
            }
            self.mask_value(&mut field, versions);
            fields.insert(self.mask_text(&name), field);
        }
    }

    fn mask_text(&self, text: &str) -> String {
        let mut masked = String::with_capacity(text.len());
        let mut start = 0;
        while let Some(letter) = text[start..].chars().next() {
            match self.placeholder_at(text, start) {
                Some((replacement, length)) => {
                    masked.push_str(&replacement);
                    start += length;
                }
                None => {
                    masked.push(letter);
                    start += letter.len_utf8();
                }
            }
        }
        masked
    }

    fn placeholder_at(&self, text: &str, start: usize) -> Option<(String, usize)> {
        if let Some(length) = years(text, start) {
            return Some((Placeholder::any(Kind::Age).text(), length));
        }
        let rest = &text[start..];
        let any = |kind: Kind| Placeholder::any(kind).text();
        let numbered = |kind: Kind, index: usize| Placeholder::numbered(kind, index + 1).text();
        let namespace = &self.outcome.namespace;
        if let Some((prefix, name)) = self.generated_name(rest)
            && let Some(index) = position(&self.generated, name)
        {
            let prefix = prefix.replace(namespace.as_str(), &any(Kind::Namespace));
            return Some((
                format!("{prefix}{}", numbered(Kind::Generated, index)),
                name.len(),
            ));
        }
        // After generated names: such a name may begin with the namespace's.
        if rest.starts_with(namespace.as_str()) {
            return Some((any(Kind::Namespace), namespace.len()));
        }
        if rest.starts_with(self.outcome.host.as_str()) {
            return Some((any(Kind::Host), self.outcome.host.len()));
        }
        if let Some(length) = placeholder::uuid(rest)
            && let Some(index) = position(&self.uids, &rest[..length])
        {
            return Some((numbered(Kind::Uid, index), length));
        }
        if let Some(length) = placeholder::time(rest)
            && placeholder::is_recent(&rest[..length])
        {
            let kind = if length == 20 {
                Kind::Time
            } else {
                Kind::MicroTime
            };
            return Some((any(kind), length));
        }
        if let Some(length) = placeholder::token(rest) {
            return Some((any(Kind::Token), length));
        }
        if let Some(address) = self.service_address(text, start)
            && let Some(index) = position(&self.addresses, address)
        {
            return Some((numbered(Kind::Ip, index), address.len()));
        }
        let digits = rest
            .find(|letter: char| !letter.is_ascii_digit())
            .unwrap_or(rest.len());
        let after_phrase = VERSION_PHRASES
            .iter()
            .any(|phrase| text[..start].ends_with(phrase));
        (digits > 0 && after_phrase).then(|| (any(Kind::Version), digits))
    }
}

fn remember(known: &mut Vec<String>, text: &str, written: &str) {
    if position(known, text).is_none() && !written.contains(text) {
        known.push(text.to_owned());
    }
}

fn position(known: &[String], text: &str) -> Option<usize> {
    known.iter().position(|one| one == text)
}

fn mask_metadata(metadata: &mut Map<String, Value>, own_version: Option<usize>) {
    let version = Placeholder {
        kind: Kind::Version,
        number: own_version,
    };
    for (name, placeholder) in [
        ("resourceVersion", version),
        ("continue", Placeholder::any(Kind::Continue)),
    ] {
        if let Some(Value::String(text)) = metadata.get_mut(name)
            && !text.is_empty()
            && (name == "continue" || text.bytes().all(|byte| byte.is_ascii_digit()))
        {
            *text = placeholder.text();
        }
    }
}

/// The length of an age in years and days, which is another one tomorrow: `6y321d`.
fn years(text: &str, start: usize) -> Option<usize> {
    if text[..start].ends_with(|letter: char| letter.is_ascii_alphanumeric()) {
        return None;
    }
    let rest = &text[start..];
    let number = |text: &str| text.find(|letter: char| !letter.is_ascii_digit());
    let years = number(rest).filter(|length| *length > 0)?;
    let days = rest[years..].strip_prefix('y')?;
    let length = number(days).filter(|length| *length > 0)?;
    days[length..]
        .starts_with('d')
        .then_some(years + length + 2)
}

/// Cells that count seconds.
fn mask_ages(fields: &mut Map<String, Value>) {
    let columns = fields.get("columnDefinitions").and_then(Value::as_array);
    // Only the first table of a watch names its columns.
    let ages: Option<Vec<bool>> = columns.map(|columns| columns.iter().map(is_age).collect());
    let Some(Value::Array(rows)) = fields.get_mut("rows") else {
        return;
    };
    for row in rows {
        let Some(Value::Array(cells)) = row.get_mut("cells") else {
            continue;
        };
        for (index, cell) in cells.iter_mut().enumerate() {
            let is_age = ages
                .as_ref()
                .is_none_or(|ages| ages.get(index) == Some(&true));
            if let (true, Value::String(text)) = (is_age, &cell)
                && text.starts_with(|letter: char| letter.is_ascii_digit())
                && text.ends_with(|letter: char| "smhdy".contains(letter))
                && Placeholder::any(Kind::Age).extent(text) == Some(text.len())
            {
                *cell = Placeholder::any(Kind::Age).text().into();
            }
        }
    }
}

fn is_age(column: &Value) -> bool {
    let ages = ["Age", "Last Seen", "First Seen", "Last Schedule"];
    let by_name = column["name"]
        .as_str()
        .is_some_and(|name| ages.contains(&name));
    // Definitions name their columns as they like.
    by_name || column["type"] == "date"
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const UID: &str = "0b7c6a5e-1111-4222-8333-444444444444";

    fn masked(written: &str, prefix: &str, answers: Vec<Value>) -> Vec<Value> {
        let outcome = Outcome {
            namespace: "t-abc".to_owned(),
            host: "127.0.0.1:1".to_owned(),
            answers,
        };
        mask_with(written.to_owned(), vec![prefix.to_owned()], &outcome)
    }

    #[test]
    fn versions_are_numbered_in_their_own_order() {
        let object = |version: &str| json!({"metadata": {"resourceVersion": version}});
        let list = json!({"kind": "PodList", "metadata": {"resourceVersion": "7"}});
        let answers = masked(
            "",
            "none-",
            vec![object("12"), object("9"), object("12"), list],
        );
        let found: Vec<&Value> = answers
            .iter()
            .map(|answer| &answer["metadata"]["resourceVersion"])
            .collect();
        assert_eq!(found, ["<rv-2>", "<rv-1>", "<rv-2>", "<rv>"]);
    }

    #[test]
    fn what_a_server_chose_becomes_a_placeholder() {
        let now = jiff::Timestamp::now()
            .strftime("%Y-%m-%dT%H:%M:%SZ")
            .to_string();
        let answers = masked(
            "10.0.0.9 30111",
            "web-",
            vec![json!({
                "name": "web-bcdfg",
                "message": format!("{UID} in t-abc at {now}, not 2001-02-03T04:05:06Z"),
                "ips": ["10.0.0.7", "10.0.0.9", "10.0.0.1"],
                "ports": [{"nodePort": 30222}, {"nodePort": 30111}],
                "continue": "kept where it is no list's",
            })],
        );
        assert_eq!(
            answers[0],
            json!({
                "name": "web-<gen-1>",
                "message": "<uid-1> in <ns> at <time>, not 2001-02-03T04:05:06Z",
                "ips": ["<ip-1>", "10.0.0.9", "10.0.0.1"],
                "ports": [{"nodePort": "<nodeport-1>"}, {"nodePort": 30111}],
                "continue": "kept where it is no list's",
            })
        );
    }

    #[test]
    fn ages_in_years() {
        assert_eq!(years("2 (6y321d ago)", 3), Some(6));
        assert_eq!(years("2 (6y321d ago)", 0), None);
        assert_eq!(years("key6y3d", 3), None);
    }

    #[test]
    fn ages_of_tables() {
        let answers = masked(
            "",
            "none-",
            vec![json!({
                "columnDefinitions": [{"name": "Name"}, {"name": "Age"}],
                "rows": [{"cells": ["5s", "5s"]}, {"cells": ["a", "<unknown>"]}],
            })],
        );
        assert_eq!(answers[0]["rows"][0]["cells"], json!(["5s", "<age>"]));
        assert_eq!(answers[0]["rows"][1]["cells"], json!(["a", "<unknown>"]));
    }
}
