//! The user of a request.

use std::collections::BTreeMap;

pub const ANONYMOUS: &str = "system:anonymous";
pub const AUTHENTICATED: &str = "system:authenticated";
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
/// May do everything, without being asked about.
pub const MASTERS: &str = "system:masters";

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UserInfo {
    pub name: String,
    pub uid: String,
    pub groups: Vec<String>,
    pub extra: BTreeMap<String, Vec<String>>,
}

impl UserInfo {
    pub fn anonymous() -> Self {
        Self {
            name: ANONYMOUS.to_owned(),
            groups: vec![UNAUTHENTICATED.to_owned()],
            ..Self::default()
        }
    }

    /// May do everything.
    pub fn master(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            groups: vec![MASTERS.to_owned(), AUTHENTICATED.to_owned()],
            ..Self::default()
        }
    }

    /// A node, as its certificate would say.
    pub fn node(name: &str) -> Self {
        Self {
            name: format!("system:node:{name}"),
            groups: vec!["system:nodes".to_owned(), AUTHENTICATED.to_owned()],
            ..Self::default()
        }
    }

    pub fn is_anonymous(&self) -> bool {
        self.name == ANONYMOUS
    }

    pub fn in_group(&self, group: &str) -> bool {
        self.groups.iter().any(|g| g == group)
    }

    /// As one whose identity was established. A front proxy may hand on somebody who has none: they stay so.
    pub fn authenticated(mut self) -> Self {
        if !self.is_anonymous() && !self.in_group(AUTHENTICATED) && !self.in_group(UNAUTHENTICATED)
        {
            self.groups.push(AUTHENTICATED.to_owned());
        }
        self
    }
}
