//! The few controllers that a cluster's users take for granted: namespaces are emptied, dependents follow their owners,
//! budgets are counted. Each is a task that follows the store.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::aggregate::available;
use crate::catalogue::Catalogue;
use crate::codec::time::show_seconds;
use crate::kinds::Lookup;
use crate::rest::{finalizers, is_being_deleted, meta};
use crate::server::Server;
use crate::store::{Expect, Stored};

/// How long changes are gathered before they are looked at together.
const SETTLE: Duration = Duration::from_millis(20);
/// … or this many times what the last look took, if that is longer: cleaning up must not be what a server does most.
const REST: u32 = 10;

/// Which controllers run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    All,
    /// Those that a real API server has in itself: custom resources go with their definitions.
    OfTheServer,
}

/// Runs until the server stops.
pub fn spawn(server: &Server, which: Which) {
    available::spawn(server);
    let server = server.clone();
    tokio::spawn(async move {
        let stop = server.shutdown();
        loop {
            let seen = server.store().revision();
            let started = Instant::now();
            if which == Which::All {
                namespaces(&server);
                garbage(&server);
            }
            server.remove_definitions();
            let settle = SETTLE.max(started.elapsed() * REST);
            tokio::select! {
                () = stop.begins() => return,
                () = server.store().disturbed_since(seen) => {}
            }
            tokio::select! {
                () = stop.begins() => return,
                () = tokio::time::sleep(settle) => {}
            }
        }
    });
}

/// Empties namespaces that are to be deleted, and lets them go when they are empty.
fn namespaces(server: &Server) {
    for namespace in server.list("namespaces", "") {
        if !is_being_deleted(&namespace) {
            continue;
        }
        let name = meta(&namespace, "name");
        if empty(server, name) {
            release(server, &namespace);
        }
    }
}

/// Deletes what is in a namespace; true when nothing is left.
fn empty(server: &Server, namespace: &str) -> bool {
    let prefix = format!("{namespace}/");
    let mut left = 0;
    for shelf in namespaced_shelves(&server.catalogue()) {
        let page = server
            .store()
            .list(&shelf, &prefix, None, None, usize::MAX, |_| true);
        for item in page.map(|page| page.items).unwrap_or_default() {
            if !remove(server, &shelf, &item) {
                left += 1;
            }
        }
    }
    left == 0
}

fn namespaced_shelves(catalogue: &Catalogue) -> HashSet<Box<str>> {
    catalogue
        .all()
        .filter(|served| served.resource.namespaced())
        .map(|served| served.shelf.clone())
        .collect()
}

/// Deletes an object without grace; what has finalizers is marked, and stays.
pub(crate) fn remove(server: &Server, shelf: &str, item: &Stored) -> bool {
    let object = item.value();
    let expect = Expect::Revision(item.revision);
    if finalizers(&object).is_empty() {
        return server.store().delete(shelf, &item.key, expect).is_ok();
    }
    if !is_being_deleted(&object) {
        let mut marked = object;
        marked["metadata"]["deletionTimestamp"] = show_seconds(Timestamp::now()).into();
        marked["metadata"]["deletionGracePeriodSeconds"] = 0.into();
        let attributes = item.attributes.clone();
        // Whoever was faster: this comes round again.
        let _ = server
            .store()
            .put(shelf, &item.key, expect, &mut marked, attributes);
    }
    false
}

/// Takes the finalizer off an empty namespace, which deletes it.
fn release(server: &Server, namespace: &Value) {
    let name = meta(namespace, "name");
    let Some(current) = server.store().get("namespaces", name) else {
        return;
    };
    let mut object = current.value();
    let left: Vec<Value> = object["spec"]["finalizers"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|one| *one != "kubernetes")
        .cloned()
        .collect();
    let expect = Expect::Revision(current.revision);
    if left.is_empty() && finalizers(&object).is_empty() {
        let _ = server.store().delete("namespaces", name, expect);
    } else if object["spec"]["finalizers"] != json!(left) {
        object["spec"]["finalizers"] = json!(left);
        let attributes = current.attributes.clone();
        let _ = server
            .store()
            .put("namespaces", name, expect, &mut object, attributes);
    }
}

