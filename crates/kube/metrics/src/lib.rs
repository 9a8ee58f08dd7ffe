//! Prometheus metrics: counters and histograms by label, the exposition formats, and which of them a scraper wants.
//!
//! [`Exposition`] writes a page as text, [`to_delimited_protobuf`] turns it into messages, [`parser`] reads text pages.
//! No names of metrics: those are with what they count.

mod exposition;
mod histogram;
pub mod negotiate;
mod number;
pub mod parser;
mod protobuf;
mod vectors;

pub use exposition::{Exposition, Labels};
pub use histogram::Histogram;
pub use protobuf::{MetricType, field, to_delimited_protobuf, unescape};
pub use vectors::{CounterVec, HistogramVec};
