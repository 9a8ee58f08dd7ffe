//! The queue of container events for the sampler.
//!
//! Where cgroups come and go by the thousand, most of those that wait to be opened have ended already: they are passed
//! over, so that the storm costs the other containers no samples.

use std::collections::VecDeque;

use plimsoll_containers::{CgroupPath, ContainerEvent};
use rustc_hash::FxHashMap;

#[derive(Debug, Default)]
pub(super) struct ChangeQueue {
    waiting: VecDeque<ContainerEvent>,
    /// How often each cgroup's end is among those waiting.
    ends: FxHashMap<CgroupPath, u32>,
}

impl ChangeQueue {
    pub fn push(&mut self, change: ContainerEvent) {
        if let ContainerEvent::Vanished { path, .. } = &change {
            *self.ends.entry(CgroupPath::clone(path)).or_default() += 1;
        }
        self.waiting.push_back(change);
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// The next change to apply. An appearance whose end is queued as well is skipped.
    pub fn next(&mut self) -> Option<ContainerEvent> {
        loop {
            let change = self.waiting.pop_front()?;
            match &change {
                ContainerEvent::Appeared { path, .. } | ContainerEvent::Identified { path, .. }
                    if self.ends.contains_key(path) => {}
                ContainerEvent::Vanished { path, .. } => {
                    self.one_end_less(path);
                    return Some(change);
                }
                _ => return Some(change),
            }
        }
    }

    fn one_end_less(&mut self, path: &CgroupPath) {
        if let Some(left) = self.ends.get_mut(path) {
            *left -= 1;
            if *left == 0 {
                self.ends.remove(path);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn appeared(path: &str) -> ContainerEvent {
        ContainerEvent::Appeared {
            path: path.into(),
            identity_pending: false,
        }
    }

    fn vanished(path: &str) -> ContainerEvent {
        ContainerEvent::Vanished {
            path: path.into(),
            exit_code: None,
        }
    }

    #[track_caller]
    fn check(changes: Vec<ContainerEvent>, expected: &[&str]) {
        let mut queue = ChangeQueue::default();
        for change in changes {
            queue.push(change);
        }
        let mut left = Vec::new();
        while let Some(change) = queue.next() {
            left.push(match change {
                ContainerEvent::Appeared { path, .. } => format!("+{path}"),
                ContainerEvent::Vanished { path, .. } => format!("-{path}"),
                other => format!("{other:?}"),
            });
        }
        assert_eq!(left, expected);
        assert!(queue.is_empty() && queue.ends.is_empty());
    }

    #[test]
    fn what_has_ended_while_it_waited_is_not_begun() {
        check(vec![appeared("/a"), appeared("/b")], &["+/a", "+/b"]);
        check(vec![appeared("/a"), vanished("/a")], &["-/a"]);
        check(
            vec![appeared("/a"), vanished("/a"), appeared("/a")],
            &["-/a", "+/a"],
        );
        check(
            vec![
                vanished("/a"),
                appeared("/a"),
                vanished("/a"),
                appeared("/b"),
                appeared("/a"),
            ],
            &["-/a", "-/a", "+/b", "+/a"],
        );
    }
}
