//! Decodes the cluster's objects into the types of `cluster_state`.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use plimsoll_api::pod::Classes;

use super::cluster_state::{Container, Node, Phase, Pod};
use super::objects;

/// Annotations that are large and that nobody here reads.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";
/// Real nodes have a handful.
const MOST_ADDRESSES: usize = 32;

impl From<objects::Pod> for Pod {
    fn from(object: objects::Pod) -> Self {
        let objects::Pod {
            metadata,
            spec,
            status,
        } = object;
        let told = status.container_statuses.iter();
        let told: BTreeMap<&str, &objects::ContainerStatus> = told
            .chain(&status.init_container_statuses)
            .map(|one| (&*one.name, one))
            .collect();
        let stays = spec.init_containers.iter().filter(|one| one.stays());
        let containers = spec.containers.iter().chain(stays).map(|one| {
            let told = told.get(&*one.name).copied();
            let full = told.and_then(|told| told.container_id.as_deref());
            let bare = full.and_then(bare_id);
            Container {
                name: one.name.clone(),
                id: bare.map(Into::into),
                full_id: full.filter(|_| bare.is_some()).map(Into::into),
                sidecar: one.stays(),
                running: told.is_some_and(|told| told.state.running.is_some()),
                actual: told.and_then(|told| told.resources.clone()),
                requests: one.resources.requests.clone(),
                limits: one.resources.limits.clone(),
            }
        });
        Self {
            containers: containers.collect(),
            claims: spec.claims.clone().into(),
            classes: Classes::of(
                metadata.labels.as_ref(),
                spec.priority,
                status.qos_class.as_deref(),
            ),
            priority: spec.priority,
            phase: phase(status.phase.as_deref()),
            created: metadata
                .creation_timestamp
                .as_ref()
                .map_or(Timestamp::UNIX_EPOCH, |time| time.0),
            terminating: metadata.deletion_timestamp.is_some(),
            requests: spec.requests(),
            limits: spec.limits(),
            uid: text(metadata.uid.as_deref()).into(),
            namespace: text(metadata.namespace.as_deref()).into(),
            name: text(metadata.name.as_deref()).into(),
            labels: texts(metadata.labels),
            annotations: texts(metadata.annotations),
        }
    }
}

impl From<objects::Node> for Node {
    fn from(object: objects::Node) -> Self {
        let objects::Node { metadata, status } = object;
        let ObjectMeta {
            uid,
            labels,
            annotations,
            ..
        } = metadata;
        let addresses = status.addresses.into_iter().take(MOST_ADDRESSES);
        let kubelet = status.daemon_endpoints.get("kubeletEndpoint");
        Self {
            uid: uid.unwrap_or_default().into(),
            labels: texts(labels),
            annotations: texts(annotations),
            capacity: status.capacity,
            allocatable: status.allocatable,
            kubelet_port: kubelet.map(|kubelet| kubelet.port).filter(|port| *port > 0),
            addresses: addresses.map(|one| (one.kind, one.address)).collect(),
        }
    }
}

fn text(text: Option<&str>) -> &str {
    text.unwrap_or_default()
}

fn texts(map: Option<BTreeMap<String, String>>) -> BTreeMap<Box<str>, Box<str>> {
    map.into_iter()
        .flatten()
        .filter(|(key, _)| key != LAST_APPLIED)
        .map(|(key, value)| (key.into(), value.into()))
        .collect()
}

/// Of `containerd://ID`.
fn bare_id(id: &str) -> Option<&str> {
    let bare = id.split_once("://").map_or(id, |(_, id)| id);
    (!bare.is_empty()).then_some(bare)
}

