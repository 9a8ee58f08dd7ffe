//! How Go and Kubernetes write and read values: durations, floats, quoted strings, JSON, times, URLs, protobuf.
//!
//! Clients and tests compare these texts, so they follow Go to the letter, error texts included. No I/O.

pub mod duration;
pub mod format;
pub mod human_duration;
pub mod json;
pub mod platform;
pub mod protowire;
pub mod strconv;
pub mod time;
pub mod url;
pub mod yaml;

pub use duration::GoDuration;
