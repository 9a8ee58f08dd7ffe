//! Accelerators that others tell of: files in a folder, each a list of devices as Koordinator's agent reads them.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;
use std::path::Path;

use plimsoll_api::quantity::Quantity;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::node_metric::{GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO};

#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Xpu {
    pub vendor: String,
    pub model: String,
    pub uuid: String,
    pub minor: String,
    pub resources: BTreeMap<String, String>,
    pub topology: Option<Topology>,
    pub status: Option<Status>,
}

impl Default for Xpu {
    fn default() -> Self {
        Self {
            vendor: String::new(),
            model: String::new(),
            uuid: String::new(),
            minor: "0".to_owned(),
            resources: BTreeMap::new(),
            topology: None,
            status: None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Topology {
    pub p2p_links: Option<Vec<Link>>,
    pub must_honor_partition: bool,
    #[serde(rename = "nodeID")]
    pub node_id: String,
    #[serde(rename = "pcieID")]
    pub pcie_id: String,
    #[serde(rename = "busID")]
    pub bus_id: String,
}

/// A fast way to others, whose numbers are separated by commas.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Link {
    pub peer_minor: String,
    #[serde(rename = "type")]
    pub kind: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Status {
    pub healthy: bool,
    pub err_code: String,
    pub err_message: String,
}

/// All that the folder's files tell, and which files could not be read and why. A folder that is not there tells of none.
pub fn read(folder: &Path) -> (Vec<Xpu>, Vec<String>) {
    let mut found = Vec::new();
    let mut problems = Vec::new();
    let mut paths: Vec<_> = match std::fs::read_dir(folder) {
        Ok(entries) => entries.flatten().map(|entry| entry.path()).collect(),
        Err(_) => return (found, problems),
    };
    paths.sort();
    for path in paths.iter().filter(|path| path.is_file()).take(MOST_FILES) {
        let parsed = read_file(path).and_then(|bytes| parse(&bytes));
        match parsed {
            Ok(devices) => found.extend(devices),
            Err(problem) => problems.push(format!("{}: {problem}", path.display())),
        }
    }
    found.sort_by_key(|device| device.number());
    (found, problems)
}

/// Of a folder, and of a file: others write them.
const MOST_FILES: usize = 256;
const MOST_BYTES: u64 = 1 << 20;

fn read_file(path: &Path) -> Result<Vec<u8>, String> {
    let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
    let mut bytes = Vec::new();
    let read = file.take(MOST_BYTES + 1).read_to_end(&mut bytes);
    match read {
        Ok(read) if read as u64 > MOST_BYTES => Err(format!("it has more than {MOST_BYTES} bytes")),
        Ok(_) => Ok(bytes),
        Err(error) => Err(error.to_string()),
    }
}

fn parse(bytes: &[u8]) -> Result<Vec<Xpu>, String> {
    let devices: Option<Vec<Xpu>> =
        serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let devices = devices.unwrap_or_default();
    match devices.iter().find(|device| device.number().is_none()) {
        Some(odd) => Err(format!("{:?} is no device's number", odd.minor)),
        None => Ok(devices),
    }
}

impl Xpu {
    pub fn number(&self) -> Option<u32> {
        self.minor.parse().ok()
    }

    pub fn is_healthy(&self) -> bool {
        self.status.as_ref().is_none_or(|status| status.healthy)
    }

    /// What of it can be given away; amounts that are none are left out.
    pub fn resources(&self) -> Map<String, Value> {
        let mut resources = Map::new();
        resources.insert(GPU_MEMORY_RATIO.to_owned(), "100".into());
        for (name, amount) in &self.resources {
            let name = match name.as_str() {
                "gpu-core" => GPU_CORE,
                "gpu-memory" => GPU_MEMORY,
                name => name,
            };
            if let Ok(amount) = amount.parse::<Quantity>() {
                resources.insert(name.to_owned(), amount.to_string().into());
            }
        }
        resources
    }

    /// `None`: its file does not say.
    pub fn place(&self) -> Option<Value> {
        let topology = self.topology.as_ref()?;
        let node: i32 = match topology.node_id.as_str() {
            "" => -1,
            id => id.parse().unwrap_or(0),
        };
        Some(json!({
            "socketID": -1, "nodeID": node,
            "pcieID": topology.pcie_id, "busID": topology.bus_id,
        }))
    }

    fn links(&self) -> Option<&[Link]> {
        self.topology.as_ref()?.p2p_links.as_deref()
    }
}

/// Whether pods should, or must, get devices that have a fast way to each other; `None`: there are no such ways.
pub fn partition_policy(devices: &[Xpu]) -> Option<&'static str> {
    let first = devices.first()?;
    first.links()?;
    let topology = first.topology.as_ref()?;
    Some(match topology.must_honor_partition {
        true => "Honor",
        false => "Prefer",
    })
}

/// Which devices have a fast way to each other, by how many they are; `None`: none have.
pub fn partitions(devices: &[Xpu]) -> Option<Value> {
    let mut seen = BTreeSet::new();
    let mut table: BTreeMap<usize, Vec<Value>> = BTreeMap::new();
    for device in devices {
        for link in device.links().into_iter().flatten() {
            if link.peer_minor.is_empty() || link.kind.is_empty() {
                continue;
            }
            let peers = link.peer_minor.split(',');
            let numbers = peers.chain([device.minor.as_str()]);
            let minors: BTreeSet<u32> = numbers
                .filter_map(|number| number.trim().parse().ok())
                .collect();
            if seen.insert(minors.clone()) {
                let partition =
                    json!({"minors": minors, "gpuLinkType": link.kind, "allocationScore": 1});
                table.entry(minors.len()).or_default().push(partition);
            }
        }
    }
    (!table.is_empty()).then(|| json!(table))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the original's users write it.
    const FILE: &str = r#"[
        {"vendor": "huawei", "model": "Ascend-910B", "uuid": "B", "minor": "1",
         "resources": {"huawei.com/npu-core": "32", "gpu-memory": "32Gi", "huawei.com/dvpp": "many"},
         "topology": {"p2pLinks": [{"peerMinor": "0,2", "type": "HCCS"}], "socketID": "0", "nodeID": "0",
            "pcieID": "0000:00:08.0", "busID": "0000:00:08.0"},
         "status": {"healthy": false, "errCode": "E1", "errMessage": "broken"}},
        {"vendor": "huawei", "model": "Ascend-910B", "uuid": "A", "minor": "0",
         "topology": {"p2pLinks": [{"peerMinor": "1,2", "type": "HCCS"}, {"peerMinor": "1", "type": "HCCS"}]}}
    ]"#;

    #[test]
    fn what_a_file_tells() {
        let devices = parse(FILE.as_bytes()).unwrap();
        let first = &devices[0];
        assert_eq!(
            Value::Object(first.resources()),
            json!({
                "koordinator.sh/gpu-memory-ratio": "100",
                "koordinator.sh/gpu-memory": "32Gi",
                "huawei.com/npu-core": "32",
            })
        );
        assert!(!first.is_healthy() && devices[1].is_healthy());
        assert_eq!(first.place().unwrap()["nodeID"], 0);
        assert_eq!(devices[1].place().unwrap()["nodeID"], -1);
        assert_eq!(partition_policy(&devices), Some("Prefer"));
        assert_eq!(
            partitions(&devices).unwrap(),
            json!({
                "2": [{"minors": [0, 1], "gpuLinkType": "HCCS", "allocationScore": 1}],
                "3": [{"minors": [0, 1, 2], "gpuLinkType": "HCCS", "allocationScore": 1}],
            })
        );
        assert_eq!(partitions(&[]), None);
    }

    #[test]
    fn a_broken_file_costs_itself() {
        let dir = tempfile::tempdir().unwrap();
        let put = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
        put("a.json", FILE);
        put("b.json", "[{");
        put("c.json", r#"[{"minor": "first"}]"#);
        put("d.json", "null");
        let (devices, problems) = read(dir.path());
        let uuids: Vec<_> = devices.iter().map(|device| &*device.uuid).collect();
        assert_eq!(uuids, ["A", "B"]);
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(problems[1].contains("c.json") && problems[1].contains("first"));
        assert_eq!(read(&dir.path().join("none")), (Vec::new(), Vec::new()));
    }
}
