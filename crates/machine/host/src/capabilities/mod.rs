//! What this machine's kernel can do for protection: facts are read here, [`findings`] says what they mean for people.

mod facts;
mod findings;

pub use facts::{Facts, Preemption, Resctrl};
pub use findings::{Finding, Severity, findings};
