//! A manager that was paused for longer than its lease lasts writes nothing after somebody else holds it.
//!
//! Mostly waiting, so it is played on a real server; with `PLIMSOLL_LONG=1` on the embedded one as well.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, ensure};
use plimsoll_test_support::poll;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::{PATIENCE, SPACE, Stage, slo_path};
use crate::admin;
use crate::client::Server;
use crate::kubectl::Kubectl;
use crate::process::Scratch;
use crate::scheduling::bench::in_parallel;

/// Nodes made at a time, until it is paused: so it is in the middle of them.
const BATCH: usize = 150;
/// More than any manager can be slow about.
const MOST: usize = 6_000;
/// So many are written about before that.
const WRITTEN: usize = 20;

pub fn writes_nothing(stage: &Stage<'_>, api: &Server) -> Result<String> {
    let program = stage.kubectl()?;
    let kubectl = Kubectl::new(&program, api, "default")?;
    stage.install(&kubectl)?;
    let mut scratch = Scratch::make()?;
    let lease =
        format!("/apis/coordination.k8s.io/v1/namespaces/{SPACE}/leases/koordinator-manager");
    // Another test's manager may have been killed while it held it.
    admin::send(api, "DELETE", &lease, "application/json", &Value::Null)?;
    let mut manager = stage.manager(&kubectl, api, &mut scratch)?;
    manager.wait("it leads", || {
        let held = super::object(api, &lease)?;
        Ok(held.filter(|lease| lease["spec"]["holderIdentity"].is_string()))
    })?;
    let name = |index: usize| format!("paused-{index}");
    let is_paused = AtomicBool::new(false);
    let made = std::thread::scope(|scope| {
        let making = scope.spawn(|| -> Result<usize> {
            let mut made = 0;
            while made < MOST && !is_paused.load(Ordering::Relaxed) {
                in_parallel(BATCH, |index| {
                    let name = name(made + index);
                    let node =
                        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}});
                    admin::create(api, "/api/v1/nodes", &node)
                })?;
                made += BATCH;
            }
            Ok(made)
        });
        let begun = manager.wait("it writes about nodes", || {
            Ok((written(api)?.len() >= WRITTEN).then_some(()))
        });
        manager.signal(Signal::STOP);
        is_paused.store(true, Ordering::Relaxed);
        let made = making
            .join()
            .ok()
            .context("making nodes ended in a panic")?;
        begun.and(made)
    });
    let made = made?;
    let before = written(api)?.len();
    ensure!(before < 2 * made, "it was done before it was paused");
    // As another candidate does: it waits for as long as the lease lasts, and takes it.
    let expired = poll::until("the lease is not renewed", PATIENCE, || {
        let held = admin::get(api, &lease)?;
        let renewed: jiff::Timestamp = held["spec"]["renewTime"]
            .as_str()
            .context("no renewal")?
            .parse()?;
        let age = jiff::Timestamp::now().duration_since(renewed);
        Ok((age.as_secs() >= 16).then_some(held))
    })?;
    let mut taken = expired;
    taken["spec"]["holderIdentity"] = "somebody-else".into();
    let (status, taken) = admin::send(api, "PUT", &lease, "application/json", &taken)?;
    ensure!(status == 200, "take the lease: {status} {taken}");
    let since = version(&taken)?;
    manager.signal(Signal::CONT);
    let status = manager.ended(PATIENCE)?;
    ensure!(status.code() == Some(1), "it ended with {status}");
    let mut late: Vec<String> = Vec::new();
    for object in written(api)? {
        if version(&object)? > since {
            late.push(object["metadata"]["name"].to_string());
        }
    }
    for index in 0..made {
        let path = format!("/api/v1/nodes/{}", name(index));
        admin::send(api, "DELETE", &path, "application/json", &Value::Null)?;
        for kind in ["nodemetrics", "nodeslos"] {
            let path = slo_path(kind, &name(index));
            admin::send(api, "DELETE", &path, "application/json", &Value::Null)?;
        }
    }
    // Whoever comes next need not wait for somebody who never was.
    admin::send(api, "DELETE", &lease, "application/json", &Value::Null)?;
    ensure!(
        late.is_empty(),
        "written after somebody else held the lease: {late:?}; {}",
        manager.last_words()
    );
    Ok(format!("paused after {before} writes, none later"))
}

/// What it has made about these nodes.
fn written(api: &Server) -> Result<Vec<Value>> {
    let mut all = Vec::new();
    for kind in ["nodemetrics", "nodeslos"] {
        let list = admin::get(api, &slo_path(kind, ""))?;
        let items = list["items"].as_array().cloned().unwrap_or_default();
        all.extend(items.into_iter().filter(|one| {
            let name = one["metadata"]["name"].as_str();
            name.is_some_and(|name| name.starts_with("paused-"))
        }));
    }
    Ok(all)
}

/// On both servers, one counter for all objects.
fn version(object: &Value) -> Result<u64> {
    let version = object["metadata"]["resourceVersion"].as_str();
    Ok(version.context("no version")?.parse()?)
}
