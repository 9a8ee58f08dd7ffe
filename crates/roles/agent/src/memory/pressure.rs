//! Pressure of pods and containers, as the sampling round has read it.

use plimsoll_observe::usage::pressure_figures;

use super::places::{Place, Role};
use super::round::Batch;
use super::{Memory, catalogue as c};

/// Only the ten-second averages are kept.
const PRECISION: &str = "10";

pub fn note<'a>(batch: &mut Batch, memory: &Memory, places: impl Iterator<Item = &'a Place>) {
    for place in places {
        let [cpu, memory_psi, io] = {
            let state = place.container.lock();
            if !state.sampled {
                continue;
            }
            state.usage.psi
        };
        let has_full = f64::from(u8::from(cpu.has_full));
        for figure in pressure_figures(&cpu, &memory_psi, &io) {
            let what = [figure.resource, PRECISION, figure.degree];
            match &place.role {
                Role::Pod { uid, .. } => {
                    let properties = [uid, what[0], what[1], what[2]];
                    batch.put(memory, c::POD_PSI, &properties, figure.value);
                }
                Role::Container { pod, id, .. } => {
                    let properties = [id, &**pod, what[0], what[1], what[2]];
                    batch.put(memory, c::CONTAINER_PSI, &properties, figure.value);
                }
                Role::BestEffort | Role::HostApplication { .. } => {}
            }
        }
        match &place.role {
            Role::Pod { uid, .. } => {
                batch.put(memory, c::POD_PSI_CPU_FULL_SUPPORTED, &[uid], has_full);
            }
            Role::Container { pod, id, .. } => {
                let metric = c::CONTAINER_PSI_CPU_FULL_SUPPORTED;
                batch.put(memory, metric, &[pod, id], has_full);
            }
            Role::BestEffort | Role::HostApplication { .. } => {}
        }
    }
}
