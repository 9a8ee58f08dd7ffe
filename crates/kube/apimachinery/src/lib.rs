//! What every server of Kubernetes-style resources answers alike, whatever its resources are: what a request asks for,
//! selectors, formats, refusals in Kubernetes' words.

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
