//! Writes that fail, and when to say so.

use std::collections::BTreeSet;

use plimsoll_waiting::{Over, Repeated, Times};

/// Whatever node they are about, they mostly have the same causes: one line tells of all.
#[derive(Debug, Default)]
pub struct Failures {
    line: Repeated,
    /// Nodes whose last write failed. Whoever is gone is written about once more, and that succeeds in the end.
    nodes: BTreeSet<String>,
}

impl Failures {
    pub fn failed(&mut self, node: &str) -> Option<Times> {
        if !self.nodes.contains(node) {
            self.nodes.insert(node.to_owned());
        }
        self.line.failed()
    }

    /// Only what was written shows that it can be, and only once it can be for all of them.
    pub fn well(&mut self, node: &str, wrote: bool) -> Option<Over> {
        self.nodes.remove(node);
        match wrote && self.nodes.is_empty() {
            true => self.line.well(),
            false => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_well_once_no_node_fails() {
        let mut failures = Failures::default();
        assert!(failures.failed("a").is_some());
        assert!(failures.failed("b").is_none());
        assert!(failures.well("c", true).is_none());
        assert!(failures.well("a", true).is_none());
        assert!(failures.well("b", false).is_none());
        assert_eq!(failures.well("c", true).unwrap().failures, 2);
        assert!(failures.well("c", true).is_none());
    }
}
