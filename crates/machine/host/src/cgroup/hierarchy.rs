//! The mounted hierarchies, and the directory of a cgroup in each.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::{HostError, HostRoot, ReadBuf, Result, read_file};

/// A v1 controller (on v2 all of them live in the one hierarchy).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Controller {
    Cpu,
    Cpuacct,
    Cpuset,
    Memory,
    Hugetlb,
    Pids,
    Blkio,
    PerfEvent,
    Devices,
    Freezer,
}

impl Controller {
    pub const ALL: [Self; 10] = [
        Self::Cpu,
        Self::Cpuacct,
        Self::Cpuset,
        Self::Memory,
        Self::Hugetlb,
        Self::Pids,
        Self::Blkio,
        Self::PerfEvent,
        Self::Devices,
        Self::Freezer,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Cpuacct => "cpuacct",
            Self::Cpuset => "cpuset",
            Self::Memory => "memory",
            Self::Hugetlb => "hugetlb",
            Self::Pids => "pids",
            Self::Blkio => "blkio",
            Self::PerfEvent => "perf_event",
            Self::Devices => "devices",
            Self::Freezer => "freezer",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    V1,
    /// v1 controllers with an empty v2 tree beside them, as systemd's hybrid layout has; figures come from v1.
    Hybrid,
    V2,
}

/// The mounted hierarchies of one machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hierarchies {
    mode: Mode,
    /// v2: the unified mount.
    unified: Option<PathBuf>,
    /// v1: one mount a controller; co-mounted controllers share a directory.
    mounts: BTreeMap<Controller, PathBuf>,
    /// v1: a cgroup counts as a container only if one of these has it.
    watched: Vec<Controller>,
}

/// A folder of hierarchies has no more entries than that.
const MOST_HIERARCHIES: usize = 256;

/// One line of mountinfo that matters here.
struct CgroupMount<'a> {
    point: &'a str,
    kind: &'a str,
    super_options: &'a str,
}

impl Hierarchies {
    /// Looks into the folder that was told, else reads the mount table. No cgroup mount at all is an error: there would
    /// be nothing to observe.
    pub fn detect(root: &HostRoot, buf: &mut ReadBuf) -> Result<Self> {
        // The table says where the machine has its mounts; only the folder itself says what was mounted into it.
        if let Some(found) = root.cgroup_folder().and_then(Self::in_folder) {
            return Ok(found);
        }
        // Process 1's table shows the host's mounts even where our own mount namespace is another one.
        for file in ["1/mountinfo", "self/mountinfo"] {
            let path = root.proc(file);
            let text = match read_file(&path, buf) {
                Ok(Some(text)) => String::from_utf8_lossy(text).into_owned(),
                Ok(None) | Err(_) => continue,
            };
            if let Some(found) = Self::from_mountinfo(&text, |point| root.path(point)) {
                return Ok(found);
            }
        }
        Err(HostError::Unsupported(
            format!(
                "no cgroup file system is mounted below {}; mount cgroup2 on /sys/fs/cgroup",
                root.prefix().display()
            )
            .into(),
        ))
    }

    fn from_mountinfo(text: &str, place: impl Fn(&str) -> PathBuf) -> Option<Self> {
        let mut unified: Option<PathBuf> = None;
        let mut mounts = BTreeMap::new();
        for line in text.lines() {
            let Some(mount) = cgroup_mount(line) else {
                continue;
            };
            let point = place(&unescape(mount.point));
            // A mount that was shadowed, or lies in another namespace, is not a hierarchy we can read.
            if !point.is_dir() {
                continue;
            }
            if mount.kind == "cgroup2" {
                unified.get_or_insert(point);
                continue;
            }
            for option in mount.super_options.split(',') {
                let controller = Controller::ALL.into_iter().find(|c| c.name() == option);
                if let Some(controller) = controller {
                    // The first mount of each wins; bind mounts of the same hierarchy come later in the table.
                    mounts.entry(controller).or_insert_with(|| point.clone());
                }
            }
        }
        // A v1 hierarchy beside v2 is common (freezer, devices, a stray mount); only where the figures live in v1 is
        // the machine a v1 machine.
        let v1 = [Controller::Cpu, Controller::Cpuacct, Controller::Memory]
            .iter()
            .any(|controller| mounts.contains_key(controller));
        let mode = match (&unified, v1) {
            (Some(_), false) => Mode::V2,
            (Some(_), true) => Mode::Hybrid,
            (None, _) if mounts.is_empty() => return None,
            (None, _) => Mode::V1,
        };
        Some(Self {
            mode,
            unified,
            mounts,
            watched: Controller::ALL.to_vec(),
        })
    }

