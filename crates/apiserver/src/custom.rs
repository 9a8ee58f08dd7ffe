//! Custom resources on the server's side: definitions settled, their resources served, and removed with them.

use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::catalogue::Catalogue;
use crate::codec::time::show_seconds;
use crate::controllers::{self, Removal};
use crate::crd::{Definition, Version, names};
use crate::field::FieldError;
use crate::kinds::names::NameRule;
use crate::kinds::{Kind, Lookup, metadata};
use crate::managed::{Reset, Tracking, structural};
use crate::resource::builtin_type;
use crate::rest::track::forget_what_it_is;
use crate::rest::{is_being_deleted, meta};
use crate::schema::{Shape, Types};
use crate::served::Served;
use crate::server::Server;
use crate::store::Expect;

pub const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";

/// One version of a definition, with what merging needs to know.
#[derive(Debug)]
pub struct Custom {
    definition: Arc<Definition>,
    version: usize,
    types: Types,
    shape: Shape,
}

impl Custom {
    pub fn new(definition: Arc<Definition>, version: &str) -> Option<Self> {
        let version = definition
            .versions
            .iter()
            .position(|one| one.name == version)?;
        let (types, shape) = structural::from_schema(&definition.versions[version].document);
        Some(Self {
            definition,
            version,
            types,
            shape,
        })
    }

    pub fn version(&self) -> &Version {
        &self.definition.versions[self.version]
    }

    /// The fields of an object that a version of the definition does not know.
    pub fn unknown_to(&self, api_version: &str, object: &Value) -> Vec<String> {
        let name = api_version.rsplit('/').next().unwrap_or_default();
        let version = self.definition.versions.iter().find(|one| one.name == name);
        version.map_or_else(Vec::new, |version| version.unknown(object))
    }

    pub fn types(&self) -> (&Types, &Shape) {
        (&self.types, &self.shape)
    }

    /// A stored object as this version shows it.
    pub fn present(&self, stored: &Bytes) -> Bytes {
        let Ok(mut object) = serde_json::from_slice::<Value>(stored) else {
            return stored.clone();
        };
        let storage = self.definition.versions.iter().find(|one| one.storage);
        if let Some(storage) = storage {
            object["apiVersion"] = format!("{}/{}", self.definition.group, storage.name).into();
        }
        let mut shown = self.definition.present(object, self.version());
        forget_what_it_is(&mut shown);
        serde_json::to_vec(&shown).map_or_else(|_| stored.clone(), Bytes::from)
    }

    /// With kind and version, which schemas may speak of.
    fn whole(&self, object: &Value) -> Value {
        let mut whole = object.clone();
        whole["kind"] = self.definition.kind.as_str().into();
        whole["apiVersion"] = format!("{}/{}", self.definition.group, self.version().name).into();
        whole
    }
}

impl Kind for Custom {
    fn default(&self, object: &mut Value) {
        self.version().fill_defaults(object);
    }

    fn prepare_create(&self, object: &mut Value) {
        self.version().prepare_create(object);
    }

    fn prepare_update(&self, new: &mut Value, old: &Value) {
        self.version().prepare_update(new, old);
    }

    fn prepare_status_update(&self, new: &mut Value, old: &Value) {
        self.version().prepare_status_update(new, old);
    }

    fn validate_create(&self, object: &Value) -> Vec<FieldError> {
        let namespaced = self.version().resource.namespaced();
        let errors = metadata::validate_metadata_create(
            &object["metadata"],
            namespaced,
            NameRule::Subdomain,
        );
        self.version().validate_create(&self.whole(object), errors)
    }

    fn validate_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let namespaced = self.version().resource.namespaced();
        let meta = &new["metadata"];
        let mut errors = metadata::validate_metadata_update(meta, &old["metadata"]);
        if !meta["resourceVersion"].is_null() {
            // Three come by and look at it, and each says what is wrong.
            errors.extend(errors.clone());
            let rule = NameRule::Subdomain;
            errors.extend(metadata::validate_metadata_create(meta, namespaced, rule));
        }
        let (new, old) = (self.whole(new), self.whole(old));
        self.version().validate_update(&new, &old, errors)
    }

    fn validate_status_update(&self, new: &Value, old: &Value) -> Vec<FieldError> {
        let errors = metadata::validate_metadata_update(&new["metadata"], &old["metadata"]);
        let (new, old) = (self.whole(new), self.whole(old));
        self.version().validate_status_update(&new, &old, errors)
    }

    fn warnings(&self, object: &Value, old: Option<&Value>) -> Vec<String> {
        self.version().warnings(object, old)
    }
}

/// The first thing that a deletion does to a definition: its objects go before it.
pub fn mark_for_removal(definition: &mut Value, now: Timestamp) {
    names::set_condition(
        definition,
        "Terminating",
        "True",
        "InstanceDeletionPending",
        "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
        now,
    );
    let held = definition["metadata"]["finalizers"].as_array_mut();
    match held {
        Some(held) if held.iter().any(|one| one == names::CLEANUP_FINALIZER) => {}
        Some(held) => held.push(names::CLEANUP_FINALIZER.into()),
        None => definition["metadata"]["finalizers"] = json!([names::CLEANUP_FINALIZER]),
    }
}

