//! Which mounts are reported as file systems, and under which device names.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, major, minor};

use super::mountinfo::Mount;
use super::statfs::{DeviceNumber, FsUsage, StatfsWorker, statfs, statfs_mounted};
use crate::{HostError, HostRoot, Result};

/// How a file system's figures are obtained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FsKind {
    Vfs,
    /// The pool's figures; `statfs` where the tool cannot be had.
    Zfs,
    /// A thin pool.
    DeviceMapper,
}

impl FsKind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Vfs => "vfs",
            Self::Zfs => "zfs",
            Self::DeviceMapper => "devicemapper",
        }
    }

    /// `None`: not a file system that holds anybody's data.
    fn of(kind: &str) -> Option<Self> {
        match kind {
            "zfs" => Some(Self::Zfs),
            "devicemapper" => Some(Self::DeviceMapper),
            "btrfs" | "overlay" | "tmpfs" | "xfs" | "squashfs" | "f2fs" | "jfs" | "reiserfs"
            | "hfs" | "hfsplus" | "ntfs" | "ntfs3" | "vfat" | "fat" | "msdos" | "exfat" | "udf"
            | "iso9660" => Some(Self::Vfs),
            _ if kind.starts_with("ext") || kind.starts_with("nfs") => Some(Self::Vfs),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Partition {
    pub mount_point: String,
    pub major: u32,
    pub minor: u32,
    /// As the mount table spells it.
    pub filesystem: String,
    pub kind: FsKind,
    /// Thin pools: data block size in sectors.
    pub block_sectors: u64,
}

impl Partition {
    fn device(&self) -> DeviceNumber {
        (self.major, self.minor)
    }

    /// The machine's `/` is always there, and a thin pool is mounted nowhere.
    fn may_be_unmounted(&self) -> bool {
        !matches!(self.mount_point.as_str(), "" | "/")
    }

    /// How full it is; an error where its mount is not there any more. Asked by the prober, where that is given.
    pub fn usage(&self, root: &HostRoot, prober: Option<&mut StatfsWorker>) -> Result<FsUsage> {
        let point = root.path(&self.mount_point);
        match (prober, self.may_be_unmounted()) {
            (Some(prober), true) => prober.usage_mounted(&point, self.device()),
            (Some(prober), false) => prober.usage(&point),
            (None, true) => statfs_mounted(&point, self.device()),
            (None, false) => statfs(&point),
        }
    }

    /// Exports of one NFS server share a device number and figures; asking once for all of them is enough.
    pub fn shares_figures(&self) -> bool {
        self.filesystem.starts_with("nfs")
    }
}

/// What a partition is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Label {
    Root,
    DockerImages,
    CrioImages,
    CrioContainers,
}

impl Label {
    pub fn name(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::DockerImages => "docker-images",
            Self::CrioImages => "crio-images",
            Self::CrioContainers => "crio-containers",
        }
    }
}

/// Where runtimes keep images, as far as the caller knows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ImageStorage {
    pub docker: Option<DockerStorage>,
    pub crio: Option<CrioStorage>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DockerStorage {
    pub root: String,
    /// A thin pool in use instead of a mount: its name and table.
    pub pool: Option<(String, super::DmTable)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CrioStorage {
    pub root: String,
    pub driver: String,
    /// Images kept apart from containers.
    pub image_store: Option<String>,
}

/// The file systems of one machine by device name. Cheap to build again whenever mounts may have changed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Partitions {
    devices: BTreeMap<String, Partition>,
    labels: BTreeMap<Label, String>,
    /// Mount point → device source, for finding the device of a directory.
    points: BTreeMap<String, String>,
    /// The first device of each number.
    numbers: BTreeMap<(u32, u32), String>,
    /// Mount points behind which a server or another process must answer.
    remote: Vec<PathBuf>,
}

/// File systems whose `statfs`, or a path through which, can block for as long as somebody else likes.
fn is_remote(kind: &str) -> bool {
    const ANSWERED_BY_OTHERS: [&str; 10] = [
        "9p", "afs", "autofs", "ceph", "cifs", "gfs2", "lustre", "ocfs2", "smb3", "virtiofs",
    ];
    kind.starts_with("nfs") || kind.starts_with("fuse") || ANSWERED_BY_OTHERS.contains(&kind)
}

