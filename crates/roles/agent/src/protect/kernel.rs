//! What strategies have to know of the kernel itself.

use std::sync::Arc;

use plimsoll_actuate::Actuator;
use plimsoll_api::kubelet_cgroups::CgroupLayout;
use plimsoll_api::priority::KubeQos;
use plimsoll_observe::store::Store;
use plimsoll_plan::{CgroupPath, Target};
use plimsoll_qos::input::{Capabilities, Kernel};

/// What does not change while the machine runs.
pub fn capabilities(is_v2: bool) -> Capabilities {
    let page_size = rustix::param::page_size() as u64;
    let of_version = match is_v2 {
        true => Capabilities::v2(),
        false => Capabilities::v1(),
    };
    Capabilities {
        page_size,
        ..of_version
    }
}

/// Reads what the planner asks for, and nothing else.
pub fn read(
    capabilities: Capabilities,
    wanted: &[Target],
    actuator: &mut Actuator,
    store: &Store,
    layout: &CgroupLayout,
) -> Kernel {
    let values = wanted
        .iter()
        .filter_map(|target| Some((target.clone(), actuator.read(target)?)))
        .collect();
    Kernel {
        capabilities,
        values,
        below_best_effort: Some(below(store, &layout.tier(KubeQos::BestEffort))),
        ..Kernel::default()
    }
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
