//! The classes of requests, as data.

use anyhow::Result;

use super::victim::Victim;
use super::{connections, documents, expressions, extremes, patches, queries, rights, storm};

/// One kind of hostility.
pub struct Class {
    pub name: &'static str,
    pub play: Play,
    /// How many requests the ladder sends.
    pub shots: u64,
    /// How many times as many the long run sends, between two looks at what came of it.
    pub longer: u64,
    /// Whether a restart must find again what was stored.
    pub restarts: bool,
}

pub type MakeUp = fn(&mut fastrand::Rng, u64) -> Shot;
type Whole = fn(&Victim, u64, u64) -> Result<String>;

pub enum Play {
    /// One request for each number.
    Requests(MakeUp),
    /// What takes several connections at once, or a certain order.
    Whole(Whole),
}

pub const CLASSES: &[Class] = &[
    requests("documents", documents::shot, 240, true),
    requests("patches", patches::shot, 240, true),
    requests("expressions", expressions::shot, 120, false),
    requests("extremes", extremes::shot, 400, true),
    requests("queries", queries::shot, 300, false),
    requests("rights", rights::shot, 120, false),
    whole("grants", rights::outlive, 3),
    whole("connections", connections::hold, 256),
    whole("storm", storm::blow, 60),
];

const fn requests(name: &'static str, make_up: MakeUp, shots: u64, restarts: bool) -> Class {
    Class {
        name,
        play: Play::Requests(make_up),
        shots,
        longer: 10,
        restarts,
    }
}

const fn whole(name: &'static str, play: Whole, shots: u64) -> Class {
    Class {
        name,
        play: Play::Whole(play),
        shots,
        longer: 4,
        restarts: false,
    }
}

/// Who sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tenant {
    /// Has the ClusterRole `edit` in a namespace.
    Editor,
    /// Has the ClusterRole `admin` there.
    Admin,
    /// May do nothing.
    Nobody,
}

/// One request. The path says `$ns` for the tenants' namespace.
#[derive(Debug, Clone)]
pub struct Shot {
    pub tenant: Tenant,
    pub method: &'static str,
    pub path: String,
    pub media: &'static str,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

pub const JSON: &str = "application/json";
pub const YAML: &str = "application/yaml";
pub const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
pub const JSON_PATCH: &str = "application/json-patch+json";
pub const MERGE_PATCH: &str = "application/merge-patch+json";
pub const STRATEGIC_PATCH: &str = "application/strategic-merge-patch+json";
pub const APPLY_PATCH: &str = "application/apply-patch+yaml";

impl Shot {
    pub fn new(method: &'static str, path: String, media: &'static str, body: Vec<u8>) -> Self {
        Self {
            tenant: Tenant::Editor,
            method,
            path,
            media,
            headers: Vec::new(),
            body,
        }
    }

    /// Enough to know it by; the number and the seed make it again.
    pub fn about(&self) -> String {
        let path: String = self.path.chars().take(120).collect();
        format!(
            "{} {path} ({}, {} bytes)",
            self.method,
            self.media,
            self.body.len()
        )
    }
}
