//! Who owns whom, kept up to date with every write: whoever collects garbage need not read everything to find it.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};
use serde_json::Value;

/// Where an object is: its shelf and its key.
pub type Place = (Arc<str>, Arc<str>);

/// What ties an object to others. Most have none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Ties {
    /// The uids of its owners.
    pub owners: Box<[Box<str>]>,
    /// It is being deleted, and waits until its dependents are freed or gone.
    pub parting: bool,
}

impl Ties {
    pub(super) fn of(object: &Value) -> Option<Box<Self>> {
        let metadata = &object["metadata"];
        let owners = metadata["ownerReferences"].as_array();
        let owners: Box<[Box<str>]> = owners
            .into_iter()
            .flatten()
            .filter_map(|owner| owner["uid"].as_str())
            .map(Box::from)
            .collect();
        let waits = |one: &Value| one == "orphan" || one == "foregroundDeletion";
        let held = metadata["finalizers"].as_array();
        let parting = !metadata["deletionTimestamp"].is_null()
            && held.is_some_and(|held| held.iter().any(waits));
        if owners.is_empty() && !parting {
            return None;
        }
        Some(Box::new(Self { owners, parting }))
    }
}

/// The owners of an object, whether it has ties or not.
pub(super) fn owners(ties: Option<&Ties>) -> &[Box<str>] {
    ties.map_or(&[], |ties| &ties.owners)
}

/// What a garbage collector has to look at.
#[derive(Debug, Clone, Default)]
pub struct Chores {
    /// Objects whose owners are new or may be gone.
    pub owned: FxHashSet<Place>,
    /// Objects that wait for their dependents.
    pub parting: FxHashSet<Place>,
    /// The uids of owners that were deleted.
    pub gone: FxHashSet<Box<str>>,
}

#[derive(Debug, Default)]
pub(super) struct Kinship {
    /// By the owner's uid.
    dependents: FxHashMap<Box<str>, FxHashSet<Place>>,
    /// Bounded by what is there: objects that are gone are no chores.
    chores: Chores,
}

impl Kinship {
    pub(super) fn written(&mut self, place: &Place, before: Option<&Ties>, now: Option<&Ties>) {
        if owners(before) != owners(now) {
            self.untie(place, before);
            for owner in owners(now) {
                let dependents = self.dependents.entry(owner.clone()).or_default();
                dependents.insert(place.clone());
            }
            if !owners(now).is_empty() {
                self.chores.owned.insert(place.clone());
            }
        }
        if now.is_some_and(|ties| ties.parting) {
            self.chores.parting.insert(place.clone());
        }
    }

    pub(super) fn deleted(&mut self, place: &Place, before: Option<&Ties>, uid: &str) {
        self.untie(place, before);
        self.chores.parting.remove(place);
        if let Some(dependents) = self.dependents.get(uid) {
            self.chores.owned.extend(dependents.iter().cloned());
            self.chores.gone.insert(uid.into());
        }
    }

    fn untie(&mut self, place: &Place, before: Option<&Ties>) {
        self.chores.owned.remove(place);
        for owner in owners(before) {
            let Some(dependents) = self.dependents.get_mut(owner) else {
                continue;
            };
            dependents.remove(place);
            if dependents.is_empty() {
                self.dependents.remove(owner);
                self.chores.gone.remove(owner);
            }
        }
    }

    pub(super) fn dependents(&self, uid: &str) -> Vec<Place> {
        let dependents = self.dependents.get(uid);
        dependents.into_iter().flatten().cloned().collect()
    }

    pub(super) fn take_chores(&mut self) -> Chores {
        std::mem::take(&mut self.chores)
    }

    /// Chores that could not be done. What is gone meanwhile is found out when they are taken again.
    pub(super) fn give_back(&mut self, chores: Chores) {
        self.chores.owned.extend(chores.owned);
        self.chores.parting.extend(chores.parting);
        for uid in chores.gone {
            if self.dependents.contains_key(&uid) {
                self.chores.gone.insert(uid);
            }
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        let Chores {
            owned,
            parting,
            gone,
        } = &self.chores;
        self.dependents.is_empty() && owned.is_empty() && parting.is_empty() && gone.is_empty()
    }
}
