//! Makes the `Device` object: accelerators and RDMA devices of the node, and their health.

use jiff::Timestamp;
use plimsoll_api::quantity::Quantity;
use plimsoll_host::gpu::Device as Gpu;
use plimsoll_host::machine::RdmaDevice;
use serde_json::{Map, Value, json};

use super::node_metric::{GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO};
use super::upsert::owner;
use super::xpu::{self, Xpu};

pub const GROUP: &str = "scheduling.koordinator.sh";
pub const VERSION: &str = "v1alpha1";
pub const KIND: &str = "Device";
pub const PLURAL: &str = "devices";
const API_VERSION: &str = "scheduling.koordinator.sh/v1alpha1";

const LABEL_MODEL: &str = "node.koordinator.sh/gpu-model";
const LABEL_DRIVER: &str = "node.koordinator.sh/gpu-driver-version";
const LABEL_VENDOR: &str = "node.koordinator.sh/gpu-vendor";
const LABEL_PARTITION_POLICY: &str = "node.koordinator.sh/gpu-partition-policy";
const ANNOTATION_PARTITIONS: &str = "scheduling.koordinator.sh/gpu-partitions";
const HEALTHY: &str = "Healthy";
const RDMA: &str = "koordinator.sh/rdma";

/// What a node has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DeviceInventory {
    pub gpus: Vec<Gpu>,
    /// Whatever others tell of counts instead of GPUs: both would be the same devices.
    pub xpus: Vec<Xpu>,
    pub rdma: Vec<RdmaDevice>,
}

impl DeviceInventory {
    pub fn is_empty(&self) -> bool {
        self.gpus.is_empty() && self.xpus.is_empty() && self.rdma.is_empty()
    }
}

/// The object of a node with these devices.
pub fn device(name: &str, node_uid: &str, found: &DeviceInventory, now: Timestamp) -> Value {
    let mut devices = match found.xpus.is_empty() {
        true => gpus(&found.gpus, now),
        false => xpus(&found.xpus, now),
    };
    devices.extend(found.rdma.iter().map(rdma));
    let mut metadata = json!({
        "name": name,
        "labels": labels(found),
        "ownerReferences": [owner(name, node_uid)],
    });
    if let Some(partitions) = xpu::partitions(&found.xpus) {
        metadata["annotations"] = json!({ANNOTATION_PARTITIONS: partitions.to_string()});
    }
    json!({
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": metadata,
        "spec": {"devices": devices},
    })
}

fn labels(found: &DeviceInventory) -> Map<String, Value> {
    let mut labels = Map::new();
    if let Some(first) = found.xpus.first() {
        labels.insert(LABEL_VENDOR.into(), first.vendor.clone().into());
        labels.insert(LABEL_MODEL.into(), first.model.clone().into());
        if let Some(policy) = xpu::partition_policy(&found.xpus) {
            labels.insert(LABEL_PARTITION_POLICY.into(), policy.into());
        }
        return labels;
    }
    let gpus = &found.gpus;
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

fn gpus(gpus: &[Gpu], now: Timestamp) -> Vec<Value> {
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
            "conditions": [gpu_condition(gpu, now)],
        });
        health(&mut device, gpu.fault.is_none());
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

/// Left out where it is not.
fn health(device: &mut Value, healthy: bool) {
    if healthy {
        device["health"] = true.into();
    }
}

fn gpu_condition(gpu: &Gpu, now: Timestamp) -> Value {
    let fault = gpu.fault.map(|number| {
        let message = format!("the driver has reported the fatal error Xid {number}");
        (format!("Xid{number}"), message)
    });
    condition(fault, now)
}

/// A fault is a reason and a message.
fn condition(fault: Option<(String, String)>, now: Timestamp) -> Value {
    let (status, (reason, message)) = match fault {
        None => (
            "True",
            ("DeviceHealthy".to_owned(), "device is healthy".to_owned()),
        ),
        Some(fault) => ("False", fault),
    };
    json!({
        "type": HEALTHY, "status": status, "reason": reason, "message": message,
        "lastTransitionTime": now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
    })
}

