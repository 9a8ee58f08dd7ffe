//! Definitions of custom resources on the server's side: their names are accepted, what they define is served, and is
//! removed with them.
//!
//! A write costs what the definition itself costs, however many others there are: what is known of a definition is kept
//! with the revision that it was learnt from, and only those that have another are looked at.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::{Value, json};

use crate::catalogue::Catalogue;
use crate::controllers::{self, Removal};
use crate::crd::{Definition, names};
use crate::custom::DEFINITIONS;
use crate::managed::{Reset, Tracking};
use crate::resource::{self, builtin_type};
use crate::rest::track::forget_what_it_is;
use crate::rest::{is_being_deleted, meta};
use crate::schema::{Shape, Types};
use crate::served::Served;
use crate::server::Server;
use crate::store::Expect;
use plimsoll_golang::time::show_seconds;

/// What is known of all definitions.
#[derive(Debug, Default)]
pub(crate) struct Definitions {
    /// By name, which is the order of the catalogue.
    known: BTreeMap<Arc<str>, Known>,
    /// APIServices that are as they should be, and at which revision.
    pub services: FxHashMap<String, u64>,
}

#[derive(Debug)]
struct Known {
    /// Nought: its names were not settled yet.
    revision: u64,
    source: Source,
    /// Whether it has all the names that it wants.
    has_its_names: bool,
    /// `None`: it is not served.
    served: Option<Offer>,
}

/// All that what is served is made from: the same source makes the same.
#[derive(Debug, PartialEq)]
struct Source {
    uid: String,
    /// Changes with the spec.
    generation: i64,
    group: String,
    accepted_names: Value,
    established: bool,
    terminating: bool,
}

/// What a definition puts into the catalogue.
#[derive(Debug, Clone)]
struct Offer {
    definition: Arc<Definition>,
    versions: Vec<Arc<Served>>,
}

impl Source {
    fn of(definition: &Value) -> Self {
        let generation = definition["metadata"]["generation"].as_i64();
        Self {
            uid: meta(definition, "uid").to_owned(),
            generation: generation.unwrap_or_default(),
            group: definition["spec"]["group"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
            accepted_names: definition["status"]["acceptedNames"].clone(),
            established: names::is_served(definition),
            terminating: names::is_true(definition, "Terminating"),
        }
    }
}

/// Whether the server has a resource of this name itself. Its objects are not a definition's, whatever that says.
fn is_builtin(definition: &Value) -> bool {
    let spec = &definition["spec"];
    let mut builtin = resource::builtin().iter();
    builtin.any(|one| spec["group"] == one.group && spec["names"]["plural"] == one.plural)
}

impl Offer {
    fn of(definition: &Value) -> Option<Self> {
        if is_builtin(definition) {
            return None;
        }
        let definition = Arc::new(Definition::read(definition)?);
        let versions = definition.versions.iter();
        let versions = versions.filter(|version| version.served);
        Some(Self {
            versions: versions
                .filter_map(|version| Served::custom(definition.clone(), &version.name))
                .map(Arc::new)
                .collect(),
            definition,
        })
    }
}

impl Definitions {
    /// Learns what a definition says now. True: something else is to be served than before.
    fn learn(&mut self, name: &Arc<str>, revision: u64, definition: &Value) -> bool {
        let source = Source::of(definition);
        let has_its_names = names::has_its_names(definition);
        if let Some(known) = self.known.get_mut(name)
            && known.source == source
        {
            known.revision = revision;
            known.has_its_names = has_its_names;
            return false;
        }
        let served = source.established.then(|| Offer::of(definition)).flatten();
        let known = Known {
            revision,
            source,
            has_its_names,
            served,
        };
        let before = self.known.insert(name.clone(), known);
        let was_served = before.is_some_and(|before| before.served.is_some());
        was_served || self.known[name].served.is_some()
    }

    /// The names that others of a group have.
    fn names_of_others(&self, group: &str, name: &str) -> Vec<&Value> {
        let others = self.known.iter();
        others
            .filter(|(other, known)| other.as_ref() != name && known.source.group == group)
            .map(|(_, known)| &known.source.accepted_names)
            .collect()
    }

    /// Those of some groups that do not have all the names they want.
    fn wanting(&self, groups: &FxHashSet<String>) -> Vec<Arc<str>> {
        let all = self.known.iter();
        all.filter(|(_, known)| !known.has_its_names && groups.contains(&known.source.group))
            .map(|(name, _)| name.clone())
            .collect()
    }

