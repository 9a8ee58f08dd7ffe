//! Whether the servers of APIServices can be reached, which their `Available` condition says.
//!
//! One task follows what APIServices depend on; each of those that another server answers for has a task of its own, so
//! that a server that does not answer delays nobody else.

use std::collections::HashMap;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::FuturesUnordered;
use jiff::Timestamp;
use plimsoll_client::shutdown::Shutdown;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::announce::note_own;
use super::learn::{self, Said};
use super::resolve::{Address, Nowhere};
use super::{API_SERVICES, GROUP, RemoteSpec};
use crate::kinds::Lookup;
use crate::server::Server;
use crate::store::{Expect, Tail, WriteError};
use plimsoll_golang::time::show_seconds;

/// What decides where a service is served.
const FOLLOWED: [&str; 4] = [
    API_SERVICES,
    "services",
    "endpointslices.discovery.k8s.io",
    "endpoints",
];
/// How often a server that answered is asked again.
const EVERY: Duration = Duration::from_secs(30);
/// One that did not is asked sooner, and then ever later.
const FIRST_RETRY: Duration = Duration::from_millis(250);
/// At most so many of a service's endpoints are asked; one that answers is enough.
const ASKED: usize = 5;

pub fn is_available(object: &Value) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|one| one["type"] == "Available" && one["status"] == "True")
}

/// Runs until the server stops.
pub async fn follow(server: Server) {
    let stop = server.shutdown();
    let (changed, _) = watch::channel(());
    let mut tasks = Tasks::default();
    loop {
        let mut tails = subscribe(&server);
        loop {
            server.settle_services().await;
            tasks.fit(&server, &changed);
            changed.send_replace(());
            tokio::select! {
                () = stop.begins() => return,
                more = next(&mut tails) => if !more {
                    break;
                },
            }
        }
    }
}

fn subscribe(server: &Server) -> Vec<Tail> {
    let subscriptions = FOLLOWED.map(|shelf| server.store().watch(shelf, "", None));
    let present = subscriptions.into_iter().filter_map(Result::ok);
    present.map(|subscription| subscription.tail).collect()
}

/// Waits for a change, and takes those that came with it. False: some were missed.
async fn next(tails: &mut [Tail]) -> bool {
    let first = {
        let waits = tails.iter_mut().map(|tail| Box::pin(tail.next()));
        let (event, _, _) = futures::future::select_all(waits).await;
        event.is_some()
    };
    for tail in tails {
        while tail.try_next().is_some() {}
    }
    first
}

/// One for each APIService of another server, by name. Dropped, all end.
#[derive(Debug, Default)]
struct Tasks(HashMap<String, Task>);

#[derive(Debug)]
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Tasks {
    fn fit(&mut self, server: &Server, changed: &watch::Sender<()>) {
        let remotes: Vec<String> = server
            .list(API_SERVICES, "")
            .iter()
            .filter_map(RemoteSpec::read)
            .map(|spec| spec.name)
            .collect();
        self.0.retain(|name, _| remotes.contains(name));
        let stop = server.shutdown();
        for name in remotes {
            self.0.entry(name.clone()).or_insert_with(|| {
                let (server, changed) = (server.clone(), changed.subscribe());
                let watch = move || watch_over(server.clone(), name.clone(), changed.clone());
                Task(stop.keep_restarting("asking an aggregated server", watch))
            });
        }
    }
}

/// Keeps one APIService's condition true.
async fn watch_over(server: Server, name: String, mut changed: watch::Receiver<()>) {
    let stop: Shutdown = server.shutdown();
    let mut seen = None;
    let mut due = Instant::now();
    let mut retry = FIRST_RETRY;
    while !stop.has_begun() {
        changed.mark_unchanged();
        let remote = server.aggregator().named(&name);
        let now =
            remote.map(|remote| (remote.spec.clone(), remote.spec.service.addresses(&server)));
        if now != seen || Instant::now() >= due {
            if now != seen {
                retry = FIRST_RETRY;
            }
            seen.clone_from(&now);
            let passed = match now {
                Some((spec, addresses)) => judge(&server, &spec, addresses).await,
                None => true,
            };
            let wait = if passed { EVERY } else { retry };
            retry = if passed {
                FIRST_RETRY
            } else {
                (retry * 2).min(EVERY)
            };
            due = Instant::now() + wait;
        }
        tokio::select! {
            () = stop.begins() => return,
            // The sender ends with the task that started this one, which aborts it.
            _ = changed.changed() => {}
            () = tokio::time::sleep_until(due) => {}
        }
    }
}

