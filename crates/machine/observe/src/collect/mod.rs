//! Collectors that read the kernel outside of the sampling round: what only some nodes have, at intervals of its own.
//!
//! They know cgroup paths and nothing of pods. Whoever owns them says when to collect, and maps paths to pods.

pub mod cold_pages;
pub mod cpi;
#[cfg(feature = "gpu")]
pub mod gpu;
pub mod resctrl;
