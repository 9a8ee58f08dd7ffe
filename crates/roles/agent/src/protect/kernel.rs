//! What strategies have to know of the kernel itself.

use std::collections::BTreeMap;
use std::sync::Arc;

use plimsoll_actuate::Actuator;
use plimsoll_api::kubelet_cgroups::CgroupLayout;
use plimsoll_api::priority::KubeQos;
use plimsoll_host::cgroup::{Controller, Hierarchies};
use plimsoll_host::{HostRoot, ReadBuf, read_text};
use plimsoll_observe::store::Store;
use plimsoll_plan::{CgroupPath, Target};
use plimsoll_qos::input::{Capabilities, Kernel, PodView, Resctrl};

/// The magic number of a v1 cgroup file system.
const CGROUP_V1: i64 = 0x0027_e0eb;
/// Groups whose threads strategies move.
const GROUPS: [&str; 3] = ["LSR", "LS", "BE"];
/// Threads of one cgroup that are looked at.
const MOST_THREADS: usize = 1 << 16;

/// What does not change while the machine runs.
pub fn capabilities(hierarchies: &Hierarchies) -> Capabilities {
    let of_version = match hierarchies.is_v2() {
        true => Capabilities::v2(),
        false => Capabilities {
            burst_within_quota: is_mainline_v1(hierarchies),
            ..Capabilities::v1()
        },
    };
    Capabilities {
        page_size: rustix::param::page_size() as u64,
        ..of_version
    }
}

/// Only Anolis kernels, which have group identities, let a cgroup of v1 burst by more than its quota.
fn is_mainline_v1(hierarchies: &Hierarchies) -> bool {
    let Some(root) = hierarchies.dir(Controller::Cpu, "/") else {
        return false;
    };
    let is_kernel = rustix::fs::statfs(&root).is_ok_and(|stat| stat.f_type == CGROUP_V1);
    is_kernel && !root.join("cpu.bvt_warp_ns").exists()
}

/// Where to read.
#[derive(Debug, Clone, Copy)]
pub struct Places<'a> {
    pub root: &'a HostRoot,
    pub hierarchies: &'a Hierarchies,
    pub store: &'a Store,
    pub layout: &'a CgroupLayout,
}

/// Reads what the planner asks for, and nothing else. `pods`: those whose threads matter.
pub fn read<'a>(
    capabilities: Capabilities,
    wanted: &[Target],
    actuator: &Actuator,
    places: Places<'_>,
    is_amd: bool,
    pods: impl Iterator<Item = &'a PodView>,
) -> Kernel {
    let values = wanted
        .iter()
        .filter_map(|target| Some((target.clone(), actuator.read(target)?)))
        .collect();
    let mut buf = ReadBuf::default();
    let resctrl = resctrl(places.root, is_amd, &mut buf);
    let threads = match &resctrl {
        Some(_) => threads(places.hierarchies, pods, &mut buf),
        None => BTreeMap::new(),
    };
    let tier = places.layout.tier(KubeQos::BestEffort);
    Kernel {
        capabilities,
        values,
        below_best_effort: Some(below(places.store, &tier)),
        threads,
        resctrl,
    }
}

/// `None`: it is not mounted.
fn resctrl(root: &HostRoot, is_amd: bool, buf: &mut ReadBuf) -> Option<Resctrl> {
    let base = root.sys("fs/resctrl");
    let schemata = read_text(&base.join("schemata"), buf).ok().flatten()?;
    let mask = read_text(&base.join("info/L3/cbm_mask"), buf)
        .ok()
        .flatten();
    let tasks = GROUPS
        .into_iter()
        .filter_map(|group| {
            let ids = ids(&base.join(group).join("tasks"), buf)?;
            Some((group.into(), ids.into_iter().collect()))
        })
        .collect();
    Some(Resctrl {
        l3_mask: mask.unwrap_or_default().into(),
        l3_ids: cache_ids(&schemata).into(),
        memory_bandwidth: schemata
            .lines()
            .any(|line| line.trim_start().starts_with("MB:")),
        is_amd,
        tasks,
    })
}

/// Of a line `L3:0=7ff;1=7ff`.
fn cache_ids(schemata: &str) -> Vec<u32> {
    let lines = schemata.lines().map(str::trim_start);
    let l3 = lines
        .filter_map(|line| line.strip_prefix("L3:"))
        .flat_map(|line| line.split(';'));
    l3.filter_map(|one| one.split_once('=')?.0.trim().parse().ok())
        .collect()
}

fn threads<'a>(
    hierarchies: &Hierarchies,
    pods: impl Iterator<Item = &'a PodView>,
    buf: &mut ReadBuf,
) -> BTreeMap<CgroupPath, Box<[u32]>> {
    let file = match hierarchies.is_v2() {
        true => "cgroup.threads",
        false => "tasks",
    };
    let cgroups = pods.flat_map(|pod| {
        let containers = pod.containers.iter();
        containers
            .filter_map(|one| one.cgroup.clone())
            .chain(pod.sandbox.clone())
    });
    cgroups
        .filter_map(|cgroup| {
            let dir = hierarchies.dir(Controller::Cpu, &cgroup)?;
            Some((cgroup, ids(&dir.join(file), buf)?.into()))
        })
        .collect()
}

fn ids(file: &std::path::Path, buf: &mut ReadBuf) -> Option<Vec<u32>> {
    let text = read_text(file, buf).ok().flatten()?;
    let ids = text.lines().take(MOST_THREADS);
    Some(ids.filter_map(|line| line.trim().parse().ok()).collect())
}

/// Cgroups of pods and their containers below a tier; what containers make inside themselves is not ours.
fn below(store: &Store, tier: &str) -> Vec<CgroupPath> {
    let all = store.all().into_iter();
    let mut found: Vec<CgroupPath> = all
        .filter_map(|container| {
            let path = container.path();
            let rest = path.strip_prefix(tier)?.strip_prefix('/')?;
            (rest.split('/').count() <= 2).then(|| Arc::clone(path))
        })
        .collect();
    found.sort_unstable();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_resctrl_says() {
        let dir = tempfile::tempdir().unwrap();
        let root = HostRoot::new(dir.path());
        let mut buf = ReadBuf::default();
        assert_eq!(resctrl(&root, false, &mut buf), None);
        let write = |file: &str, text: &str| {
            let path = dir.path().join("sys/fs/resctrl").join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("schemata", "    MB:0=100;1=100\n    L3:0=7ff;1=7ff\n");
        write("info/L3/cbm_mask", "7ff\n");
        write("BE/tasks", "7\n9\n");
        let found = resctrl(&root, true, &mut buf).unwrap();
        assert_eq!((&*found.l3_mask, &*found.l3_ids), ("7ff", &[0, 1][..]));
        assert!(found.memory_bandwidth && found.is_amd);
        assert_eq!(found.tasks.len(), 1);
        assert_eq!(found.tasks["BE"], [7, 9].into());
    }
}