fn xpus(xpus: &[Xpu], now: Timestamp) -> Vec<Value> {
    let devices = xpus.iter().map(|xpu| {
        let mut device = json!({
            "type": "gpu",
            "id": xpu.uuid,
            "minor": xpu.number(),
            "resources": xpu.resources(),
        });
        health(&mut device, xpu.is_healthy());
        if let Some(place) = xpu.place() {
            device["topology"] = place;
        }
        if let Some(status) = &xpu.status {
            let message = match status.err_message.as_str() {
                "" => "device is unhealthy",
                text => text,
            };
            let fault = (!status.healthy).then(|| (reason(&status.err_code), message.to_owned()));
            device["conditions"] = json!([condition(fault, now)]);
        }
        device
    });
    devices.collect()
}

/// A code as conditions can have it: one that begins with a digit, say, would have the whole object refused.
fn reason(code: &str) -> String {
    let fits = |one: &char| one.is_ascii_alphanumeric() || matches!(one, '_' | ',' | ':');
    let code: String = code.chars().filter(fits).collect();
    match code.trim_end_matches([',', ':']) {
        "" => "Unknown".to_owned(),
        code if code.starts_with(|one: char| one.is_ascii_alphabetic()) => code.to_owned(),
        code => format!("Code{code}"),
    }
}

fn rdma(card: &RdmaDevice) -> Value {
    let mut device = json!({
        "type": "rdma",
        "id": card.address,
        "minor": card.minor,
        "resources": {RDMA: "100"},
        "topology": {
            "socketID": -1,
            "nodeID": card.place.numa_node.unwrap_or(0),
            "pcieID": card.place.root,
            "busID": card.address,
        },
    });
    health(&mut device, card.healthy);
    if !card.functions.is_empty() {
        let functions = card.functions.iter();
        let functions = functions.map(|address| json!({"minor": -1, "busID": address}));
        device["vfGroups"] = json!([{"vfs": functions.collect::<Vec<_>>()}]);
    }
    device
}

/// Our fields as wanted, fields of others unchanged; an unchanged condition keeps its transition time. `None`: no change.
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
    let owned = [LABEL_MODEL, LABEL_DRIVER, LABEL_VENDOR];
    merge_owned_keys(
        &mut merged["metadata"]["labels"],
        &wanted["metadata"]["labels"],
        &owned,
    );
    // Partitions may be somebody else's word where nobody tells us of any.
    let annotations = &wanted["metadata"]["annotations"];
    merge_owned_keys(&mut merged["metadata"]["annotations"], annotations, &[]);
    if let Some(metadata) = merged["metadata"].as_object_mut() {
        metadata.retain(|_, value| !value.is_null());
    }
    (merged != *present).then_some(merged)
}

