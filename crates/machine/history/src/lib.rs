//! The usage history of a node and the forecasts made of it.
//!
//! The sampling round leaves samples in the observer's store. Once an interval the history thread ([`recorder`]) reads
//! what is new there (`collect`), derives usage from it (`plimsoll_observe::usage`), and appends it to the
//! [`UsageHistory`], which keeps named series in a time-series store. Reports and policies query the `UsageHistory`.
//! What the cluster knows about pods comes in as [`Workloads`].

mod cgroup_roles;
mod cold_pages;
mod collect;
mod config;
mod cpi;
mod forecast;
#[cfg(feature = "gpu")]
mod gpu;
mod history;
mod latest;
pub mod machine_facts;
pub mod metrics;
mod psi;
pub mod recorder;
mod resctrl;
mod series;
#[cfg(test)]
mod tests;
mod usage_now;
mod workloads;

pub use config::{Collect, Config, Cpi, Forecast};
pub use cpi::LatestCpi;
pub use forecast::Predictions;
pub use history::{Counters, UsageHistory};
pub use latest::{CollectStatus, Latest};
pub use plimsoll_predict::reclaim::Config as ReclaimConfig;
pub use plimsoll_predict::{Config as ModelsConfig, HalfLives};
pub use plimsoll_tsdb::Config as StoreConfig;
pub use recorder::{KernelSources, Recorder};
pub use series::{Metric, Series, Summary};
pub use usage_now::{ContainerUsage, PodUsage, UsageNow};
pub use workloads::{HostApplication, Pod, Workloads};
