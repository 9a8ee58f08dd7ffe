//! Joins "it exists" and "this is its name" into one ordered stream, as a pure state machine.
//!
//! For each path: `Appeared`, then at most one `Unclaimed` and any number of `Identified`, then `Vanished`, and nothing after it
//! until it appears again. Runtimes answer late and out of order, so each life of a path has a generation, and an answer
//! about a former life is dropped.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;

use crate::names::container_id;
use crate::{CgroupPath, Change, Identity};

/// One life of a path.
pub(crate) type Life = u64;

/// How long a vanished container is held back for its exit code.
const EXIT_PATIENCE: Duration = Duration::from_millis(300);

/// What is wanted of the runtimes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ask {
    Name {
        path: CgroupPath,
        life: Life,
        id: Box<str>,
    },
    /// The container is gone. An [`Answer::Ended`] is waited for where `exit` says so.
    Forget {
        path: CgroupPath,
        life: Life,
        exit: bool,
    },
}

/// What the runtimes say.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Answer {
    Named {
        path: CgroupPath,
        life: Life,
        identity: Arc<Identity>,
    },
    Unclaimed {
        path: CgroupPath,
        life: Life,
    },
    Ended {
        path: CgroupPath,
        life: Life,
        exit_code: Option<i32>,
    },
}

#[derive(Debug)]
struct Live {
    life: Life,
    /// A name was promised: if none comes, that must be said, once.
    awaited: bool,
    named: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Herald {
    /// Only cgroups whose names hold a container id; nobody is asked about the others.
    live: FxHashMap<CgroupPath, Live>,
    leaving: FxHashMap<CgroupPath, Life>,
    /// In order, because the patience is the same for all.
    deadlines: VecDeque<(Duration, CgroupPath, Life)>,
    next_life: Life,
    changes: Vec<Change>,
    asks: Vec<Ask>,
}

impl Herald {
    pub fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    pub fn take_asks(&mut self) -> Vec<Ask> {
        std::mem::take(&mut self.asks)
    }

    /// `reachable`: some runtime may answer now.
    pub fn appeared(&mut self, path: CgroupPath, reachable: bool) {
        self.end(&path, None);
        let id = container_id(&path);
        let awaited = reachable && id.is_some();
        self.changes.push(Change::Appeared {
            path: CgroupPath::clone(&path),
            awaiting_runtime: awaited,
        });
        let Some(id) = id else { return };
        self.next_life += 1;
        let life = self.next_life;
        self.asks.push(Ask::Name {
            path: CgroupPath::clone(&path),
            life,
            id: id.into(),
        });
        let live = Live {
            life,
            awaited,
            named: false,
        };
        self.live.insert(path, live);
    }

    pub fn vanished(&mut self, path: CgroupPath, now: Duration) {
        let Some(live) = self.live.remove(&path) else {
            self.changes.push(Change::Vanished {
                path,
                exit_code: None,
            });
            return;
        };
        self.asks.push(Ask::Forget {
            path: CgroupPath::clone(&path),
            life: live.life,
            exit: live.named,
        });
        if live.named {
            self.deadlines
                .push_back((now + EXIT_PATIENCE, CgroupPath::clone(&path), live.life));
            self.leaving.insert(path, live.life);
        } else {
            self.changes.push(Change::Vanished {
                path,
                exit_code: None,
            });
        }
    }

    pub fn answered(&mut self, answer: Answer) {
        match answer {
            Answer::Named {
                path,
                life,
                identity,
            } => {
                if let Some(live) = self.live.get_mut(&path).filter(|live| live.life == life) {
                    live.named = true;
                    self.changes.push(Change::Identified { path, identity });
                }
            }
            Answer::Unclaimed { path, life } => {
                let live = self.live.get_mut(&path).filter(|live| live.life == life);
                if live.is_some_and(|live| !live.named && std::mem::take(&mut live.awaited)) {
                    self.changes.push(Change::Unclaimed { path });
                }
            }
            Answer::Ended {
                path,
                life,
                exit_code,
            } => {
                if self.leaving.get(&path) == Some(&life) {
                    self.end(&path, exit_code);
                }
            }
        }
    }

