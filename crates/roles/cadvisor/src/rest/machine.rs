//! The machine as JSON: hardware, disks, network devices, topology, versions.

use std::collections::BTreeMap;

use plimsoll_host::machine as host;
use serde::{Serialize, Serializer};

use super::json::Time;

#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(test, derive(serde::Deserialize), serde(default))]
pub struct MachineInfo {
    pub timestamp: Time,
    pub vendor_id: String,
    pub num_cores: u64,
    pub num_physical_cores: u64,
    pub num_sockets: u64,
    #[serde(skip_serializing_if = "super::json::is_zero")]
    pub num_books: u64,
    #[serde(skip_serializing_if = "super::json::is_zero")]
    pub num_drawers: u64,
    pub cpu_frequency_khz: u64,
    pub memory_capacity: u64,
    pub swap_capacity: u64,
    pub memory_by_type: BTreeMap<String, MemoryType>,
    pub nvm: Nvm,
    #[serde(serialize_with = "null_if_empty")]
    pub hugepages: Vec<Hugepages>,
    pub machine_id: String,
    pub system_uuid: String,
    pub boot_id: String,
    #[serde(serialize_with = "null_if_empty")]
    pub filesystems: Vec<FilesystemInfo>,
    /// By `major:minor`.
    pub disk_map: BTreeMap<String, DiskInfo>,
    #[serde(serialize_with = "null_if_empty")]
    pub network_devices: Vec<NetInfo>,
    #[serde(serialize_with = "null_if_empty")]
    pub topology: Vec<Node>,
    pub cloud_provider: String,
    pub instance_type: String,
    pub instance_id: String,
}

impl Default for MachineInfo {
    fn default() -> Self {
        Self {
            timestamp: Time(None),
            vendor_id: String::new(),
            num_cores: 0,
            num_physical_cores: 0,
            num_sockets: 0,
            num_books: 0,
            num_drawers: 0,
            cpu_frequency_khz: 0,
            memory_capacity: 0,
            swap_capacity: 0,
            memory_by_type: BTreeMap::new(),
            nvm: Nvm::default(),
            hugepages: Vec::new(),
            machine_id: String::new(),
            system_uuid: String::new(),
            boot_id: String::new(),
            filesystems: Vec::new(),
            disk_map: BTreeMap::new(),
            network_devices: Vec::new(),
            topology: Vec::new(),
            cloud_provider: UNKNOWN.to_owned(),
            instance_type: UNKNOWN.to_owned(),
            instance_id: String::new(),
        }
    }
}

impl From<&host::MachineInfo> for MachineInfo {
    fn from(info: &host::MachineInfo) -> Self {
        let by_type = info.memory_by_type.iter().map(|(kind, dimms)| {
            let memory = MemoryType {
                capacity: dimms.capacity,
                dimm_count: dimms.dimm_count,
            };
            (kind.clone(), memory)
        });
        let disks = info.disk_map.iter().map(|(&(major, minor), disk)| {
            let disk = DiskInfo {
                name: disk.name.clone(),
                major: u64::from(major),
                minor: u64::from(minor),
                size: disk.size_bytes,
                scheduler: disk.scheduler.clone(),
            };
            (format!("{major}:{minor}"), disk)
        });
        Self {
            timestamp: info.timestamp.into(),
            vendor_id: info.vendor_id.clone(),
            num_cores: info.num_cores as u64,
            num_physical_cores: info.num_physical_cores as u64,
            num_sockets: info.num_sockets as u64,
            num_books: info.num_books as u64,
            num_drawers: info.num_drawers as u64,
            cpu_frequency_khz: info.cpu_frequency_khz,
            memory_capacity: info.memory_capacity,
            swap_capacity: info.swap_capacity,
            memory_by_type: by_type.collect(),
            hugepages: hugepages(&info.hugepages),
            machine_id: info.machine_id.clone(),
            system_uuid: info.system_uuid.clone(),
            boot_id: info.boot_id.clone(),
            filesystems: info.filesystems.iter().map(FilesystemInfo::from).collect(),
            disk_map: disks.collect(),
            network_devices: info.network_devices.iter().map(NetInfo::from).collect(),
            topology: info.topology.iter().map(Node::from).collect(),
            ..Self::default()
        }
    }
}

fn hugepages(pages: &[host::HugePages]) -> Vec<Hugepages> {
    let shape = |p: &host::HugePages| Hugepages {
        page_size: p.page_size_kib,
        num_pages: p.num_pages,
    };
    pages.iter().map(shape).collect()
}

impl From<&host::FilesystemInfo> for FilesystemInfo {
    fn from(fs: &host::FilesystemInfo) -> Self {
        Self {
            device: fs.device.clone(),
            capacity: fs.capacity,
            r#type: fs.kind.to_owned(),
            inodes: fs.inodes,
            has_inodes: fs.has_inodes,
        }
    }
}

impl From<&host::NetworkDevice> for NetInfo {
    fn from(device: &host::NetworkDevice) -> Self {
        Self {
            name: device.name.clone(),
            mac_address: device.mac_address.clone(),
            speed: device.speed,
            mtu: device.mtu,
        }
    }
}

impl From<&host::Node> for Node {
    fn from(node: &host::Node) -> Self {
        Self {
            node_id: node.id,
            memory: node.memory,
            hugepages: hugepages(&node.hugepages),
            cores: node.cores.iter().map(Core::from).collect(),
            caches: caches(&node.caches),
            distances: node.distances.clone(),
        }
    }
}

