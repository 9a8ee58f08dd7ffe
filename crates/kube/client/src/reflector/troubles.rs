//! Logs what keeps local copies from being current, once for all reflectors that have the same problem.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;
use plimsoll_waiting::Repeated;

/// Different troubles that are remembered.
const MOST: usize = 64;

/// By what is wrong.
#[derive(Debug, Default)]
pub(super) struct Troubles(Mutex<BTreeMap<String, Group>>);

#[derive(Debug, Default)]
struct Group {
    /// Whom it keeps now.
    names: BTreeSet<String>,
    /// Whom it has kept since it was last said to be over.
    kept: BTreeSet<String>,
    repeated: Repeated,
}

impl Troubles {
    pub fn failed(&self, name: &str, trouble: &str) {
        let mut groups = self.0.lock();
        for (other, group) in &mut *groups {
            // It fails still, for another reason: nothing is over.
            if other != trouble && group.names.remove(name) && group.names.is_empty() {
                group.repeated.well();
            }
        }
        if groups.len() >= MOST {
            groups.retain(|_, group| !group.names.is_empty());
        }
        let group = groups.entry(trouble.to_owned()).or_default();
        group.names.insert(name.to_owned());
        group.kept.insert(name.to_owned());
        match group.repeated.failed() {
            Some(said) => {
                let (name, times) = (joined(&group.names), said.times);
                tracing::warn!(name, trouble, times, "cannot follow, trying again");
            }
            None => tracing::debug!(name, trouble, "cannot follow, trying again"),
        }
    }

    pub fn recovered(&self, name: &str) {
        let mut groups = self.0.lock();
        for group in groups.values_mut() {
            if group.names.remove(name)
                && group.names.is_empty()
                && let Some(over) = group.repeated.well()
            {
                let (failures, seconds) = (over.failures, over.lasted.as_secs());
                let name = joined(&std::mem::take(&mut group.kept));
                tracing::info!(name, failures, seconds, "following again");
            }
        }
    }
}

fn joined(names: &BTreeSet<String>) -> String {
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    names.join(", ")
}
