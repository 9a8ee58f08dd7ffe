//! Local disks with their partitions, volume groups and mounts, from sysfs and the mount table.

use std::collections::BTreeMap;
use std::path::Path;

use super::Mount;
use crate::{HostRoot, ReadBuf, Result, list_dir, read_text};

/// Devices are named by their path, `/dev/vda`, and numbered `253:0`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LocalStorage {
    pub disk_numbers: BTreeMap<String, String>,
    pub disks_by_number: BTreeMap<String, String>,
    pub partition_disks: BTreeMap<String, String>,
    /// Of LVM: the disk below a group.
    pub volume_group_disks: BTreeMap<String, String>,
    /// Of LVM: the group of `/dev/mapper/GROUP-VOLUME`.
    pub volume_groups: BTreeMap<String, String>,
    pub mount_disks: BTreeMap<String, String>,
}

/// What is no disk of its own, or holds nothing that matters.
const UNINTERESTING: [&str; 4] = ["loop", "ram", "sr", "zram"];

impl LocalStorage {
    pub fn read(root: &HostRoot, mounts: &[Mount], buf: &mut ReadBuf) -> Result<Self> {
        let mut found = Self::default();
        // Every device by its number: what is mounted is named by that.
        let mut numbers = BTreeMap::new();
        let block = root.sys("block");
        for name in list_dir(&block)? {
            if UNINTERESTING.iter().any(|p| name.starts_with(p)) {
                continue;
            }
            let dir = block.join(&name);
            let Some(number) = read_text(&dir.join("dev"), buf)? else {
                continue;
            };
            if let Some(mapped) = read_text(&dir.join("dm/name"), buf)? {
                let device = format!("/dev/mapper/{mapped}");
                numbers.insert(number, device.clone());
                found.add_volume(&dir, &mapped, device, &block, buf)?;
                continue;
            }
            let disk = format!("/dev/{name}");
            for part in list_dir(&dir)? {
                let part_dir = dir.join(&part);
                if !part_dir.join("partition").exists() {
                    continue;
                }
                if let Some(number) = read_text(&part_dir.join("dev"), buf)? {
                    numbers.insert(number, disk.clone());
                }
                found
                    .partition_disks
                    .insert(format!("/dev/{part}"), disk.clone());
            }
            numbers.insert(number.clone(), disk.clone());
            found.disk_numbers.insert(disk.clone(), number.clone());
            found.disks_by_number.insert(number, disk);
        }
        for mount in mounts {
            let number = format!("{}:{}", mount.major, mount.minor);
            if let Some(device) = numbers.get(&number) {
                found
                    .mount_disks
                    .insert(mount.point.clone(), device.clone());
            }
        }
        Ok(found)
    }

    fn add_volume(
        &mut self,
        dir: &Path,
        mapped: &str,
        device: String,
        block: &Path,
        buf: &mut ReadBuf,
    ) -> Result<()> {
        let uuid = read_text(&dir.join("dm/uuid"), buf)?.unwrap_or_default();
        if !uuid.starts_with("LVM-") {
            return Ok(());
        }
        let Some(group) = volume_group(mapped) else {
            return Ok(());
        };
        for slave in list_dir(&dir.join("slaves"))? {
            let disk = whole_disk(block, &slave)?;
            self.volume_group_disks
                .insert(group.clone(), format!("/dev/{disk}"));
        }
        self.volume_groups.insert(device, group);
        Ok(())
    }
}

/// The disk that a partition is on; a disk is its own.
fn whole_disk(block: &Path, device: &str) -> Result<String> {
    let disks = list_dir(block)?;
    let holder = disks
        .iter()
        .find(|disk| device.starts_with(disk.as_str()) && block.join(disk).join(device).is_dir());
    Ok(holder.cloned().unwrap_or_else(|| device.to_owned()))
}

/// The group of `GROUP-VOLUME`, where a dash that is part of a name is doubled.
fn volume_group(mapped: &str) -> Option<String> {
    let bytes = mapped.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match (bytes[at], bytes.get(at + 1)) {
            (b'-', Some(b'-')) => at += 2,
            (b'-', _) => return Some(mapped[..at].replace("--", "-")),
            _ => at += 1,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_volumes() {
        for (name, expected) in [
            ("vg-lv", Some("vg")),
            ("my--vg-data", Some("my-vg")),
            ("a--b--c-d--e", Some("a-b-c")),
            ("plain", None),
        ] {
            assert_eq!(volume_group(name).as_deref(), expected, "{name}");
        }
    }

    #[test]
    fn disks_partitions_volumes_and_mounts() {
        let dir = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        put("sys/block/vda/dev", "253:0\n");
        put("sys/block/vda/vda1/partition", "1\n");
        put("sys/block/vda/vda1/dev", "253:1\n");
        put("sys/block/vda/queue/scheduler", "none\n");
        put("sys/block/vdb/dev", "253:16\n");
        put("sys/block/loop0/dev", "7:0\n");
        put("sys/block/dm-0/dev", "252:0\n");
        put("sys/block/dm-0/dm/name", "my--vg-data\n");
        put("sys/block/dm-0/dm/uuid", "LVM-abcdef\n");
        put("sys/block/dm-0/slaves/vdb/dev", "253:16\n");
        put("sys/block/dm-1/dev", "252:1\n");
        put("sys/block/dm-1/dm/name", "secret\n");
        put("sys/block/dm-1/dm/uuid", "CRYPT-1\n");
        put(
            "proc/1/mountinfo",
            "20 1 253:1 / / rw - ext4 /dev/vda1 rw\n\
             21 20 252:0 / /data rw - ext4 /dev/mapper/my--vg-data rw\n\
             22 20 0:5 / /proc rw - proc proc rw\n",
        );
        let root = HostRoot::new(dir.path());
        let mut buf = ReadBuf::default();
        let mounts = super::super::read_mounts(&root, &mut buf).unwrap();
        let found = LocalStorage::read(&root, &mounts, &mut buf);
        let found = found.unwrap();
        let map = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
            let owned = pairs.iter().map(|(k, v)| ((*k).into(), (*v).into()));
            owned.collect()
        };
        let expected = LocalStorage {
            disk_numbers: map(&[("/dev/vda", "253:0"), ("/dev/vdb", "253:16")]),
            disks_by_number: map(&[("253:0", "/dev/vda"), ("253:16", "/dev/vdb")]),
            partition_disks: map(&[("/dev/vda1", "/dev/vda")]),
            volume_group_disks: map(&[("my-vg", "/dev/vdb")]),
            volume_groups: map(&[("/dev/mapper/my--vg-data", "my-vg")]),
            mount_disks: map(&[("/", "/dev/vda"), ("/data", "/dev/mapper/my--vg-data")]),
        };
        assert_eq!(found, expected);
    }
}
