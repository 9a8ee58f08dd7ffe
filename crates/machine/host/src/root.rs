//! The root below which the machine's files are read.

use std::path::{Path, PathBuf};

/// The directory that stands for `/` of the observed machine.
///
/// On a host it is `/`. In a container that has the host mounted at `/rootfs`, `/proc`, `/etc` and `/dev` are taken
/// below that prefix, while `/sys` is the container's own mount of the same kernel's sysfs unless the prefix has one.
/// In tests it is a temporary directory holding only the files that matter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostRoot {
    prefix: PathBuf,
}

impl HostRoot {
    pub fn new(prefix: impl Into<PathBuf>) -> Self {
        Self {
            prefix: prefix.into(),
        }
    }

    /// `/rootfs` when the host is mounted there (as cAdvisor's image does), else `/`.
    pub fn detect() -> Self {
        if Path::new("/rootfs/proc/1").exists() {
            Self::new("/rootfs")
        } else {
            Self::new("/")
        }
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
        let relative = absolute.strip_prefix("/").unwrap_or(absolute);
        self.prefix.join(relative)
    }

    pub fn proc(&self, relative: impl AsRef<Path>) -> PathBuf {
        self.path("/proc").join(relative)
    }

    pub fn sys(&self, relative: impl AsRef<Path>) -> PathBuf {
        let below = self.path("/sys").join(relative.as_ref());
        // A bind mount of `/` does not carry the host's sysfs along unless it was made recursively.
        if self.prefix == Path::new("/rootfs") && !self.path("/sys/devices").exists() {
            return Path::new("/sys").join(relative);
        }
        below
    }
}
