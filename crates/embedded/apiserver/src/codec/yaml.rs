//! YAML bodies. Kubernetes reads YAML 1.1, where `y` and `off` are booleans, and turns it into JSON first.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};

use serde::Deserialize;
use serde::de::{DeserializeSeed, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{DuplicateKeyPolicy, Error, Spanned};

use super::json::Node;
use super::objections::Objections;
use crate::depth::{MAX_DEPTH, TooDeep};

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

/// A character that two escapes may have become.
#[derive(Debug, PartialEq)]
struct Pair {
    /// Where it was written so first.
    at: usize,
    /// How often it was written as YAML has it.
    meant: usize,
    /// How often it is in what was read.
    read: usize,
}

/// The line of the first character that was written as two escapes, as JSON has it and YAML does not.
fn surrogates(text: &str, node: &Node<'_>) -> Option<u64> {
    let mut pairs = pairs(text);
    if pairs.is_empty() {
        return None;
    }
    count_meant(text, &mut pairs);
    count_read(node, &mut pairs);
    // Where it is not an escape, such as between apostrophes, it did not become a character.
    let wrong = pairs.values().filter(|pair| pair.read > pair.meant);
    let at = wrong.map(|pair| pair.at).min()?;
    let line = 1 + text[..at].matches('\n').count();
    Some(u64::try_from(line).unwrap_or(u64::MAX))
}

/// All that look like two escapes. A client chooses how many there are, so nothing is looked for once for each.
fn pairs(text: &str) -> BTreeMap<char, Pair> {
    let mut pairs = BTreeMap::new();
    for (at, _) in text.match_indices("\\u") {
        let code = |at: usize| {
            let digits = text.get(at..)?.strip_prefix("\\u")?.get(..4)?;
            u16::from_str_radix(digits, 16).ok()
        };
        let Some((high, low)) = code(at).zip(code(at + 6)) else {
            continue;
        };
        let Some(Ok(letter)) = char::decode_utf16([high, low])
            .next()
            .filter(|_| (0xd800..0xdc00).contains(&high))
        else {
            continue;
        };
        let (meant, read) = (0, 0);
        pairs.entry(letter).or_insert(Pair { at, meant, read });
    }
    pairs
}

/// A character is written as itself, or as one escape of eight digits.
fn count_meant(text: &str, pairs: &mut BTreeMap<char, Pair>) {
    for (at, letter) in text.char_indices() {
        let letter = match letter {
            '\\' => long_escape(&text[at..]),
            letter => Some(letter),
        };
        if let Some(pair) = letter.and_then(|letter| pairs.get_mut(&letter)) {
            pair.meant += 1;
        }
    }
}

/// The character of an escape of eight digits that a text begins with.
fn long_escape(text: &str) -> Option<char> {
    let digits = text
        .strip_prefix('\\')?
        .strip_prefix(['u', 'U'])?
        .get(..8)?;
    let digits =
        Some(digits).filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
    char::from_u32(u32::from_str_radix(digits?, 16).ok()?)
}

fn count_read(node: &Node<'_>, pairs: &mut BTreeMap<char, Pair>) {
    match node {
        Node::Text(text) => count_letters(text, pairs),
        Node::List(items) => items.iter().for_each(|item| count_read(item, pairs)),
        Node::Object(fields) => {
            for (name, value) in fields {
                count_letters(name, pairs);
                count_read(value, pairs);
            }
        }
        _ => {}
    }
}

fn count_letters(text: &str, pairs: &mut BTreeMap<char, Pair>) {
    for letter in text.chars() {
        if let Some(pair) = pairs.get_mut(&letter) {
            pair.read += 1;
        }
    }
}

fn at_line(line: u64, what: &str) -> String {
    match line {
        0 | 1 => format!("yaml: {what}"),
        line => format!("yaml: line {line}: {what}"),
    }
}

/// Aliases may make a document out of a text this many times longer than the text is.
const MOST_EXPANSION: usize = 16;
/// Of short texts more.
const SMALL: usize = 1 << 20;

/// So deep the reader may go on any thread: it needs a lot of stack for each level.
const ON_ANY_STACK: usize = 40;
/// For all levels there may be.
const LARGE_STACK: usize = 16 << 20;

fn parse_document(text: &str) -> Result<Parsed, Error> {
    let (parsed, is_deeper) = parse_within(text, ON_ANY_STACK);
    if !is_deeper {
        return parsed;
    }
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(LARGE_STACK);
        let deeper = thread.spawn_scoped(scope, || parse_within(text, MAX_DEPTH).0);
        match deeper.map(std::thread::ScopedJoinHandle::join) {
            Ok(Ok(deeper)) => deeper,
            // There is no further thread to be had, or it has failed.
            Ok(Err(_)) | Err(_) => parsed,
        }
    })
}

