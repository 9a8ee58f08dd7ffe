//! Fetching every node's page, again and again.

mod telemetry;

pub use telemetry::{Histogram, Reason, Telemetry, Totals};
