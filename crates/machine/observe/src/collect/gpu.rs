//! GPU usage by cgroup, from NVML.

use std::path::Path;

use plimsoll_containers::CgroupPath;
use plimsoll_host::gpu::{Device, Gpus, LIBRARY};
use plimsoll_host::{HostRoot, ReadBuf, read_file};
use rustc_hash::FxHashMap;

use crate::usage::{DeviceUse, by_owner};

#[derive(Debug)]
pub struct GpuCollector {
    gpus: Gpus,
}

/// Usage of devices, by their place in [`GpuCollector::devices`].
#[derive(Debug, Default)]
pub struct GpuUsage {
    pub node: Vec<(usize, DeviceUse)>,
    /// By the cgroup's place in the list that was given.
    pub cgroups: Vec<(usize, usize, DeviceUse)>,
}

impl GpuCollector {
    /// `None`: this machine has no GPU, or NVML does not work; the reason is logged.
    pub fn open(root: &HostRoot) -> Option<Self> {
        match Gpus::open(root, Path::new(LIBRARY)) {
            Ok(Some(gpus)) => Some(Self { gpus }),
            Ok(None) => {
                tracing::warn!(
                    "GPU collection is on, but there is no {LIBRARY}, or it finds no GPU"
                );
                None
            }
            Err(error) => {
                tracing::warn!(%error, "cannot query GPUs");
                None
            }
        }
    }

    pub fn devices(&self) -> &[Device] {
        self.gpus.devices()
    }

    /// Takes errors that the driver has reported. `true`: the devices' health has changed.
    pub fn poll_errors(&mut self) -> bool {
        self.gpus.poll_xid_events()
    }

    /// Usage of each device, of the node and of each of these cgroups with what is below it.
    pub fn usage(
        &mut self,
        cgroups: &[CgroupPath],
        root: &HostRoot,
        buf: &mut ReadBuf,
    ) -> GpuUsage {
        let mut problems = Vec::new();
        let processes = self.gpus.processes(&mut problems);
        for problem in problems {
            tracing::debug!(error = %problem, "cannot query a GPU");
        }
        let used: Vec<(u32, usize, DeviceUse)> = processes
            .iter()
            .map(|one| {
                let used = DeviceUse {
                    cores: one.cores.into(),
                    memory: one.memory,
                };
                (one.pid, one.device, used)
            })
            .collect();
        let owners = owners(cgroups, used.iter().map(|one| one.0), root, buf);
        let node = by_owner(used.iter().copied(), |_| Some(()));
        let devices = 0..self.gpus.devices().len();
        let by_cgroup = by_owner(used, |pid| owners.get(&pid).copied());
        GpuUsage {
            node: devices
                .map(|index| (index, node.get(&((), index)).copied().unwrap_or_default()))
                .collect(),
            cgroups: by_cgroup
                .into_iter()
                .map(|((cgroup, device), used)| (cgroup, device, used))
                .collect(),
        }
    }
}

/// The cgroups of the processes that use a GPU.
fn owners(
    cgroups: &[CgroupPath],
    pids: impl Iterator<Item = u32>,
    root: &HostRoot,
    buf: &mut ReadBuf,
) -> FxHashMap<u32, usize> {
    let mut owners = FxHashMap::default();
    for pid in pids {
        let file = root.proc(format!("{pid}/cgroup"));
        let Ok(Some(text)) = read_file(&file, buf) else {
            continue;
        };
        let owner = cgroups_in(text)
            .find_map(|path| cgroups.iter().position(|cgroup| is_within(&path, cgroup)));
        if let Some(owner) = owner {
            owners.insert(pid, owner);
        }
    }
    owners
}

/// The paths in `/proc/PID/cgroup`: `0::/path`, or a line a v1 hierarchy.
fn cgroups_in(text: &[u8]) -> impl Iterator<Item = String> {
    let lines = text.split(|&byte| byte == b'\n');
    lines.filter_map(|line| {
        let line = String::from_utf8_lossy(line);
        let path = line.splitn(3, ':').nth(2)?;
        (path != "/").then(|| path.to_owned())
    })
}

fn is_within(path: &str, cgroup: &str) -> bool {
    path.strip_prefix(cgroup)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cgroups_of_a_process() {
        let paths: Vec<String> = cgroups_in(b"0::/kubepods/pod1/abc\n").collect();
        assert_eq!(paths, ["/kubepods/pod1/abc"]);
        let v1: Vec<String> = cgroups_in(b"5:cpu,cpuacct:/a/b\n1:name=systemd:/\n").collect();
        assert_eq!(v1, ["/a/b"]);
        assert!(is_within("/a/b/c", "/a/b") && is_within("/a/b", "/a/b"));
        assert!(!is_within("/a/bc", "/a/b"));
    }
}
