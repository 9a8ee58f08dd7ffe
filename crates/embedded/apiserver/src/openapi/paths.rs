//! The operations of resources, as data: what both versions of OpenAPI are written from.

use super::operations::Writer;
use super::parameters::Parameter;
use super::schemas::META;
use crate::resource::{Resource, builtin_type};
use crate::schema::Types;

/// A path and what can be done with it.
#[derive(Debug)]
pub struct Item {
    pub path: String,
    pub operations: Vec<Operation>,
}

#[derive(Debug)]
pub struct Operation {
    pub method: &'static str,
    pub id: String,
    pub tag: String,
    pub words: String,
    pub action: Option<&'static str>,
    /// Group, version, kind.
    pub kind: Option<(String, String, String)>,
    pub parameters: Vec<Parameter>,
    pub body: Option<Body>,
    pub answers: Vec<u16>,
    pub answer: Answer,
    pub media: Media,
}

#[derive(Debug)]
pub struct Body {
    pub schema: String,
    pub required: bool,
    pub patch: bool,
}

#[derive(Debug, Clone)]
pub enum Answer {
    Of(String),
    Text,
}

/// In which forms requests and answers come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Media {
    /// JSON, YAML, protobuf.
    Standard,
    /// Those, and streams of the watch.
    Streaming,
    /// Those, and plain text.
    Log,
    /// As the other side has it.
    Any,
    /// JSON and YAML.
    Custom,
    /// Discovery: what may be sent is said too.
    Discovery,
    Json,
}

/// `rbac.authorization.k8s.io` as `RbacAuthorization`.
pub fn group_title(group: &str) -> String {
    if group.is_empty() {
        return "Core".to_owned();
    }
    let group = group.strip_suffix(".k8s.io").unwrap_or(group);
    group.split('.').map(title).collect()
}

pub fn tag(group: &str, version: Option<&str>) -> String {
    let mut title = group_title(group);
    title[..1].make_ascii_lowercase();
    match version {
        Some(version) => format!("{title}_{version}"),
        None => title,
    }
}

pub fn title(word: &str) -> String {
    // What an identifier cannot hold begins a word.
    word.split('-')
        .map(|part| {
            let mut part = part.to_owned();
            if let Some(first) = part.get_mut(..1) {
                first.make_ascii_uppercase();
            }
            part
        })
        .collect()
}

/// All paths of a group and version, by the resources it has.
pub fn of_version(group: &str, version: &str, resources: &[&Resource]) -> Vec<Item> {
    let mut items = Vec::new();
    for resource in resources {
        Writer { resource }.items(&mut items);
    }
    // Custom groups have no operation for discovery.
    if !resources.iter().any(|resource| resource.is_custom()) {
        let id = format!("get{}{}APIResources", group_title(group), title(version));
        items.push(discovery(
            format!("{}/", base(group, version)),
            id,
            &tag(group, Some(version)),
            "APIResourceList",
        ));
    }
    items.sort_by(|a, b| a.path.cmp(&b.path));
    items
}

/// Discovery of a group, of all groups, of the core versions.
pub fn discovery(path: String, id: String, tag: &str, kind: &str) -> Item {
    let operation = Operation {
        method: "get",
        id,
        tag: tag.to_owned(),
        words: "what there is".to_owned(),
        action: None,
        kind: None,
        parameters: Vec::new(),
        body: None,
        answers: vec![200],
        answer: Answer::Of(format!("{META}{kind}")),
        media: Media::Discovery,
    };
    Item {
        path,
        operations: vec![operation],
    }
}

pub fn base(group: &str, version: &str) -> String {
    if group.is_empty() {
        format!("/api/{version}")
    } else {
        format!("/apis/{group}/{version}")
    }
}

/// The name of a kind's schema.
pub fn schema_name(group: &str, version: &str, kind: &str) -> String {
    if let Some(id) = builtin_type(group, version, kind) {
        return Types::builtin().get(id).name.to_string();
    }
    // As Go packages are written: the domain backwards.
    let mut parts: Vec<&str> = group.split('.').collect();
    parts.reverse();
    format!("{}.{version}.{kind}", parts.join("."))
}