    /// By the names that hierarchies have below `/sys/fs/cgroup`: `memory`, or `cpu,cpuacct`.
    fn in_folder(folder: &Path) -> Option<Self> {
        if folder.join("cgroup.controllers").exists() {
            return Some(Self::v2(folder));
        }
        // The links `cpu` and `cpuacct` lead to `cpu,cpuacct`; the folder itself comes first.
        let mut found: Vec<(bool, PathBuf)> = std::fs::read_dir(folder)
            .ok()?
            .take(MOST_HIERARCHIES)
            .filter_map(Result::ok)
            .filter_map(|entry| Some((entry.file_type().ok()?.is_symlink(), entry.path())))
            .filter(|(_, path)| path.is_dir())
            .collect();
        found.sort_unstable();
        let mut mounts = BTreeMap::new();
        for (_, path) in &found {
            let names = path.file_name().and_then(|name| name.to_str());
            for name in names.into_iter().flat_map(|names| names.split(',')) {
                let controller = Controller::ALL.into_iter().find(|c| c.name() == name);
                if let Some(controller) = controller {
                    mounts.entry(controller).or_insert_with(|| path.clone());
                }
            }
        }
        if mounts.is_empty() {
            return None;
        }
        let unified = Some(folder.join("unified"));
        let unified = unified.filter(|unified| unified.join("cgroup.controllers").exists());
        Some(Self {
            mode: match unified {
                Some(_) => Mode::Hybrid,
                None => Mode::V1,
            },
            unified,
            mounts,
            watched: Controller::ALL.to_vec(),
        })
    }

    pub fn v2(mount: impl Into<PathBuf>) -> Self {
        Self {
            mode: Mode::V2,
            unified: Some(mount.into()),
            mounts: BTreeMap::new(),
            watched: Vec::new(),
        }
    }

    pub fn v1(mounts: impl IntoIterator<Item = (Controller, PathBuf)>) -> Self {
        Self {
            mode: Mode::V1,
            unified: None,
            mounts: mounts.into_iter().collect(),
            watched: Controller::ALL.to_vec(),
        }
    }

    pub fn mode(&self) -> Mode {
        self.mode
    }

    pub fn is_v2(&self) -> bool {
        self.mode == Mode::V2
    }

    /// The directory of `cgroup` where `controller`'s files are; `None` where that controller is not mounted.
    pub fn dir(&self, controller: Controller, cgroup: &str) -> Option<PathBuf> {
        let mount = match self.mode {
            Mode::V2 => self.unified.as_deref()?,
            Mode::V1 | Mode::Hybrid => self.mounts.get(&controller)?,
        };
        Some(below(mount, cgroup))
    }

    /// The mount point of cgroup2. On a hybrid machine it has no controllers, but can freeze and kill.
    pub fn unified(&self) -> Option<&Path> {
        self.unified.as_deref()
    }

    /// The mount point of `controller`; on v2 that of the one hierarchy.
    pub fn mount(&self, controller: Controller) -> Option<&Path> {
        match self.mode {
            Mode::V2 => self.unified.as_deref(),
            Mode::V1 | Mode::Hybrid => self.mounts.get(&controller).map(PathBuf::as_path),
        }
    }

    /// Takes only these hierarchies' directories for containers (v1; v2 has the one).
    #[must_use]
    pub fn watching(mut self, controllers: &[Controller]) -> Self {
        self.watched = controllers.to_vec();
        self
    }

    /// The mount points whose directory trees together show every container: one on v2, each distinct one on v1.
    pub fn trees(&self) -> Vec<&Path> {
        if let (Mode::V2, Some(unified)) = (self.mode, &self.unified) {
            return vec![unified];
        }
        let mut trees: Vec<&Path> = Vec::new();
        for (controller, mount) in &self.mounts {
            if self.watched.contains(controller) && !trees.contains(&mount.as_path()) {
                trees.push(mount);
            }
        }
        trees
    }

    /// The directories of a cgroup in all watched trees.
    pub fn watched_dirs(&self, cgroup: &str) -> Vec<PathBuf> {
        let trees = self.trees();
        trees.into_iter().map(|tree| below(tree, cgroup)).collect()
    }

    pub fn controllers(&self) -> impl Iterator<Item = (Controller, &Path)> {
        self.mounts.iter().map(|(c, p)| (*c, p.as_path()))
    }
}

/// `mount` + `cgroup`, where `cgroup` is `/` or starts with one.
pub fn below(mount: &Path, cgroup: &str) -> PathBuf {
    mount.join(cgroup.trim_start_matches('/'))
}

fn cgroup_mount(line: &str) -> Option<CgroupMount<'_>> {
    // 36 35 98:0 /root /point options [optional…] - type source super-options
    let (head, tail) = line.split_once(" - ")?;
    let mut tail = tail.split(' ');
    let kind = tail.next()?;
    if kind != "cgroup" && kind != "cgroup2" {
        return None;
    }
    let super_options = tail.nth(1).unwrap_or("");
    let point = head.split(' ').nth(4)?;
    Some(CgroupMount {
        point,
        kind,
        super_options,
    })
}

