//! Cgroups of our own, on whatever hierarchies the machine has mounted.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    V1,
    V2,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hierarchy {
    pub mount: PathBuf,
    /// v1: the controllers mounted here, or `name=…`. v2: empty.
    pub controllers: Vec<String>,
}

/// The machine's hierarchies. A hybrid machine is `V1`, and its unified mount is only swept, never used.
#[derive(Debug, Clone)]
pub struct Mounts {
    pub mode: Mode,
    pub hierarchies: Vec<Hierarchy>,
    /// Every cgroup mount, the named and the unified ones included: runtimes make directories there, too.
    pub all: Vec<PathBuf>,
}

impl Mounts {
    pub fn detect() -> Result<Self> {
        let table = fs::read_to_string("/proc/mounts").context("read /proc/mounts")?;
        Self::parse(&table)
    }

    fn parse(table: &str) -> Result<Self> {
        let mut unified = Vec::new();
        let mut legacy: Vec<Hierarchy> = Vec::new();
        let mut all = Vec::new();
        for line in table.lines() {
            let mut fields = line.split(' ').skip(1);
            let (Some(mount), Some(kind), Some(options)) =
                (fields.next(), fields.next(), fields.next())
            else {
                continue;
            };
            match kind {
                "cgroup2" => unified.push(PathBuf::from(mount)),
                "cgroup" => {
                    let controllers = options
                        .split(',')
                        .filter(is_controller)
                        .map(str::to_owned)
                        .collect();
                    legacy.push(Hierarchy {
                        mount: mount.into(),
                        controllers,
                    });
                }
                _ => continue,
            }
            all.push(PathBuf::from(mount));
        }
        let named = |hierarchy: &Hierarchy| hierarchy.controllers.is_empty();
        legacy.retain(|hierarchy| !named(hierarchy));
        if !legacy.is_empty() {
            return Ok(Self {
                mode: Mode::V1,
                hierarchies: legacy,
                all,
            });
        }
        let Some(mount) = unified.into_iter().next() else {
            bail!("no cgroup file system is mounted");
        };
        let hierarchies = vec![Hierarchy {
            mount,
            controllers: Vec::new(),
        }];
        Ok(Self {
            mode: Mode::V2,
            hierarchies,
            all,
        })
    }

    /// Where a controller's files are; on v2 every controller is in the one tree.
    pub fn controller(&self, name: &str) -> Option<&Path> {
        let hierarchy = match self.mode {
            Mode::V2 => self.hierarchies.first(),
            Mode::V1 => self
                .hierarchies
                .iter()
                .find(|hierarchy| hierarchy.controllers.iter().any(|found| found == name)),
        };
        hierarchy.map(|hierarchy| hierarchy.mount.as_path())
    }

    /// Every cgroup path of these hierarchies, as cAdvisor names them: `/`, `/a`, `/a/b`.
    pub fn tree(&self) -> Result<BTreeSet<String>> {
        let mut paths = BTreeSet::new();
        for hierarchy in &self.hierarchies {
            walk(&hierarchy.mount, &mut |path| {
                let below = path.strip_prefix(&hierarchy.mount).unwrap_or(path);
                paths.insert(format!("/{}", below.display()));
            })?;
        }
        Ok(paths)
    }
}

fn is_controller(option: &&str) -> bool {
    const KNOWN: &[&str] = &[
        "cpu",
        "cpuacct",
        "cpuset",
        "memory",
        "devices",
        "freezer",
        "blkio",
        "pids",
        "hugetlb",
        "perf_event",
        "net_cls",
        "net_prio",
        "rdma",
        "misc",
    ];
    KNOWN.contains(option)
}

/// Visits a directory and all below it, parents first. Directories that go away meanwhile are skipped.
fn walk(path: &Path, visit: &mut impl FnMut(&Path)) -> Result<()> {
    let entries = match fs::read_dir(path) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).with_context(|| format!("list {}", path.display())),
    };
    visit(path);
    for entry in entries.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            walk(&entry.path(), visit)?;
        }
    }
    Ok(())
}

/// One cgroup: on v1 the same path in every hierarchy.
#[derive(Debug, Clone)]
pub struct Group {
    mounts: Mounts,
    path: String,
}

impl Group {
    /// Makes the cgroup and what is missing above it. `path` starts with a slash.
    pub fn create(mounts: &Mounts, path: &str) -> Result<Self> {
        let group = Self {
            mounts: mounts.clone(),
            path: path.to_owned(),
        };
        for hierarchy in &mounts.hierarchies {
            let mut directory = hierarchy.mount.clone();
            for part in path.split('/').filter(|part| !part.is_empty()) {
                if mounts.mode == Mode::V2 {
                    delegate(&directory)?;
                }
                directory.push(part);
                match fs::create_dir(&directory) {
                    Ok(()) => init_cpuset(&directory)?,
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                    Err(error) => {
                        return Err(error).with_context(|| format!("make {}", directory.display()));
                    }
                }
            }
        }
        Ok(group)
    }

    /// One that somebody else has made.
    pub fn existing(mounts: &Mounts, path: &str) -> Self {
        Self {
            mounts: mounts.clone(),
            path: path.to_owned(),
        }
    }

    pub fn path(&self) -> &str {
        &self.path
    }

    pub fn mode(&self) -> Mode {
        self.mounts.mode
    }

    pub fn directories(&self) -> impl Iterator<Item = PathBuf> {
        self.mounts
            .hierarchies
            .iter()
            .map(|hierarchy| hierarchy.mount.join(self.path.trim_start_matches('/')))
    }

    /// The directory that holds this controller's files.
    pub fn directory(&self, controller: &str) -> Result<PathBuf> {
        let mount = self
            .mounts
            .controller(controller)
            .with_context(|| format!("no {controller} controller"))?;
        Ok(mount.join(self.path.trim_start_matches('/')))
    }