impl Partitions {
    /// The file systems of these mounts of a machine.
    pub fn new(root: &HostRoot, mounts: &[Mount], storage: &ImageStorage) -> Self {
        Self::from_mounts(mounts, storage, |mount| btrfs_device(root, mount))
    }

    /// `btrfs` tells the device number that files of a btrfs mount show, where the table has an anonymous one.
    pub fn from_mounts(
        mounts: &[Mount],
        storage: &ImageStorage,
        btrfs: impl Fn(&Mount) -> Option<(u32, u32)>,
    ) -> Self {
        let mut this = Self::default();
        for mount in mounts {
            this.add(mount, &btrfs);
            this.points
                .insert(mount.point.clone(), mount.source.clone());
            if is_remote(&mount.kind) {
                this.remote.push(PathBuf::from(&mount.point));
            }
        }
        if let Some(docker) = &storage.docker {
            this.label_docker(mounts, docker);
        }
        if let Some(crio) = &storage.crio {
            this.label_crio(mounts, crio);
        }
        // Last, so that a device with many mounts is shown at `/` where that is one of them.
        if let Some(mount) = mounts.iter().find(|mount| mount.point == "/") {
            this.label(Label::Root, mount);
        }
        // Backwards, so that the first of them stays.
        let numbers = this.devices.iter().rev();
        this.numbers = numbers
            .map(|(name, p)| ((p.major, p.minor), name.clone()))
            .collect();
        this
    }

    /// Whether asking for this mount point may block: it is remote, or reached through something that is.
    pub fn may_hang(&self, mount_point: &str) -> bool {
        let point = Path::new(mount_point);
        self.remote.iter().any(|remote| point.starts_with(remote))
    }

    fn add(&mut self, mount: &Mount, btrfs: &impl Fn(&Mount) -> Option<(u32, u32)>) {
        let Some(mut partition) = partition(mount) else {
            return;
        };
        match mount.kind.as_str() {
            // All overlays call themselves alike; the device number keeps them apart.
            "overlay" => {
                let device = format!("{}_{}-{}", mount.source, mount.major, mount.minor);
                self.devices.entry(device).or_insert(partition);
            }
            // Sources of memory file systems are arbitrary words. A later mount on the same point hides the earlier.
            "tmpfs" => {
                self.devices.insert(mount.point.clone(), partition);
            }
            // The first mount of a source counts; the others are bind mounts or subvolumes of it.
            _ => {
                if self.devices.contains_key(&mount.source) {
                    return;
                }
                if mount.kind == "btrfs"
                    && mount.major == 0
                    && mount.source.starts_with("/dev/")
                    && let Some(device) = btrfs(mount)
                {
                    (partition.major, partition.minor) = device;
                }
                self.devices.insert(mount.source.clone(), partition);
            }
        }
    }

    /// A labelled mount is always listed, under its plain source, whatever its kind.
    fn label(&mut self, label: Label, mount: &Mount) {
        let mut partition = partition(mount).unwrap_or_else(|| Partition {
            mount_point: mount.point.clone(),
            major: mount.major,
            minor: mount.minor,
            filesystem: mount.kind.clone(),
            kind: FsKind::Vfs,
            block_sectors: 0,
        });
        // Keep a corrected btrfs number.
        if let Some(known) = self.devices.get(&mount.source)
            && partition.major == 0
        {
            (partition.major, partition.minor) = (known.major, known.minor);
        }
        self.devices.insert(mount.source.clone(), partition);
        self.labels.insert(label, mount.source.clone());
    }

