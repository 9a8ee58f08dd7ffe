//! The node as strategies look at it.

use plimsoll_api::cpus::CpuSet;
use plimsoll_api::kubelet_cgroups::{CgroupDriver, CgroupLayout};
use plimsoll_host::cgroup::Hierarchies;
use plimsoll_host::machine::NodeCpuInfo;
use plimsoll_qos::input::{Cpu, NodeView};

use crate::states::{ClusterState, CpuPools};

/// Where the kubelet's cgroups are: by its own word, else by the folders that are there.
pub fn layout(known: &ClusterState, hierarchies: &Hierarchies) -> CgroupLayout {
    let told = known.kubelet.as_ref();
    let driver = told.and_then(|kubelet| CgroupDriver::named(&kubelet.cgroup_driver));
    let found = || {
        let trees = hierarchies.trees();
        let systemd = trees
            .iter()
            .any(|tree| tree.join("kubepods.slice").is_dir());
        match systemd {
            true => CgroupDriver::Systemd,
            false => CgroupDriver::Cgroupfs,
        }
    };
    let root = told.map_or("", |kubelet| &kubelet.cgroup_root);
    CgroupLayout::new(driver.unwrap_or_else(found), root)
}

/// `None`: the cluster has not said anything about the node yet.
pub fn view(known: &ClusterState, cpus: &[Cpu], layout: CgroupLayout) -> Option<NodeView> {
    let node = known.node.as_ref()?;
    let mut view = NodeView {
        capacity: node.capacity.clone(),
        allocatable: node.allocatable.clone(),
        cpus: cpus.to_vec(),
        layout,
        ..NodeView::default()
    };
    view.annotate(|name| node.annotations.get(name).map(|text| &**text));
    if let Some(pools) = &known.cpu_pools {
        pools_of(pools, &mut view);
    }
    if let Some(kubelet) = &known.kubelet {
        view.static_cpu_manager = kubelet.cpu_manager_policy == "static";
    }
    Some(view)
}

fn pools_of(pools: &CpuPools, view: &mut NodeView) {
    let parse = |text: &str| text.parse::<CpuSet>().unwrap_or_default();
    view.share_pools = pools
        .shared
        .iter()
        .map(|pool| parse(&pool.cpuset))
        .collect();
    view.static_cpu_manager = pools.manager_policy == "static";
}

pub fn cpus(facts: &NodeCpuInfo) -> Vec<Cpu> {
    facts
        .processors
        .iter()
        .map(|one| Cpu {
            id: one.cpu,
            core: one.core,
            socket: one.socket,
            node: one.node,
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use plimsoll_api::priority::KubeQos;

    use super::*;
    use crate::states::KubeletConfiguration;

    #[test]
    fn cgroups_are_where_the_kubelet_says() {
        let known = |cgroup_driver: &str, cgroup_root: &str| ClusterState {
            kubelet: Some(Arc::new(KubeletConfiguration {
                cgroup_driver: cgroup_driver.into(),
                cgroup_root: cgroup_root.into(),
                ..KubeletConfiguration::default()
            })),
            ..ClusterState::default()
        };
        let hierarchies = Hierarchies::v2("/nowhere");
        let tier = |known| layout(&known, &hierarchies).tier(KubeQos::BestEffort);
        assert_eq!(tier(known("cgroupfs", "/")), "/kubepods/besteffort");
        assert_eq!(
            tier(known("cgroupfs", "/my-root")),
            "/my-root/kubepods/besteffort"
        );
        assert_eq!(
            tier(known("systemd", "/my-root")),
            "/my_root.slice/my_root-kubepods.slice/my_root-kubepods-besteffort.slice"
        );
        assert_eq!(tier(ClusterState::default()), "/kubepods/besteffort");
    }
}
