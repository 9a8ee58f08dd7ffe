//! Fetching every node's page, again and again.
//!
//! `fleet` says whose turn it is, `client` fetches, [`crate::decode`] reads, [`crate::store`] keeps. Each node has its own
//! moment of the interval; a slow one keeps nobody waiting.

mod client;
mod complaints;
mod connection;
mod fault;
mod fleet;
mod http;
mod identity;
mod scraper;
mod target;
mod telemetry;
mod tls;

#[cfg(test)]
mod tests;

pub use identity::{IdentityError, Source, Trust};
pub use scraper::Config;
pub(crate) use scraper::Scraper;
pub use target::Rules;
pub use telemetry::{Reason, Telemetry, Totals};
