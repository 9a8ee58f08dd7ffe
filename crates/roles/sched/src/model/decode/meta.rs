//! What every object starts with, and resource lists.

use std::collections::BTreeMap;

use plimsoll_api::quantity::Quantity;
use serde::Deserialize;

use super::{DecodeError, Result};
use crate::model::amounts::Amounts;
use crate::model::selector::Labels;
use crate::model::symbol::{Names, ResourceId, Symbol, is_scalar_resource};

pub type Strings = BTreeMap<String, String>;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Meta {
    pub name: String,
    pub namespace: String,
    pub uid: String,
    pub resource_version: String,
    pub generation: i64,
    pub labels: Option<Strings>,
    pub annotations: Option<Strings>,
    pub creation_timestamp: Option<String>,
    pub deletion_timestamp: Option<String>,
    pub owner_references: Option<Vec<OwnerReference>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OwnerReference {
    pub api_version: String,
    pub kind: String,
    pub name: String,
    pub uid: String,
    pub controller: Option<bool>,
}

impl Meta {
    pub fn controller(&self) -> Option<&OwnerReference> {
        self.owner_references
            .iter()
            .flatten()
            .find(|owner| owner.controller == Some(true))
    }

    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.annotations.as_ref()?.get(key).map(String::as_str)
    }
}

pub fn labels(pairs: Option<&Strings>, names: &mut Names) -> Labels {
    pairs
        .into_iter()
        .flatten()
        .map(|(key, value)| (names.intern(key), names.intern(value)))
        .collect()
}

pub fn symbols(texts: Option<&Vec<String>>, names: &mut Names) -> Box<[Symbol]> {
    texts
        .into_iter()
        .flatten()
        .map(|text| names.intern(text))
        .collect()
}

/// A quantity may be written as a number, too.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub enum Amount {
    Text(String),
    Number(serde_json::Number),
}

impl Amount {
    pub fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Number(number) => number.to_string(),
        }
    }
}

pub type ResourceList = BTreeMap<String, Amount>;

/// Where an error is to point at.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    pub kind: &'static str,
    pub object: &'a str,
}

impl Place<'_> {
    pub fn quantity(&self, field: &str, amount: &Amount) -> Result<Quantity> {
        let text = amount.text();
        text.parse().map_err(|_| DecodeError::Quantity {
            kind: self.kind,
            object: self.object.into(),
            field: field.into(),
            text: text.into(),
        })
    }

    pub fn unknown(&self, field: &'static str, text: &str) -> DecodeError {
        DecodeError::Unknown {
            kind: self.kind,
            object: self.object.into(),
            field,
            text: text.into(),
        }
    }

    /// The resources that are counted; others are left out.
    pub fn amounts(&self, list: Option<&ResourceList>, names: &mut Names) -> Result<Amounts> {
        let mut amounts = Amounts::default();
        for (name, amount) in list.into_iter().flatten() {
            let id = match name.as_str() {
                "cpu" => ResourceId::CPU,
                "memory" => ResourceId::MEMORY,
                "ephemeral-storage" => ResourceId::EPHEMERAL_STORAGE,
                name if is_scalar_resource(name) => names.resource(name),
                _ => continue,
            };
            let quantity = self.quantity(name, amount)?;
            let value = if id == ResourceId::CPU {
                quantity.milli()
            } else {
                quantity.value()
            };
            amounts.set(id, value);
        }
        Ok(amounts)
    }
}