impl From<&host::Core> for Core {
    fn from(core: &host::Core) -> Self {
        Self {
            core_id: core.id,
            thread_ids: core.thread_ids.clone(),
            caches: caches(&core.caches),
            uncore_caches: caches(&core.uncore_caches),
            socket_id: core.socket_id,
            book_id: core.book_id.clone().unwrap_or_default(),
            drawer_id: core.drawer_id.clone().unwrap_or_default(),
        }
    }
}

fn caches(caches: &[host::Cache]) -> Vec<Cache> {
    let shape = |c: &host::Cache| Cache {
        id: c.id,
        size: c.size,
        r#type: c.kind.clone(),
        level: c.level,
    };
    caches.iter().map(shape).collect()
}

const UNKNOWN: &str = "Unknown";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(serde::Deserialize))]
pub struct MemoryType {
    pub capacity: u64,
    pub dimm_count: u64,
}

/// No source for these is wired up, in the original as here; the keys are part of the contract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[cfg_attr(test, derive(serde::Deserialize))]
pub struct Nvm {
    pub memory_mode_capacity: u64,
    #[serde(rename = "app direct_mode_capacity")]
    pub app_direct_mode_capacity: u64,
    pub avg_power_budget: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(serde::Deserialize))]
pub struct Hugepages {
    /// KiB.
    pub page_size: u64,
    pub num_pages: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(serde::Deserialize))]
pub struct FilesystemInfo {
    pub device: String,
    pub capacity: u64,
    pub r#type: String,
    pub inodes: u64,
    pub has_inodes: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(serde::Deserialize))]
pub struct DiskInfo {
    pub name: String,
    pub major: u64,
    pub minor: u64,
    pub size: u64,
    pub scheduler: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(serde::Deserialize))]
pub struct NetInfo {
    pub name: String,
    pub mac_address: String,
    pub speed: i64,
    pub mtu: i64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(serde::Deserialize))]
pub struct Node {
    pub node_id: i64,
    pub memory: u64,
    #[serde(serialize_with = "null_if_empty")]
    pub hugepages: Vec<Hugepages>,
    #[serde(serialize_with = "null_if_empty")]
    pub cores: Vec<Core>,
    #[serde(serialize_with = "null_if_empty")]
    pub caches: Vec<Cache>,
    #[serde(serialize_with = "null_if_empty")]
    pub distances: Vec<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(serde::Deserialize))]
pub struct Core {
    pub core_id: i64,
    #[serde(serialize_with = "null_if_empty")]
    pub thread_ids: Vec<u32>,
    #[serde(serialize_with = "null_if_empty")]
    pub caches: Vec<Cache>,
    #[serde(serialize_with = "null_if_empty")]
    #[cfg_attr(test, serde(deserialize_with = "empty_if_null"))]
    pub uncore_caches: Vec<Cache>,
    pub socket_id: i64,
    #[serde(skip_serializing_if = "String::is_empty")]
    #[cfg_attr(test, serde(default))]
    pub book_id: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    #[cfg_attr(test, serde(default))]
    pub drawer_id: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(test, derive(serde::Deserialize))]
pub struct Cache {
    pub id: u64,
    pub size: u64,
    pub r#type: String,
    pub level: u64,
}

/// The original's lists that nothing was added to are `null`.
fn null_if_empty<T: Serialize, S: Serializer>(
    list: &[T],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    if list.is_empty() {
        return serializer.serialize_none();
    }
    list.serialize(serializer)
}

#[cfg(test)]
fn empty_if_null<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<Cache>, D::Error> {
    let list: Option<Vec<Cache>> = serde::Deserialize::deserialize(deserializer)?;
    Ok(list.unwrap_or_default())
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Versions {
    pub kernel: String,
    pub container_os: String,
    pub docker: String,
    pub docker_api: String,
    /// The release of cAdvisor that these interfaces follow, `v0.60.6`.
    pub cadvisor: String,
}

/// `/api/v2.x/attributes`: versions and most of the machine.
#[derive(Debug, Serialize)]
pub struct Attributes<'a> {
    kernel_version: &'a str,
    container_os_version: &'a str,
    docker_version: &'a str,
    docker_api_version: &'a str,
    cadvisor_version: &'a str,
    num_cores: u64,
    cpu_frequency_khz: u64,
    memory_capacity: u64,
    machine_id: &'a str,
    system_uuid: &'a str,
    #[serde(serialize_with = "null_if_empty")]
    hugepages: &'a [Hugepages],
    #[serde(serialize_with = "null_if_empty")]
    filesystems: &'a [FilesystemInfo],
    disk_map: &'a BTreeMap<String, DiskInfo>,
    #[serde(serialize_with = "null_if_empty")]
    network_devices: &'a [NetInfo],
    #[serde(serialize_with = "null_if_empty")]
    topology: &'a [Node],
    cloud_provider: &'a str,
    instance_type: &'a str,
}

pub fn attributes<'a>(machine: &'a MachineInfo, versions: &'a Versions) -> Attributes<'a> {
    Attributes {
        kernel_version: &versions.kernel,
        container_os_version: &versions.container_os,
        docker_version: &versions.docker,
        docker_api_version: &versions.docker_api,
        cadvisor_version: &versions.cadvisor,
        num_cores: machine.num_cores,
        cpu_frequency_khz: machine.cpu_frequency_khz,
        memory_capacity: machine.memory_capacity,
        machine_id: &machine.machine_id,
        system_uuid: &machine.system_uuid,
        hugepages: &machine.hugepages,
        filesystems: &machine.filesystems,
        disk_map: &machine.disk_map,
        network_devices: &machine.network_devices,
        topology: &machine.topology,
        cloud_provider: &machine.cloud_provider,
        instance_type: &machine.instance_type,
    }
}
