//! What the agent tells the cluster: what the node uses (`NodeMetric`), how its CPUs and memory lie
//! (`NodeResourceTopology`), which devices it has (`Device`).
//!
//! What to tell is worked out by pure functions of the cluster state and of figures ([`node_metric`], [`topology`], [`device`]);
//! thin tasks send it ([`live`]).

mod device;
mod device_reporter;
mod live;
mod node_metric;
mod node_metric_reporter;
mod schedule;
mod topology;
mod topology_reporter;
mod upsert;
mod usage_source;
mod xpu;

pub use device::{DeviceInventory, device};
pub use live::{Config, Counters, Devices, Reports, Running, Sources, WriteCounters};
pub use node_metric::{Input, status, window};
pub use topology::{Facts, TopologyReport, told};
pub use usage_source::UsageSource;
