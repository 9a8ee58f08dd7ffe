//! What must hold when things go wrong: no pod lost, none bound twice, none beyond capacity.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use plimsoll_test_support::poll;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::bench::in_parallel;
use super::{PATIENCE, Scenario, Stage};
use crate::process::Scratch;

pub const ALL: &[Scenario] = &[
    Scenario {
        name: "killed",
        play: killed,
    },
    Scenario {
        name: "two-on-a-lease",
        play: two_on_a_lease,
    },
    Scenario {
        name: "paused",
        play: paused,
    },
    Scenario {
        name: "storm",
        play: storm,
    },
    Scenario {
        name: "flapping-nodes",
        play: flapping_nodes,
    },
];

const NODES: usize = 10;
/// Of one CPU each, on nodes of four.
const ROOM: usize = 4;

/// How many pods each node has. Fails where it has more than it can.
fn by_node(pods: &[Value]) -> Result<BTreeMap<String, usize>> {
    let mut nodes: BTreeMap<String, usize> = BTreeMap::new();
    for pod in pods {
        if let Some(node) = pod["spec"]["nodeName"].as_str() {
            *nodes.entry(node.to_owned()).or_default() += 1;
        }
    }
    ensure!(
        nodes.values().all(|pods| *pods <= ROOM),
        "beyond capacity: {nodes:?}"
    );
    Ok(nodes)
}

/// Bindings that were written, by the events that tell of them: none may be told of twice.
fn bindings(stage: &Stage<'_>) -> Result<BTreeMap<String, usize>> {
    let events = stage
        .api
        .list(&format!("/api/v1/namespaces/{}/events", stage.namespace))?;
    let mut told: BTreeMap<String, usize> = BTreeMap::new();
    for event in events {
        if event["reason"] == "Scheduled" {
            let pod = event["involvedObject"]["name"].as_str().unwrap_or_default();
            *told.entry(pod.to_owned()).or_default() += 1;
        }
    }
    Ok(told)
}

fn all_bound(stage: &Stage<'_>, wanted: usize) -> Result<Vec<Value>> {
    poll::until(&format!("{wanted} pods have nodes"), PATIENCE, || {
        let pods = stage.pods()?;
        by_node(&pods).map_err(poll::fatal)?;
        let bound = pods
            .iter()
            .filter(|pod| pod["spec"]["nodeName"].is_string());
        Ok((bound.count() == wanted).then_some(pods))
    })
}

fn lay_out(stage: &Stage<'_>) -> Result<()> {
    for index in 0..NODES {
        stage.node(&format!("n{index}"), "4", "z")?;
    }
    for index in 0..NODES * ROOM {
        stage.pod(&format!("p{index}"), "1", json!({}))?;
    }
    Ok(())
}

/// Killed again and again while it binds; what it left half done, the next one finds.
fn killed(stage: &Stage<'_>) -> Result<String> {
    let mut scratch = Scratch::make()?;
    lay_out(stage)?;
    let mut kills = 0;
    while kills < 5 {
        let before = count_bound(stage)?;
        let mut scheduler = stage.scheduler(&mut scratch, &[])?;
        // The first binding of this one is the sign that others are under way.
        let seen = poll::until("it begins to bind", Duration::from_secs(60), || {
            let now = count_bound(stage)?;
            Ok((now > before || now == NODES * ROOM).then_some(now))
        })?;
        scheduler.signal(Signal::KILL);
        scheduler.ended(Duration::from_secs(10))?;
        kills += 1;
        if seen == NODES * ROOM {
            break;
        }
    }
    let _scheduler = stage.scheduler(&mut scratch, &[])?;
    let pods = all_bound(stage, NODES * ROOM)?;
    let nodes = by_node(&pods)?;
    ensure!(nodes.values().all(|pods| *pods == ROOM), "{nodes:?}");
    let twice: Vec<_> = bindings(stage)?
        .into_iter()
        .filter(|(_, n)| *n > 1)
        .collect();
    ensure!(twice.is_empty(), "bound twice: {twice:?}");
    Ok(format!(
        "killed {kills} times, all {} pods where there was room",
        pods.len()
    ))
}

