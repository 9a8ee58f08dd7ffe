//! What was used, from what was counted: samples in, named values out. A subject a file.
//!
//! Everything here is arithmetic on figures that somebody else has read, and knows neither files nor clusters.

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
pub use cgroup::{MemoryUse, Throttling, memory_use, numa_pages};
pub use cold::hot_use;
pub use cpi::{Cpi, Window};
pub use device::{DeviceUse, by_owner};
pub use machine::{MachineCpu, NumaCpu, machine_memory, numa_memory};
pub use pressure::{PressureFigure, pressure_figures};
pub use rate::Rate;
pub use system::{Dated, numa_rest, rest};