/// The server itself owns what it writes into a definition's status.
fn own_status(mut before: Value, after: &mut Value, now: Timestamp) {
    const GROUP: &str = "apiextensions.k8s.io";
    const KIND: &str = "CustomResourceDefinition";
    let Some(id) = builtin_type(GROUP, "v1", KIND) else {
        return;
    };
    let api_version = format!("{GROUP}/v1");
    for definition in [&mut before, &mut *after] {
        definition["kind"] = KIND.into();
        definition["apiVersion"] = api_version.as_str().into();
    }
    let tracking = Tracking {
        types: Types::builtin(),
        shape: &Shape::Struct(id),
        api_version: &api_version,
        kind: KIND,
        subresource: "status",
        reset: &Reset::builtin(GROUP, "customresourcedefinitions", "status"),
        versions: &[&api_version],
    };
    tracking.update(Some(&before), after, "kube-apiserver", &show_seconds(now));
    forget_what_it_is(after);
}

impl Server {
    /// Accepts definitions' names, and serves what is accepted.
    pub(crate) async fn settle_definitions(&self) {
        let now = Timestamp::now();
        let all = self.list(DEFINITIONS, "");
        for definition in &all {
            let name = meta(definition, "name");
            let Some(current) = self.store().get(DEFINITIONS, name) else {
                continue;
            };
            let mut object = current.value();
            let others: Vec<Value> = all
                .iter()
                .filter(|one| meta(one, "name") != name)
                .cloned()
                .collect();
            let before = object.clone();
            if names::reconcile(&mut object, &others, now) {
                own_status(before, &mut object, now);
                let attributes = current.attributes().into_owned();
                let expect = Expect::Revision(current.revision);
                // Whoever was faster settles it in their turn.
                let _ = self
                    .store()
                    .put(DEFINITIONS, name, expect, &mut object, attributes)
                    .await;
            }
        }
        self.serve_definitions().await;
    }

    /// Makes the catalogue what the definitions say.
    async fn serve_definitions(&self) {
        for shelf in self.rebuild_catalogue() {
            self.store().end_watches(&shelf);
        }
        self.settle_services().await;
    }

    /// Says what is no longer served. One at a time: whoever has looked earlier and is done later would bring back what
    /// is gone.
    fn rebuild_catalogue(&self) -> Vec<Box<str>> {
        let _alone = self.rebuilding();
        let mut catalogue = Catalogue::builtin();
        for definition in self.list(DEFINITIONS, "") {
            if !names::is_served(&definition) {
                continue;
            }
            let Some(definition) = Definition::read(&definition).map(Arc::new) else {
                continue;
            };
            catalogue.add_definition(definition.clone());
            for version in definition.versions.iter().filter(|version| version.served) {
                if let Some(served) = Served::custom(definition.clone(), &version.name) {
                    catalogue.add(Arc::new(served));
                }
            }
        }
        let gone = self
            .catalogue()
            .all()
            .filter(|old| {
                catalogue
                    .find_any(&old.resource.group, &old.resource.plural)
                    .is_none()
            })
            .map(|old| old.shelf.clone())
            .collect();
        self.replace_catalogue(catalogue);
        gone
    }

    /// Deletes the objects of definitions that are to go, and then the definitions.
    pub(crate) async fn remove_definitions(&self) {
        let now = Timestamp::now();
        let going = controllers::may_be_going;
        let page = self
            .store()
            .list(DEFINITIONS, "", None, None, usize::MAX, going);
        for definition in page.map(|page| page.items).unwrap_or_default() {
            let definition = definition.value();
            let held = crate::rest::finalizers(&definition);
            if !is_being_deleted(&definition)
                || !held.iter().any(|one| one == names::CLEANUP_FINALIZER)
            {
                continue;
            }
            let shelf = meta(&definition, "name").to_owned();
            let page = self
                .store()
                .list(&shelf, "", None, None, usize::MAX, |_| true);
            let items = page.map(|page| page.items).unwrap_or_default();
            let mut left = 0;
            for item in &items {
                left += usize::from(controllers::remove(self, &shelf, item) != Removal::Gone);
            }
            // They are seen to be gone before it is: nobody serves them afterwards.
            if left == 0 && self.store().flush().await {
                self.finish_removal(&shelf, now).await;
            }
        }
    }

    async fn finish_removal(&self, name: &str, now: Timestamp) {
        let Some(current) = self.store().get(DEFINITIONS, name) else {
            return;
        };
        let mut object = current.value();
        names::finish_removal(&mut object, now);
        let expect = Expect::Revision(current.revision);
        if crate::rest::finalizers(&object).is_empty() {
            let _ = self.store().delete(DEFINITIONS, name, expect).await;
        } else {
            let attributes = current.attributes().into_owned();
            let _ = self
                .store()
                .put(DEFINITIONS, name, expect, &mut object, attributes)
                .await;
        }
        self.settle_definitions().await;
    }
}
