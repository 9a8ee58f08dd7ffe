//! The machine as a whole: processors, memory, disks, interfaces, identity.

mod cpuinfo;
mod devices;
mod identity;
mod pci;
mod processors;
mod topology;

use std::collections::{BTreeMap, HashMap};

use crate::fs::{Disk, Partitions, StatfsWorker, disks};
use crate::proc::meminfo::read_meminfo;
use crate::{HostRoot, ReadBuf, Result, Timestamp, read_file};

pub use cpuinfo::{Cpuinfo, parse_cpuinfo};
pub use devices::{DimmInfo, HugePages, NetworkDevice, dimms_by_type, hugepages, network_devices};
pub use identity::{
    BOOT_ID_FILES, IdFiles, MACHINE_ID_FILES, first_readable, kernel_version, os_version,
    parse_os_release, system_uuid,
};
pub use pci::{PciLocation, RdmaDevice, rdma_cards};
pub use processors::{NodeCpuInfo, NodeNumaInfo, NumaNodeFacts, Processor};
pub use topology::{Cache, Core, Node, Topology};

/// Everything that a report says about a machine. Bytes unless the name says otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MachineInfo {
    pub timestamp: Timestamp,
    pub vendor_id: String,
    /// Hardware threads that are online.
    pub num_cores: usize,
    pub num_physical_cores: usize,
    pub num_sockets: usize,
    /// Books and drawers are levels of mainframes only.
    pub num_books: usize,
    pub num_drawers: usize,
    /// Zero where the kernel does not say.
    pub cpu_frequency_khz: u64,
    pub memory_capacity: u64,
    pub swap_capacity: u64,
    pub memory_by_type: BTreeMap<String, DimmInfo>,
    pub hugepages: Vec<HugePages>,
    pub machine_id: String,
    pub system_uuid: String,
    pub boot_id: String,
    /// Left empty by [`MachineInfo::read`]: see [`filesystems`].
    pub filesystems: Vec<FilesystemInfo>,
    pub disk_map: BTreeMap<(u32, u32), Disk>,
    pub network_devices: Vec<NetworkDevice>,
    pub topology: Vec<Node>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FilesystemInfo {
    pub device: String,
    pub major: u32,
    pub minor: u32,
    pub capacity: u64,
    /// `vfs`, `zfs` or `devicemapper`.
    pub kind: &'static str,
    pub inodes: u64,
    pub has_inodes: bool,
}

impl MachineInfo {
    pub fn read(
        root: &HostRoot,
        files: &IdFiles,
        now: Timestamp,
        buf: &mut ReadBuf,
    ) -> Result<Self> {
        let cpus = read_file(&root.proc("cpuinfo"), buf)?
            .map(parse_cpuinfo)
            .unwrap_or_default();
        let topology = Topology::read(root, buf)?;
        let memory = read_meminfo(root, buf)?.unwrap_or_default();
        // sysfs knows cores by socket; cpuinfo is asked only on machines without a topology directory.
        let by = |from_sysfs: usize, from_cpuinfo: usize| match from_sysfs {
            0 => from_cpuinfo,
            found => found,
        };
        Ok(Self {
            timestamp: now,
            num_cores: by(topology.num_threads(), cpus.processors),
            num_physical_cores: by(topology.num_cores(), cpus.cores),
            num_sockets: by(topology.num_sockets(), cpus.sockets),
            num_books: topology.num_books(),
            num_drawers: topology.num_drawers(),
            cpu_frequency_khz: match max_frequency_khz(root, buf)? {
                Some(khz) => khz,
                None => cpus.frequency_khz.unwrap_or(0),
            },
            vendor_id: cpus.vendor_id,
            memory_capacity: memory.total,
            swap_capacity: memory.swap_total,
            memory_by_type: dimms_by_type(root, buf)?,
            hugepages: hugepages(&root.sys("kernel/mm/hugepages"), buf)?,
            machine_id: first_readable(root, &files.machine_id, buf),
            system_uuid: system_uuid(root, buf),
            boot_id: first_readable(root, &files.boot_id, buf),
            filesystems: Vec::new(),
            disk_map: disks(root, buf)?,
            network_devices: network_devices(root, buf)?,
            topology: topology.nodes,
        })
    }
}

fn max_frequency_khz(root: &HostRoot, buf: &mut ReadBuf) -> Result<Option<u64>> {
    let path = root.sys("devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq");
    devices::read_number(&path, buf)
}

/// The file systems of the machine with their sizes. One that does not answer is left out.
pub fn filesystems(
    root: &HostRoot,
    partitions: &Partitions,
    prober: &mut StatfsWorker,
) -> Vec<FilesystemInfo> {
    let mut asked = HashMap::new();
    let mut found = Vec::new();
    for (device, partition) in partitions.iter() {
        let number = (partition.major, partition.minor);
        let known = asked.get(&number).filter(|_| partition.shares_figures());
        let usage = match known {
            Some(usage) => *usage,
            None => match partition.usage(root, Some(&mut *prober)) {
                Ok(usage) => usage,
                Err(_) => continue,
            },
        };
        asked.insert(number, usage);
        found.push(FilesystemInfo {
            device: device.to_owned(),
            major: partition.major,
            minor: partition.minor,
            capacity: usage.capacity,
            kind: partition.kind.name(),
            inodes: usage.inodes.map_or(0, |inodes| inodes.0),
            has_inodes: usage.has_inodes(),
        });
    }
    found
}

#[cfg(test)]
mod tests;