/// Ten thousand at once, room for half of them, and the scheduler dies in the middle. Then there is room for all.
fn storm(stage: &Stage<'_>) -> Result<String> {
    const PODS: usize = 10_000;
    const ON_A_NODE: usize = 50;
    let pending = format!(
        "/api/v1/namespaces/{}/pods?fieldSelector=spec.nodeName%3D&limit={PODS}",
        stage.namespace
    );
    // Such a list is work for the server that the scheduler needs. `None`: it is too soon for another one.
    let mut next = Instant::now();
    let mut waiting = || -> Result<Option<usize>> {
        if Instant::now() < next {
            return Ok(None);
        }
        let list = stage.api.get(&pending)?;
        next = Instant::now() + Duration::from_secs(2);
        Ok(Some(list["items"].as_array().map_or(0, Vec::len)))
    };
    for index in 0..PODS / 2 / ON_A_NODE {
        stage.node(&format!("n{index}"), "4", "z")?;
    }
    in_parallel(PODS, |index| {
        stage.pod(&format!("p{index}"), "80m", json!({})).map(drop)
    })?;
    let mut scratch = Scratch::make()?;
    let patience = Duration::from_secs(600);
    let mut scheduler = stage.scheduler(&mut scratch, &[])?;
    poll::until("a thousand are bound", patience, || {
        Ok(waiting()?
            .filter(|waiting| *waiting <= PODS - 1000)
            .map(drop))
    })?;
    scheduler.signal(Signal::KILL);
    scheduler.ended(Duration::from_secs(10))?;
    let _scheduler = stage.scheduler(&mut scratch, &[])?;
    poll::until("half of them are bound", patience, || {
        let Some(waiting) = waiting()? else {
            return Ok(None);
        };
        if waiting < PODS / 2 {
            return Err(poll::fatal(anyhow!("beyond capacity: {waiting} wait")));
        }
        Ok((waiting == PODS / 2).then_some(()))
    })?;
    let mut nodes: BTreeMap<String, usize> = BTreeMap::new();
    for pod in stage.pods()? {
        if let Some(node) = pod["spec"]["nodeName"].as_str() {
            *nodes.entry(node.to_owned()).or_default() += 1;
        }
    }
    ensure!(nodes.values().all(|pods| *pods == ON_A_NODE), "{nodes:?}");
    stage.node("more", "4000", "z")?;
    let more = format!("/api/v1/nodes/{}-more/status", stage.pool);
    let room = json!({"capacity": {"pods": "9000", "memory": "9Ti"}, "allocatable": {"pods": "9000", "memory": "9Ti"}});
    stage.api.patch(&more, &json!({"status": room}))?;
    poll::until("the others are bound, too", patience, || {
        Ok(waiting()?.filter(|waiting| *waiting == 0).map(drop))
    })?;
    let twice = bindings(stage)?.into_values().filter(|told| *told > 1);
    ensure!(twice.count() == 0, "bound twice");
    Ok(format!("{PODS} pods, killed once, none lost"))
}

fn count_bound(stage: &Stage<'_>) -> Result<usize> {
    let pods = stage.pods()?;
    by_node(&pods).map_err(poll::fatal)?;
    Ok(pods
        .iter()
        .filter(|pod| pod["spec"]["nodeName"].is_string())
        .count())
}

/// Two that want the same lease: one works; when it is killed, the other takes over.
fn two_on_a_lease(stage: &Stage<'_>) -> Result<String> {
    let mut scratch = Scratch::make()?;
    for index in 0..NODES {
        stage.node(&format!("n{index}"), "4", "z")?;
    }
    let flags = [
        "--leader-elect",
        "--leader-elect-resource-namespace",
        &stage.namespace,
    ];
    let mut first = stage.scheduler(&mut scratch, &flags)?;
    stage.pod("p0", "1", json!({}))?;
    stage.bound("p0")?;
    let _second = stage.scheduler(&mut scratch, &flags)?;
    for index in 1..10 {
        stage.pod(&format!("p{index}"), "1", json!({}))?;
    }
    all_bound(stage, 10)?;
    first.signal(Signal::KILL);
    for index in 10..NODES * ROOM {
        stage.pod(&format!("p{index}"), "1", json!({}))?;
    }
    all_bound(stage, NODES * ROOM)?;
    let twice: Vec<_> = bindings(stage)?
        .into_iter()
        .filter(|(_, n)| *n > 1)
        .collect();
    ensure!(twice.is_empty(), "bound twice: {twice:?}");
    let path = format!(
        "/apis/coordination.k8s.io/v1/namespaces/{0}/leases/{0}",
        stage.namespace
    );
    let lease = stage.api.get(&path)?;
    Ok(format!(
        "{} transitions of the lease",
        lease["spec"]["leaseTransitions"]
    ))
}