/// Merges the wanted keys into those of others; owned keys that are not wanted are removed.
fn merge_owned_keys(present: &mut Value, wanted: &Value, owned: &[&str]) {
    let mut mixed = present.as_object().cloned().unwrap_or_default();
    mixed.retain(|name, _| !owned.contains(&name.as_str()));
    mixed.extend(wanted.as_object().cloned().unwrap_or_default());
    if !(mixed.is_empty() && present.is_null()) {
        *present = mixed.into();
    }
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

    fn of(gpus: &[Gpu]) -> DeviceInventory {
        DeviceInventory {
            gpus: gpus.to_vec(),
            ..DeviceInventory::default()
        }
    }

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn codes_that_are_no_reasons() {
        for (code, expected) in [
            ("", "Unknown"),
            ("Xid79", "Xid79"),
            ("0x80f78008", "Code0x80f78008"),
            ("E-42:", "E42"),
            ("::", "Unknown"),
        ] {
            assert_eq!(reason(code), expected);
        }
    }

    #[test]
    fn two_of_a_kind() {
        let gpus = [
            gpu(1, "NVIDIA A100-SXM4-80GB"),
            gpu(0, "NVIDIA A100-SXM4-80GB"),
        ];
        let found = device("n1", "u1", &of(&gpus), at("2026-01-01T00:00:00Z"));
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
        let labels = labels(&of(&[gpu(0, "Tesla T4"), gpu(1, "Tesla P40")]));
        assert_eq!(labels.len(), 1);
        assert_eq!(model("Tesla T4"), "Tesla-T4");
    }

    #[test]
    fn a_fault_is_reported_and_dated() {
        let before = device(
            "n1",
            "u1",
            &of(&[gpu(0, "T4"), gpu(1, "T4")]),
            at("2026-01-01T00:00:00Z"),
        );
        let mut broken = gpu(1, "T4");
        broken.fault = Some(79);
        let gpus = [gpu(0, "T4"), broken];
        let now = device("n1", "u1", &of(&gpus), at("2026-01-02T00:00:00Z"));
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

    #[test]
    fn network_cards_and_what_others_tell_of() {
        let xpu: Xpu = serde_json::from_value(json!({
            "vendor": "huawei", "model": "Ascend-910B", "uuid": "A", "minor": "3",
            "resources": {"gpu-core": "100"},
            "topology": {"p2pLinks": [{"peerMinor": "1", "type": "HCCS"}], "mustHonorPartition": true},
            "status": {"healthy": false},
        }))
        .unwrap();
        let card = RdmaDevice {
            minor: 1,
            address: "0000:3b:00.1".into(),
            place: plimsoll_host::machine::PciLocation {
                root: "pci0000:3a".into(),
                numa_node: None,
            },
            healthy: true,
            functions: vec!["0000:3b:00.2".into()],
        };
        let found = DeviceInventory {
            gpus: vec![gpu(0, "T4")],
            xpus: vec![xpu],
            rdma: vec![card],
        };
        let object = device("n1", "u1", &found, at("2026-01-01T00:00:00Z"));
        assert_eq!(
            object["spec"]["devices"],
            json!([
                {
                    "type": "gpu", "id": "A", "minor": 3,
                    "resources": {"koordinator.sh/gpu-core": "100", "koordinator.sh/gpu-memory-ratio": "100"},
                    "topology": {"socketID": -1, "nodeID": -1, "pcieID": "", "busID": ""},
                    "conditions": [{
                        "type": "Healthy", "status": "False", "reason": "Unknown", "message": "device is unhealthy",
                        "lastTransitionTime": "2026-01-01T00:00:00Z",
                    }],
                },
                {
                    "type": "rdma", "id": "0000:3b:00.1", "minor": 1, "health": true,
                    "resources": {"koordinator.sh/rdma": "100"},
                    "topology": {"socketID": -1, "nodeID": 0, "pcieID": "pci0000:3a", "busID": "0000:3b:00.1"},
                    "vfGroups": [{"vfs": [{"minor": -1, "busID": "0000:3b:00.2"}]}],
                },
            ])
        );
        assert_eq!(
            object["metadata"]["labels"],
            json!({LABEL_VENDOR: "huawei", LABEL_MODEL: "Ascend-910B", LABEL_PARTITION_POLICY: "Honor"})
        );
        let table = &object["metadata"]["annotations"][ANNOTATION_PARTITIONS];
        let table: Value = serde_json::from_str(table.as_str().unwrap()).unwrap();
        let partition = json!({"minors": [1, 3], "gpuLinkType": "HCCS", "allocationScore": 1});
        assert_eq!(table, json!({"2": [partition]}));
        assert_eq!(super::merged(&object, &object), None);
        // Who else tells of partitions is left alone.
        let foreign = super::merged(
            &object,
            &device("n1", "u1", &of(&[]), at("2026-01-01T00:00:00Z")),
        );
        let foreign = foreign.unwrap();
        assert!(foreign["metadata"]["annotations"][ANNOTATION_PARTITIONS].is_string());
        assert_eq!(
            foreign["metadata"]["labels"],
            json!({LABEL_PARTITION_POLICY: "Honor"})
        );
    }
}
