//! YAML bodies. Kubernetes reads YAML 1.1, where `y` and `off` are booleans, and turns it into JSON first.

use std::borrow::Cow;
use std::cell::RefCell;

use serde::Deserialize;
use serde::de::{DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{DuplicateKeyPolicy, Error, Spanned};

use super::json::Node;

/// The first document of a text.
#[derive(Debug)]
pub struct Parsed {
    pub node: Node<'static>,
    /// Keys that are there twice, in Go's words. The last value counts.
    pub repeated: Vec<String>,
}

/// The error is in the words of the parser that Kubernetes uses: `yaml: line 2: did not find expected key`.
pub fn parse(text: &str) -> Result<Parsed, String> {
    if first_line(text).starts_with('\t') {
        return Err("yaml: found character that cannot start any token".to_owned());
    }
    match parse_document(text) {
        // What follows the first document is not looked at.
        Err(Error::MultipleDocuments { location, .. }) => {
            let seen = usize::try_from(location.line()).unwrap_or(usize::MAX);
            let lines: Vec<&str> = text.split_inclusive('\n').take(seen).collect();
            let end = lines.iter().rposition(|line| line.starts_with("---"));
            let first = lines[..end.unwrap_or(lines.len())].concat();
            parse_document(&first)
        }
        result => result,
    }
    .map_err(|error| complaint(text, &error))
    .and_then(|parsed| match surrogates(text, &parsed.node) {
        Some(line) => Err(at_line(line, NO_CHARACTER)),
        None => Ok(parsed),
    })
}

const NO_CHARACTER: &str = "found invalid Unicode character escape code";

/// The line of the first character that was written as two escapes, as JSON has it and YAML does not.
fn surrogates(text: &str, node: &Node<'_>) -> Option<u64> {
    for (at, _) in text.match_indices("\\u") {
        let code = |at: usize| {
            let digits = text.get(at..)?.strip_prefix("\\u")?.get(..4)?;
            u16::from_str_radix(digits, 16).ok()
        };
        let Some((high, low)) = code(at).zip(code(at + 6)) else {
            continue;
        };
        let Some(Ok(pair)) = char::decode_utf16([high, low])
            .next()
            .filter(|_| (0xd800..0xdc00).contains(&high))
        else {
            continue;
        };
        // Where it is not an escape, such as between apostrophes, it did not become a character.
        let long = format!("\\u{:08x}", u32::from(pair));
        let meant = text.matches(pair).count() + text.to_lowercase().matches(&long).count();
        if count(node, pair) > meant {
            let line = 1 + text[..at].matches('\n').count();
            return Some(u64::try_from(line).unwrap_or(u64::MAX));
        }
    }
    None
}

fn count(node: &Node<'_>, letter: char) -> usize {
    match node {
        Node::Text(text) => text.matches(letter).count(),
        Node::List(items) => items.iter().map(|item| count(item, letter)).sum(),
        Node::Object(fields) => fields
            .iter()
            .map(|(name, value)| name.matches(letter).count() + count(value, letter))
            .sum(),
        _ => 0,
    }
}

fn at_line(line: u64, what: &str) -> String {
    match line {
        0 | 1 => format!("yaml: {what}"),
        line => format!("yaml: line {line}: {what}"),
    }
}

fn parse_document(text: &str) -> Result<Parsed, Error> {
    let options = serde_saphyr::options! {
        strict_booleans: false,
        duplicate_keys: DuplicateKeyPolicy::LastWins,
        with_snippet: false,
    };
    let repeated = RefCell::new(Vec::new());
    let node = serde_saphyr::with_deserializer_from_str_with_options(text, options, |document| {
        TreeVisitor(&repeated).deserialize(document)
    })?;
    Ok(Parsed {
        node,
        repeated: repeated.into_inner(),
    })
}

fn first_line(text: &str) -> &str {
    text.lines()
        .find(|line| !line.trim().is_empty())
        .unwrap_or_default()
}

/// Go's parser counts lines from nought, its scanner from one, and neither says that it is the first.
fn complaint(text: &str, error: &Error) -> String {
    let said = error.to_string();
    let (line, column) = error
        .location()
        .map_or((0, 0), |place| (place.line(), place.column()));
    let at_end = u64::try_from(text.lines().count()).unwrap_or(u64::MAX);
    let scanned = if line > 1 { line } else { 0 };
    let (line, what) = if said.contains("did not find expected key") {
        (
            line.saturating_sub(1),
            "did not find expected key".to_owned(),
        )
    } else if said.contains("mapping values are not allowed") {
        (
            scanned,
            "mapping values are not allowed in this context".to_owned(),
        )
    } else if said.contains("unclosed bracket '['") {
        (at_end, "did not find expected ',' or ']'".to_owned())
    } else if said.contains("unclosed bracket '{'") {
        (at_end, "did not find expected ',' or '}'".to_owned())
    } else if said.contains("surrogate") {
        (scanned, NO_CHARACTER.to_owned())
    } else if said.contains("unknown anchor") {
        let name = alias_at(text, line, column);
        (0, format!("unknown anchor '{name}' referenced"))
    } else {
        (scanned, said)
    };
    match line {
        0 => format!("yaml: {what}"),
        line => format!("yaml: line {line}: {what}"),
    }
}

/// The name behind the asterisk.
fn alias_at(text: &str, line: u64, column: u64) -> String {
    let index = |number: u64| usize::try_from(number).unwrap_or(1).saturating_sub(1);
    let line = text.lines().nth(index(line)).unwrap_or_default();
    line.chars()
        .skip(index(column))
        .skip_while(|letter| *letter == '*')
        .take_while(|letter| letter.is_alphanumeric() || "-_".contains(*letter))
        .collect()
}

/// A key, of which the place matters.
struct Key(Node<'static>);

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let nothing = RefCell::new(Vec::new());
        deserializer.deserialize_any(TreeVisitor(&nothing)).map(Key)
    }
}

