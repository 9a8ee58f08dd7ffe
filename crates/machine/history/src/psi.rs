//! Pressure (PSI) of pods and containers, from the sampler's readings.

use plimsoll_observe::usage::pressure_figures;

use super::cgroup_roles::{CgroupRole, TrackedCgroup};
use super::collect::SampleBatch;
use super::{UsageHistory, metrics as c};

/// Label value: only the ten-second averages are recorded.
const PRECISION: &str = "10";

pub fn collect<'a>(
    batch: &mut SampleBatch,
    history: &UsageHistory,
    cgroups: impl Iterator<Item = &'a TrackedCgroup>,
) {
    for cgroup in cgroups {
        let [cpu, memory_psi, io] = {
            let state = cgroup.container.lock();
            if !state.sampled {
                continue;
            }
            state.usage.psi
        };
        let has_full = f64::from(u8::from(cpu.has_full));
        for figure in pressure_figures(&cpu, &memory_psi, &io) {
            let what = [figure.resource, PRECISION, figure.degree];
            match &cgroup.role {
                CgroupRole::Pod { uid, .. } => {
                    let labels = [uid, what[0], what[1], what[2]];
                    batch.put(history, c::POD_PSI, &labels, figure.value);
                }
                CgroupRole::Container { pod, id, .. } => {
                    let labels = [id, &**pod, what[0], what[1], what[2]];
                    batch.put(history, c::CONTAINER_PSI, &labels, figure.value);
                }
                CgroupRole::BestEffort | CgroupRole::HostApplication { .. } => {}
            }
        }
        match &cgroup.role {
            CgroupRole::Pod { uid, .. } => {
                batch.put(history, c::POD_PSI_CPU_FULL_SUPPORTED, &[uid], has_full);
            }
            CgroupRole::Container { pod, id, .. } => {
                let metric = c::CONTAINER_PSI_CPU_FULL_SUPPORTED;
                batch.put(history, metric, &[pod, id], has_full);
            }
            CgroupRole::BestEffort | CgroupRole::HostApplication { .. } => {}
        }
    }
}