/// mountinfo writes blanks and backslashes as octal escapes.
pub fn unescape(field: &str) -> String {
    if !field.contains('\\') {
        return field.to_owned();
    }
    let bytes = field.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let code = (bytes[at] == b'\\')
            .then(|| bytes.get(at + 1..at + 4))
            .flatten()
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(byte) => {
                out.push(byte);
                at += 4;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(mountinfo: &str, dirs: &[&str], mode: Option<Mode>) -> Option<Hierarchies> {
        let temp = tempfile::tempdir().unwrap();
        for dir in dirs {
            std::fs::create_dir_all(temp.path().join(dir)).unwrap();
        }
        let root = HostRoot::new(temp.path());
        let found = Hierarchies::from_mountinfo(mountinfo, |p| root.path(p));
        assert_eq!(found.as_ref().map(Hierarchies::mode), mode);
        found
    }

    #[test]
    fn unified() {
        let found = check(
            "30 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n",
            &["sys/fs/cgroup"],
            Some(Mode::V2),
        )
        .unwrap();
        let dir = found.dir(Controller::Memory, "/a/b").unwrap();
        assert!(dir.ends_with("sys/fs/cgroup/a/b"));
    }

    #[test]
    fn hybrid_with_shared_mounts_and_a_later_bind_mount() {
        let found = check(
            "31 30 0:27 / /sys/fs/cgroup/unified rw - cgroup2 cgroup rw\n\
             32 30 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
             33 30 0:29 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
             99 30 0:29 / /elsewhere rw - cgroup cgroup rw,memory\n",
            &[
                "sys/fs/cgroup/unified",
                "sys/fs/cgroup/cpu,cpuacct",
                "sys/fs/cgroup/memory",
                "elsewhere",
            ],
            Some(Mode::Hybrid),
        )
        .unwrap();
        assert_eq!(found.trees().len(), 2);
        let memory = found.dir(Controller::Memory, "/").unwrap();
        assert!(memory.ends_with("sys/fs/cgroup/memory"));
    }

    #[test]
    fn a_stray_v1_mount_does_not_make_a_v1_machine() {
        check(
            "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n\
             31 30 0:27 / /mnt/fz rw - cgroup none rw,freezer\n",
            &["sys/fs/cgroup", "mnt/fz"],
            Some(Mode::V2),
        );
    }

    #[test]
    fn only_watched_trees_show_containers() {
        use Controller::{Cpu, Freezer, Memory};
        let mounts = [Cpu, Memory, Freezer].map(|c| (c, PathBuf::from("/cg").join(c.name())));
        let hierarchies = Hierarchies::v1(mounts).watching(&[Cpu, Memory]);
        assert_eq!(
            hierarchies.watched_dirs("/a"),
            ["/cg/cpu/a", "/cg/memory/a"].map(PathBuf::from)
        );
        assert!(hierarchies.dir(Freezer, "/a").is_some());
    }

    #[track_caller]
    fn check_folder(dirs: &[&str], links: &[(&str, &str)], expected: (Mode, &str)) {
        let temp = tempfile::tempdir().unwrap();
        let cgroup = temp.path().join("host-cgroup");
        std::fs::create_dir(&cgroup).unwrap();
        for dir in dirs {
            match dir.strip_suffix("cgroup.controllers") {
                Some(dir) => {
                    std::fs::create_dir_all(cgroup.join(dir)).unwrap();
                    std::fs::write(cgroup.join(dir).join("cgroup.controllers"), "cpu\n").unwrap();
                }
                None => std::fs::create_dir_all(cgroup.join(dir)).unwrap(),
            }
        }
        for (link, to) in links {
            std::os::unix::fs::symlink(to, cgroup.join(link)).unwrap();
        }
        // The machine's table speaks of its own folder.
        let proc = temp.path().join("proc/1");
        std::fs::create_dir_all(&proc).unwrap();
        let table = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
        std::fs::write(proc.join("mountinfo"), table).unwrap();
        let root = HostRoot::new(temp.path()).with_folder("/sys/fs/cgroup", &cgroup);
        let found = Hierarchies::detect(&root, &mut ReadBuf::default()).unwrap();
        let cpu = found.dir(Controller::Cpu, "/a").unwrap();
        let below = cpu.strip_prefix(&cgroup).unwrap().to_str().unwrap();
        assert_eq!((found.mode(), below), expected);
        let trees = found.trees();
        let unique: std::collections::BTreeSet<_> = trees.iter().collect();
        assert_eq!(unique.len(), trees.len());
    }

    #[test]
    fn a_folder_that_was_told() {
        check_folder(&["cgroup.controllers"], &[], (Mode::V2, "a"));
        check_folder(&["cpu", "memory"], &[], (Mode::V1, "cpu/a"));
        check_folder(
            &["cpu,cpuacct", "memory", "unified/cgroup.controllers"],
            &[("cpu", "cpu,cpuacct"), ("cpuacct", "cpu,cpuacct")],
            (Mode::Hybrid, "cpu,cpuacct/a"),
        );
        // Nothing to be seen in it: the table decides, and its paths are those of the folder.
        check_folder(&["kubepods"], &[], (Mode::V2, "a"));
    }

    #[test]
    fn nothing_mounted() {
        check("36 35 98:0 / /mnt rw - ext4 /dev/sda rw\n", &["mnt"], None);
        check("garbage\n - cgroup2\n", &[], None);
    }

    #[test]
    fn escapes() {
        assert_eq!(unescape(r"/a\040b"), "/a b");
        assert_eq!(unescape(r"/a\9"), r"/a\9");
    }
}
