//! Who asks, and whether they may.

use std::collections::BTreeMap;

/// An identity, as tokens, certificates and reviews have it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct User {
    pub name: String,
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: BTreeMap<String, Vec<String>>,
}
