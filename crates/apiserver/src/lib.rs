//! The embedded Kubernetes API server: for `plimsoll up`, tests and simulation. In production there is the real one.

pub mod auth;
pub mod codec;
pub mod crd;
pub mod discovery;
pub mod field;
pub mod kinds;
pub mod openapi;
pub mod request;
pub mod resource;
pub mod schema;
pub mod status;
pub mod store;
pub mod table;
