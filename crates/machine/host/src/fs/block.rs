//! Block devices: the disks of `/sys/block`, and names for device numbers.

use std::collections::{BTreeMap, HashMap};
use std::path::{Component, Path, PathBuf};

use crate::parse::{self, Malformed};
use crate::{HostRoot, ReadBuf, Result, list_dir, parse_file, read_file, read_text};

/// A whole disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    pub name: String,
    pub major: u32,
    pub minor: u32,
    pub size_bytes: u64,
    /// The active I/O scheduler, `none` without one.
    pub scheduler: String,
}

/// The disks of the machine by `(major, minor)`. Memory disks, loops, CD drives and hidden multipath legs are not.
pub fn disks(root: &HostRoot, buf: &mut ReadBuf) -> Result<BTreeMap<(u32, u32), Disk>> {
    let mut found = BTreeMap::new();
    let block = root.sys("block");
    for name in list_dir(&block)? {
        if ["loop", "ram", "sr"].iter().any(|p| name.starts_with(p)) {
            continue;
        }
        let dir = block.join(&name);
        if read_text(&dir.join("hidden"), buf)?.is_some_and(|hidden| hidden == "1") {
            continue;
        }
        // A disk that is being removed loses its files one by one.
        let (Some(number), Some(size)) = (
            parse_file(&dir.join("dev"), buf, parse_device_number)?,
            parse_file(&dir.join("size"), buf, parse::single)?,
        ) else {
            continue;
        };
        let scheduler = read_file(&dir.join("queue/scheduler"), buf)?.and_then(active_choice);
        let disk = Disk {
            name,
            major: number.0,
            minor: number.1,
            size_bytes: size.saturating_mul(512),
            scheduler: scheduler.unwrap_or("none").to_owned(),
        };
        found.insert(number, disk);
    }
    Ok(found)
}

/// `254:0`
fn parse_device_number(text: &[u8]) -> Result<(u32, u32), Malformed> {
    let line = parse::trim(text);
    let parsed = || {
        let colon = memchr::memchr(b':', line)?;
        let number = |text| parse::u64(text).and_then(|n| u32::try_from(n).ok());
        Some((number(&line[..colon])?, number(&line[colon + 1..])?))
    };
    parsed().ok_or_else(|| Malformed::at(0, line))
}

/// The word in brackets: `none [mq-deadline] kyber`.
fn active_choice(text: &[u8]) -> Option<&str> {
    let open = memchr::memchr(b'[', text)?;
    let rest = &text[open + 1..];
    let close = memchr::memchr(b']', rest)?;
    std::str::from_utf8(&rest[..close]).ok()
}

/// Names for device numbers, partitions included. Answers are kept, as cgroup I/O files name devices by number
/// every second.
#[derive(Debug, Clone)]
pub struct DeviceNames {
    root: HostRoot,
    known: HashMap<(u32, u32), Option<Box<str>>>,
}

impl DeviceNames {
    pub fn new(root: &HostRoot) -> Self {
        Self {
            root: root.clone(),
            known: HashMap::new(),
        }
    }

    /// The device's file, `/dev/sda1`; `None` for numbers without a device (memory and network file systems).
    pub fn path(&mut self, major: u32, minor: u32, buf: &mut ReadBuf) -> Option<&str> {
        let root = &self.root;
        self.known
            .entry((major, minor))
            .or_insert_with(|| look_up(root, major, minor, buf))
            .as_deref()
    }

    /// Numbers are given again when disks come and go.
    pub fn forget(&mut self) {
        self.known.clear();
    }
}

fn look_up(root: &HostRoot, major: u32, minor: u32, buf: &mut ReadBuf) -> Option<Box<str>> {
    let file = root.sys(format!("dev/block/{major}:{minor}/uevent"));
    // A file that cannot be read costs a name, not the sample.
    let text = read_file(&file, buf).ok()??;
    let name = parse::lines(text).find_map(|line| line.strip_prefix(b"DEVNAME="))?;
    Some(format!("/dev/{}", String::from_utf8_lossy(name)).into())
}

/// Device paths by file system uuid. Empty where udev made no links.
pub fn filesystem_uuids(root: &HostRoot) -> Result<BTreeMap<String, String>> {
    const DIR: &str = "/dev/disk/by-uuid";
    let dir = root.path(DIR);
    let mut found = BTreeMap::new();
    for uuid in list_dir(&dir)? {
        // The target is relative to the observed machine's directory, so it is followed on paper only.
        if let Ok(target) = std::fs::read_link(dir.join(&uuid)) {
            let device = resolve(Path::new(DIR), &target);
            found.insert(uuid, device.to_string_lossy().into_owned());
        }
    }
    Ok(found)
}