fn phase(phase: Option<&str>) -> Phase {
    match phase {
        Some("Running") => Phase::Running,
        Some("Succeeded") => Phase::Succeeded,
        Some("Failed") => Phase::Failed,
        Some("Pending") | None => Phase::Pending,
        Some(_) => Phase::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_api::priority::{PriorityClass, QosClass};
    use serde_json::{Value, json};

    fn pod(value: Value) -> Pod {
        let object: objects::Pod = serde_json::from_value(value).unwrap();
        object.into()
    }

    /// As a kubelet of 1.36 told it, shortened.
    fn told() -> Value {
        json!({
            "metadata": {
                "name": "web-0", "namespace": "shop", "uid": "519908d9-ecf4-44b3-8a48-27e7a6f97be3",
                "creationTimestamp": "2026-11-15T18:27:34Z",
                "labels": {"koordinator.sh/qosClass": "LSR", "koordinator.sh/priority-class": "koord-prod"},
                "annotations": {
                    "kubectl.kubernetes.io/last-applied-configuration": "{}",
                    "kubernetes.io/config.source": "api",
                },
                "managedFields": [{"manager": "kubectl"}],
            },
            "spec": {
                "priority": 9500,
                "volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "data"}}, {"name": "e", "emptyDir": {}}],
                "initContainers": [
                    {"name": "proxy", "restartPolicy": "Always", "resources": {"requests": {"cpu": "100m"}}},
                    {"name": "setup", "resources": {"requests": {"memory": "1Gi"}}},
                ],
                "containers": [
                    {"name": "c", "resources": {"requests": {"cpu": "2", "memory": "64Mi"}, "limits": {"cpu": "2"}}},
                    {"name": "late", "resources": {}},
                ],
                "overhead": {"cpu": "10m"},
            },
            "status": {
                "phase": "Running", "qosClass": "Burstable",
                "containerStatuses": [{"name": "c", "containerID": "containerd://abc"}, {"name": "late"}],
                "initContainerStatuses": [{"name": "proxy", "containerID": "containerd://def"}],
            },
        })
    }

    #[test]
    fn a_pod_as_a_kubelet_tells_it() {
        let pod = pod(told());
        assert_eq!((&*pod.namespace, &*pod.name), ("shop", "web-0"));
        assert_eq!(
            (pod.classes.effective_qos(), pod.classes.qos),
            (QosClass::Lsr, QosClass::Lsr)
        );
        assert_eq!(pod.classes.priority, PriorityClass::Prod);
        assert_eq!((pod.phase, pod.terminating), (Phase::Running, false));
        assert_eq!(pod.created.to_string(), "2026-11-15T18:27:34Z");
        assert_eq!(pod.requests["cpu"].milli(), 2110);
        assert_eq!(pod.requests["memory"].to_string(), "1Gi");
        assert_eq!(pod.limits["cpu"].milli(), 2010);
        let ids: Vec<_> = pod
            .containers
            .iter()
            .map(|one| (&*one.name, one.id.as_deref()))
            .collect();
        assert_eq!(
            ids,
            [("c", Some("abc")), ("late", None), ("proxy", Some("def"))]
        );
        assert_eq!(
            pod.claims.iter().map(|claim| &**claim).collect::<Vec<_>>(),
            ["data"]
        );
        assert_eq!(pod.annotations.len(), 1);
    }

    #[test]
    fn a_pod_that_says_little() {
        let pod = pod(json!({"metadata": {"name": "x", "creationTimestamp": null}}));
        assert_eq!(pod.phase, Phase::Pending);
        assert_eq!(pod.classes.effective_qos(), QosClass::Be);
        assert_eq!(pod.classes.effective_priority(), PriorityClass::Batch);
        assert!(pod.requests.is_empty() && pod.containers.is_empty());
    }

    #[test]
    fn a_node() {
        let node: objects::Node = serde_json::from_value(json!({
            "metadata": {"name": "n", "uid": "u", "annotations": {"node.koordinator.sh/reservation": "{}"}},
            "status": {
                "capacity": {"cpu": "2", "memory": "24682416Ki"},
                "allocatable": {"cpu": "2", "memory": "24580016Ki", "kubernetes.io/batch-cpu": "319"},
                "addresses": [{"type": "Hostname", "address": "n"}, {"type": "InternalIP", "address": "10.0.0.7"}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            },
        }))
        .unwrap();
        let node = Node::from(node);
        assert_eq!(node.address("InternalIP"), Some("10.0.0.7"));
        assert_eq!(node.address("Hostname"), Some("n"));
        assert_eq!(node.address("ExternalIP"), None);
        assert_eq!(node.kubelet_port, Some(10250));
        assert_eq!(node.allocatable["kubernetes.io/batch-cpu"].value(), 319);
        assert_eq!(node.annotations.len(), 1);
    }

    /// Whatever a kubelet or the API server tells: pods, nodes and policies are made of it, or it is refused.
    #[test]
    fn whatever_is_told_is_survived() {
        use crate::states::NodeSlo;
        use plimsoll_test_support::hostile::{rounds, spoil};
        let node = json!({
            "metadata": {"name": "n", "uid": "u", "labels": {"a": "b"}, "annotations": {"node.koordinator.sh/reservation": "{}"}},
            "status": {
                "capacity": {"cpu": "2", "memory": "24682416Ki"},
                "allocatable": {"cpu": "2", "memory": "24580016Ki"},
                "addresses": [{"type": "Hostname", "address": "n"}],
                "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            },
        });
        let slo = json!({
            "resourceUsedThresholdWithBE": {"enable": true, "cpuSuppressThresholdPercent": 65},
            "resourceQOSStrategy": {"beClass": {"cpuQOS": {"enable": true, "groupIdentity": -1}, "memoryQOS": {"enable": false}}},
            "cpuBurstStrategy": {"policy": "none", "cfsQuotaBurstPercent": 300, "cfsQuotaBurstPeriodSeconds": -1},
            "systemStrategy": {"minFreeKbytesFactor": 100, "totalNetworkBandwidth": "0"},
            "hostApplications": [{"name": "h", "priority": "koord-prod", "qos": "LS", "cgroupPath": {"relativePath": "a"}}],
        });
        rounds(500, |seed| {
            let random = &mut fastrand::Rng::with_seed(seed);
            let mut spoiled = |value: &Value| {
                let mut value = value.clone();
                let places = random.usize(1..6);
                spoil(&mut value, places, random);
                value
            };
            if let Ok(pod) = serde_json::from_value::<objects::Pod>(spoiled(&told())) {
                let pod = Pod::from(pod);
                assert!(pod.containers.len() < 1000);
            }
            if let Ok(node) = serde_json::from_value::<objects::Node>(spoiled(&node)) {
                assert!(Node::from(node).addresses.len() <= MOST_ADDRESSES);
            }
            let _ = NodeSlo::of(&spoiled(&slo));
        });
    }
}