    fn label_deepest(&mut self, label: Label, mounts: &[Mount], dir: &str, subdirs: &[&str]) {
        let mut places: Vec<PathBuf> = Path::new(dir).ancestors().map(PathBuf::from).collect();
        places.push(PathBuf::from("/"));
        places.extend(subdirs.iter().map(|sub| Path::new(dir).join(sub)));
        // The first of several mounts on one point, as long as none lies deeper.
        let mut best: Option<&Mount> = None;
        for mount in mounts {
            let fits = places.iter().any(|place| place == Path::new(&mount.point));
            if fits && best.is_none_or(|best| best.point.len() < mount.point.len()) {
                best = Some(mount);
            }
        }
        if let Some(mount) = best {
            self.label(label, mount);
        }
    }

    fn label_docker(&mut self, mounts: &[Mount], docker: &DockerStorage) {
        const DRIVERS: [&str; 6] = [
            "devicemapper",
            "btrfs",
            "aufs",
            "overlay",
            "overlay2",
            "zfs",
        ];
        match &docker.pool {
            Some((name, table)) => {
                let partition = Partition {
                    mount_point: String::new(),
                    major: table.major,
                    minor: table.minor,
                    filesystem: "devicemapper".to_owned(),
                    kind: FsKind::DeviceMapper,
                    block_sectors: table.block_sectors,
                };
                self.devices.insert(name.clone(), partition);
                self.labels.insert(Label::DockerImages, name.clone());
            }
            None => self.label_deepest(Label::DockerImages, mounts, &docker.root, &DRIVERS),
        }
    }

    fn label_crio(&mut self, mounts: &[Mount], crio: &CrioStorage) {
        let images = format!("{}-images", crio.driver);
        let containers = format!("{}-containers", crio.driver);
        match &crio.image_store {
            None => self.label_deepest(Label::CrioImages, mounts, &crio.root, &[&images]),
            Some(store) => {
                self.label_deepest(Label::CrioContainers, mounts, &crio.root, &[&containers]);
                self.label_deepest(Label::CrioImages, mounts, store, &[&images]);
            }
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, &Partition)> {
        self.devices.iter().map(|(name, p)| (name.as_str(), p))
    }

    pub fn get(&self, device: &str) -> Option<&Partition> {
        self.devices.get(device)
    }

    pub fn labelled(&self, label: Label) -> Option<&str> {
        self.labels.get(&label).map(String::as_str)
    }

    pub fn labels_of(&self, device: &str) -> impl Iterator<Item = Label> {
        let carries = move |(label, of): (&Label, &String)| (of == device).then_some(*label);
        self.labels.iter().filter_map(carries)
    }

    /// The device name that reports use for a device number.
    pub fn device_of_number(&self, major: u32, minor: u32) -> Option<&str> {
        self.numbers.get(&(major, minor)).map(String::as_str)
    }

    /// The device that a directory of the observed machine lies on.
    pub fn device_of_dir(&self, root: &HostRoot, dir: &Path) -> Result<Option<&str>> {
        let place = root.path(dir);
        let stat = rustix::fs::stat(&place).map_err(|e| HostError::io("stat", &place, e))?;
        if let Some(device) = self.device_of_number(major(stat.st_dev), minor(stat.st_dev)) {
            return Ok(Some(device));
        }
        // Subvolumes show a number of their own; the mount they are in knows the device.
        for ancestor in dir.ancestors() {
            if let Some(source) = ancestor.to_str().and_then(|a| self.points.get(a)) {
                return Ok(source.starts_with("/dev/").then_some(source.as_str()));
            }
        }
        Ok(None)
    }
}

fn partition(mount: &Mount) -> Option<Partition> {
    Some(Partition {
        mount_point: mount.point.clone(),
        major: mount.major,
        minor: mount.minor,
        filesystem: mount.kind.clone(),
        kind: FsKind::of(&mount.kind)?,
        block_sectors: 0,
    })
}

fn btrfs_device(root: &HostRoot, mount: &Mount) -> Option<(u32, u32)> {
    let source = rustix::fs::stat(root.path(&mount.source)).ok()?;
    if FileType::from_raw_mode(source.st_mode) != FileType::BlockDevice {
        return None;
    }
    let point = rustix::fs::stat(root.path(&mount.point)).ok()?;
    Some((major(point.st_dev), minor(point.st_dev)))
}

#[cfg(test)]
#[path = "partitions_tests.rs"]
mod tests;
