//! What a role tells about itself: histograms, exposition text, the process.

mod delimited;
mod histogram;
mod page;
pub mod process;
mod series;
mod work;

pub use delimited::{MetricType, delimited, field, unescape};
pub use histogram::Histogram;
pub use page::{Labels, Page};
pub use series::{Counters, Histograms};
pub use work::Work;