    fn catalogue(&self) -> Catalogue {
        let mut catalogue = Catalogue::builtin();
        for offer in self
            .known
            .values()
            .filter_map(|known| known.served.as_ref())
        {
            catalogue.add_definition(offer.definition.clone());
            for served in &offer.versions {
                catalogue.add(served.clone());
            }
        }
        catalogue
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

/// The server itself owns what it writes into a definition's status; `status` is what that was before. Nothing else has
/// changed, so nothing else is compared.
fn own_status(status: Value, object: &mut Value, now: Timestamp) {
    const GROUP: &str = "apiextensions.k8s.io";
    const KIND: &str = "CustomResourceDefinition";
    let Some(id) = builtin_type(GROUP, "v1", KIND) else {
        return;
    };
    let api_version = format!("{GROUP}/v1");
    let spec = object["spec"].take();
    object["kind"] = KIND.into();
    object["apiVersion"] = api_version.as_str().into();
    let mut before = object.clone();
    before["status"] = status;
    let tracking = Tracking {
        types: Types::builtin(),
        shape: &Shape::Struct(id),
        api_version: &api_version,
        kind: KIND,
        subresource: "status",
        reset: &Reset::builtin(GROUP, "customresourcedefinitions", "status"),
        versions: &[&api_version],
    };
    tracking.update(Some(&before), object, "kube-apiserver", &show_seconds(now));
    object["spec"] = spec;
    forget_what_it_is(object);
}

impl Server {
    /// Accepts definitions' names, and serves what is accepted.
    pub(crate) async fn settle_definitions(&self) {
        // One at a time: whoever has looked earlier and is done later would bring back what is gone. Those who waited
        // find everything done.
        let mut all = self.definitions().lock().await;
        let page = self
            .store()
            .list(DEFINITIONS, "", None, None, usize::MAX, |_| true);
        let present = page.map(|page| page.items).unwrap_or_default();
        let names: FxHashSet<&str> = present.iter().map(|stored| stored.name()).collect();
        let mut changed = false;
        // Whose names may be free now.
        let mut groups = FxHashSet::default();
        all.known.retain(|name, known| {
            let stays = names.contains(name.as_ref());
            if !stays {
                changed |= known.served.is_some();
                groups.insert(known.source.group.clone());
            }
            stays
        });
        // After a start nothing is known. Names that one has are not free for another that comes before it.
        for stored in &present {
            if !all.known.contains_key(&stored.key) {
                changed |= all.learn(&stored.key, 0, &stored.value());
            }
        }
        for stored in &present {
            let known = all.known.get(&stored.key);
            if known.is_some_and(|known| known.revision == stored.revision) {
                continue;
            }
            // One that is new has no names yet that it could give back.
            let known = known.filter(|known| known.source.accepted_names["plural"] != "");
            groups.extend(known.map(|known| known.source.group.clone()));
            changed |= self.settle_definition(&mut all, &stored.key).await;
        }
        for name in all.wanting(&groups) {
            changed |= self.settle_definition(&mut all, &name).await;
        }
        if !changed {
            return;
        }
        for shelf in self.serve_definitions(&all) {
            self.store().end_watches(&shelf);
        }
        self.settle_services_of(&mut all.services).await;
    }

    /// True: something else is to be served than before.
    async fn settle_definition(&self, all: &mut Definitions, name: &Arc<str>) -> bool {
        let Some(mut current) = self.store().get(DEFINITIONS, name) else {
            return false;
        };
        let mut object = current.value();
        let before = object["status"].clone();
        let group = object["spec"]["group"].as_str().unwrap_or_default();
        let others = all.names_of_others(group, name);
        let now = Timestamp::now();
        if names::reconcile(&mut object, &others, now) {
            own_status(before, &mut object, now);
            let attributes = current.attributes().into_owned();
            let expect = Expect::Revision(current.revision);
            let written = self
                .store()
                .put(DEFINITIONS, name, expect, &mut object, attributes)
                .await;
            match written {
                Ok(stored) => current = stored,
                // Whoever was faster settles it in their turn.
                Err(_) => return false,
            }
        }
        all.learn(&current.key, current.revision, &object)
    }

    /// Makes the catalogue what the definitions say; says what is no longer served.
    fn serve_definitions(&self, all: &Definitions) -> Vec<Box<str>> {
        let catalogue = all.catalogue();
        let shelves: FxHashSet<&str> = catalogue.all().map(|new| new.shelf.as_ref()).collect();
        let old = self.catalogue();
        let gone = old.all().map(|old| old.shelf.clone());
        let gone = gone
            .filter(|shelf| !shelves.contains(shelf.as_ref()))
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
            let is_its_own = !is_builtin(&definition);
            let page = self
                .store()
                .list(&shelf, "", None, None, usize::MAX, |_| is_its_own);
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

#[cfg(test)]
mod tests;
