//! cAdvisor's and the kubelet's pages and REST API: exposition text, JSON shapes, and the HTTP server.
//!
//! Everything shown comes from [`plimsoll_observe::Observer`] and, through [`http::Backend`], from the program that
//! owns the server. This crate reads no kernel file; a test holds that.

pub mod exposition;
pub mod http;
pub mod kubelet;
mod metrics_page;
pub mod rest;
pub mod validate;

pub use metrics_page::{metrics_page, version};
