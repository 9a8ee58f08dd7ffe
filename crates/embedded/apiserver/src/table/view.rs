//! Reading objects for display: whatever is absent or of another type reads as empty.

use jiff::Timestamp;
use plimsoll_golang::human_duration;
use serde_json::{Map, Value};

/// An object, or a part of one, at the moment it is shown. Paths are JSON pointers.
#[derive(Clone, Copy)]
pub struct View<'a> {
    pub value: &'a Value,
    pub now: Timestamp,
}

impl<'a> View<'a> {
    pub fn get(self, path: &str) -> Option<&'a Value> {
        self.value.pointer(path).filter(|value| !value.is_null())
    }

    pub fn part(self, path: &str) -> Option<View<'a>> {
        Some(View {
            value: self.get(path)?,
            now: self.now,
        })
    }

    pub fn has(self, path: &str) -> bool {
        self.get(path).is_some()
    }

    pub fn text(self, path: &str) -> &'a str {
        self.opt_text(path).unwrap_or_default()
    }

    pub fn opt_text(self, path: &str) -> Option<&'a str> {
        self.get(path)?.as_str()
    }

    /// The text, or a placeholder where there is none.
    pub fn text_or(self, path: &str, placeholder: &'a str) -> &'a str {
        match self.text(path) {
            "" => placeholder,
            text => text,
        }
    }

    pub fn int(self, path: &str) -> i64 {
        self.get(path).and_then(Value::as_i64).unwrap_or_default()
    }

    pub fn flag(self, path: &str) -> bool {
        self.get(path).and_then(Value::as_bool).unwrap_or_default()
    }

    pub fn list(self, path: &str) -> impl DoubleEndedIterator<Item = View<'a>> + ExactSizeIterator {
        let items = self
            .get(path)
            .and_then(Value::as_array)
            .map_or(&[][..], Vec::as_slice);
        let now = self.now;
        items.iter().map(move |value| View { value, now })
    }

    pub fn count(self, path: &str) -> usize {
        match self.get(path) {
            Some(Value::Array(items)) => items.len(),
            Some(Value::Object(map)) => map.len(),
            _ => 0,
        }
    }

    pub fn map(self, path: &str) -> Option<&'a Map<String, Value>> {
        self.get(path)?.as_object()
    }

    pub fn texts(self, path: &str) -> Vec<&'a str> {
        self.list(path)
            .filter_map(|item| item.value.as_str())
            .collect()
    }

    /// A number or a text, as text: quantities, percentages.
    pub fn scalar(self, path: &str) -> Option<String> {
        match self.get(path)? {
            Value::String(text) => Some(text.clone()),
            other => Some(other.to_string()),
        }
    }

    pub fn name(self) -> &'a str {
        self.text("/metadata/name")
    }

    pub fn since(self, path: &str) -> String {
        human_duration::since(self.opt_text(path), self.now)
    }

    pub fn age(self) -> String {
        self.since("/metadata/creationTimestamp")
    }

    pub fn time(self, path: &str) -> Option<Timestamp> {
        self.opt_text(path)?.parse().ok()
    }

    /// The status of the first condition of a type.
    pub fn condition(self, path: &str, kind: &str) -> Option<View<'a>> {
        self.list(path).find(|one| one.text("/type") == kind)
    }
}

/// `a=b,c=d`, or `<none>`.
pub fn labels(map: Option<&Map<String, Value>>) -> String {
    let pairs: Vec<String> = map
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    if pairs.is_empty() {
        return "<none>".to_owned();
    }
    pairs.join(",")
}

/// A label selector in the notation of queries; `None` for one that has no meaning.
pub fn selector(selector: Option<View<'_>>) -> Option<String> {
    let Some(selector) = selector else {
        return Some(String::new());
    };
    let mut terms: Vec<(&str, String)> = Vec::new();
    for (key, value) in selector.map("/matchLabels").into_iter().flatten() {
        let value = value.as_str().unwrap_or_default();
        terms.push((key, format!("{key}={value}")));
    }
    for term in selector.list("/matchExpressions") {
        let key = term.text("/key");
        let mut values = term.texts("/values");
        values.sort_unstable();
        let text = match (term.text("/operator"), values.is_empty()) {
            ("In", false) => format!("{key} in ({})", values.join(",")),
            ("NotIn", false) => format!("{key} notin ({})", values.join(",")),
            ("Exists", true) => key.to_owned(),
            ("DoesNotExist", true) => format!("!{key}"),
            _ => return None,
        };
        terms.push((key, text));
    }
    terms.sort_by_key(|(key, _)| *key);
    let texts: Vec<String> = terms.into_iter().map(|(_, text)| text).collect();
    Some(texts.join(","))
}

/// As [`selector`], with the placeholders of most tables.
pub fn selector_or_none(view: Option<View<'_>>) -> String {
    match selector(view) {
        None => "<error>".to_owned(),
        Some(text) if text.is_empty() => "<none>".to_owned(),
        Some(text) => text,
    }
}

/// The first few of a list, and how many more there are.
pub fn first_few(items: &[String], max: usize) -> String {
    if items.len() > max {
        return format!("{} + {} more...", items[..max].join(","), items.len() - max);
    }
    items.join(",")
}

/// The columns that name a pod template's containers and images.
pub fn containers(view: View<'_>, path: &str) -> [Value; 2] {
    let column = |field: &str| {
        let texts: Vec<&str> = view.list(path).map(|one| one.text(field)).collect();
        Value::from(texts.join(","))
    };
    [column("/name"), column("/image")]
}
