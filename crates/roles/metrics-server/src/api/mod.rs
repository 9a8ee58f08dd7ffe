//! `metrics.k8s.io` and everything else that the server answers.

mod about;
mod access;
mod aggregated;
mod browsers;
mod content;
mod counted;
mod discovery;
mod figures;
pub mod freshness;
mod json;
mod list;
mod objects;
mod openapi;
mod options;
mod pages;
mod past;
mod protobuf;
mod refusals;
mod route;
mod row;
mod schemas;
mod sheet;
mod statusz;
mod surface;
mod verbosity;
mod version;

pub use about::VERSION;
pub use browsers::Browsers;
pub use surface::{Rooms, Surface};
pub use verbosity::Verbosity;
pub use version::Announced;
