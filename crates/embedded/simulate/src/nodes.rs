//! What a simulated node looks like.

use std::net::Ipv4Addr;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};

use crate::SIMULATED;
use crate::pages::{PATH_ANNOTATION, path};

pub const LEASES: &str = "kube-node-lease";
const PREFIX: &str = "sim-";
/// Heartbeats are late by less than this.
const LEASE_SECONDS: u32 = 40;
const ZONES: [&str; 3] = ["sim-a", "sim-b", "sim-c"];

/// What each node has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Size {
    pub cpu: String,
    pub memory: String,
    pub ephemeral_storage: String,
    pub pods: u32,
}

impl Default for Size {
    fn default() -> Self {
        Self {
            cpu: "16".to_owned(),
            memory: "64Gi".to_owned(),
            ephemeral_storage: "200Gi".to_owned(),
            pods: 110,
        }
    }
}

/// Nodes are counted from one.
pub fn name(index: u32) -> String {
    format!("{PREFIX}{index:04}")
}

/// Which of them it is; `None`: it is none of them.
pub fn index(name: &str) -> Option<u32> {
    let digits = name.strip_prefix(PREFIX)?;
    let index = digits.parse().ok()?;
    (index > 0 && self::name(index) == name).then_some(index)
}

/// The node's own address.
pub fn address(index: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(Ipv4Addr::new(10, 32, 0, 0).to_bits() + index)
}

/// Where the addresses of its pods begin: each node has 256.
pub fn pod_network(index: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(Ipv4Addr::new(10, 64, 0, 0).to_bits() + (index << 8))
}

/// `port` is where on this machine its kubelet would be, if anybody speaks for it.
pub fn node(
    index: u32,
    size: &Size,
    port: Option<u16>,
    now: Timestamp,
) -> Result<Node, serde_json::Error> {
    let name = name(index);
    let amounts = json!({
        "cpu": size.cpu,
        "memory": size.memory,
        "ephemeral-storage": size.ephemeral_storage,
        "pods": size.pods.to_string(),
    });
    let mut node = json!({
        "metadata": {
            "name": name,
            "labels": {
                SIMULATED: "true",
                "kubernetes.io/hostname": name,
                "kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64",
                "beta.kubernetes.io/os": "linux",
                "beta.kubernetes.io/arch": "amd64",
                "node.kubernetes.io/instance-type": "simulated",
                "topology.kubernetes.io/region": "sim",
                "topology.kubernetes.io/zone": ZONES[index as usize % ZONES.len()],
            },
        },
        "spec": {
            "podCIDR": format!("{}/24", pod_network(index)),
            "podCIDRs": [format!("{}/24", pod_network(index))],
        },
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "addresses": [
                {"type": "InternalIP", "address": address(index)},
                {"type": "Hostname", "address": name},
            ],
            "conditions": conditions(true, now),
            "nodeInfo": {
                "machineID": name,
                "systemUUID": name,
                "bootID": name,
                "kernelVersion": "simulated",
                "osImage": "simulated",
                "containerRuntimeVersion": "simulated://1.0.0",
                "kubeletVersion": concat!("v1.36.3+plimsoll.", env!("CARGO_PKG_VERSION")),
                "kubeProxyVersion": "",
                "operatingSystem": "linux",
                "architecture": "amd64",
            },
        },
    });
    if let Some(port) = port {
        node["metadata"]["annotations"] = annotation(&name)["metadata"]["annotations"].take();
        let there = &whereabouts(port)["status"];
        node["status"]["daemonEndpoints"] = there["daemonEndpoints"].clone();
        let own = node["status"]["addresses"].as_array_mut();
        let more = there["addresses"].as_array();
        if let (Some(own), Some(more)) = (own, more) {
            own.extend(more.iter().cloned());
        }
    }
    serde_json::from_value(node)
}

/// A patch: where metrics-server finds the node's page.
pub fn annotation(name: &str) -> Value {
    json!({"metadata": {"annotations": {PATH_ANNOTATION: path(name)}}})
}

