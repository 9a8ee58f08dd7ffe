//! The `Device` object: which accelerators the node has, and how they are.

use jiff::Timestamp;
use plimsoll_api::quantity::Quantity;
use plimsoll_host::gpu::Device as Gpu;
use serde_json::{Map, Value, json};

use super::node_metric::{GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO};
use super::send::owner;

pub const GROUP: &str = "scheduling.koordinator.sh";
pub const VERSION: &str = "v1alpha1";
pub const KIND: &str = "Device";
pub const PLURAL: &str = "devices";
const API_VERSION: &str = "scheduling.koordinator.sh/v1alpha1";

const LABEL_MODEL: &str = "node.koordinator.sh/gpu-model";
const LABEL_DRIVER: &str = "node.koordinator.sh/gpu-driver-version";
const LABEL_VENDOR: &str = "node.koordinator.sh/gpu-vendor";
const HEALTHY: &str = "Healthy";

/// The object of a node with these GPUs.
pub fn device(name: &str, node_uid: &str, gpus: &[Gpu], now: Timestamp) -> Value {
    json!({
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {
            "name": name,
            "labels": labels(gpus),
            "ownerReferences": [owner(name, node_uid)],
        },
        "spec": {"devices": devices(gpus, now)},
    })
}

fn labels(gpus: &[Gpu]) -> Map<String, Value> {
    let mut labels = Map::new();
    let Some(first) = gpus.first() else {
        return labels;
    };
    labels.insert(LABEL_VENDOR.into(), "nvidia".into());
    // A node with several kinds is of none.
    let alike = gpus.iter().all(|gpu| gpu.model == first.model);
    if alike && !first.model.is_empty() {
        labels.insert(LABEL_MODEL.into(), model(&first.model).into());
        if !first.driver.is_empty() {
            labels.insert(LABEL_DRIVER.into(), first.driver.clone().into());
        }
    }
    labels
}

/// `NVIDIA A100-SXM4-80GB` is `A100-SXM4-80GB`, `Tesla T4` is `Tesla-T4`.
fn model(name: &str) -> String {
    name.strip_prefix("NVIDIA ")
        .unwrap_or(name)
        .replace(' ', "-")
}

fn devices(gpus: &[Gpu], now: Timestamp) -> Vec<Value> {
    let mut gpus: Vec<&Gpu> = gpus.iter().collect();
    gpus.sort_by_key(|gpu| gpu.minor);
    let devices = gpus.into_iter().map(|gpu| {
        let mut device = json!({
            "type": "gpu",
            "id": gpu.uuid,
            "minor": gpu.minor,
            "resources": {
                GPU_CORE: "100",
                GPU_MEMORY: Quantity::from_bytes(gpu.memory).to_string(),
                GPU_MEMORY_RATIO: "100",
            },
            "conditions": [condition(gpu, now)],
        });
        // Left out where it is not.
        if gpu.fault.is_none() {
            device["health"] = true.into();
        }
        if let Some(node) = gpu.numa_node
            && !gpu.pcie.is_empty()
            && !gpu.bus.is_empty()
        {
            device["topology"] =
                json!({"socketID": -1, "nodeID": node, "pcieID": gpu.pcie, "busID": gpu.bus});
        }
        device
    });
    devices.collect()
}

fn condition(gpu: &Gpu, now: Timestamp) -> Value {
    let (status, reason, message) = match gpu.fault {
        None => (
            "True",
            "DeviceHealthy".to_owned(),
            "device is healthy".to_owned(),
        ),
        Some(number) => (
            "False",
            format!("Xid{number}"),
            format!("the driver has reported the fatal error Xid {number}"),
        ),
    };
    json!({
        "type": HEALTHY, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
    })
}

