//! Verdicts and what they say.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::plugin::Plugin;
use crate::model::{Names, ResourceId};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Code {
    /// Evicting pods might help.
    Unschedulable,
    /// Nothing that preemption does can help.
    Unresolvable,
    /// Somebody else will do something about it.
    Pending,
    /// The plugin cannot tell.
    Error,
}

impl Code {
    pub fn is_rejection(self) -> bool {
        self != Self::Error
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Reason {
    Text(&'static str),
    Insufficient(ResourceId),
    Worded(Arc<str>),
}

impl Reason {
    pub fn text(&self, names: &Names) -> String {
        match self {
            Self::Text(text) => (*text).to_owned(),
            Self::Insufficient(resource) => {
                format!("Insufficient {}", names.resource_name(*resource))
            }
            Self::Worded(text) => text.to_string(),
        }
    }
}

/// One reason, mostly, which takes no allocation.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Reasons {
    One([Reason; 1]),
    Several(Vec<Reason>),
}

impl std::ops::Deref for Reasons {
    type Target = [Reason];

    fn deref(&self) -> &[Reason] {
        match self {
            Self::One(reason) => reason,
            Self::Several(reasons) => reasons,
        }
    }
}

impl From<Reason> for Reasons {
    fn from(reason: Reason) -> Self {
        Self::One([reason])
    }
}

impl From<Vec<Reason>> for Reasons {
    fn from(reasons: Vec<Reason>) -> Self {
        Self::Several(reasons)
    }
}

/// Why not.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Refusal {
    pub code: Code,
    pub reasons: Reasons,
}

impl Refusal {
    pub fn unschedulable(text: &'static str) -> Self {
        Self::new(Code::Unschedulable, text)
    }

    pub fn unresolvable(text: &'static str) -> Self {
        Self::new(Code::Unresolvable, text)
    }

    pub fn new(code: Code, text: &'static str) -> Self {
        Self {
            code,
            reasons: Reason::Text(text).into(),
        }
    }

    pub fn worded(code: Code, text: impl Into<Arc<str>>) -> Self {
        Self {
            code,
            reasons: Reason::Worded(text.into()).into(),
        }
    }

    pub fn message(&self, names: &Names) -> String {
        let texts: Vec<_> = self
            .reasons
            .iter()
            .map(|reason| reason.text(names))
            .collect();
        texts.join(", ")
    }
}

pub type Verdict = Result<(), Refusal>;

/// A refusal by a plugin, as a number: that is what is kept by node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StatusId(u32);

impl StatusId {
    pub const FITS: Self = Self(0);
}

#[derive(Debug, Clone)]
pub struct Status {
    pub plugin: Plugin,
    pub refusal: Refusal,
}

#[derive(Debug, Default)]
pub struct Statuses {
    list: Vec<Status>,
    ids: FxHashMap<(Plugin, Refusal), StatusId>,
}

impl Statuses {
    pub fn id(&mut self, plugin: Plugin, refusal: Refusal) -> StatusId {
        let key = (plugin, refusal);
        if let Some(id) = self.ids.get(&key) {
            return *id;
        }
        self.list.push(Status {
            plugin,
            refusal: key.1.clone(),
        });
        let id = StatusId(u32::try_from(self.list.len()).unwrap_or(u32::MAX));
        self.ids.insert(key, id);
        id
    }

    /// `None`: it fits.
    pub fn get(&self, id: StatusId) -> Option<&Status> {
        self.list.get((id.0 as usize).checked_sub(1)?)
    }

    /// Numbers are small and dense.
    pub fn index(id: StatusId) -> usize {
        id.0 as usize
    }

    pub fn from_index(index: usize) -> StatusId {
        StatusId(u32::try_from(index).unwrap_or(u32::MAX))
    }
}
