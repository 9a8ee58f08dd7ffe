//! Which cgroups are held back.

use std::collections::BTreeSet;

use plimsoll_api::cpus::CpuSet;
use plimsoll_api::kubelet_cgroups::Place;
use plimsoll_api::priority::KubeQos;
use plimsoll_plan::CgroupPath;

use crate::input::{Input, NodeView};

/// Cgroups below the best-effort tier that are ours to write.
#[derive(Default)]
pub struct Dirs {
    pub pods: BTreeSet<CgroupPath>,
    pub containers: BTreeSet<CgroupPath>,
    /// CPUs that some of the pods have for themselves.
    pub own_cpus: CpuSet,
}

impl Dirs {
    /// Pods with CPUs of their own are the allocator's. Where it manages all best-effort CPUs, it writes containers that have a
    /// place on the node, and leaves pods to us.
    pub fn of(input: &Input<'_>, node: &NodeView, manager: bool) -> Self {
        let mut dirs = Self::default();
        let mut skipped: BTreeSet<&str> = BTreeSet::new();
        for pod in input.all_pods() {
            if pod.classes.kube_qos != KubeQos::BestEffort {
                continue;
            }
            if let Some(cpus) = pod.own_cpus() {
                dirs.own_cpus.add(cpus);
                skipped.insert(&pod.uid);
            } else if manager {
                let status = pod.annotations.resource_status.given();
                if status.is_some_and(|status| status.is_placed()) {
                    skipped.insert(&pod.uid);
                }
            }
        }
        let mut add = |path: &CgroupPath, uid: &str, is_pod: bool| {
            let skipped = skipped.contains(uid);
            match is_pod {
                true if manager || !skipped => drop(dirs.pods.insert(path.clone())),
                false if !skipped => drop(dirs.containers.insert(path.clone())),
                _ => {}
            }
        };
        let Some(found) = &input.kernel.below_best_effort else {
            let pods = input.all_pods().iter();
            for pod in pods.filter(|pod| pod.classes.kube_qos == KubeQos::BestEffort) {
                if pod.is_active() {
                    add(&pod.cgroup, &pod.uid, true);
                    let containers = pod.containers.iter().filter_map(|one| one.cgroup.as_ref());
                    for path in containers.chain(pod.sandbox.as_ref()) {
                        add(path, &pod.uid, false);
                    }
                }
            }
            return dirs;
        };
        let tier = node.layout.tier(KubeQos::BestEffort);
        for path in found {
            let uid = match node.layout.parse(path) {
                Some(Place::Pod { uid, .. } | Place::Container { uid, .. }) => uid,
                // Programs of the host may be there, too.
                Some(Place::Tier(_)) | None => String::new(),
            };
            let below = path.strip_prefix(&*tier).unwrap_or_default();
            match below.matches('/').count() {
                1 => add(path, &uid, true),
                2 => add(path, &uid, false),
                _ => {}
            }
        }
        dirs
    }
}
