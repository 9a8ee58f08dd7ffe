//! Objects that cannot be read, and when to say so.

use std::error::Error;

use plimsoll_waiting::Repeated;
use rustc_hash::FxHashSet;

use super::kinds::Identity;

/// Of one kind. It is over once each of them was changed, is gone, or is not in a new list.
#[derive(Debug, Default)]
pub struct Unread {
    line: Repeated,
    objects: FxHashSet<Identity>,
    /// Not even who they are can be read.
    has_nameless: bool,
    is_listing: bool,
}

impl Unread {
    pub fn failed(
        &mut self,
        kind: &'static str,
        identity: Option<Identity>,
        error: &(dyn Error + 'static),
    ) {
        match identity {
            Some(identity) => drop(self.objects.insert(identity)),
            None => self.has_nameless = true,
        }
        if let Some(said) = self.line.failed() {
            let times = said.times;
            tracing::warn!(kind, error, times, "cannot read an object, leaving it out");
        }
    }

    /// This one was read, or is gone.
    pub fn well(&mut self, kind: &'static str, identity: &Identity) {
        self.objects.remove(identity);
        self.tell(kind);
    }

    /// It tells all that there are.
    pub fn list_begins(&mut self) {
        self.objects.clear();
        (self.has_nameless, self.is_listing) = (false, true);
    }

    pub fn list_ends(&mut self, kind: &'static str) {
        self.is_listing = false;
        self.tell(kind);
    }

    fn tell(&mut self, kind: &'static str) {
        let is_over = self.objects.is_empty() && !self.has_nameless && !self.is_listing;
        if is_over && let Some(over) = self.line.well() {
            let failures = over.failures;
            tracing::info!(kind, failures, "all objects can be read again");
        }
    }

    #[cfg(test)]
    pub fn is_failing(&self) -> bool {
        self.line.is_failing()
    }
}