impl<'de> DeserializeSeed<'de> for TreeVisitor<'_> {
    type Value = Node<'static>;

    fn deserialize<D: serde::Deserializer<'de>>(
        self,
        deserializer: D,
    ) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

#[derive(Clone, Copy)]
struct TreeVisitor<'a>(&'a RefCell<Vec<String>>);

impl<'de> Visitor<'de> for TreeVisitor<'_> {
    type Value = Node<'static>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("YAML")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Node::Null)
    }

    fn visit_none<E>(self) -> Result<Self::Value, E> {
        Ok(Node::Null)
    }

    fn visit_some<D: serde::Deserializer<'de>>(self, inner: D) -> Result<Self::Value, D::Error> {
        inner.deserialize_any(self)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Self::Value, E> {
        Ok(Node::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Self::Value, E> {
        Ok(Node::Number(value.to_string().into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Self::Value, E> {
        Ok(Node::Number(value.to_string().into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Self::Value, E> {
        Ok(Node::Number(value.to_string().into()))
    }

    fn visit_str<E>(self, value: &str) -> Result<Self::Value, E> {
        Ok(Node::Text(Cow::Owned(value.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            list.push(item);
        }
        Ok(Node::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let mut object: Vec<(Cow<'static, str>, Node<'static>)> = Vec::new();
        while let Some(key) = entries.next_key::<Spanned<Key>>()? {
            let line = key.referenced.line();
            // JSON's keys are strings, whatever YAML made of them.
            let key = match key.value.0 {
                Node::Text(text) | Node::Number(text) => text,
                Node::Bool(value) => value.to_string().into(),
                _ => "null".into(),
            };
            let value = entries.next_value_seed(self)?;
            match object.iter_mut().find(|(present, _)| *present == key) {
                Some(present) => {
                    self.0
                        .borrow_mut()
                        .push(format!("line {line}: key {key:?} already set in map"));
                    present.1 = value;
                }
                None => object.push((key, value)),
            }
        }
        Ok(Node::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yaml_becomes_json() {
        let parsed =
            parse("a: 1\nb: [x, \"2\", null, 1.5]\nc:\n  d: yes\n  e: 'yes'\n8080: z\n").unwrap();
        assert_eq!(
            parsed.node.to_value(),
            serde_json::json!({"a": 1, "b": ["x", "2", null, 1.5], "c": {"d": true, "e": "yes"}, "8080": "z"})
        );
        assert!(parsed.repeated.is_empty());
    }

    #[test]
    fn the_last_of_two_counts_and_the_first_document() {
        let parsed = parse("a: 1\nb:\n  c: 1\n  c: 2\na: 3\n").unwrap();
        assert_eq!(
            parsed.node.to_value(),
            serde_json::json!({"a": 3, "b": {"c": 2}})
        );
        assert_eq!(
            parsed.repeated,
            [
                r#"line 4: key "c" already set in map"#,
                r#"line 5: key "a" already set in map"#
            ]
        );
        let parsed = parse("---\na: 1\n---\na: 2\n").unwrap();
        assert_eq!(parsed.node.to_value(), serde_json::json!({"a": 1}));
    }

    /// What go-yaml said to the same texts.
    #[test]
    fn complaints() {
        for (text, said) in [
            (
                "metadata:\n  name: y1\n bad: indent",
                "yaml: line 2: did not find expected key",
            ),
            ("a: [b", "yaml: line 1: did not find expected ',' or ']'"),
            (
                "a: b: c",
                "yaml: mapping values are not allowed in this context",
            ),
            (
                "\tx: y",
                "yaml: found character that cannot start any token",
            ),
            ("a: {b: *nope}\n", "yaml: unknown anchor 'nope' referenced"),
            (
                r#"{"a": "\ud83d\ude00"}"#,
                "yaml: found invalid Unicode character escape code",
            ),
            (
                "a: 1\nb: \"\\ud83d\\ude00\"",
                "yaml: line 2: found invalid Unicode character escape code",
            ),
            (
                r#"{"a": "\ud83d"}"#,
                "yaml: found invalid Unicode character escape code",
            ),
        ] {
            assert_eq!(parse(text).unwrap_err(), said);
        }
        for fine in [
            "a: '\\ud83d\\ude00'",
            "a: '\\ud83d\\ude00'\nb: \"\\U0001F600\"",
            "a: \"\\u00e9\u{1f600}\"",
            r#"a: "\\ud83d\\ude00""#,
        ] {
            assert!(parse(fine).is_ok(), "{fine}");
        }
    }
}
