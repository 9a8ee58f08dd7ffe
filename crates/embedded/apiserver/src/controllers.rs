//! The few controllers that a cluster's users take for granted: namespaces are emptied, dependents follow their owners,
//! old events are forgotten. Each is a task that follows the store.

mod finished;
mod garbage;

use std::collections::HashSet;
use std::time::{Duration, Instant};

use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::aggregate::available;
use crate::catalogue::Catalogue;
use crate::hooks;
use crate::rest::delete::mark_container;
use crate::rest::{finalizers, is_being_deleted};
use crate::server::Server;
use crate::store::{Expect, Stored};
use plimsoll_golang::time::show_seconds;

/// How long changes are gathered before they are looked at together.
const SETTLE: Duration = Duration::from_millis(20);
/// … or this many times what the last look took, if that is longer: cleaning up must not be what a server does most.
const REST: u32 = 10;
/// Before what could not be done is tried again.
const RETRY: Duration = Duration::from_secs(1);
/// So many old objects are forgotten at a time.
const FORGOTTEN: usize = 500;

/// Which controllers run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    All,
    /// Those that a real API server has in itself: custom resources go with their definitions.
    OfTheServer,
}

/// Runs until the server stops.
pub fn spawn(server: &Server, which: Which) {
    // Each takes all it knows from the store, so a controller that panics can begin anew.
    let stop = server.shutdown();
    let keep = |task, work: fn(Server) -> BoxFuture<'static, ()>| {
        let server = server.clone();
        stop.keep_restarting(task, move || work(server.clone()));
    };
    keep("asking aggregated servers", |server| {
        available::follow(server).boxed()
    });
    keep("expiring objects", |server| expire(server).boxed());
    for shelf in hooks::FOLLOWED {
        let server = server.clone();
        stop.keep_restarting("following what is stored", move || {
            hooks::follow(server.clone(), shelf)
        });
    }
    match which {
        Which::OfTheServer => keep("removing custom resources", |server| {
            clean_up(server, Which::OfTheServer).boxed()
        }),
        Which::All => {
            server.tell_gaps();
            keep("collecting garbage", |server| {
                clean_up(server, Which::All).boxed()
            });
            keep("removing finished objects", |server| {
                finished::collect(server).boxed()
            });
        }
    }
}

/// Forgets what nobody has written for too long.
async fn expire(server: Server) {
    let Some(every) = server.store().expires_every() else {
        return;
    };
    let stop = server.shutdown();
    loop {
        tokio::select! {
            () = stop.begins() => return,
            () = tokio::time::sleep(every) => {}
        }
        // What the disk refuses is tried again next time.
        while server.store().expire(FORGOTTEN) > 0 && server.store().flush().await {}
    }
}

async fn clean_up(server: Server, which: Which) {
    let stop = server.shutdown();
    loop {
        let seen = server.store().revision();
        let started = Instant::now();
        let mut done = true;
        if which == Which::All {
            done &= namespaces(&server).await;
            done &= garbage::collect(&server).await;
        }
        server.remove_definitions().await;
        done &= server.store().flush().await;
        let settle = SETTLE.max(started.elapsed() * REST);
        if done {
            tokio::select! {
                () = stop.begins() => return,
                () = server.store().disturbed_since(seen) => {}
            }
        }
        let rest = if done { settle } else { settle.max(RETRY) };
        tokio::select! {
            () = stop.begins() => return,
            () = tokio::time::sleep(rest) => {}
        }
    }
}

/// Empties namespaces that are to be deleted, and lets them go when they are empty. False: some of it has to be tried
/// again.
async fn namespaces(server: &Server) -> bool {
    let page = server
        .store()
        .list("namespaces", "", None, None, usize::MAX, may_be_going);
    let mut done = true;
    for namespace in page.map(|page| page.items).unwrap_or_default() {
        let object = namespace.value();
        if !is_being_deleted(&object) {
            continue;
        }
        match empty(server, namespace.name()) {
            Left::Nothing => done &= release(server, &namespace, object),
            Left::Held => {}
            Left::Raced => done = false,
        }
    }
    done
}

/// Most objects need not be parsed to know that they stay.
pub(crate) fn may_be_going(stored: &Stored) -> bool {
    memchr::memmem::find(&stored.bytes(), b"\"deletionTimestamp\"").is_some()
}

/// What is in a namespace after it was emptied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Left {
    Nothing,
    /// Objects that something holds.
    Held,
    /// Objects that somebody else was writing.
    Raced,
}

/// Deletes what is in a namespace.
fn empty(server: &Server, namespace: &str) -> Left {
    let prefix = format!("{namespace}/");
    let mut left = Left::Nothing;
    for shelf in namespaced_shelves(&server.catalogue()) {
        let page = server
            .store()
            .list(&shelf, &prefix, None, None, usize::MAX, |_| true);
        for item in page.map(|page| page.items).unwrap_or_default() {
            left = left.max(match remove(server, &shelf, &item) {
                Removal::Gone => Left::Nothing,
                Removal::Marked => Left::Held,
                Removal::Raced => Left::Raced,
            });
        }
    }
    left
}

fn namespaced_shelves(catalogue: &Catalogue) -> HashSet<Box<str>> {
    catalogue
        .all()
        .filter(|served| served.resource.namespaced())
        .map(|served| served.shelf.clone())
        .collect()
}

/// What became of an object that was to be deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Removal {
    Gone,
    /// It has finalizers.
    Marked,
    /// Somebody else was faster: this comes round again.
    Raced,
}

/// Begins to delete an object without grace; what has finalizers or contents is marked, and stays.
pub(crate) fn remove(server: &Server, shelf: &str, item: &Stored) -> Removal {
    let mut object = item.remains();
    let expect = Expect::Revision(item.revision);
    if mark_container(shelf, &mut object, Timestamp::now()) {
        let attributes = crate::served::attributes(shelf, &object);
        let begun = server
            .store()
            .begin_put(shelf, &item.key, expect, &mut object, &attributes);
        return begun.map_or(Removal::Raced, |_| Removal::Marked);
    }
    if shelf == "namespaces" {
        return Removal::Marked;
    }
    if finalizers(&object).is_empty() {
        let begun = server.store().begin_delete(shelf, &item.key, expect);
        return begun.map_or(Removal::Raced, |_| Removal::Gone);
    }
    if is_being_deleted(&object) {
        return Removal::Marked;
    }
    let mut marked = object;
    marked["metadata"]["deletionTimestamp"] = show_seconds(Timestamp::now()).into();
    marked["metadata"]["deletionGracePeriodSeconds"] = 0.into();
    let begun = server
        .store()
        .begin_put(shelf, &item.key, expect, &mut marked, &item.attributes());
    begun.map_or(Removal::Raced, |_| Removal::Marked)
}

/// Takes the finalizer off an empty namespace, which deletes it. False: somebody else was faster.
fn release(server: &Server, namespace: &Stored, mut object: Value) -> bool {
    let left: Vec<Value> = object["spec"]["finalizers"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|one| *one != "kubernetes")
        .cloned()
        .collect();
    let expect = Expect::Revision(namespace.revision);
    let (store, key) = (server.store(), &namespace.key);
    if left.is_empty() && finalizers(&object).is_empty() {
        return store.begin_delete("namespaces", key, expect).is_ok();
    }
    if object["spec"]["finalizers"] == json!(left) {
        return true;
    }
    object["spec"]["finalizers"] = json!(left);
    store
        .begin_put(
            "namespaces",
            key,
            expect,
            &mut object,
            &namespace.attributes(),
        )
        .is_ok()
}

#[cfg(test)]
mod tests;
