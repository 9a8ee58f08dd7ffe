//! Looking at one value, for strategies that decide by what the kernel has.

use plimsoll_plan::{Target, Value};

use crate::Actuator;
use crate::write::{Look, look};

impl Actuator {
    /// What the kernel has now, in its own unit. `None`: there is no such thing, or it cannot be understood.
    pub fn read(&self, target: &Target) -> Option<Value> {
        let place = self.config.machine.place(target)?;
        match look(&*self.files, target, &place, &mut 0) {
            Look::Value { has, .. } => Some(has),
            _ => None,
        }
    }
}