/// Paused for longer than its lease lasts, in the middle of its work: when it wakes, somebody else leads. It binds nothing,
/// says nothing about any pod, and ends.
fn paused(stage: &Stage<'_>) -> Result<String> {
    /// More than it can be done with before it is paused.
    const PODS: usize = 1_000;
    /// As schedulers of these tests have it.
    const LEASE: i64 = 10;
    let mut scratch = Scratch::make()?;
    for index in 0..NODES {
        stage.node(&format!("n{index}"), "1000", "z")?;
    }
    let flags = [
        "--leader-elect",
        "--leader-elect-resource-namespace",
        &stage.namespace,
    ];
    in_parallel(PODS, |index| {
        stage.pod(&format!("p{index}"), "1m", json!({})).map(drop)
    })?;
    let bound = || -> Result<usize> {
        let pods = stage.pods()?;
        Ok(pods
            .iter()
            .filter(|pod| pod["spec"]["nodeName"].is_string())
            .count())
    };
    let mut scheduler = stage.scheduler(&mut scratch, &flags)?;
    scheduler.wait("it binds", || Ok((bound()? > 0).then_some(())))?;
    scheduler.signal(Signal::STOP);
    let lease = format!(
        "/apis/coordination.k8s.io/v1/namespaces/{0}/leases/{0}",
        stage.namespace
    );
    let mut taken = poll::until("the lease is not renewed", PATIENCE, || {
        let held = stage.api.get(&lease)?;
        let renewed = held["spec"]["renewTime"].as_str().unwrap_or_default();
        let renewed: jiff::Timestamp = renewed.parse()?;
        let age = jiff::Timestamp::now().duration_since(renewed);
        Ok((age.as_secs() > LEASE).then_some(held))
    })?;
    taken["spec"]["holderIdentity"] = "somebody-else".into();
    let (status, taken) = stage
        .api
        .send("PUT", &lease, Some(("application/json", &taken)))?;
    ensure!(status == 200, "take the lease: {status} {taken}");
    let since = version(&taken)?;
    let before = bound()?;
    ensure!(before < PODS, "it was done before it was paused");
    // News for it when it wakes.
    for index in 0..10 {
        stage.pod(&format!("late{index}"), "1m", json!({}))?;
    }
    scheduler.signal(Signal::CONT);
    let status = scheduler.ended(PATIENCE)?;
    ensure!(status.code() == Some(1), "it ended with {status}");
    let mut late = Vec::new();
    for pod in stage.pods()? {
        let written = pod["spec"]["nodeName"].is_string() || !pod["status"]["conditions"].is_null();
        if written && version(&pod)? > since {
            late.push(pod["metadata"]["name"].to_string());
        }
    }
    ensure!(
        late.is_empty(),
        "written after somebody else held the lease: {late:?}; {}",
        scheduler.last_words()
    );
    Ok(format!("paused after {before} bindings, none later"))
}

/// On both servers, one counter for all objects.
fn version(object: &Value) -> Result<u64> {
    let version = object["metadata"]["resourceVersion"].as_str();
    Ok(version.unwrap_or_default().parse()?)
}

/// Nodes come and go while pods are placed.
fn flapping_nodes(stage: &Stage<'_>) -> Result<String> {
    let mut scratch = Scratch::make()?;
    let _scheduler = stage.scheduler(&mut scratch, &[])?;
    lay_out(stage)?;
    for round in 0..20 {
        let index = round % NODES;
        let path = format!("/api/v1/nodes/{}-n{index}", stage.pool);
        let cordon = json!({"spec": {"unschedulable": round % 2 == 0}});
        stage.api.patch(&path, &cordon)?;
        by_node(&stage.pods()?)?;
    }
    for index in 0..NODES {
        let path = format!("/api/v1/nodes/{}-n{index}", stage.pool);
        stage
            .api
            .patch(&path, &json!({"spec": {"unschedulable": false}}))?;
    }
    let pods = all_bound(stage, NODES * ROOM)?;
    let twice: Vec<_> = bindings(stage)?
        .into_iter()
        .filter(|(_, n)| *n > 1)
        .collect();
    ensure!(twice.is_empty(), "bound twice: {twice:?}");
    Ok(format!("all {} pods placed", pods.len()))
}
