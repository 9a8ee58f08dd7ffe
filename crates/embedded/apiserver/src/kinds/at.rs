//! A place in an object: its value together with the path that names it, and the list of what was found wrong there.

use std::collections::HashMap;
use std::rc::Rc;

use serde_json::Value;

use super::shown;
use crate::field::{ErrorType, FieldError, Path};
use crate::met::Met;

static ABSENT: Value = Value::Null;

/// A value and where it is. What is absent has the value null.
#[derive(Debug, Clone)]
pub struct At<'v> {
    pub value: &'v Value,
    place: Option<Rc<Place<'v>>>,
}

/// Paths are put into words only when something is wrong, so this keeps the steps.
#[derive(Debug)]
struct Place<'v> {
    parent: Option<Rc<Place<'v>>>,
    step: Step<'v>,
}

#[derive(Debug)]
enum Step<'v> {
    Field(&'v str),
    Index(usize),
    Key(&'v str),
}

impl<'v> At<'v> {
    pub fn root(value: &'v Value) -> Self {
        Self { value, place: None }
    }

    fn step(&self, step: Step<'v>, value: &'v Value) -> Self {
        Self {
            value,
            place: Some(Rc::new(Place {
                parent: self.place.clone(),
                step,
            })),
        }
    }

    pub fn get(&self, field: &'v str) -> Self {
        self.step(Step::Field(field), self.value.get(field).unwrap_or(&ABSENT))
    }

    /// A field of a field.
    pub fn dig(&self, fields: &[&'v str]) -> Self {
        fields
            .iter()
            .fold(self.clone(), |place, field| place.get(field))
    }

    /// The same value at another place: Kubernetes reports some problems elsewhere than where they are.
    pub fn reported_at(&self, place: &At<'v>) -> Self {
        Self {
            value: self.value,
            place: place.place.clone(),
        }
    }

    pub fn key(&self, key: &'v str) -> Self {
        self.step(Step::Key(key), self.value.get(key).unwrap_or(&ABSENT))
    }

    pub fn item(&self, index: usize) -> Self {
        self.step(Step::Index(index), self.value.get(index).unwrap_or(&ABSENT))
    }

    pub fn items(&self) -> impl Iterator<Item = At<'v>> + use<'v> {
        let list = self.clone();
        let length = self.value.as_array().map_or(0, Vec::len);
        (0..length).map(move |index| list.item(index))
    }

    /// The texts that a field has in the items of a list.
    pub fn each(&self, field: &'v str) -> Met<&'v str> {
        self.items().map(|item| item.get(field).text()).collect()
    }

    /// The items of a list by a text in each; of those with one text the first.
    pub fn by(&self, field: &'v str) -> HashMap<&'v str, At<'v>> {
        let mut found = HashMap::with_capacity(self.len());
        for item in self.items() {
            found.entry(item.get(field).text()).or_insert(item);
        }
        found
    }

    /// The entries of a map, each at `path[key]`.
    pub fn entries(&self) -> impl Iterator<Item = (&'v str, At<'v>)> + use<'v> {
        let map = self.clone();
        let entries = self.value.as_object().into_iter().flatten();
        entries.map(move |(key, value)| (key.as_str(), map.step(Step::Key(key), value)))
    }

    /// Empty where absent, as Go has it.
    pub fn text(&self) -> &'v str {
        self.value.as_str().unwrap_or_default()
    }

    pub fn texts(&self) -> impl Iterator<Item = &'v str> + use<'v> {
        let items = self.value.as_array().into_iter().flatten();
        items.filter_map(Value::as_str)
    }

    pub fn int(&self) -> Option<i64> {
        self.value.as_i64()
    }

    /// Zero where absent.
    pub fn number(&self) -> i64 {
        self.int().unwrap_or_default()
    }

    pub fn flag(&self) -> bool {
        self.value.as_bool().unwrap_or_default()
    }

    pub fn is_set(&self) -> bool {
        !self.value.is_null()
    }

    /// Of a list, a map or a text.
    pub fn len(&self) -> usize {
        match self.value {
            Value::Array(items) => items.len(),
            Value::Object(fields) => fields.len(),
            Value::String(text) => text.len(),
            _ => 0,
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn path(&self) -> Path {
        fn words(place: Option<&Place<'_>>) -> Path {
            match place {
                None => Path::root(),
                Some(place) => {
                    let parent = words(place.parent.as_deref());
                    match place.step {
                        Step::Field(field) => parent.child(field),
                        Step::Index(index) => parent.index(index),
                        Step::Key(key) => parent.key(key),
                    }
                }
            }
        }
        words(self.place.as_deref())
    }
}

/// Collects problems in the order in which they are found, which is the order clients see.
#[derive(Debug, Default)]
pub struct Errors(
    pub Vec<FieldError>,
    /// How long they are when they are told.
    usize,
);

/// Of an object with more problems than this, the rest is not told.
const MOST_TOLD: usize = 1000;
const MOST_BYTES: usize = 1 << 20;

impl Errors {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether nothing more is told. Who is about to put many problems, or long ones, into words asks first.
    pub fn is_full(&self) -> bool {
        self.0.len() >= MOST_TOLD || self.1 >= MOST_BYTES
    }

    pub fn push(&mut self, error: FieldError) {
        if !self.is_full() {
            self.1 += error.len();
            self.0.push(error);
        }
    }

    /// What others have found.
    pub fn append(&mut self, others: &mut Self) {
        others.0.drain(..).for_each(|error| self.push(error));
        others.1 = 0;
    }

    pub fn required(&mut self, at: &At<'_>, detail: &str) {
        if self.is_full() {
            return;
        }
        self.push(FieldError::required(&at.path(), detail));
    }

    pub fn invalid(&mut self, at: &At<'_>, value: impl Into<Value>, detail: impl AsRef<str>) {
        if self.is_full() {
            return;
        }
        self.push(FieldError::invalid(&at.path(), value, detail));
    }

    /// As [`Self::invalid`], with a value that has been put into words already.
    pub fn invalid_shown(&mut self, at: &At<'_>, shown: &str, detail: impl AsRef<str>) {
        if self.is_full() {
            return;
        }
        let path = at.path();
        self.push(FieldError::with_shown(
            ErrorType::Invalid,
            &path,
            shown,
            detail.as_ref(),
        ));
    }

    pub fn forbidden(&mut self, at: &At<'_>, detail: impl AsRef<str>) {
        if self.is_full() {
            return;
        }
        self.push(FieldError::forbidden(&at.path(), detail));
    }

    pub fn duplicate(&mut self, at: &At<'_>, value: impl Into<Value>) {
        if self.is_full() {
            return;
        }
        self.push(FieldError::duplicate(&at.path(), value));
    }

    /// As [`Self::duplicate`], with a value that has been put into words already.
    pub fn duplicate_shown(&mut self, at: &At<'_>, shown: &str) {
        if self.is_full() {
            return;
        }
        self.push(FieldError::with_shown(
            ErrorType::Duplicate,
            &at.path(),
            shown,
            "",
        ));
    }

    pub fn not_found(&mut self, at: &At<'_>, value: impl Into<Value>) {
        if self.is_full() {
            return;
        }
        self.push(FieldError::not_found(&at.path(), value));
    }

    pub fn not_supported(&mut self, at: &At<'_>, supported: &[&str]) {
        if self.is_full() {
            return;
        }
        self.push(FieldError::not_supported(&at.path(), at.text(), supported));
    }

    pub fn too_long(&mut self, at: &At<'_>, max: usize) {
        if self.is_full() {
            return;
        }
        self.push(FieldError::too_long(&at.path(), max));
    }

    pub fn too_many(&mut self, at: &At<'_>, max: usize) {
        if self.is_full() {
            return;
        }
        self.push(FieldError::too_many(&at.path(), at.len(), max));
    }

    /// One error for each complaint that `rule` has about the text.
    pub fn format(&mut self, at: &At<'_>, rule: impl Fn(&str) -> Vec<String>) {
        self.format_of(at, at.text(), rule);
    }

    pub fn format_of(&mut self, at: &At<'_>, text: &str, rule: impl Fn(&str) -> Vec<String>) {
        if self.is_full() {
            return;
        }
        for complaint in rule(text) {
            self.invalid(at, text, complaint);
        }
    }

    pub fn non_empty(&mut self, at: &At<'_>) {
        if at.is_empty() {
            self.required(at, "");
        }
    }

    /// A choice that must have been made: absent is Required, anything else than `allowed` not supported.
    pub fn choice(&mut self, at: &At<'_>, allowed: &[&str]) {
        if at.text().is_empty() {
            self.required(at, "");
        } else {
            self.optional_choice(at, allowed);
        }
    }

    /// A choice that must have been made, where empty text is one.
    pub fn given_choice(&mut self, at: &At<'_>, allowed: &[&str]) {
        if at.is_set() {
            self.optional_choice(at, allowed);
        } else {
            self.required(at, "");
        }
    }

    /// A choice that may be absent.
    pub fn optional_choice(&mut self, at: &At<'_>, allowed: &[&str]) {
        if at.is_set() && !allowed.contains(&at.text()) {
            self.not_supported(at, allowed);
        }
    }

    pub fn non_negative(&mut self, at: &At<'_>) {
        if at.number() < 0 {
            self.invalid(at, at.number(), NOT_NEGATIVE);
        }
    }

    pub fn positive(&mut self, at: &At<'_>) {
        if at.number() <= 0 {
            self.invalid(at, at.number(), "must be greater than zero");
        }
    }

    /// Within bounds, ends included.
    pub fn between(&mut self, at: &At<'_>, low: i64, high: i64) {
        if !(low..=high).contains(&at.number()) {
            let detail = format!("must be between {low} and {high}, inclusive");
            self.invalid(at, at.number(), detail);
        }
    }

    pub fn immutable(&mut self, new: &At<'_>, old: &At<'_>) {
        if !self.is_full() && !same(new.value, old.value) {
            self.invalid(new, new.value.clone(), IMMUTABLE);
        }
    }

    /// As [`Self::immutable`], for a struct of a published type.
    pub fn immutable_struct(&mut self, new: &At<'_>, old: &At<'_>, of: &str) {
        if !self.is_full() && !same(new.value, old.value) {
            self.invalid_shown(new, &shown::published(new.value, of), IMMUTABLE);
        }
    }

    /// As [`Self::immutable`], where the field is a text that is shown as `""` when absent.
    pub fn immutable_text(&mut self, new: &At<'_>, old: &At<'_>) {
        if new.text() != old.text() {
            self.invalid(new, new.text(), IMMUTABLE);
        }
    }
}

pub const IMMUTABLE: &str = "field is immutable";
pub const NOT_NEGATIVE: &str = "must be greater than or equal to 0";

/// Equal in meaning: an empty list or text is as good as an absent one. An empty object is not: decoding drops maps
/// that are empty, so it is a struct that was given.
pub fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Object(a), Value::Object(b)) => {
            a.iter()
                .all(|(key, value)| same(value, b.get(key).unwrap_or(&ABSENT)))
                && b.iter()
                    .all(|(key, value)| a.contains_key(key) || same(&ABSENT, value))
        }
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (Value::Null, other) | (other, Value::Null) => is_void(other),
        (a, b) => a == b,
    }
}

