//! `metrics.k8s.io` and everything else that the server answers.

pub mod figures;
pub mod json;
pub mod objects;
pub mod protobuf;
pub mod row;
