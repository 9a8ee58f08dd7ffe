//! Dependents follow their owners: what lost all of them is deleted, and an owner that goes frees its dependents, or waits
//! until they are gone. Only what the store says has changed is looked at.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::{Removal, remove};
use crate::rest::{finalizers, is_being_deleted, meta};
use crate::server::Server;
use crate::store::{Chores, Expect, Place, Stored};

const ORPHAN: &str = "orphan";
const FOREGROUND: &str = "foregroundDeletion";

/// After so many objects others have their turn.
const AT_ONCE: usize = 100;

/// What a reference to an owner leads to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    Alive,
    Gone,
    /// It waits for its dependents to go before it.
    Dying,
    /// Its kind is not served here: nobody can say.
    Unknown,
}

/// False: some of it has to be tried again.
pub async fn collect(server: &Server) -> bool {
    let store = server.store();
    let chores = store.take_chores();
    let mut again = Chores::default();
    let mut dying = HashSet::new();
    let mut to_see = chores.owned.clone();
    let mut raced = false;
    for place in &chores.parting {
        match part(server, place) {
            Parting::Done => {}
            Parting::Waits(uid) => {
                to_see.extend(store.dependents(&uid));
                dying.insert(uid);
                again.parting.insert(place.clone());
            }
            Parting::Raced => {
                raced = true;
                again.parting.insert(place.clone());
            }
        }
    }
    for (count, place) in to_see.into_iter().enumerate() {
        if count % AT_ONCE == AT_ONCE - 1 {
            tokio::task::yield_now().await;
        }
        let look = |owner: &Value| match owner["uid"].as_str() {
            Some(uid) if chores.gone.contains(uid) => Owner::Gone,
            Some(uid) if dying.contains(uid) => Owner::Dying,
            _ => find(server, &place, owner),
        };
        if !follow(server, &place, look) {
            raced = true;
            again.owned.insert(place);
        }
    }
    if !again.owned.is_empty() {
        again.gone.clone_from(&chores.gone);
    }
    store.give_back(again);
    // What the disk refused has not happened.
    let kept = store.flush().await;
    if !kept {
        store.give_back(chores);
    }
    kept && !raced
}

/// A dependent that has lost all its owners goes; one that has lost some forgets those. False: somebody else was faster.
fn follow(server: &Server, place: &Place, look: impl Fn(&Value) -> Owner) -> bool {
    let (shelf, key) = place;
    let Some(item) = server.store().get(shelf, key) else {
        return true;
    };
    let object = item.value();
    let Some(owners) = object["metadata"]["ownerReferences"].as_array() else {
        return true;
    };
    let found: Vec<Owner> = owners.iter().map(look).collect();
    if found.is_empty() || found.contains(&Owner::Unknown) {
        return true;
    }
    if !found.contains(&Owner::Alive) {
        return remove(server, shelf, &item) != Removal::Raced;
    }
    let lost: Vec<&str> = owners
        .iter()
        .zip(&found)
        .filter(|(_, found)| **found != Owner::Alive)
        .filter_map(|(owner, _)| owner["uid"].as_str())
        .collect();
    lost.is_empty() || disown(server, shelf, &item, &lost)
}

/// Looks an owner up where its reference says it is.
fn find(server: &Server, dependent: &Place, owner: &Value) -> Owner {
    let text = |field: &str| owner[field].as_str().unwrap_or_default();
    let catalogue = server.catalogue();
    let Some(served) = catalogue.find_kind(text("apiVersion"), text("kind")) else {
        return Owner::Unknown;
    };
    let namespace = dependent.1.split_once('/').map(|(namespace, _)| namespace);
    let key = match (served.resource.namespaced(), namespace) {
        (true, Some(namespace)) => format!("{namespace}/{}", text("name")),
        // What is in no namespace cannot be owned by what is in one.
        (true, None) => return Owner::Unknown,
        (false, _) => text("name").to_owned(),
    };
    let found = server.store().get(&served.shelf, &key);
    let is_it = |found: &Stored| meta(&found.value(), "uid") == text("uid");
    if found.is_some_and(|found| is_it(&found)) {
        Owner::Alive
    } else {
        Owner::Gone
    }
}

/// What became of an owner that is to go.
enum Parting {
    Done,
    /// Its dependents, who know it by this uid, go first.
    Waits(String),
    Raced,
}

fn part(server: &Server, place: &Place) -> Parting {
    let (shelf, key) = place;
    let Some(item) = server.store().get(shelf, key) else {
        return Parting::Done;
    };
    let object = item.value();
    if !is_being_deleted(&object) {
        return Parting::Done;
    }
    let uid = meta(&object, "uid");
    let held = finalizers(&object);
    let dependents = server.store().dependents(uid);
    let dependents = dependents.into_iter().filter_map(|place| {
        let stored = server.store().get(&place.0, &place.1)?;
        Some((place.0, stored))
    });
    let finalizer = if held.iter().any(|one| one == ORPHAN) {
        let freed = dependents.map(|(shelf, dependent)| disown(server, &shelf, &dependent, &[uid]));
        // All are tried.
        if freed.fold(false, |raced, freed| raced | !freed) {
            return Parting::Raced;
        }
        ORPHAN
    } else if held.iter().any(|one| one == FOREGROUND) {
        let mut dependents = dependents;
        if dependents.any(|(_, dependent)| blocks(&dependent, uid)) {
            return Parting::Waits(uid.to_owned());
        }
        FOREGROUND
    } else {
        return Parting::Done;
    };
    match unhold(server, shelf, &item, &object, finalizer) {
        true => Parting::Done,
        false => Parting::Raced,
    }
}

fn blocks(dependent: &Stored, uid: &str) -> bool {
    let dependent = dependent.value();
    let owners = dependent["metadata"]["ownerReferences"].as_array();
    let mut owners = owners.into_iter().flatten();
    owners.any(|owner| owner["uid"] == uid && owner["blockOwnerDeletion"] == true)
}

/// Takes references to owners away. False: somebody else was faster.
fn disown(server: &Server, shelf: &str, item: &Stored, uids: &[&str]) -> bool {
    let mut object = item.value();
    let is_one = |owner: &Value| uids.iter().any(|uid| owner["uid"] == *uid);
    if let Some(owners) = object["metadata"]["ownerReferences"].as_array_mut() {
        owners.retain(|owner| !is_one(owner));
        if owners.is_empty()
            && let Some(meta) = object["metadata"].as_object_mut()
        {
            meta.remove("ownerReferences");
        }
    }
    let expect = Expect::Revision(item.revision);
    server
        .store()
        .begin_put(shelf, &item.key, expect, &mut object, &item.attributes())
        .is_ok()
}

/// Takes a finalizer away, which may be the last. False: somebody else was faster.
fn unhold(server: &Server, shelf: &str, item: &Stored, object: &Value, finalizer: &str) -> bool {
    let left: Vec<String> = finalizers(object)
        .into_iter()
        .filter(|one| one != finalizer)
        .collect();
    let expect = Expect::Revision(item.revision);
    if left.is_empty() {
        return server
            .store()
            .begin_delete(shelf, &item.key, expect)
            .is_ok();
    }
    let mut object = object.clone();
    object["metadata"]["finalizers"] = json!(left);
    server
        .store()
        .begin_put(shelf, &item.key, expect, &mut object, &item.attributes())
        .is_ok()
}
