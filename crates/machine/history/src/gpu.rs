//! GPU usage of the node, pods and containers.

use std::path::Path;
use std::sync::Arc;

use plimsoll_containers::CgroupPath;
use plimsoll_host::gpu::{Device, Gpus, LIBRARY};
use plimsoll_host::{HostRoot, ReadBuf, read_file};
use plimsoll_observe::usage::{DeviceUse, by_owner};
use rustc_hash::FxHashMap;

use super::cgroup_roles::{CgroupRole, TrackedCgroup};
use super::collect::SampleBatch;
use super::{Metric, UsageHistory, machine_facts, metrics as c};

#[derive(Debug)]
pub struct GpuCollector {
    gpus: Gpus,
}

impl GpuCollector {
    /// `None`: this machine has no GPU, or NVML does not work; the reason is logged.
    pub fn open(root: &HostRoot, history: &UsageHistory) -> Option<Self> {
        match Gpus::open(root, Path::new(LIBRARY)) {
            Ok(Some(gpus)) => {
                history
                    .facts()
                    .set(machine_facts::GPU_DEVICES, gpus.devices().to_vec());
                Some(Self { gpus })
            }
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

    pub fn collect<'a>(
        &mut self,
        batch: &mut SampleBatch,
        history: &UsageHistory,
        cgroups: impl Iterator<Item = &'a TrackedCgroup>,
        root: &HostRoot,
        buf: &mut ReadBuf,
    ) {
        if self.gpus.notice_errors() {
            let devices = self.gpus.devices().to_vec();
            history.facts().set(machine_facts::GPU_DEVICES, devices);
        }
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
        let owners = Owners::find(cgroups, used.iter().map(|one| one.0), root, buf);
        let devices = self.gpus.devices();
        let node = by_owner(used.iter().copied(), |_| Some(()));
        for (index, device) in devices.iter().enumerate() {
            let used = node.get(&((), index)).copied().unwrap_or_default();
            let metrics = [c::NODE_GPU_CORE_USAGE, c::NODE_GPU_MEMORY_USAGE];
            put(batch, history, metrics, None, device, used);
            let labels = [&*device.minor.to_string(), &device.uuid];
            let total = device.memory as f64;
            batch.put(history, c::NODE_GPU_MEMORY_TOTAL, &labels, total);
        }
        let pods = by_owner(used.iter().copied(), |pid| owners.pod(pid));
        for ((pod, device), used) in pods {
            let metrics = [c::POD_GPU_CORE_USAGE, c::POD_GPU_MEMORY_USAGE];
            put(batch, history, metrics, Some(&pod), &devices[device], used);
        }
        let containers = by_owner(used.iter().copied(), |pid| owners.container(pid));
        for ((id, device), used) in containers {
            let metrics = [c::CONTAINER_GPU_CORE_USAGE, c::CONTAINER_GPU_MEMORY_USAGE];
            put(batch, history, metrics, Some(&id), &devices[device], used);
        }
    }
}

fn put(
    batch: &mut SampleBatch,
    history: &UsageHistory,
    [cores, bytes]: [Metric; 2],
    owner: Option<&str>,
    device: &Device,
    used: DeviceUse,
) {
    let minor = device.minor.to_string();
    let mut labels: Vec<&str> = owner.into_iter().collect();
    labels.extend([&*minor, &*device.uuid]);
    batch.put(history, cores, &labels, used.cores as f64);
    batch.put(history, bytes, &labels, used.memory as f64);
}

/// Containers of the processes that use a GPU, by the processes' cgroups.
struct Owners(FxHashMap<u32, (Arc<str>, Box<str>)>);

impl Owners {
    fn find<'a>(
        cgroups: impl Iterator<Item = &'a TrackedCgroup>,
        pids: impl Iterator<Item = u32>,
        root: &HostRoot,
        buf: &mut ReadBuf,
    ) -> Self {
        let containers: FxHashMap<&CgroupPath, (&Arc<str>, &str)> = cgroups
            .filter_map(|cgroup| match &cgroup.role {
                CgroupRole::Container { pod, id, .. } => {
                    Some((cgroup.container.path(), (pod, &**id)))
                }
                _ => None,
            })
            .collect();
        let mut owners = FxHashMap::default();
        for pid in pids {
            let file = root.proc(format!("{pid}/cgroup"));
            let Ok(Some(text)) = read_file(&file, buf) else {
                continue;
            };
            let owner = cgroups_in(text).find_map(|path| {
                let found = containers
                    .iter()
                    .find(|(container, _)| is_within(&path, container));
                found.map(|(_, (pod, id))| (Arc::clone(pod), Box::from(*id)))
            });
            if let Some(owner) = owner {
                owners.insert(pid, owner);
            }
        }
        Self(owners)
    }

    fn pod(&self, pid: u32) -> Option<Arc<str>> {
        self.0.get(&pid).map(|(pod, _)| Arc::clone(pod))
    }

    fn container(&self, pid: u32) -> Option<Box<str>> {
        self.0.get(&pid).map(|(_, id)| id.clone())
    }
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

fn is_within(path: &str, container: &str) -> bool {
    path.strip_prefix(container)
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
