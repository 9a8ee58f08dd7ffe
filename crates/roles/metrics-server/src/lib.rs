//! `kubectl top`, HPA and VPA: scrapes every kubelet's `/metrics/resource`, keeps two points of everything, and serves
//! `metrics.k8s.io`.
//!
//! The way of a figure: `scrape` fetches a page, `decode` reads points off it, `store` keeps them and says what they
//! amount to, `api` shows that as [`rows`].

pub mod api;
pub mod audit;
pub mod collector;
pub mod config;
pub mod decode;
pub mod history;
mod intern;
pub mod labels;
pub mod metadata;
pub mod own;
pub mod points;
pub mod rows;
pub mod scrape;
pub mod server;
#[cfg(test)]
mod server_tests;
pub mod store;
pub mod view;
