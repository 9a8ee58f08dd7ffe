//! Everything that is served at the moment: built-in resources, and custom ones as they come and go.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::crd::Definition;
use crate::resource::{self, Resource};
use crate::schema::Types;
use crate::served::Served;

#[derive(Debug, Clone, Default)]
pub struct Catalogue {
    served: FxHashMap<(String, String, String), Arc<Served>>,
    /// In the order of discovery.
    resources: Vec<Arc<Resource>>,
    definitions: Vec<Arc<Definition>>,
}

impl Catalogue {
    pub fn builtin() -> Self {
        let mut catalogue = Self::default();
        for resource in resource::builtin() {
            if let Some(served) = Served::builtin(resource.clone()) {
                catalogue.add(Arc::new(served));
            }
        }
        catalogue
    }

    pub fn add(&mut self, served: Arc<Served>) {
        let resource = served.resource.clone();
        let key = (
            resource.group.clone(),
            resource.version.clone(),
            resource.plural.clone(),
        );
        self.resources.push(resource);
        self.served.insert(key, served);
    }

    pub fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Arc<Served>> {
        self.served
            .get(&(group.to_owned(), version.to_owned(), plural.to_owned()))
    }

    /// Any version of a resource; all share the objects.
    pub fn find_any(&self, group: &str, plural: &str) -> Option<&Arc<Served>> {
        self.resources
            .iter()
            .find(|one| one.group == group && one.plural == plural)
            .and_then(|one| self.find(group, &one.version, plural))
    }

    pub fn find_kind(&self, api_version: &str, kind: &str) -> Option<&Arc<Served>> {
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        self.resources
            .iter()
            .find(|one| one.group == group && one.version == version && one.kind == kind)
            .and_then(|one| self.find(group, version, &one.plural))
    }

    pub fn add_definition(&mut self, definition: Arc<Definition>) {
        self.definitions.push(definition);
    }

    /// Those that are served.
    pub fn definitions(&self) -> &[Arc<Definition>] {
        &self.definitions
    }

    pub fn resources(&self) -> &[Arc<Resource>] {
        &self.resources
    }

    pub fn all(&self) -> impl Iterator<Item = &Arc<Served>> {
        self.served.values()
    }

    /// Why an object of this kind is not one of `own_kind`, in Kubernetes' words.
    pub fn why_not(&self, kind: &str, version: &str, own_group: &str, own_kind: &str) -> String {
        let (group, plain) = version.split_once('/').unwrap_or(("", version));
        let found =
            resource::builtin_type(group, plain, kind).filter(|_| own_kind != "DeleteOptions");
        match found {
            None => format!(
                "no kind {} is registered for version {} in scheme \"pkg/runtime/scheme.go:111\"",
                plimsoll_golang::strconv::quote(kind),
                plimsoll_golang::strconv::quote(version)
            ),
            Some(id) => format!(
                "converting ({}) to ({}.{own_kind}): unknown conversion",
                Types::builtin().get(id).go_name,
                package(own_group)
            ),
        }
    }
}

/// What Go calls the package of a group's own types.
fn package(group: &str) -> &str {
    match group {
        "" => "core",
        "meta.k8s.io" => "v1",
        group => group.split('.').next().unwrap_or(group),
    }
}
