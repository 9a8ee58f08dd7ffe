//! Which resources are served: names, verbs, subresources and Table columns, from `data/resources.jsonl` for the
//! built-in ones.

use std::sync::{Arc, OnceLock};

use serde::Deserialize;

use crate::schema::{TypeId, Types};
use crate::status::Subject;
use crate::table::CustomColumn;

/// One resource in one version.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Resource {
    /// Empty for the core group.
    pub group: String,
    pub version: String,
    #[serde(rename = "resource")]
    pub plural: String,
    pub singular: String,
    pub kind: String,
    pub scope: Scope,
    pub short_names: Vec<String>,
    pub categories: Vec<String>,
    pub verbs: Vec<String>,
    pub subresources: Vec<Subresource>,
    #[serde(default)]
    pub columns: Vec<Column>,
    /// Of a custom resource: the version in which objects are kept.
    #[serde(skip)]
    pub storage_version: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub enum Scope {
    Namespaced,
    Cluster,
}

/// Name, kind, verbs.
#[derive(Debug, Clone, Deserialize)]
pub struct Subresource(pub String, pub String, pub Vec<String>);

/// Name, type, format, priority; for custom resources where the cell comes from.
#[derive(Debug, Clone, Deserialize)]
pub struct Column(
    pub String,
    pub String,
    pub String,
    pub i32,
    #[serde(skip)] pub Option<Arc<CustomColumn>>,
);

impl Resource {
    /// `v1`, `apps/v1`.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() {
            self.version.clone()
        } else {
            format!("{}/{}", self.group, self.version)
        }
    }

    /// `pods`, `deployments.apps`.
    pub fn qualified(&self) -> String {
        if self.group.is_empty() {
            self.plural.clone()
        } else {
            format!("{}.{}", self.plural, self.group)
        }
    }

    pub fn namespaced(&self) -> bool {
        self.scope == Scope::Namespaced
    }

    pub fn list_kind(&self) -> String {
        format!("{}List", self.kind)
    }

    pub fn has_verb(&self, verb: &str) -> bool {
        self.verbs.iter().any(|has| has == verb)
    }

    pub fn subresource(&self, name: &str) -> Option<&Subresource> {
        self.subresources.iter().find(|one| one.0 == name)
    }

    /// For refusals that speak of the resource (`pods "x" not found`).
    pub fn as_subject(&self) -> Subject<'_> {
        Subject {
            group: &self.group,
            kind: &self.plural,
        }
    }

    /// For refusals that speak of the kind (`Pod "x" is invalid`).
    pub fn as_kind(&self) -> Subject<'_> {
        Subject {
            group: &self.group,
            kind: &self.kind,
        }
    }

    pub fn is_custom(&self) -> bool {
        self.storage_version.is_some()
    }

    /// The facts about its type, where it is built in.
    pub fn type_id(&self) -> Option<TypeId> {
        builtin_type(&self.group, &self.version, &self.kind)
    }
}

/// The facts about types, as text.
pub const TYPES: &str = include_str!("../data/types.txt");

/// The built-in resources, in the order of a real server's discovery.
pub fn builtin() -> &'static [Arc<Resource>] {
    static BUILTIN: OnceLock<Vec<Arc<Resource>>> = OnceLock::new();
    BUILTIN.get_or_init(|| {
        include_str!("../data/resources.jsonl")
            .lines()
            .filter_map(|line| serde_json::from_str(line).ok())
            .map(Arc::new)
            .collect()
    })
}

/// Where the types of a group live in Go, hence their OpenAPI names.
pub fn builtin_type(group: &str, version: &str, kind: &str) -> Option<TypeId> {
    // Every group has them.
    if kind == "DeleteOptions" {
        return Types::builtin().find("io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions");
    }
    let package = match group {
        "" => "io.k8s.api.core".to_owned(),
        "apiextensions.k8s.io" => {
            "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions".to_owned()
        }
        "apiregistration.k8s.io" => "io.k8s.kube-aggregator.pkg.apis.apiregistration".to_owned(),
        group => format!("io.k8s.api.{}", group.split('.').next().unwrap_or(group)),
    };
    Types::builtin().find(&format!("{package}.{version}.{kind}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_resource_has_a_type() {
        assert_eq!(
            builtin().len(),
            include_str!("../data/resources.jsonl").lines().count()
        );
        for resource in builtin() {
            assert!(resource.type_id().is_some(), "{}", resource.qualified());
        }
    }
}
