//! One module a strategy: a pure function from what is known, and a small state of its own, to a plan.

pub mod blkio;
pub mod cpu_burst;
pub mod cpu_suppress;
pub mod host_applications;
pub mod memory_qos;
pub mod resctrl;
pub mod system_config;

use plimsoll_plan::{Note, Plan};

/// What a strategy has come to.
#[derive(Debug)]
pub enum Outcome {
    Plan(Plan),
    /// There is no ground for a new plan, and none for giving the last one back.
    Keep(Option<Note>),
}

impl Outcome {
    /// The last plan stands, and this is why.
    pub fn keep(code: &'static str, about: &str, text: &str) -> Self {
        Self::Keep(Some(Note {
            code,
            about: about.into(),
            text: text.into(),
        }))
    }
}