/// A patch of the status: its page is on this machine.
pub fn whereabouts(port: u16) -> Value {
    json!({"status": {
        "addresses": [{"type": "InternalDNS", "address": "localhost"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    }})
}

pub fn port(node: &Node) -> Option<u16> {
    let endpoints = node.status.as_ref()?.daemon_endpoints.as_ref()?;
    u16::try_from(endpoints.kubelet_endpoint.as_ref()?.port).ok()
}

/// A patch of the status: the node lives, as before.
pub fn heartbeat(now: Timestamp) -> Value {
    let mut patch = turn(true, now);
    let conditions = patch["status"]["conditions"].as_array_mut();
    for condition in conditions.into_iter().flatten() {
        // When they became so stays as it is.
        if let Some(condition) = condition.as_object_mut() {
            condition.remove("lastTransitionTime");
        }
    }
    patch
}

/// A patch of the status: the node begins to live, or ceases to.
pub fn turn(lives: bool, now: Timestamp) -> Value {
    json!({"status": {"conditions": conditions(lives, now)}})
}

pub fn is_ready(node: &Node) -> bool {
    let status = node.status.as_ref();
    let mut conditions = status
        .and_then(|s| s.conditions.as_ref())
        .into_iter()
        .flatten();
    conditions.any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn conditions(lives: bool, now: Timestamp) -> Value {
    let now = now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let condition = |kind: &str, is: bool, reason: &str, message: &str| {
        json!({
            "type": kind,
            "status": if is { "True" } else { "False" },
            "reason": reason,
            "message": message,
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        })
    };
    let ready = match lives {
        true => condition(
            "Ready",
            true,
            "KubeletReady",
            "kubelet is posting ready status",
        ),
        false => condition(
            "Ready",
            false,
            "KubeletNotReady",
            "this node is not simulated any more",
        ),
    };
    json!([
        condition(
            "MemoryPressure",
            false,
            "KubeletHasSufficientMemory",
            "kubelet has sufficient memory available",
        ),
        condition(
            "DiskPressure",
            false,
            "KubeletHasNoDiskPressure",
            "kubelet has no disk pressure",
        ),
        condition(
            "PIDPressure",
            false,
            "KubeletHasSufficientPID",
            "kubelet has sufficient PID available",
        ),
        ready,
    ])
}

pub fn lease(name: &str, uid: &str, now: Timestamp) -> Result<Lease, serde_json::Error> {
    serde_json::from_value(json!({
        "metadata": {
            "name": name,
            "namespace": LEASES,
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid}],
        },
        "spec": {
            "holderIdentity": name,
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": micros(now),
        },
    }))
}

/// A patch of the lease.
pub fn renewal(now: Timestamp) -> Value {
    json!({"spec": {"renewTime": micros(now)}})
}

fn micros(now: Timestamp) -> String {
    now.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_addresses() {
        assert_eq!(name(1), "sim-0001");
        assert_eq!(index("sim-0042"), Some(42));
        for other in ["sim-42", "sim-0000", "sim-x", "box", "sim-+001"] {
            assert_eq!(index(other), None, "{other}");
        }
        assert_eq!(address(257).to_string(), "10.32.1.1");
        assert_eq!(pod_network(9999).to_string(), "10.103.15.0");
    }

    #[test]
    fn nodes_are_ready_and_spread_over_zones() {
        let now = Timestamp::constant(1_700_000_000, 0);
        let zones: Vec<String> = (1..=3)
            .map(|index| {
                let node = node(index, &Size::default(), None, now).unwrap();
                assert!(is_ready(&node));
                let status = node.status.unwrap();
                assert_eq!(status.allocatable.unwrap()["cpu"].0, "16");
                node.metadata.labels.unwrap()["topology.kubernetes.io/zone"].clone()
            })
            .collect();
        assert_eq!(zones, ["sim-b", "sim-c", "sim-a"]);
        let lease = lease("sim-0001", "uid", now).unwrap();
        assert_eq!(lease.spec.unwrap().lease_duration_seconds, Some(40));
    }

    #[test]
    fn a_heartbeat_keeps_the_time_of_the_last_change() {
        let now = Timestamp::constant(1_700_000_000, 0);
        let ready = heartbeat(now)["status"]["conditions"][3].clone();
        assert_eq!(ready.get("lastTransitionTime"), None);
        assert_eq!(ready["lastHeartbeatTime"], "2023-11-14T22:13:20Z");
        let gone = turn(false, now)["status"]["conditions"][3].clone();
        assert_eq!(gone["status"], "False");
        assert_eq!(gone["lastTransitionTime"], "2023-11-14T22:13:20Z");
    }
}
