//! Parts of a machine that sysfs lists as directories: huge pages, memory modules, network interfaces.

use std::collections::BTreeMap;
use std::path::Path;

use crate::parse;
use crate::proc::net::is_ignored_interface;
use crate::{HostError, HostRoot, ReadBuf, Result, list_dir, read_file, read_text};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HugePages {
    pub page_size_kib: u64,
    pub num_pages: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DimmInfo {
    pub capacity: u64,
    pub dimm_count: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkDevice {
    pub name: String,
    pub mac_address: String,
    /// Mbit/s; -1 or 0 where the link has none.
    pub speed: i64,
    pub mtu: i64,
}

/// A file with one number; `Ok(None)` where it is absent.
pub(super) fn read_number(path: &Path, buf: &mut ReadBuf) -> Result<Option<u64>> {
    let parsed = match read_file(path, buf)? {
        Some(text) => parse::single(text),
        None => return Ok(None),
    };
    parsed
        .map(Some)
        .map_err(|at| HostError::malformed(path, at))
}

pub(super) fn read_signed(path: &Path, buf: &mut ReadBuf) -> Result<Option<i64>> {
    let Some(text) = read_file(path, buf)? else {
        return Ok(None);
    };
    let line = parse::trim(text);
    match parse::i64(line) {
        Some(number) => Ok(Some(number)),
        None => Err(HostError::malformed(path, parse::Malformed::at(0, line))),
    }
}

/// The huge pages below a `hugepages` directory, the machine's or a node's.
pub fn hugepages(dir: &Path, buf: &mut ReadBuf) -> Result<Vec<HugePages>> {
    let mut found = Vec::new();
    for name in list_dir(dir)? {
        let size = name
            .strip_prefix("hugepages-")
            .and_then(|rest| rest.strip_suffix("kB"))
            .and_then(|digits| digits.parse().ok());
        let count = read_number(&dir.join(&name).join("nr_hugepages"), buf)?;
        if let (Some(page_size_kib), Some(num_pages)) = (size, count) {
            found.push(HugePages {
                page_size_kib,
                num_pages,
            });
        }
    }
    Ok(found)
}

/// Memory modules by type, as far as the memory controller's driver knows them.
pub fn dimms_by_type(root: &HostRoot, buf: &mut ReadBuf) -> Result<BTreeMap<String, DimmInfo>> {
    let mut found: BTreeMap<String, DimmInfo> = BTreeMap::new();
    let controllers = root.sys("devices/system/edac/mc");
    for controller in list_dir(&controllers)? {
        if !is_numbered(&controller, "mc") {
            continue;
        }
        let dir = controllers.join(controller);
        for dimm in list_dir(&dir)? {
            if !is_numbered(&dimm, "dimm") {
                continue;
            }
            let kind = read_text(&dir.join(&dimm).join("dimm_mem_type"), buf)?;
            let mebibytes = read_number(&dir.join(&dimm).join("size"), buf)?;
            if let (Some(kind), Some(mebibytes)) = (kind, mebibytes) {
                let sum = found.entry(kind).or_default();
                sum.capacity = sum
                    .capacity
                    .saturating_add(mebibytes.saturating_mul(1 << 20));
                sum.dimm_count += 1;
            }
        }
    }
    Ok(found)
}

pub(super) fn is_numbered(name: &str, prefix: &str) -> bool {
    numbered(name, prefix).is_some()
}

/// `7` of `cpu7`.
pub(super) fn numbered(name: &str, prefix: &str) -> Option<u32> {
    let number = parse::u64(name.strip_prefix(prefix)?.as_bytes())?;
    u32::try_from(number).ok()
}

pub fn network_devices(root: &HostRoot, buf: &mut ReadBuf) -> Result<Vec<NetworkDevice>> {
    let dir = root.sys("class/net");
    let mut found = Vec::new();
    for name in list_dir(&dir)? {
        // The bonding driver keeps a plain file among the interfaces.
        if is_ignored_interface(name.as_bytes()) || !dir.join(&name).is_dir() {
            continue;
        }
        let device = dir.join(&name);
        let (Some(mac_address), Some(mtu)) = (
            read_text(&device.join("address"), buf)?,
            read_signed(&device.join("mtu"), buf)?,
        ) else {
            continue;
        };
        // Reading the speed of a link that is down or has none fails with EINVAL.
        let speed = read_signed(&device.join("speed"), buf)?.unwrap_or(0);
        found.push(NetworkDevice {
            name,
            mac_address,
            speed,
            mtu,
        });
    }
    Ok(found)
}
