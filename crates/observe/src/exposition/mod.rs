//! Prometheus text pages.

mod families;
mod labels;
mod number;
mod page;
