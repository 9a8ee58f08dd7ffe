//! What the node has used: named series over the time-series store, and what they let us foresee.
//!
//! The way of a figure: the sampler's round leaves it in the observer's store; once an interval [`keeper`]'s thread
//! takes what is new there (`round`), turns it into named values (`plimsoll_observe::usage`), and appends them to
//! [`Memory`]. Reports and policies ask the memory. What the cluster says about pods comes from the board.

pub mod catalogue;
mod cold;
mod config;
mod cpi;
pub mod facts;
mod forecast;
mod gauges;
#[cfg(feature = "gpu")]
mod gpu;
pub(crate) mod keeper;
mod places;
mod pressure;
mod remember;
mod resctrl;
mod round;
mod series;
#[cfg(test)]
mod tests;

pub use config::{Collect, Config, Cpi, Forecast};
pub use plimsoll_predict::reclaim::Config as ReclaimConfig;
pub use plimsoll_predict::{Config as ModelsConfig, HalfLives};
pub use plimsoll_tsdb::Config as StoreConfig;
pub use remember::{Counters, Memory};
pub use series::{Metric, Series, Summary};
