//! Handles the runtimes' answers.

use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;

use super::super::{InspectResult, ListResult, RuntimeError};
use super::{Call, FIRST_PAUSE, LONGEST_PAUSE, QUICK_ROUNDS, QueryScheduler, RuntimeIndex, bit};
use crate::identity_join::{Incarnation, Reply};
use crate::{CgroupPath, Identity};

impl QueryScheduler {
    pub fn inspected(
        &mut self,
        runtime: RuntimeIndex,
        path: &CgroupPath,
        incarnation: Incarnation,
        seen: Result<InspectResult, RuntimeError>,
        now: Duration,
    ) {
        let Some(entry) = self.entries.get_mut(path) else {
            return;
        };
        if entry.incarnation != incarnation || entry.asked & bit(runtime) == 0 {
            return;
        }
        entry.asked &= !bit(runtime);
        // An error is not an answer; the next round queries again.
        self.take(runtime, path, seen.unwrap_or(InspectResult::Unknown), now);
    }

    pub fn listed(
        &mut self,
        runtime: RuntimeIndex,
        listing: Result<ListResult, RuntimeError>,
        now: Duration,
    ) {
        self.listing[runtime] = false;
        self.unlistable[runtime] = listing.is_err();
        let waiting: Vec<CgroupPath> = self
            .entries
            .iter_mut()
            .filter(|(_, entry)| entry.listed & bit(runtime) != 0)
            .map(|(path, entry)| {
                entry.listed &= !bit(runtime);
                CgroupPath::clone(path)
            })
            .collect();
        match listing {
            Ok(ListResult::Full(seen)) => {
                let mut seen: FxHashMap<String, InspectResult> = seen
                    .into_iter()
                    .filter_map(|seen| match &seen {
                        InspectResult::CgroupTree(found) | InspectResult::Starting(found) => {
                            Some((found.id.clone(), seen))
                        }
                        InspectResult::Unknown => None,
                    })
                    .collect();
                for path in waiting {
                    let id = self.entries.get(&path).map(|entry| entry.id.clone());
                    // Cloned, because a container may have two cgroups.
                    let found = id.and_then(|id| seen.get_mut(&*id)).cloned();
                    self.take(runtime, &path, found.unwrap_or(InspectResult::Unknown), now);
                }
            }
            Ok(ListResult::Ids(ids)) => {
                for path in waiting {
                    let Some(entry) = self.entries.get_mut(&path) else {
                        continue;
                    };
                    if !ids.contains(&*entry.id) {
                        self.take(runtime, &path, InspectResult::Unknown, now);
                    } else if entry.asked & bit(runtime) == 0 {
                        entry.asked |= bit(runtime);
                        self.calls.push(Call::Inspect {
                            runtime,
                            path,
                            incarnation: entry.incarnation,
                            id: entry.id.clone(),
                        });
                    }
                }
            }
            Err(_) => {
                for path in waiting {
                    self.take(runtime, &path, InspectResult::Unknown, now);
                }
            }
        }
    }

    /// Handles one runtime's answer about one container.
    fn take(
        &mut self,
        runtime: RuntimeIndex,
        path: &CgroupPath,
        seen: InspectResult,
        now: Duration,
    ) {
        let Some(entry) = self.entries.get_mut(path) else {
            return;
        };
        match seen {
            InspectResult::CgroupTree(identity) => {
                entry.starting = None;
                self.name(runtime, path, identity);
            }
            InspectResult::Starting(identity) => {
                if entry.identity.is_none() {
                    entry.starting = Some((runtime, identity));
                }
                self.round_over(path, now);
            }
            InspectResult::Unknown => self.round_over(path, now),
        }
    }

    fn name(&mut self, runtime: RuntimeIndex, path: &CgroupPath, mut identity: Box<Identity>) {
        let Some(entry) = self.entries.get_mut(path) else {
            return;
        };
        entry.owner = Some(runtime);
        // Where it stands for the cgroup's age it can only grow by the kernel's forgetting: the first is the best.
        if let Some(before) = entry.identity.as_ref().filter(|b| b.pid == identity.pid) {
            identity.started = before.started.or(identity.started);
        }
        if entry.identity.as_deref() == Some(&*identity) {
            return;
        }
        let identity = Arc::<Identity>::from(identity);
        entry.identity = Some(Arc::clone(&identity));
        self.replies.push(Reply::Named {
            path: CgroupPath::clone(path),
            incarnation: entry.incarnation,
            identity,
        });
    }

    /// If all have answered and none knows the container, schedules the next round.
    pub(super) fn round_over(&mut self, path: &CgroupPath, now: Duration) {
        let Some(entry) = self.entries.get_mut(path) else {
            return;
        };
        let has_process = |identity: &Arc<Identity>| identity.pid.is_some();
        let settled = entry.identity.as_ref().is_some_and(has_process);
        if entry.asked | entry.listed != 0 || settled {
            return;
        }
        entry.round = entry.round.saturating_add(1);
        let doublings = entry.round.saturating_sub(1).min(16);
        let pause = (FIRST_PAUSE * (1 << doublings)).min(LONGEST_PAUSE);
        let give_up = entry.round >= QUICK_ROUNDS;
        if entry.due.is_none() {
            self.schedule(path, now + pause);
        }
        if give_up || !self.reachable() {
            self.report_unclaimed(path);
        }
    }

    /// Reports what is known by now: an identity without a process, or that there is none.
    pub(super) fn report_unclaimed(&mut self, path: &CgroupPath) {
        let Some(entry) = self.entries.get_mut(path) else {
            return;
        };
        if let Some((runtime, identity)) = entry.starting.take() {
            self.name(runtime, path, identity);
        } else if entry.identity.is_none() && !entry.unclaimed_said {
            entry.unclaimed_said = true;
            self.replies.push(Reply::Unclaimed {
                path: CgroupPath::clone(path),
                incarnation: entry.incarnation,
            });
        }
    }
}