fn resolve(dir: &Path, target: &Path) -> PathBuf {
    let mut path = PathBuf::new();
    for part in dir.join(target).components() {
        match part {
            Component::ParentDir => {
                path.pop();
            }
            Component::CurDir => {}
            part => path.push(part),
        }
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use expect_test::{Expect, expect};
    use proptest::prelude::*;

    fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, HostRoot) {
        let temp = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = temp.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let root = HostRoot::new(temp.path());
        (temp, root)
    }

    #[track_caller]
    fn check(files: &[(&str, &str)], expected: Expect) {
        let (_temp, root) = tree(files);
        let text = match disks(&root, &mut ReadBuf::default()) {
            Ok(disks) => disks
                .iter()
                .map(|((major, minor), disk)| {
                    format!(
                        "{major}:{minor} {} {} {}\n",
                        disk.name, disk.size_bytes, disk.scheduler
                    )
                })
                .collect(),
            Err(error) => format!(
                "{}\n",
                error
                    .to_string()
                    .replace(&*root.prefix().to_string_lossy(), "")
            ),
        };
        expected.assert_eq(&text);
    }

    #[test]
    fn disks_of_a_tree() {
        check(
            &[
                ("sys/block/vda/dev", "254:0\n"),
                ("sys/block/vda/size", "536870912\n"),
                (
                    "sys/block/vda/queue/scheduler",
                    "none [mq-deadline] kyber bfq\n",
                ),
                ("sys/block/nvme0n1/dev", "259:0\n"),
                ("sys/block/nvme0n1/size", "2048\n"),
                ("sys/block/nvme0n1/queue/scheduler", "none\n"),
                ("sys/block/nvme0n1/hidden", "0\n"),
                ("sys/block/nvme0c1n1/dev", "259:1\n"),
                ("sys/block/nvme0c1n1/size", "2048\n"),
                ("sys/block/nvme0c1n1/hidden", "1\n"),
                ("sys/block/loop0/dev", "7:0\n"),
                ("sys/block/ram0/dev", "1:0\n"),
                ("sys/block/sr0/dev", "11:0\n"),
                ("sys/block/sda/dev", "8:0\n"),
            ],
            expect![[r#"
                254:0 vda 274877906944 mq-deadline
                259:0 nvme0n1 1048576 none
            "#]],
        );
        check(&[], expect![""]);
        check(
            &[("sys/block/sda/dev", "eight\n")],
            expect![[r#"
                /sys/block/sda/dev: line 1: cannot understand "eight"
            "#]],
        );
    }

    #[test]
    fn names_of_numbers() {
        let (_temp, root) = tree(&[
            (
                "sys/dev/block/8:1/uevent",
                "MAJOR=8\nMINOR=1\nDEVNAME=sda1\nDEVTYPE=partition\n",
            ),
            ("sys/dev/block/104:0/uevent", "DEVNAME=cciss/c0d0\n"),
        ]);
        let mut buf = ReadBuf::default();
        let mut names = DeviceNames::new(&root);
        assert_eq!(names.path(8, 1, &mut buf), Some("/dev/sda1"));
        assert_eq!(names.path(104, 0, &mut buf), Some("/dev/cciss/c0d0"));
        assert_eq!(names.path(0, 42, &mut buf), None);
        std::fs::remove_dir_all(root.sys("dev/block/8:1")).unwrap();
        assert_eq!(names.path(8, 1, &mut buf), Some("/dev/sda1"));
        names.forget();
        assert_eq!(names.path(8, 1, &mut buf), None);
    }

    #[test]
    fn uuids() {
        let (_temp, root) = tree(&[]);
        assert!(filesystem_uuids(&root).unwrap().is_empty());
        let dir = root.path("/dev/disk/by-uuid");
        std::fs::create_dir_all(&dir).unwrap();
        std::os::unix::fs::symlink("../../sda1", dir.join("ab-12")).unwrap();
        let found = filesystem_uuids(&root).unwrap();
        assert_eq!(found["ab-12"], "/dev/sda1");
    }

    #[test]
    fn this_machine() {
        disks(&HostRoot::new("/"), &mut ReadBuf::default()).unwrap();
    }

    proptest! {
        #[test]
        fn any_number_survives(major: u32, minor: u32) {
            let text = format!("{major}:{minor}\n");
            prop_assert_eq!(parse_device_number(text.as_bytes()).unwrap(), (major, minor));
        }

        #[test]
        fn no_input_panics(text: Vec<u8>) {
            let _ = parse_device_number(&text);
            let _ = active_choice(&text);
        }
    }
}