/// Finds out, and writes it down.
async fn judge(
    server: &Server,
    spec: &RemoteSpec,
    addresses: Result<Vec<Address>, Nowhere>,
) -> bool {
    let verdict = match addresses {
        Err(nowhere) => Err((nowhere.reason(), nowhere.message(&spec.service))),
        Ok(addresses) => ask(server, spec, &addresses)
            .await
            .map_err(|why| ("FailedDiscoveryCheck", why)),
    };
    let (condition, said) = match verdict {
        Ok(said) => (("True", "Passed", "all checks passed".to_owned()), said),
        Err((reason, message)) => {
            tracing::debug!(service = spec.name, reason, message, "not available");
            (("False", reason, message), None)
        }
    };
    let passed = condition.0 == "True";
    server.aggregator().learn(&spec.name, said);
    write(server, spec, condition).await;
    server.settle_services().await;
    passed
}

/// The first good answer of one of the endpoints, or the last complaint.
async fn ask(
    server: &Server,
    spec: &RemoteSpec,
    addresses: &[Address],
) -> Result<Option<Said>, String> {
    let Some(remote) = server.aggregator().named(&spec.name) else {
        return Err("the APIService is gone".to_owned());
    };
    let mut answers: FuturesUnordered<_> = addresses
        .iter()
        .take(ASKED)
        .map(|address| learn::ask(&remote.backend, spec, address))
        .collect();
    let mut complaint = String::new();
    while let Some(answer) = answers.next().await {
        match answer {
            Ok(said) => return Ok(said),
            Err(why) => complaint = why,
        }
    }
    Err(complaint)
}

async fn write(server: &Server, spec: &RemoteSpec, condition: (&str, &str, String)) {
    while let Some(current) = server.store().get(API_SERVICES, &spec.name) {
        let old = current.value();
        // What was found out may be about what it no longer is.
        if RemoteSpec::read(&old).as_ref() != Some(spec) {
            return;
        }
        let now = Timestamp::now();
        let mut new = old.clone();
        if !set_condition(&mut new, &condition, now) {
            return;
        }
        if let Some(served) = server.catalogue().find(GROUP, "v1", "apiservices") {
            note_own(served, Some(old), &mut new, "status", now);
        }
        let expect = Expect::Revision(current.revision);
        let attributes = current.attributes().into_owned();
        let written = server
            .store()
            .put(API_SERVICES, &spec.name, expect, &mut new, attributes)
            .await;
        if !matches!(written, Err(WriteError::Mismatch(_))) {
            return;
        }
    }
}

/// False: it said so before.
fn set_condition(object: &mut Value, condition: &(&str, &str, String), now: Timestamp) -> bool {
    let (status, reason, message) = condition;
    if !object["status"]["conditions"].is_array() {
        object["status"] = json!({"conditions": []});
    }
    let Some(conditions) = object["status"]["conditions"].as_array_mut() else {
        return false;
    };
    let found = conditions.iter_mut().find(|one| one["type"] == "Available");
    let Some(found) = found else {
        conditions.push(json!({
            "type": "Available",
            "status": status,
            "lastTransitionTime": show_seconds(now),
            "reason": reason,
            "message": message,
        }));
        return true;
    };
    if found["status"] == *status && found["reason"] == *reason && found["message"] == *message {
        return false;
    }
    if found["status"] != *status {
        found["status"] = (*status).into();
        found["lastTransitionTime"] = show_seconds(now).into();
    }
    found["reason"] = (*reason).into();
    found["message"] = message.as_str().into();
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_is_dated_when_it_turns() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut object = json!({});
        let good = ("True", "Passed", "all checks passed".to_owned());
        let bad = |why: &str| ("False", "FailedDiscoveryCheck", why.to_owned());
        assert!(!is_available(&object));
        assert!(set_condition(&mut object, &good, at(1)));
        assert!(is_available(&object));
        assert!(!set_condition(&mut object, &good, at(2)));
        assert!(set_condition(&mut object, &bad("one"), at(3)));
        assert!(set_condition(&mut object, &bad("two"), at(4)));
        assert_eq!(
            object["status"]["conditions"],
            json!([{
                "type": "Available",
                "status": "False",
                "lastTransitionTime": "1970-01-01T00:00:03Z",
                "reason": "FailedDiscoveryCheck",
                "message": "two",
            }])
        );
    }
}