/// What is ours as wanted, what others wrote as it was; a condition that is as it was has been so since then. `None`: it
/// already is so.
pub fn merged(present: &Value, wanted: &Value) -> Option<Value> {
    let mut devices = wanted["spec"]["devices"].clone();
    for device in devices.as_array_mut().into_iter().flatten() {
        let before = present["spec"]["devices"].as_array();
        let before = before.into_iter().flatten();
        let before = before
            .filter(|one| one["id"] == device["id"])
            .filter_map(|one| one["conditions"].get(0))
            .find(|one| one["status"] == device["conditions"][0]["status"]);
        if let Some(before) = before {
            device["conditions"][0]["lastTransitionTime"] = before["lastTransitionTime"].clone();
        }
    }
    let mut merged = present.clone();
    merged["spec"]["devices"] = devices;
    let mut labels = present["metadata"]["labels"]
        .as_object()
        .cloned()
        .unwrap_or_default();
    labels.retain(|name, _| ![LABEL_MODEL, LABEL_DRIVER, LABEL_VENDOR].contains(&name.as_str()));
    labels.extend(
        wanted["metadata"]["labels"]
            .as_object()
            .cloned()
            .unwrap_or_default(),
    );
    if !(labels.is_empty() && present["metadata"]["labels"].is_null()) {
        merged["metadata"]["labels"] = labels.into();
    }
    (merged != *present).then_some(merged)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn gpu(minor: u32, model: &str) -> Gpu {
        Gpu {
            minor,
            uuid: format!("GPU-{minor}"),
            model: model.into(),
            driver: "535.54".into(),
            memory: 80 << 30,
            numa_node: Some(1),
            pcie: "pci0000:3a".into(),
            bus: format!("0000:3{minor}:00.0"),
            fault: None,
        }
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn two_of_a_kind() {
        let gpus = [
            gpu(1, "NVIDIA A100-SXM4-80GB"),
            gpu(0, "NVIDIA A100-SXM4-80GB"),
        ];
        let found = device("n1", "u1", &gpus, at("2026-01-01T00:00:00Z"));
        assert_eq!(
            found["metadata"]["labels"],
            json!({LABEL_MODEL: "A100-SXM4-80GB", LABEL_DRIVER: "535.54", LABEL_VENDOR: "nvidia"})
        );
        assert_eq!(
            found["spec"]["devices"][0],
            json!({
                "type": "gpu", "id": "GPU-0", "minor": 0, "health": true,
                "resources": {
                    "koordinator.sh/gpu-core": "100",
                    "koordinator.sh/gpu-memory": "80Gi",
                    "koordinator.sh/gpu-memory-ratio": "100",
                },
                "topology": {"socketID": -1, "nodeID": 1, "pcieID": "pci0000:3a", "busID": "0000:30:00.0"},
                "conditions": [{
                    "type": "Healthy", "status": "True", "reason": "DeviceHealthy", "message": "device is healthy",
                    "lastTransitionTime": "2026-01-01T00:00:00Z",
                }],
            })
        );
        assert_eq!(found["spec"]["devices"][1]["minor"], 1);
    }

    #[test]
    fn mixed_kinds_have_no_model() {
        let labels = labels(&[gpu(0, "Tesla T4"), gpu(1, "Tesla P40")]);
        assert_eq!(labels.len(), 1);
        assert_eq!(model("Tesla T4"), "Tesla-T4");
    }

    #[test]
    fn a_fault_is_told_and_dated() {
        let before = device(
            "n1",
            "u1",
            &[gpu(0, "T4"), gpu(1, "T4")],
            at("2026-01-01T00:00:00Z"),
        );
        let mut broken = gpu(1, "T4");
        broken.fault = Some(79);
        let gpus = [gpu(0, "T4"), broken];
        let now = device("n1", "u1", &gpus, at("2026-01-02T00:00:00Z"));
        let mut present = before.clone();
        present["metadata"]["labels"]["mine"] = "1".into();
        present["metadata"]["resourceVersion"] = "7".into();
        let merged = merged(&present, &now).unwrap();
        let times = [0, 1].map(|index| {
            merged["spec"]["devices"][index]["conditions"][0]["lastTransitionTime"].clone()
        });
        assert_eq!(times, ["2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"]);
        assert_eq!(merged["spec"]["devices"][1].get("health"), None);
        assert_eq!(
            merged["spec"]["devices"][1]["conditions"][0]["reason"],
            "Xid79"
        );
        assert_eq!(merged["metadata"]["labels"]["mine"], "1");
        assert_eq!(super::merged(&merged, &now), None);
    }
}
