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

/// A limit beyond this is the kernel's way of saying "none".
const UNLIMITED: u64 = 1 << 62;

/// As the kubelet passes it on: `None` without a limit. Version 1 of cgroups limits memory and swap together, and that
/// is the figure there.
fn swap_limit(limit: u64) -> Option<u64> {
    (limit <= UNLIMITED).then_some(limit)
}
