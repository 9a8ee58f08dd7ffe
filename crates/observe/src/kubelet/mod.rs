//! What the kubelet serves beside metrics of containers: `/metrics/resource` and `/stats/summary`.
//!
//! Pods are known by the labels that the runtime keeps for the kubelet, so no API server is asked.

mod pods;
mod resource;
mod shapes;
mod summary;
#[cfg(test)]
mod tests;

pub use resource::resource;
pub use summary::write_summary;

use crate::rest::Snapshot;
use crate::{Observer, Sample};

/// A limit beyond this is the kernel's way of saying "none".
const UNLIMITED: u64 = 1 << 62;

/// How much more a container could swap out: up to its own limit, and up to what the machine has. Version 1 of cgroups
/// limits memory and swap together.
fn swap_available(snapshot: &Snapshot, sample: &Sample, observer: &Observer) -> u64 {
    let spec = &snapshot.spec;
    let capacity = observer.machine.info().swap_capacity;
    let own = match observer.is_v2 || spec.memory_swap_limit > UNLIMITED {
        true => spec.memory_swap_limit,
        false => spec.memory_swap_limit.saturating_sub(spec.memory_limit),
    };
    own.min(capacity).saturating_sub(sample.memory.swap)
}