    /// Lets go of those whose exit code did not come in time.
    pub fn tick(&mut self, now: Duration) {
        while let Some((deadline, _, _)) = self.deadlines.front() {
            if *deadline > now {
                return;
            }
            if let Some((_, path, life)) = self.deadlines.pop_front()
                && self.leaving.get(&path) == Some(&life)
            {
                self.end(&path, None);
            }
        }
    }

    /// When [`Herald::tick`] has something to do.
    pub fn deadline(&self) -> Option<Duration> {
        self.deadlines.front().map(|(deadline, _, _)| *deadline)
    }

    fn end(&mut self, path: &CgroupPath, exit_code: Option<i32>) {
        if let Some((path, _)) = self.leaving.remove_entry(path) {
            self.changes.push(Change::Vanished { path, exit_code });
        }
    }
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;
    use crate::identity::tests::identity;

    const ID: &str = "0a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f9";

    fn path() -> CgroupPath {
        format!("/docker/{ID}").into()
    }

    fn named(life: Life) -> Answer {
        Answer::Named {
            path: path(),
            life,
            identity: Arc::new(identity(ID)),
        }
    }

    fn ended(life: Life, code: i32) -> Answer {
        Answer::Ended {
            path: path(),
            life,
            exit_code: Some(code),
        }
    }

    #[track_caller]
    fn check(herald: &mut Herald, expected: Expect) {
        let lines: Vec<String> = herald
            .take_changes()
            .into_iter()
            .map(|change| match change {
                Change::Appeared {
                    awaiting_runtime, ..
                } => format!("appeared awaiting={awaiting_runtime}"),
                Change::Unclaimed { .. } => "unclaimed".to_owned(),
                Change::Identified { .. } => "identified".to_owned(),
                Change::Vanished { exit_code, .. } => format!("vanished {exit_code:?}"),
            })
            .collect();
        expected.assert_eq(&lines.join(", "));
    }

    #[test]
    fn a_whole_life() {
        let mut herald = Herald::default();
        herald.appeared(path(), true);
        herald.answered(Answer::Unclaimed {
            path: path(),
            life: 1,
        });
        herald.answered(named(1));
        herald.answered(Answer::Unclaimed {
            path: path(),
            life: 1,
        });
        herald.vanished(path(), Duration::ZERO);
        check(
            &mut herald,
            expect!["appeared awaiting=true, unclaimed, identified"],
        );
        herald.answered(ended(1, 137));
        herald.answered(named(1));
        herald.tick(Duration::from_secs(9));
        check(&mut herald, expect!["vanished Some(137)"]);
        assert_eq!(herald.deadline(), None);
    }

    #[test]
    fn an_exit_code_that_does_not_come() {
        let mut herald = Herald::default();
        herald.appeared(path(), true);
        herald.answered(named(1));
        herald.vanished(path(), Duration::ZERO);
        herald.take_changes();
        herald.tick(EXIT_PATIENCE - Duration::from_millis(1));
        check(&mut herald, expect![""]);
        herald.tick(EXIT_PATIENCE);
        herald.answered(ended(1, 0));
        check(&mut herald, expect!["vanished None"]);
    }

    #[test]
    fn a_second_life_ends_the_first_and_ignores_its_answers() {
        let mut herald = Herald::default();
        herald.appeared(path(), true);
        herald.answered(named(1));
        herald.vanished(path(), Duration::ZERO);
        herald.appeared(path(), false);
        herald.answered(named(1));
        herald.answered(ended(1, 3));
        herald.tick(Duration::from_secs(9));
        check(
            &mut herald,
            expect!["appeared awaiting=true, identified, vanished None, appeared awaiting=false"],
        );
        herald.answered(named(2));
        check(&mut herald, expect!["identified"]);
    }

    #[test]
    fn plain_cgroups_ask_nobody() {
        let mut herald = Herald::default();
        herald.appeared("/system.slice".into(), true);
        herald.vanished("/system.slice".into(), Duration::ZERO);
        assert_eq!(herald.take_asks(), []);
        check(
            &mut herald,
            expect!["appeared awaiting=false, vanished None"],
        );
    }

    #[test]
    fn an_unnamed_container_waits_for_nobody() {
        let mut herald = Herald::default();
        herald.appeared(path(), true);
        herald.vanished(path(), Duration::ZERO);
        check(
            &mut herald,
            expect!["appeared awaiting=true, vanished None"],
        );
        assert_eq!(herald.take_asks().len(), 2);
    }
}