/// Deletes what lost all its owners, and gives orphans their freedom.
fn garbage(server: &Server) {
    let shelves: HashSet<Box<str>> = server
        .catalogue()
        .all()
        .map(|served| served.shelf.clone())
        .collect();
    let mut owned: Vec<(Box<str>, std::sync::Arc<Stored>)> = Vec::new();
    let mut uids: HashSet<String> = HashSet::new();
    let mut parting: Vec<(Box<str>, std::sync::Arc<Stored>)> = Vec::new();
    for shelf in shelves {
        let page = server
            .store()
            .list(&shelf, "", None, None, usize::MAX, |_| true);
        for item in page.map(|page| page.items).unwrap_or_default() {
            if let Some(uid) = quick_uid(&item.bytes) {
                uids.insert(uid);
            }
            if has(&item.bytes, b"\"ownerReferences\"") {
                owned.push((shelf.clone(), item.clone()));
            }
            if has(&item.bytes, b"\"orphan\"") || has(&item.bytes, b"\"foregroundDeletion\"") {
                parting.push((shelf.clone(), item));
            }
        }
    }
    let mut dying = HashSet::new();
    for (shelf, item) in &parting {
        let object = item.value();
        if is_being_deleted(&object) {
            part(server, shelf, item, &object, &owned, &mut dying);
        }
    }
    for (shelf, item) in &owned {
        let object = item.value();
        let owners = object["metadata"]["ownerReferences"].as_array();
        let alive = |owner: &Value| {
            let uid = owner["uid"].as_str().unwrap_or_default();
            uids.contains(uid) && !dying.contains(uid)
        };
        if owners.is_some_and(|owners| !owners.is_empty() && !owners.iter().any(alive)) {
            remove(server, shelf, item);
        }
    }
}

/// An owner that goes: its dependents are freed, or go first.
fn part(
    server: &Server,
    shelf: &str,
    item: &Stored,
    object: &Value,
    owned: &[(Box<str>, std::sync::Arc<Stored>)],
    dying: &mut HashSet<String>,
) {
    let uid = meta(object, "uid");
    let dependents: Vec<_> = owned
        .iter()
        .filter(|(_, dependent)| {
            dependent.value()["metadata"]["ownerReferences"]
                .as_array()
                .into_iter()
                .flatten()
                .any(|owner| owner["uid"] == uid)
        })
        .collect();
    let held = finalizers(object);
    if held.iter().any(|one| one == "orphan") {
        for (shelf, dependent) in dependents {
            disown(server, shelf, dependent, uid);
        }
        unhold(server, shelf, item, object, "orphan");
    } else if held.iter().any(|one| one == "foregroundDeletion") {
        let blocking = dependents.iter().any(|(_, dependent)| {
            dependent.value()["metadata"]["ownerReferences"]
                .as_array()
                .into_iter()
                .flatten()
                .any(|owner| owner["uid"] == uid && owner["blockOwnerDeletion"] == true)
        });
        if blocking {
            dying.insert(uid.to_owned());
        } else {
            unhold(server, shelf, item, object, "foregroundDeletion");
        }
    }
}

fn disown(server: &Server, shelf: &str, item: &Stored, uid: &str) {
    let mut object = item.value();
    if let Some(owners) = object["metadata"]["ownerReferences"].as_array_mut() {
        owners.retain(|owner| owner["uid"] != uid);
        if owners.is_empty()
            && let Some(meta) = object["metadata"].as_object_mut()
        {
            meta.remove("ownerReferences");
        }
    }
    let expect = Expect::Revision(item.revision);
    let attributes = item.attributes.clone();
    let _ = server
        .store()
        .put(shelf, &item.key, expect, &mut object, attributes);
}

fn unhold(server: &Server, shelf: &str, item: &Stored, object: &Value, finalizer: &str) {
    let left: Vec<String> = finalizers(object)
        .into_iter()
        .filter(|one| one != finalizer)
        .collect();
    let expect = Expect::Revision(item.revision);
    if left.is_empty() {
        let _ = server.store().delete(shelf, &item.key, expect);
        return;
    }
    let mut object = object.clone();
    object["metadata"]["finalizers"] = json!(left);
    let attributes = item.attributes.clone();
    let _ = server
        .store()
        .put(shelf, &item.key, expect, &mut object, attributes);
}

fn has(bytes: &[u8], needle: &[u8]) -> bool {
    memchr::memmem::find(bytes, needle).is_some()
}

/// The object's uid without parsing all of it: keys are sorted, and `uid` ends the metadata.
fn quick_uid(bytes: &[u8]) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Outer<'a> {
        #[serde(borrow)]
        metadata: Inner<'a>,
    }
    #[derive(serde::Deserialize)]
    struct Inner<'a> {
        #[serde(borrow, default)]
        uid: std::borrow::Cow<'a, str>,
    }
    let outer: Outer<'_> = serde_json::from_slice(bytes).ok()?;
    Some(outer.metadata.uid.into_owned())
}
