//! Derives usage (cores, bytes, ratios) from counter samples. One file per resource.
//!
//! Pure arithmetic on values that were read elsewhere; no files, no Kubernetes.

mod best_effort;
mod cgroup;
mod cold;
mod cpi;
mod device;
mod machine;
mod pressure;
mod rate;
mod system;

pub use best_effort::{cpus_in, real_limit};
pub use cgroup::{MemoryUse, ThrottleRatio, memory_use, numa_pages};
pub use cold::hot_page_usage;
pub use cpi::{Cpi, Window};
pub use device::{DeviceUse, by_owner};
pub use machine::{MachineCpu, NumaCpu, machine_memory, numa_memory};
pub use pressure::{PressureFigure, pressure_figures};
pub use rate::Rate;
pub use system::{TimedValue, system_usage, system_usage_by_numa};