/// What all values are that are the [`same`], if what is of one type is compared.
pub fn canonical(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().filter(|(_, value)| !is_void(value));
            let fields = fields.map(|(name, value)| (name.clone(), canonical(value)));
            Value::Object(fields.collect())
        }
        void if is_void(void) => Value::Null,
        Value::Array(items) => items.iter().map(canonical).collect(),
        other => other.clone(),
    }
}

fn is_void(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::String(text) => text.is_empty(),
        _ => false,
    }
}

/// The field's value or null.
pub fn field<'v>(value: &'v Value, path: &[&str]) -> &'v Value {
    path.iter()
        .fold(value, |value, field| value.get(field).unwrap_or(&ABSENT))
}

pub fn text<'v>(value: &'v Value, path: &[&str]) -> &'v str {
    field(value, path).as_str().unwrap_or_default()
}

/// Replaces `to`'s field by `from`'s, which may be absent.
pub fn carry(to: &mut Value, from: &Value, name: &str) {
    let Some(fields) = to.as_object_mut() else {
        return;
    };
    match from.get(name) {
        Some(value) => {
            fields.insert(name.to_owned(), value.clone());
        }
        None => {
            fields.remove(name);
        }
    }
}

/// Sets a field where it is absent. Empty text is absent only in fields that Go always writes, see [`fill_text`]:
/// elsewhere decoding has dropped it, or the field is a pointer and it was meant.
pub fn fill(fields: &mut serde_json::Map<String, Value>, name: &str, value: impl Into<Value>) {
    if fields.get(name).is_none_or(Value::is_null) {
        fields.insert(name.to_owned(), value.into());
    }
}

