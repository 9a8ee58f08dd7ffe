//! What the agent tells the cluster: what the node uses (`NodeMetric`), how its CPUs and memory lie
//! (`NodeResourceTopology`), which devices it has (`Device`).
//!
//! What to tell is worked out by pure functions of the board and of figures ([`node_metric`], [`topology`], [`device`]);
//! thin tasks send it ([`live`]).

mod device;
mod figures;
mod inventory;
mod layout;
mod live;
mod node_metric;
mod pace;
mod reporter;
mod send;
mod topology;
mod xpu;

pub use device::{Found, device};
pub use figures::Figures;
pub use live::{Attempts, Config, Counters, Devices, Reports, Running, Sources};
pub use node_metric::{Input, status, window};
pub use topology::{Facts, Told, told};
