//! The embedded Kubernetes API server: for `plimsoll up`, tests and simulation. In production there is the real one.

pub mod field;
pub mod gojson;
pub mod golang;
pub mod kinds;
pub mod managed;
pub mod patch;
pub mod resource;
pub mod schema;
pub mod status;
