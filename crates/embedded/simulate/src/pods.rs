//! What happens to a pod on a simulated node.

use std::borrow::Cow;
use std::net::Ipv4Addr;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::Resource;
use plimsoll_api::names;
use plimsoll_api::priority::{KubeQos, PriorityClass, QosClass};
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use crate::RUN_SECONDS;

/// The few fields of a pod that matter here: thousands are looked at.
#[derive(Debug, Clone, Deserialize)]
pub struct BoundPod {
    #[serde(deserialize_with = "few")]
    pub metadata: ObjectMeta,
    #[serde(default)]
    pub spec: Spec,
    #[serde(default)]
    pub status: Status,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Spec {
    pub node_name: String,
    pub restart_policy: String,
    pub priority: Option<i32>,
    pub host_network: bool,
    pub containers: Vec<Container>,
    pub init_containers: Vec<Container>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Container {
    pub name: String,
    pub image: String,
    pub restart_policy: String,
    pub resources: Resources,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Resources {
    pub requests: std::collections::BTreeMap<String, String>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Status {
    pub phase: String,
    #[serde(rename = "podIP")]
    pub pod_ip: String,
    pub start_time: Option<Time>,
    pub qos_class: String,
}

impl BoundPod {
    /// With what a pod without one is treated as.
    pub fn classes(&self) -> (PriorityClass, QosClass) {
        let label = |name: &str| {
            let labels = self.metadata.labels.as_ref()?;
            labels.get(name).map(String::as_str)
        };
        let kube = KubeQos::named(&self.status.qos_class).unwrap_or(KubeQos::BestEffort);
        let qos = QosClass::of_label(label(names::LABEL_QOS)).or_by_kube(kube);
        let class = label(names::LABEL_PRIORITY_CLASS);
        let class = PriorityClass::of_pod(class, self.spec.priority);
        (class.or_by_qos(qos), qos)
    }
}

/// Who wrote which field is the largest part of an object, and of no interest.
fn few<'de, D: Deserializer<'de>>(deserializer: D) -> Result<ObjectMeta, D::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Few {
        name: Option<String>,
        namespace: Option<String>,
        uid: Option<String>,
        resource_version: Option<String>,
        deletion_timestamp: Option<Time>,
        deletion_grace_period_seconds: Option<i64>,
        labels: Option<std::collections::BTreeMap<String, String>>,
        annotations: Option<std::collections::BTreeMap<String, String>>,
    }
    let few = Few::deserialize(deserializer)?;
    Ok(ObjectMeta {
        name: few.name,
        namespace: few.namespace,
        uid: few.uid,
        resource_version: few.resource_version,
        deletion_timestamp: few.deletion_timestamp,
        deletion_grace_period_seconds: few.deletion_grace_period_seconds,
        labels: few.labels,
        annotations: few.annotations,
        ..ObjectMeta::default()
    })
}

impl Resource for BoundPod {
    type DynamicType = ();
    type Scope = <Pod as Resource>::Scope;

    fn kind(_: &()) -> Cow<'_, str> {
        Pod::kind(&())
    }

    fn group(_: &()) -> Cow<'_, str> {
        Pod::group(&())
    }

    fn version(_: &()) -> Cow<'_, str> {
        Pod::version(&())
    }

    fn plural(_: &()) -> Cow<'_, str> {
        Pod::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// What is to be done with a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Its containers start.
    Start,
    /// Its work is done.
    Finish,
    /// Its containers have stopped: it can go.
    Remove,
    /// Something will be, but not before then.
    At(Timestamp),
    Nothing,
}

pub fn next(pod: &BoundPod, now: Timestamp) -> Next {
    if pod.metadata.deletion_timestamp.is_some() {
        // Without grace it is the finalizers' turn.
        return match pod.metadata.deletion_grace_period_seconds {
            Some(0) => Next::Nothing,
            _ => Next::Remove,
        };
    }
    match pod.status.phase.as_str() {
        "" | "Pending" => Next::Start,
        "Running" => match ends(pod) {
            Some(end) if end <= now => Next::Finish,
            Some(end) => Next::At(end),
            None => Next::Nothing,
        },
        _ => Next::Nothing,
    }
}

/// Those that are always started again never end.
fn ends(pod: &BoundPod) -> Option<Timestamp> {
    if !matches!(pod.spec.restart_policy.as_str(), "Never" | "OnFailure") {
        return None;
    }
    let seconds = pod.metadata.annotations.as_ref()?.get(RUN_SECONDS)?;
    let run = SignedDuration::from_secs(i64::from(seconds.trim().parse::<u32>().ok()?));
    pod.status.start_time.as_ref()?.0.checked_add(run).ok()
}

/// A strategic merge patch of the status: all containers run.
pub fn started(pod: &BoundPod, host: Ipv4Addr, address: Ipv4Addr, now: Timestamp) -> Value {
    let now = show(now);
    let running = |container: &Container| {
        let state = json!({"running": {"startedAt": now}});
        container_status(pod, container, true, state)
    };
    let over = |container: &Container| match container.restart_policy.as_str() {
        "Always" => running(container),
        _ => container_status(pod, container, true, completed(pod, container, &now, &now)),
    };
    let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": now});
    let mut status = json!({
        "phase": "Running",
        "hostIP": host,
        "hostIPs": [{"ip": host}],
        "podIP": address,
        "podIPs": [{"ip": address}],
        "startTime": now,
        "conditions": [
            condition("PodReadyToStartContainers"),
            condition("Initialized"),
            condition("Ready"),
            condition("ContainersReady"),
            condition("PodScheduled"),
        ],
        "containerStatuses": pod.spec.containers.iter().map(running).collect::<Vec<Value>>(),
    });
    if !pod.spec.init_containers.is_empty() {
        let statuses: Vec<Value> = pod.spec.init_containers.iter().map(over).collect();
        status["initContainerStatuses"] = statuses.into();
    }
    json!({ "status": status })
}

