//! Documents in, objects out.

pub mod decode;
pub mod document;
pub mod json;
pub mod kept;
pub mod objections;
pub mod protobuf;
pub mod yaml;
