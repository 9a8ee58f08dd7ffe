//! What the node has used: named series over the time-series store, and what they let us foresee.

mod series;

pub use series::{Metric, Series, Summary};
