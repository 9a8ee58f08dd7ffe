//! GPU usage of the node, pods and containers.

use std::sync::Arc;

use plimsoll_containers::CgroupPath;
use plimsoll_host::gpu::Device;
use plimsoll_host::{HostRoot, ReadBuf};
use plimsoll_observe::collect::gpu::GpuCollector;
use plimsoll_observe::usage::DeviceUse;
use rustc_hash::FxHashMap;

use super::cgroup_roles::{CgroupRole, TrackedCgroup};
use super::collect::SampleBatch;
use super::{Metric, UsageHistory, machine_facts, metrics as c};

/// Opens the GPUs and publishes their list.
pub fn open(root: &HostRoot, history: &UsageHistory) -> Option<GpuCollector> {
    let gpus = GpuCollector::open(root)?;
    publish(&gpus, history);
    Some(gpus)
}

fn publish(gpus: &GpuCollector, history: &UsageHistory) {
    let devices = gpus.devices().to_vec();
    history.facts().set(machine_facts::GPU_DEVICES, devices);
}

pub fn collect<'a>(
    gpus: &mut GpuCollector,
    batch: &mut SampleBatch,
    history: &UsageHistory,
    cgroups: impl Iterator<Item = &'a TrackedCgroup>,
    root: &HostRoot,
    buf: &mut ReadBuf,
) {
    if gpus.poll_errors() {
        publish(gpus, history);
    }
    let (containers, paths): (Vec<(&Arc<str>, &str)>, Vec<CgroupPath>) = cgroups
        .filter_map(|cgroup| match &cgroup.role {
            CgroupRole::Container { pod, id, .. } => {
                Some(((pod, &**id), Arc::clone(cgroup.container.path())))
            }
            _ => None,
        })
        .unzip();
    let usage = gpus.usage(&paths, root, buf);
    let devices = gpus.devices();
    for (index, used) in usage.node {
        let device = &devices[index];
        let metrics = [c::NODE_GPU_CORE_USAGE, c::NODE_GPU_MEMORY_USAGE];
        put(batch, history, metrics, None, device, used);
        let labels = [&*device.minor.to_string(), &device.uuid];
        let total = device.memory as f64;
        batch.put(history, c::NODE_GPU_MEMORY_TOTAL, &labels, total);
    }
    let mut pods: FxHashMap<(&str, usize), DeviceUse> = FxHashMap::default();
    for (container, device, used) in usage.cgroups {
        let (pod, id) = containers[container];
        let sum = pods.entry((&**pod, device)).or_default();
        sum.cores = sum.cores.saturating_add(used.cores);
        sum.memory = sum.memory.saturating_add(used.memory);
        let metrics = [c::CONTAINER_GPU_CORE_USAGE, c::CONTAINER_GPU_MEMORY_USAGE];
        put(batch, history, metrics, Some(id), &devices[device], used);
    }
    for ((pod, device), used) in pods {
        let metrics = [c::POD_GPU_CORE_USAGE, c::POD_GPU_MEMORY_USAGE];
        put(batch, history, metrics, Some(pod), &devices[device], used);
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
