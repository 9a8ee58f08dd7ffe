//! Merges cgroup events and runtime answers into one ordered stream of container events. Pure state machine.
//!
//! For each path: `Appeared`, then at most one `NoRuntime` and any number of `Identified`, then `Vanished`, and nothing after it
//! until it appears again. Runtimes answer late and out of order, so each incarnation of a path has a number, and an answer
//! about an earlier incarnation is dropped.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;

use crate::names::container_id;
use crate::{CgroupPath, ContainerEvent, Identity};

/// Number of an incarnation of a path.
pub(crate) type Incarnation = u64;

/// How long `Vanished` is held back to wait for the exit code.
const EXIT_PATIENCE: Duration = Duration::from_millis(300);

/// A query to the runtimes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Query {
    Name {
        path: CgroupPath,
        incarnation: Incarnation,
        id: Box<str>,
    },
    /// The container is gone. A [`Reply::Ended`] is waited for where `exit` says so.
    Forget {
        path: CgroupPath,
        incarnation: Incarnation,
        exit: bool,
    },
}

/// An answer of the runtimes.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Reply {
    Named {
        path: CgroupPath,
        incarnation: Incarnation,
        identity: Arc<Identity>,
    },
    Unclaimed {
        path: CgroupPath,
        incarnation: Incarnation,
    },
    Ended {
        path: CgroupPath,
        incarnation: Incarnation,
        exit_code: Option<i32>,
    },
}

#[derive(Debug)]
struct Live {
    incarnation: Incarnation,
    /// `identity_pending` was reported: if no identity comes, `NoRuntime` must follow, once.
    awaited: bool,
    named: bool,
}

#[derive(Debug, Default)]
pub(crate) struct IdentityJoin {
    /// Only cgroups whose names contain a container id; there is no query for others.
    live: FxHashMap<CgroupPath, Live>,
    leaving: FxHashMap<CgroupPath, Incarnation>,
    /// In order, because all wait equally long.
    deadlines: VecDeque<(Duration, CgroupPath, Incarnation)>,
    next_incarnation: Incarnation,
    changes: Vec<ContainerEvent>,
    queries: Vec<Query>,
}

impl IdentityJoin {
    pub fn take_changes(&mut self) -> Vec<ContainerEvent> {
        std::mem::take(&mut self.changes)
    }

    pub fn take_queries(&mut self) -> Vec<Query> {
        std::mem::take(&mut self.queries)
    }

    /// `reachable`: at least one runtime may answer now.
    pub fn appeared(&mut self, path: CgroupPath, reachable: bool) {
        self.end(&path, None);
        let id = container_id(&path);
        let awaited = reachable && id.is_some();
        self.changes.push(ContainerEvent::Appeared {
            path: CgroupPath::clone(&path),
            identity_pending: awaited,
        });
        let Some(id) = id else { return };
        self.next_incarnation += 1;
        let incarnation = self.next_incarnation;
        self.queries.push(Query::Name {
            path: CgroupPath::clone(&path),
            incarnation,
            id: id.into(),
        });
        let live = Live {
            incarnation,
            awaited,
            named: false,
        };
        self.live.insert(path, live);
    }

    pub fn vanished(&mut self, path: CgroupPath, now: Duration) {
        let Some(live) = self.live.remove(&path) else {
            self.changes.push(ContainerEvent::Vanished {
                path,
                exit_code: None,
            });
            return;
        };
        self.queries.push(Query::Forget {
            path: CgroupPath::clone(&path),
            incarnation: live.incarnation,
            exit: live.named,
        });
        if live.named {
            self.deadlines.push_back((
                now + EXIT_PATIENCE,
                CgroupPath::clone(&path),
                live.incarnation,
            ));
            self.leaving.insert(path, live.incarnation);
        } else {
            self.changes.push(ContainerEvent::Vanished {
                path,
                exit_code: None,
            });
        }
    }

    pub fn answered(&mut self, reply: Reply) {
        match reply {
            Reply::Named {
                path,
                incarnation,
                identity,
            } => {
                if let Some(live) = self
                    .live
                    .get_mut(&path)
                    .filter(|live| live.incarnation == incarnation)
                {
                    live.named = true;
                    self.changes
                        .push(ContainerEvent::Identified { path, identity });
                }
            }
            Reply::Unclaimed { path, incarnation } => {
                let live = self
                    .live
                    .get_mut(&path)
                    .filter(|live| live.incarnation == incarnation);
                if live.is_some_and(|live| !live.named && std::mem::take(&mut live.awaited)) {
                    self.changes.push(ContainerEvent::NoRuntime { path });
                }
            }
            Reply::Ended {
                path,
                incarnation,
                exit_code,
            } => {
                if self.leaving.get(&path) == Some(&incarnation) {
                    self.end(&path, exit_code);
                }
            }
        }
    }

