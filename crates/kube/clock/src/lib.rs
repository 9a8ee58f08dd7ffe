//! Time: the only crate that reads the kernel's clocks.
//!
//! [`Clock`] comes in as an argument; tests step it. [`BootInstant`] measures time that also passes while the machine
//! sleeps, which is what a lease needs.

mod boot;
mod clock;

pub use boot::BootInstant;
pub use clock::{Clock, Timestamp};