/// Takes out a map that has no entries.
pub fn drop_void(fields: &mut serde_json::Map<String, Value>, name: &str) {
    let is_void = |map: &serde_json::Map<String, Value>| map.is_empty();
    if fields
        .get(name)
        .and_then(Value::as_object)
        .is_some_and(is_void)
    {
        fields.remove(name);
    }
}

/// Sets a field where it is absent or empty text.
pub fn fill_text(fields: &mut serde_json::Map<String, Value>, name: &str, value: &str) {
    let given = fields.get(name).and_then(Value::as_str);
    if given.is_none_or(str::is_empty) {
        fields.insert(name.to_owned(), value.into());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn paths_name_what_they_lead_to() {
        let pod =
            json!({"spec": {"containers": [{"name": "a"}]}, "metadata": {"labels": {"x": "1"}}});
        let root = At::root(&pod);
        let name = root.dig(&["spec", "containers"]).item(0).get("name");
        assert_eq!(
            (name.text(), name.path().to_string().as_str()),
            ("a", "spec.containers[0].name")
        );
        let labels = root.dig(&["metadata", "labels"]);
        let (key, entry) = labels.entries().next().unwrap();
        assert_eq!(
            (key, entry.path().to_string().as_str()),
            ("x", "metadata.labels[x]")
        );
    }

    #[test]
    fn emptiness_is_absence() {
        assert!(same(&json!({"a": [], "b": 1}), &json!({"b": 1})));
        assert!(!same(&json!({"a": 0}), &json!({})));
        assert!(!same(&json!({"a": ["x"]}), &json!({"a": ["y"]})));
        let values = [
            json!({"a": [], "b": 1}),
            json!({"b": 1, "c": ""}),
            json!({"b": 1, "c": {}}),
            json!([]),
            json!(null),
            json!([null]),
            json!([[], ""]),
            json!([{"x": null}]),
            json!([{}]),
            json!(0),
        ];
        for a in &values {
            for b in &values {
                assert_eq!(same(a, b), canonical(a) == canonical(b), "{a} {b}");
            }
        }
    }
}