    pub fn write(&self, controller: &str, file: &str, value: &str) -> Result<()> {
        let path = self.directory(controller)?.join(file);
        fs::write(&path, value).with_context(|| format!("write {value:?} to {}", path.display()))
    }

    pub fn read(&self, controller: &str, file: &str) -> Result<String> {
        let path = self.directory(controller)?.join(file);
        fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))
    }

    pub fn number(&self, controller: &str, file: &str) -> Result<u64> {
        let text = self.read(controller, file)?;
        text.trim()
            .parse()
            .with_context(|| format!("{file} holds {text:?}"))
    }

    /// The value after `key` in a file of `key value` lines.
    pub fn keyed(&self, controller: &str, file: &str, key: &str) -> Result<u64> {
        let text = self.read(controller, file)?;
        text.lines()
            .find_map(|line| {
                line.strip_prefix(key)?
                    .strip_prefix(' ')?
                    .trim()
                    .parse()
                    .ok()
            })
            .with_context(|| format!("no {key} in {file}"))
    }

    pub fn add(&self, pid: u32) -> Result<()> {
        for directory in self.directories() {
            let file = directory.join("cgroup.procs");
            fs::write(&file, pid.to_string())
                .with_context(|| format!("move {pid} into {}", file.display()))?;
        }
        Ok(())
    }

    /// Removes the cgroup, which must be empty, in every hierarchy.
    pub fn remove(&self) -> Result<()> {
        for directory in self.directories() {
            match fs::remove_dir(&directory) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    return Err(error).with_context(|| format!("remove {}", directory.display()));
                }
            }
        }
        Ok(())
    }
}

/// v2: hands every controller that the directory has to its children.
fn delegate(directory: &Path) -> Result<()> {
    let available = fs::read_to_string(directory.join("cgroup.controllers"))
        .with_context(|| format!("controllers of {}", directory.display()))?;
    let control = directory.join("cgroup.subtree_control");
    let enabled = fs::read_to_string(&control)?;
    for controller in available.split_ascii_whitespace() {
        if enabled.split_ascii_whitespace().any(|on| on == controller) {
            continue;
        }
        // One by one: a controller that cannot be had here (rdma, a threaded parent) must not cost the others.
        let _ = fs::write(&control, format!("+{controller}"));
    }
    Ok(())
}

/// v1: a new cpuset has no cpus and no memory nodes, and refuses processes until it has both.
fn init_cpuset(directory: &Path) -> Result<()> {
    for file in ["cpuset.cpus", "cpuset.mems"] {
        let path = directory.join(file);
        let Ok(own) = fs::read_to_string(&path) else {
            continue;
        };
        // A v2 cpuset inherits what it leaves empty.
        if !own.trim().is_empty() || directory.join("cgroup.controllers").exists() {
            continue;
        }
        let parent = directory.parent().unwrap_or(directory).join(file);
        let inherited =
            fs::read_to_string(&parent).with_context(|| format!("read {}", parent.display()))?;
        fs::write(&path, inherited.trim()).with_context(|| format!("write {}", path.display()))?;
    }
    Ok(())
}

/// Every process in a cgroup or below it, in any hierarchy.
pub fn processes_below(mounts: &Mounts, path: &str) -> BTreeSet<u32> {
    let mut pids = BTreeSet::new();
    for mount in &mounts.all {
        let top = mount.join(path.trim_start_matches('/'));
        let _ = walk(&top, &mut |directory| {
            let text = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
            pids.extend(text.lines().filter_map(|line| line.parse::<u32>().ok()));
        });
    }
    // 0 stands for a process of another pid namespace.
    pids.remove(&0);
    pids
}

/// Removes a cgroup and all below it in every hierarchy; gives the directories that refused.
pub fn remove_below(mounts: &Mounts, path: &str) -> Vec<PathBuf> {
    let mut refused = Vec::new();
    for mount in &mounts.all {
        let top = mount.join(path.trim_start_matches('/'));
        let mut directories = Vec::new();
        let _ = walk(&top, &mut |directory| {
            directories.push(directory.to_owned())
        });
        for directory in directories.into_iter().rev() {
            let removed = fs::remove_dir(&directory);
            if removed.is_err() && directory.exists() {
                refused.push(directory);
            }
        }
    }
    refused
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hybrid_is_v1_and_sweeps_all() {
        let mounts = Mounts::parse(
            "tmpfs /sys/fs/cgroup tmpfs rw 0 0\n\
             cgroup /sys/fs/cgroup/cpu,cpuacct cgroup rw,relatime,cpu,cpuacct 0 0\n\
             cgroup /sys/fs/cgroup/systemd cgroup rw,relatime,name=systemd 0 0\n\
             cgroup2 /sys/fs/cgroup/unified cgroup2 rw 0 0\n",
        )
        .unwrap();
        assert_eq!(mounts.mode, Mode::V1);
        assert_eq!(mounts.hierarchies.len(), 1);
        assert_eq!(mounts.all.len(), 3);
        assert_eq!(
            mounts.controller("cpuacct").unwrap(),
            Path::new("/sys/fs/cgroup/cpu,cpuacct")
        );
        assert_eq!(mounts.controller("memory"), None);
    }

    #[test]
    fn unified_alone_is_v2() {
        let mounts = Mounts::parse("cgroup2 /sys/fs/cgroup cgroup2 rw,nsdelegate 0 0\n").unwrap();
        assert_eq!(mounts.mode, Mode::V2);
        assert_eq!(
            mounts.controller("memory").unwrap(),
            Path::new("/sys/fs/cgroup")
        );
        assert!(Mounts::parse("proc /proc proc rw 0 0\n").is_err());
    }
}
