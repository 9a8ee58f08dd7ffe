//! What a scheduler is there for.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use plimsoll_test_support::poll;
use serde_json::{Value, json};

use super::{PATIENCE, Scenario, Stage};
use crate::admin;
use crate::process::Scratch;

pub const ALL: &[Scenario] = &[
    Scenario {
        name: "places",
        play: places,
    },
    Scenario {
        name: "preempts",
        play: preempts,
    },
    Scenario {
        name: "spreads",
        play: spreads,
    },
    Scenario {
        name: "binds-volumes",
        play: binds_volumes,
    },
];

fn event(stage: &Stage<'_>, pod: &str, reason: &str) -> Result<Value> {
    let path = format!("/api/v1/namespaces/{}/events", stage.namespace);
    poll::until(&format!("an event {reason} about {pod}"), PATIENCE, || {
        let list = stage.api.get(&path)?;
        let events = list["items"].as_array().cloned().unwrap_or_default();
        let mut events = events.into_iter();
        Ok(
            events
                .find(|event| event["involvedObject"]["name"] == pod && event["reason"] == reason),
        )
    })
}

fn places(stage: &Stage<'_>) -> Result<String> {
    let mut scratch = Scratch::make()?;
    stage.node("a", "4", "z")?;
    let _scheduler = stage.scheduler(&mut scratch, &[])?;
    stage.pod("fits", "1", json!({}))?;
    stage.pod("large", "8", json!({}))?;
    ensure!(stage.node_of("fits")? == "a", "on another node");
    let told = event(stage, "fits", "Scheduled")?;
    let name = format!("{}-a", stage.pool);
    let text = format!("Successfully assigned {}/fits to {name}", stage.namespace);
    ensure!(told["message"] == *text, "{told}");
    ensure!(
        told["reportingComponent"] == *stage.namespace && told["action"] == "Binding",
        "{told}"
    );
    let refused = event(stage, "large", "FailedScheduling")?;
    let message = refused["message"].as_str().unwrap_or_default();
    ensure!(message.contains(" Insufficient cpu"), "{message}");
    let path = format!("/api/v1/namespaces/{}/pods/large", stage.namespace);
    let condition = poll::until("a condition", PATIENCE, || {
        let pod = stage.api.get(&path)?;
        Ok(pod["status"]["conditions"][0]["reason"]
            .as_str()
            .map(|reason| (reason.to_owned(), pod.clone())))
    })?;
    ensure!(condition.0 == "Unschedulable", "{}", condition.1["status"]);
    stage.node("b", "16", "z")?;
    ensure!(stage.node_of("large")? == "b", "on another node");
    Ok("bound, told of, refused in words, bound later".to_owned())
}

fn preempts(stage: &Stage<'_>) -> Result<String> {
    let mut scratch = Scratch::make()?;
    stage.node("a", "1", "z")?;
    for (name, value) in [("sched-low", 1), ("sched-high", 1000)] {
        let class = json!({"metadata": {"name": name}, "value": value});
        // It may be left from another run on the same server.
        let classes = "/apis/scheduling.k8s.io/v1/priorityclasses";
        admin::create(stage.api.server, classes, &class)?;
    }
    let _scheduler = stage.scheduler(&mut scratch, &[])?;
    stage.pod("victim", "800m", json!({"priorityClassName": "sched-low"}))?;
    stage.bound("victim")?;
    let preemptor = stage.pod(
        "preemptor",
        "800m",
        json!({"priorityClassName": "sched-high"}),
    )?;
    stage.bound("preemptor")?;
    let told = event(stage, "victim", "Preempted")?;
    let uid = preemptor["metadata"]["uid"].as_str().context("no uid")?;
    let text = format!("Preempted by pod {uid} on node {}-a", stage.pool);
    ensure!(told["message"] == *text, "{told}");
    Ok("the less important pod went".to_owned())
}

fn spreads(stage: &Stage<'_>) -> Result<String> {
    let mut scratch = Scratch::make()?;
    for (name, zone) in [("a1", "a"), ("a2", "a"), ("b1", "b"), ("c1", "c")] {
        stage.node(name, "8", zone)?;
    }
    let _scheduler = stage.scheduler(&mut scratch, &[])?;
    let spread = json!({"topologySpreadConstraints": [{"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule",
        "topologyKey": "topology.kubernetes.io/zone", "labelSelector": {"matchLabels": {"app": "x"}}}]});
    let mut zones: BTreeMap<String, usize> = BTreeMap::new();
    for index in 0..6 {
        stage.pod(&format!("p{index}"), "100m", spread.clone())?;
    }
    for index in 0..6 {
        let node = stage.node_of(&format!("p{index}"))?;
        *zones.entry(node[..1].to_owned()).or_default() += 1;
    }
    ensure!(zones.values().all(|pods| *pods == 2), "{zones:?}");
    Ok("two in each of three zones".to_owned())
}

fn binds_volumes(stage: &Stage<'_>) -> Result<String> {
    let mut scratch = Scratch::make()?;
    stage.node("a", "4", "z")?;
    stage.node("b", "4", "z")?;
    let class = json!({"metadata": {"name": "sched-local"}, "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer"});
    let classes = "/apis/storage.k8s.io/v1/storageclasses";
    admin::create(stage.api.server, classes, &class)?;
    let host = format!("{}-b", stage.pool);
    let volume = json!({"metadata": {"name": "sched-volume"}, "spec": {"capacity": {"storage": "5Gi"},
        "accessModes": ["ReadWriteOnce"], "storageClassName": "sched-local", "local": {"path": "/data"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
            {"key": "kubernetes.io/hostname", "operator": "In", "values": [host]}]}]}}}});
    stage.api.post("/api/v1/persistentvolumes", &volume)?;
    let volume = "/api/v1/persistentvolumes/sched-volume";
    stage.api.patch(
        &format!("{volume}/status"),
        &json!({"status": {"phase": "Available"}}),
    )?;
    let claims = format!(
        "/api/v1/namespaces/{}/persistentvolumeclaims",
        stage.namespace
    );
    let claim = json!({"metadata": {"name": "c"}, "spec": {"accessModes": ["ReadWriteOnce"],
        "storageClassName": "sched-local", "resources": {"requests": {"storage": "1Gi"}}}});
    stage.api.post(&claims, &claim)?;
    let _scheduler = stage.scheduler(&mut scratch, &[])?;
    let wants = json!({"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "c"}}]});
    stage.pod("p", "100m", wants)?;
    // Who completes the binding is the volume controller, of which there is none here.
    poll::until("the volume is kept for the claim", PATIENCE, || {
        let volume = stage.api.get(volume)?;
        Ok((volume["spec"]["claimRef"]["name"] == "c").then_some(()))
    })?;
    let completed = json!({"metadata": {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
        "spec": {"volumeName": "sched-volume"}});
    stage.api.patch(&format!("{claims}/c"), &completed)?;
    ensure!(stage.node_of("p")? == "b", "not where its volume is");
    stage.api.delete(volume)?;
    Ok("where its volume is".to_owned())
}