/// Whether that is not deep enough comes along.
fn parse_within(text: &str, levels: usize) -> (Result<Parsed, Error>, bool) {
    let options = serde_saphyr::options! {
        strict_booleans: false,
        duplicate_keys: DuplicateKeyPolicy::LastWins,
        with_snippet: false,
        budget: serde_saphyr::budget! {
            // The visitor says it in words of ours.
            max_depth: levels + 1,
        },
    };
    let state = State {
        levels,
        is_deeper: Cell::new(false),
        repeated: RefCell::default(),
        bytes_left: Cell::new(SMALL.max(text.len().saturating_mul(MOST_EXPANSION))),
    };
    let node = serde_saphyr::with_deserializer_from_str_with_options(text, options, |document| {
        TreeVisitor::new(&state).deserialize(document)
    });
    let is_deeper = state.is_deeper.get();
    let parsed = node.map(|node| Parsed {
        node,
        repeated: state.repeated.into_inner().into_words(),
    });
    (parsed, is_deeper)
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

/// What all visitors of a document share.
struct State {
    /// That there may be.
    levels: usize,
    is_deeper: Cell<bool>,
    repeated: RefCell<Objections>,
    /// How much more text there may be.
    bytes_left: Cell<usize>,
}

/// A key, of which the place matters.
struct Key(Node<'static>);

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // What a key is made of is charged where it is put.
        let nothing = State {
            levels: ON_ANY_STACK,
            is_deeper: Cell::new(false),
            repeated: RefCell::default(),
            bytes_left: Cell::new(usize::MAX),
        };
        deserializer
            .deserialize_any(TreeVisitor::new(&nothing))
            .map(Key)
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
struct TreeVisitor<'a> {
    state: &'a State,
    /// Lists and maps that this is within.
    depth: usize,
}

impl<'a> TreeVisitor<'a> {
    fn new(state: &'a State) -> Self {
        Self { state, depth: 0 }
    }

    /// The visitor of what is in this list or map.
    fn within<E: serde::de::Error>(self) -> Result<Self, E> {
        if self.depth >= self.state.levels {
            self.state.is_deeper.set(true);
            return Err(E::custom(TooDeep));
        }
        let depth = self.depth + 1;
        Ok(Self { depth, ..self })
    }

    fn charge<E: serde::de::Error>(self, text: &str) -> Result<(), E> {
        let left = self.state.bytes_left.get().checked_sub(text.len());
        let left = left.ok_or_else(|| E::custom("document contains excessive aliasing"))?;
        self.state.bytes_left.set(left);
        Ok(())
    }
}

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

    fn visit_str<E: serde::de::Error>(self, value: &str) -> Result<Self::Value, E> {
        self.charge(value)?;
        Ok(Node::Text(Cow::Owned(value.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let inner = self.within()?;
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(inner)? {
            list.push(item);
        }
        Ok(Node::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Self::Value, A::Error> {
        let inner = self.within()?;
        let mut object: Vec<(Cow<'static, str>, Node<'static>)> = Vec::new();
        let mut places: HashMap<Cow<'static, str>, usize> = HashMap::new();
        while let Some(key) = entries.next_key::<Spanned<Key>>()? {
            let line = key.referenced.line();
            // JSON's keys are strings, whatever YAML made of them.
            let key = match key.value.0 {
                Node::Text(text) | Node::Number(text) => text,
                Node::Bool(value) => value.to_string().into(),
                _ => "null".into(),
            };
            self.charge(&key)?;
            let value = entries.next_value_seed(inner)?;
            match places.get(&key) {
                Some(place) => {
                    let words = || format!("line {line}: key {key:?} already set in map");
                    self.state.repeated.borrow_mut().add(words);
                    object[*place].1 = value;
                }
                None => {
                    places.insert(key.clone(), object.len());
                    object.push((key, value));
                }
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

    #[test]
    fn the_limit_of_depth_is_that_of_others() {
        let flow = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        let block = |levels: usize| format!("{}a", "- ".repeat(levels));
        let indented = |levels: usize| -> String {
            let line = |level: usize| format!("{}a:\n", " ".repeat(level));
            (0..levels).map(line).collect::<String>() + &" ".repeat(levels) + "b"
        };
        for deep in [flow as fn(usize) -> String, block, indented] {
            for levels in [1, ON_ANY_STACK, ON_ANY_STACK + 1, MAX_DEPTH] {
                assert!(parse(&deep(levels)).is_ok(), "{levels}: {}", deep(levels));
            }
            let refused = parse(&deep(MAX_DEPTH + 1)).unwrap_err();
            assert!(refused.contains("deeper than 100 levels"), "{refused}");
            assert!(parse(&deep(20_000)).is_err());
        }
        assert!(parse(&format!("{}a", "? ".repeat(20_000))).is_err());
    }

    /// A short text may stand for a long one.
    #[test]
    fn what_aliases_make_is_bounded() {
        let all: String = (0..50).map(|_| "- *a\n").collect();
        let long = "x".repeat(1 << 20);
        let refused = parse(&format!("- &a {long}\n{all}")).unwrap_err();
        assert!(refused.contains("excessive aliasing"), "{refused}");
        let nested = (1..30).map(|one| format!("a{one}: &a{one} [*a{0}, *a{0}]\n", one - 1));
        let nested: String = nested.collect();
        assert!(parse(&format!("a0: &a0 x\n{nested}")).is_err());
        assert!(parse("a: &a x\nb: [*a, *a]\n").is_ok());
    }

    #[test]
    fn pairs_are_counted_as_they_are_written_and_read() {
        let text =
            "a: '\\ud83d\\ude00 \\ud83d\\ude00'\nb: \"\u{1f600}\\U0001F600\\U0001f600\\U+001f600\"";
        let mut found = pairs(text);
        count_meant(text, &mut found);
        let text = |text: &'static str| Node::Text(text.into());
        let key = "\u{1f600}".into();
        let list = Node::List(vec![text("\u{1f600}\u{1f601}"), text("\u{1f600}")]);
        count_read(&Node::Object(vec![(key, list)]), &mut found);
        let (at, meant, read) = (4, 3, 3);
        assert_eq!(
            found,
            BTreeMap::from([('\u{1f600}', Pair { at, meant, read })])
        );
        // The one that is wrong is named, not the first one.
        let text = "a: '\\ud83d\\ude00'\nb: \"\\ud83d\\ude01\"";
        let node = Node::Text("\u{1f601}".into());
        assert_eq!(surrogates(text, &node), Some(2));
    }

    /// To look through all of the body once for each pair would take a quarter of an hour or more.
    #[test]
    fn a_body_full_of_pairs_is_looked_through_once() {
        let letters = (0x10000..0x110000).filter_map(char::from_u32);
        let letters: Vec<char> = letters.take((1 << 20) / 12).collect();
        // Behind a letter that is not ASCII, nothing is quick.
        let mut text = "'é".to_owned();
        for letter in &letters {
            for half in letter.encode_utf16(&mut [0; 2]) {
                text.push_str(&format!("\\u{half:04x}"));
            }
        }
        text.push_str("'\n");
        assert_eq!(pairs(&text).len(), letters.len());
        let node = Node::Text(Cow::Borrowed(&text));
        assert_eq!(surrogates(&text, &node), None);
        let parsed = parse(&text).unwrap();
        assert!(matches!(parsed.node, Node::Text(_)));
        let last = Node::Text(letters.last().unwrap().to_string().into());
        assert_eq!(surrogates(&text, &last), Some(1));
    }
}
