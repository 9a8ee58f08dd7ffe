//! Reports to the cluster: usage (`NodeMetric`), topology of CPUs and memory (`NodeResourceTopology`), devices
//! (`Device`).
//!
//! Objects are computed by pure functions of the cluster state and the usage history ([`node_metric`], [`topology`],
//! [`device`]); thin tasks write them ([`live`]).

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
pub use topology::{Facts, TopologyReport, build_topology};
pub use usage_source::UsageSource;