/// A strategic merge patch of the status: all containers have ended well.
pub fn finished(pod: &BoundPod, now: Timestamp) -> Value {
    let now = show(now);
    let began = match &pod.status.start_time {
        Some(time) => show(time.0),
        None => now.clone(),
    };
    let over = |container: &Container| {
        container_status(
            pod,
            container,
            false,
            completed(pod, container, &began, &now),
        )
    };
    let condition = |kind: &str, is: &str| json!({"type": kind, "status": is, "reason": "PodCompleted", "lastTransitionTime": now});
    json!({"status": {
        "phase": "Succeeded",
        "conditions": [
            condition("PodReadyToStartContainers", "False"),
            condition("Initialized", "True"),
            condition("Ready", "False"),
            condition("ContainersReady", "False"),
        ],
        "containerStatuses": pod.spec.containers.iter().map(over).collect::<Vec<Value>>(),
    }})
}

fn container_status(pod: &BoundPod, container: &Container, ready: bool, state: Value) -> Value {
    json!({
        "name": container.name,
        "image": container.image,
        "imageID": format!("simulated://{}", container.image),
        "containerID": container_id(pod, container),
        "ready": ready,
        "started": state.get("running").is_some(),
        "restartCount": 0,
        "lastState": {},
        "state": state,
    })
}

fn completed(pod: &BoundPod, container: &Container, began: &str, ended: &str) -> Value {
    json!({"terminated": {
        "exitCode": 0,
        "reason": "Completed",
        "startedAt": began,
        "finishedAt": ended,
        "containerID": container_id(pod, container),
    }})
}

fn container_id(pod: &BoundPod, container: &Container) -> String {
    let uid = pod.metadata.uid.as_deref().unwrap_or_default();
    format!("simulated://{uid}/{}", container.name)
}

fn show(at: Timestamp) -> String {
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp::constant(1_700_000_000, 0);

    fn pod(metadata: Value, restart: &str, status: Value) -> BoundPod {
        let containers = json!([{"name": "a", "image": "app"}]);
        let helpers = json!([{"name": "i", "image": "init"}, {"name": "s", "image": "side", "restartPolicy": "Always"}]);
        serde_json::from_value(json!({
            "metadata": metadata,
            "spec": {"nodeName": "sim-0001", "restartPolicy": restart, "containers": containers, "initContainers": helpers},
            "status": status,
        }))
        .unwrap()
    }

    #[track_caller]
    fn check(metadata: Value, restart: &str, status: Value, expected: Next) {
        let pod = pod(metadata, restart, status);
        assert_eq!(next(&pod, START + SignedDuration::from_secs(10)), expected);
    }

    #[test]
    fn from_start_to_end() {
        let running = json!({"phase": "Running", "startTime": START.to_string()});
        let for_seconds = |seconds: &str| json!({"annotations": {RUN_SECONDS: seconds}});
        let going =
            json!({"deletionTimestamp": START.to_string(), "deletionGracePeriodSeconds": 30});
        let held = json!({"deletionTimestamp": START.to_string(), "deletionGracePeriodSeconds": 0});
        check(
            json!({}),
            "Always",
            json!({"phase": "Pending"}),
            Next::Start,
        );
        check(json!({}), "Always", running.clone(), Next::Nothing);
        check(for_seconds("10"), "Never", running.clone(), Next::Finish);
        check(for_seconds("10"), "Always", running.clone(), Next::Nothing);
        check(for_seconds("soon"), "Never", running.clone(), Next::Nothing);
        let later = Next::At(START + SignedDuration::from_secs(60));
        check(for_seconds("60"), "OnFailure", running.clone(), later);
        check(
            for_seconds("1"),
            "Never",
            json!({"phase": "Succeeded"}),
            Next::Nothing,
        );
        check(going, "Always", running.clone(), Next::Remove);
        check(held, "Always", running, Next::Nothing);
    }

    #[test]
    fn what_a_started_pod_says() {
        let pod = pod(json!({"uid": "u"}), "Always", json!({}));
        let patch = started(
            &pod,
            Ipv4Addr::new(10, 32, 0, 1),
            Ipv4Addr::new(10, 64, 1, 1),
            START,
        );
        let status = &patch["status"];
        assert_eq!(status["podIP"], "10.64.1.1");
        assert_eq!(status["containerStatuses"][0]["ready"], true);
        assert_eq!(
            status["containerStatuses"][0]["containerID"],
            "simulated://u/a"
        );
        let helpers = &status["initContainerStatuses"];
        assert_eq!(helpers[0]["state"]["terminated"]["reason"], "Completed");
        assert_eq!(
            helpers[1]["state"]["running"]["startedAt"],
            "2023-11-14T22:13:20Z"
        );
    }
}
