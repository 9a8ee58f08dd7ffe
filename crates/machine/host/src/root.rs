//! The root below which the machine's files are read.

use std::path::{Path, PathBuf};

/// Folders of the machine, and where koordlet's manifest mounts them. `/proc` is its own: it shares the machine's PIDs.
const KOORDLET_MOUNTS: [(&str, &str); 5] = [
    ("/sys/fs/cgroup", "host-cgroup"),
    ("/sys/fs", "host-sys-fs"),
    ("/sys", "host-sys"),
    ("/var/run", "host-var-run"),
    ("/run", "host-run"),
];

/// The directory that stands for `/` of the observed machine.
///
/// On a host it is `/`. In a container that has the host mounted at `/rootfs`, `/proc`, `/etc` and `/dev` are taken
/// below that prefix, while `/sys` is the container's own mount of the same kernel's sysfs unless the prefix has one.
/// In tests it is a temporary directory holding only the files that matter. Single folders can be elsewhere
/// ([`HostRoot::with_folder`]): koordlet's manifest mounts the machine's `/sys/fs/cgroup` at `/host-cgroup`, for example.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostRoot {
    prefix: PathBuf,
    /// The machine's folder, and where it is; the deepest first.
    folders: Vec<(PathBuf, PathBuf)>,
}

impl HostRoot {
    pub fn new(prefix: impl Into<PathBuf>) -> Self {
        Self {
            prefix: prefix.into(),
            folders: Vec::new(),
        }
    }

    /// The machine's folder `of` is at `at`, with everything below it that has no folder of its own.
    #[must_use]
    pub fn with_folder(mut self, of: impl Into<PathBuf>, at: impl Into<PathBuf>) -> Self {
        let of = of.into();
        self.folders.retain(|(other, _)| *other != of);
        self.folders.push((of, at.into()));
        self.folders
            .sort_by_key(|(of, _)| std::cmp::Reverse(of.components().count()));
        self
    }

    /// Where a path of the machine is, if it is in a folder of its own ([`HostRoot::with_folder`]).
    pub fn elsewhere(&self, absolute: impl AsRef<Path>) -> Option<PathBuf> {
        let absolute = absolute.as_ref();
        let (of, at) = self
            .folders
            .iter()
            .find(|(of, _)| absolute.starts_with(of))?;
        let below = absolute.strip_prefix(of).ok()?;
        // Joining nothing would leave a slash at the end.
        match below.as_os_str().is_empty() {
            true => Some(at.clone()),
            false => Some(at.join(below)),
        }
    }

    /// Where the machine's `/sys/fs/cgroup` is, if that was told.
    pub fn cgroup_folder(&self) -> Option<&Path> {
        let mut folders = self.folders.iter();
        let (_, at) = folders.find(|(of, _)| of == Path::new("/sys/fs/cgroup"))?;
        Some(at)
    }

    /// `/rootfs` when the host is mounted there (as cAdvisor's image does), else `/`; and the folders that koordlet's
    /// manifest mounts, where they are.
    pub fn detect() -> Self {
        let root = match Path::new("/rootfs/proc/1").exists() {
            true => Self::new("/rootfs"),
            false => Self::new("/"),
        };
        root.with_mounts_of_koordlet(Path::new("/"))
    }

    /// Takes the folders that koordlet's manifest mounts, as far as they are below `at`.
    #[must_use]
    pub fn with_mounts_of_koordlet(self, at: &Path) -> Self {
        KOORDLET_MOUNTS.iter().fold(self, |root, (of, name)| {
            let folder = at.join(name);
            match folder.is_dir() {
                true => root.with_folder(*of, folder),
                false => root,
            }
        })
    }

    pub fn prefix(&self) -> &Path {
        &self.prefix
    }

    /// True when the observed machine's `/` is this process's own.
    pub fn is_own(&self) -> bool {
        self.prefix == Path::new("/")
    }

    /// The place of an absolute path of the observed machine, `/proc/meminfo` for instance.
    pub fn path(&self, absolute: impl AsRef<Path>) -> PathBuf {
        let absolute = absolute.as_ref();
        if let Some(elsewhere) = self.elsewhere(absolute) {
            return elsewhere;
        }
        let relative = absolute.strip_prefix("/").unwrap_or(absolute);
        self.prefix.join(relative)
    }

    pub fn proc(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.path(Path::new("/proc").join(relative))
    }

    pub fn sys(&self, relative: impl AsRef<Path>) -> PathBuf {
        let absolute = Path::new("/sys").join(relative.as_ref());
        if let Some(elsewhere) = self.elsewhere(&absolute) {
            return elsewhere;
        }
        let below = self.path(absolute);
        // A bind mount of `/` does not carry the host's sysfs along unless it was made recursively.
        if self.prefix == Path::new("/rootfs") && !self.path("/sys/devices").exists() {
            return Path::new("/sys").join(relative);
        }
        below
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(root: &HostRoot, path: &str, expected: &str) {
        assert_eq!(root.path(path), Path::new(expected), "{path}");
    }

    #[test]
    fn mounts_of_koordlet_that_are_there() {
        let temp = tempfile::tempdir().unwrap();
        std::fs::create_dir(temp.path().join("host-cgroup")).unwrap();
        std::fs::create_dir(temp.path().join("host-run")).unwrap();
        let root = HostRoot::new("/").with_mounts_of_koordlet(temp.path());
        let cgroup = temp.path().join("host-cgroup");
        assert_eq!(root.sys("fs/cgroup/cpu"), cgroup.join("cpu"));
        assert_eq!(root.path("/run/a"), temp.path().join("host-run/a"));
        check(&root, "/var/run/a", "/var/run/a");
        check(&root, "/sys/fs/resctrl", "/sys/fs/resctrl");
    }

    #[test]
    fn the_deepest_folder_has_a_path() {
        let root = HostRoot::new("/rootfs")
            .with_folder("/sys", "/host-sys")
            .with_folder("/sys/fs/cgroup", "/host-cgroup/")
            .with_folder("/sys/fs", "/host-sys-fs")
            .with_folder("/run", "/elsewhere")
            .with_folder("/run", "/host-run");
        check(&root, "/sys/fs/cgroup", "/host-cgroup");
        check(&root, "/sys/fs/cgroup/a/b", "/host-cgroup/a/b");
        check(&root, "/sys/fs/cgroups", "/host-sys-fs/cgroups");
        check(&root, "/sys/fs/resctrl", "/host-sys-fs/resctrl");
        check(&root, "/sys/kernel/mm", "/host-sys/kernel/mm");
        check(&root, "/run/a.sock", "/host-run/a.sock");
        check(&root, "/runs", "/rootfs/runs");
        check(&root, "/proc/1", "/rootfs/proc/1");
        assert_eq!(root.sys("fs/resctrl"), Path::new("/host-sys-fs/resctrl"));
        assert_eq!(root.sys("devices"), Path::new("/host-sys/devices"));
        assert_eq!(root.proc("1/stat"), Path::new("/rootfs/proc/1/stat"));
        assert_eq!(root.elsewhere("/etc/machine-id"), None);
        let told = root.cgroup_folder();
        assert_eq!(told, Some(Path::new("/host-cgroup")));
    }
}
