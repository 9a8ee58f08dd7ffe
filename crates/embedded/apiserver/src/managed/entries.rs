//! `metadata.managedFields`, read and written.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::fieldset::FieldSet;

/// What one manager owns through one kind of operation.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    pub manager: String,
    pub applied: bool,
    pub api_version: String,
    pub subresource: String,
    /// RFC 3339, in seconds, so that text sorts as time does.
    pub time: Option<String>,
    pub set: FieldSet,
}

impl Entry {
    /// Entries that would have the same one are the same.
    pub fn identity(&self) -> Identity {
        let mut text = format!(
            "{{\"manager\":{},\"operation\":\"{}\"",
            json!(self.manager),
            self.operation()
        );
        // An applier stays itself when it moves to another version.
        if !self.applied {
            text.push_str(&format!(",\"apiVersion\":{}", json!(self.api_version)));
        }
        if !self.subresource.is_empty() {
            text.push_str(&format!(",\"subresource\":{}", json!(self.subresource)));
        }
        text.push('}');
        Identity(text)
    }

    pub fn operation(&self) -> &'static str {
        if self.applied { "Apply" } else { "Update" }
    }

    fn parse(value: &Value, index: usize) -> Result<Self, String> {
        let text = |name: &str| value[name].as_str().unwrap_or_default();
        let applied = match text("operation") {
            "Apply" => true,
            "Update" => false,
            _ => return Err("operation must be `Apply` or `Update`".to_owned()),
        };
        if text("apiVersion").is_empty() {
            return Err("apiVersion must not be empty".to_owned());
        }
        match text("fieldsType") {
            "FieldsV1" => {}
            "" => {
                return Err(format!(
                    "missing fieldsType in managed fields entry {index}"
                ));
            }
            other => {
                return Err(format!(
                    "invalid fieldsType {} in managed fields entry {index}",
                    plimsoll_golang::strconv::quote(other)
                ));
            }
        }
        let set = FieldSet::from_value(&value["fieldsV1"])
            .map_err(|what| format!("error decoding set: {what}"))?;
        Ok(Self {
            manager: text("manager").to_owned(),
            applied,
            api_version: text("apiVersion").to_owned(),
            subresource: text("subresource").to_owned(),
            time: value["time"].as_str().map(str::to_owned),
            set,
        })
    }

    fn to_value(&self) -> Value {
        let mut value = json!({
            "operation": self.operation(),
            "apiVersion": self.api_version,
            "fieldsType": "FieldsV1",
            "fieldsV1": self.set.to_value(),
        });
        let optional = [
            ("manager", Some(&self.manager)),
            ("subresource", Some(&self.subresource)),
            ("time", self.time.as_ref()),
        ];
        for (name, text) in optional {
            if let Some(text) = text.filter(|text| !text.is_empty()) {
                value[name] = text.as_str().into();
            }
        }
        value
    }
}

/// Ordered as the original orders managers in its messages.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Identity(String);

/// No two have the same identity.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Entries(pub Vec<Entry>);

impl Entries {
    pub fn parse(value: &Value) -> Result<Self, String> {
        let mut slots = Slots::default();
        for (index, value) in value.as_array().into_iter().flatten().enumerate() {
            slots.put(Entry::parse(value, index)?);
        }
        Ok(slots.into_entries())
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn remove(&mut self, identity: &Identity) -> Option<Entry> {
        let position = self.0.iter().position(|one| one.identity() == *identity)?;
        Some(self.0.remove(position))
    }

    /// In place of the one that it is the same as.
    pub fn put(&mut self, entry: Entry) {
        self.remove(&entry.identity());
        self.0.push(entry);
    }

    /// Applied ones first, then by time.
    pub fn to_value(&self) -> Value {
        let mut sorted: Vec<&Entry> = self.0.iter().collect();
        sorted.sort_by(|a, b| {
            let key = |one: &'_ Entry| (!one.applied, one.time.clone());
            key(a)
                .cmp(&key(b))
                .then_with(|| a.manager.cmp(&b.manager))
                .then_with(|| a.api_version.cmp(&b.api_version))
                .then_with(|| a.subresource.cmp(&b.subresource))
        });
        sorted.into_iter().map(Entry::to_value).collect()
    }

    pub fn write_to(&self, object: &mut Value) {
        if self.is_empty() {
            remove_from(object);
            return;
        }
        object["metadata"]["managedFields"] = self.to_value();
    }
}

/// Entries that are found by their identity, in the order in which they were put.
#[derive(Debug, Default)]
pub(super) struct Slots {
    entries: Vec<Option<Entry>>,
    places: BTreeMap<Identity, usize>,
}

impl Slots {
    pub fn of(entries: Entries) -> Self {
        let mut slots = Self::default();
        entries.0.into_iter().for_each(|entry| slots.put(entry));
        slots
    }

    pub fn remove(&mut self, identity: &Identity) -> Option<Entry> {
        let place = self.places.remove(identity)?;
        self.entries[place].take()
    }

    pub fn get_mut(&mut self, identity: &Identity) -> Option<&mut Entry> {
        let place = *self.places.get(identity)?;
        self.entries[place].as_mut()
    }

    /// In place of the one that it is the same as.
    pub fn put(&mut self, entry: Entry) {
        let identity = entry.identity();
        self.remove(&identity);
        self.places.insert(identity, self.entries.len());
        self.entries.push(Some(entry));
    }

    pub fn into_entries(self) -> Entries {
        Entries(self.entries.into_iter().flatten().collect())
    }
}

pub(super) fn remove_from(object: &mut Value) {
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        metadata.remove("managedFields");
    }
}

/// An empty list, or one with an empty entry.
pub(super) fn asks_to_forget(given: &Value) -> bool {
    match given.as_array().map(Vec::as_slice) {
        Some([]) => true,
        Some([Value::Object(only)]) => only.is_empty(),
        _ => false,
    }
}