    /// Reports `Vanished` where the exit code did not come in time.
    pub fn tick(&mut self, now: Duration) {
        while let Some((deadline, _, _)) = self.deadlines.front() {
            if *deadline > now {
                return;
            }
            if let Some((_, path, incarnation)) = self.deadlines.pop_front()
                && self.leaving.get(&path) == Some(&incarnation)
            {
                self.end(&path, None);
            }
        }
    }

    /// When [`IdentityJoin::tick`] has something to do.
    pub fn deadline(&self) -> Option<Duration> {
        self.deadlines.front().map(|(deadline, _, _)| *deadline)
    }

    fn end(&mut self, path: &CgroupPath, exit_code: Option<i32>) {
        if let Some((path, _)) = self.leaving.remove_entry(path) {
            self.changes
                .push(ContainerEvent::Vanished { path, exit_code });
        }
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::container::tests::identity;

    const ID: &str = "0a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f9";

    fn path() -> CgroupPath {
        format!("/docker/{ID}").into()
    }

    fn named(incarnation: Incarnation) -> Reply {
        Reply::Named {
            path: path(),
            incarnation,
            identity: Arc::new(identity(ID)),
        }
    }

    fn ended(incarnation: Incarnation, code: i32) -> Reply {
        Reply::Ended {
            path: path(),
            incarnation,
            exit_code: Some(code),
        }
    }

    #[track_caller]
    fn check(join: &mut IdentityJoin, expected: Expect) {
        let lines: Vec<String> = join
            .take_changes()
            .into_iter()
            .map(|change| match change {
                ContainerEvent::Appeared {
                    identity_pending, ..
                } => format!("appeared awaiting={identity_pending}"),
                ContainerEvent::NoRuntime { .. } => "unclaimed".to_owned(),
                ContainerEvent::Identified { .. } => "identified".to_owned(),
                ContainerEvent::Vanished { exit_code, .. } => format!("vanished {exit_code:?}"),
            })
            .collect();
        expected.assert_eq(&lines.join(", "));
    }

    #[test]
    fn a_whole_life() {
        let mut join = IdentityJoin::default();
        join.appeared(path(), true);
        join.answered(Reply::Unclaimed {
            path: path(),
            incarnation: 1,
        });
        join.answered(named(1));
        join.answered(Reply::Unclaimed {
            path: path(),
            incarnation: 1,
        });
        join.vanished(path(), Duration::ZERO);
        check(
            &mut join,
            expect!["appeared awaiting=true, unclaimed, identified"],
        );
        join.answered(ended(1, 137));
        join.answered(named(1));
        join.tick(Duration::from_secs(9));
        check(&mut join, expect!["vanished Some(137)"]);
        assert_eq!(join.deadline(), None);
    }

    #[test]
    fn an_exit_code_that_does_not_come() {
        let mut join = IdentityJoin::default();
        join.appeared(path(), true);
        join.answered(named(1));
        join.vanished(path(), Duration::ZERO);
        join.take_changes();
        join.tick(EXIT_PATIENCE - Duration::from_millis(1));
        check(&mut join, expect![""]);
        join.tick(EXIT_PATIENCE);
        join.answered(ended(1, 0));
        check(&mut join, expect!["vanished None"]);
    }

    #[test]
    fn a_second_life_ends_the_first_and_ignores_its_answers() {
        let mut join = IdentityJoin::default();
        join.appeared(path(), true);
        join.answered(named(1));
        join.vanished(path(), Duration::ZERO);
        join.appeared(path(), false);
        join.answered(named(1));
        join.answered(ended(1, 3));
        join.tick(Duration::from_secs(9));
        check(
            &mut join,
            expect!["appeared awaiting=true, identified, vanished None, appeared awaiting=false"],
        );
        join.answered(named(2));
        check(&mut join, expect!["identified"]);
    }

    #[test]
    fn plain_cgroups_ask_nobody() {
        let mut join = IdentityJoin::default();
        join.appeared("/system.slice".into(), true);
        join.vanished("/system.slice".into(), Duration::ZERO);
        assert_eq!(join.take_queries(), []);
        check(&mut join, expect!["appeared awaiting=false, vanished None"]);
    }

    #[test]
    fn an_unnamed_container_waits_for_nobody() {
        let mut join = IdentityJoin::default();
        join.appeared(path(), true);
        join.vanished(path(), Duration::ZERO);
        check(&mut join, expect!["appeared awaiting=true, vanished None"]);
        assert_eq!(join.take_queries().len(), 2);
    }
}
