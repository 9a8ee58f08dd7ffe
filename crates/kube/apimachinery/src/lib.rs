//! What servers of Kubernetes-style resources have in common: request info, selectors, formats, Status errors,
//! OpenAPI in protobuf.

pub mod accept;
pub mod answer;
pub mod depth;
pub mod field;
pub mod fingerprint;
pub mod kept;
pub mod openapi;
pub mod protobuf;
pub mod request;
pub mod selector;
pub mod status;
pub mod timeout;
