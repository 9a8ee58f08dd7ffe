//! The desk's other half: what is made of the answers.

use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;

use super::super::{Listing, RuntimeError, Seen};
use super::{Call, Desk, FIRST_PAUSE, LONGEST_PAUSE, QUICK_ROUNDS, RuntimeIndex, bit};
use crate::herald::{Answer, Life};
use crate::{CgroupPath, Identity};

impl Desk {
    pub fn inspected(
        &mut self,
        runtime: RuntimeIndex,
        path: &CgroupPath,
        life: Life,
        seen: Result<Seen, RuntimeError>,
        now: Duration,
    ) {
        let Some(entry) = self.entries.get_mut(path) else {
            return;
        };
        if entry.life != life || entry.asked & bit(runtime) == 0 {
            return;
        }
        entry.asked &= !bit(runtime);
        // An error is no say; the next round asks again.
        self.take(runtime, path, seen.unwrap_or(Seen::Unknown), now);
    }

    pub fn listed(
        &mut self,
        runtime: RuntimeIndex,
        listing: Result<Listing, RuntimeError>,
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
            Ok(Listing::Full(seen)) => {
                let mut seen: FxHashMap<String, Seen> = seen
                    .into_iter()
                    .filter_map(|seen| match &seen {
                        Seen::Known(found) | Seen::Starting(found) => {
                            Some((found.id.clone(), seen))
                        }
                        Seen::Unknown => None,
                    })
                    .collect();
                for path in waiting {
                    let id = self.entries.get(&path).map(|entry| entry.id.clone());
                    // Cloned, because a container may have two cgroups.
                    let found = id.and_then(|id| seen.get_mut(&*id)).cloned();
                    self.take(runtime, &path, found.unwrap_or(Seen::Unknown), now);
                }
            }
            Ok(Listing::Ids(ids)) => {
                for path in waiting {
                    let Some(entry) = self.entries.get_mut(&path) else {
                        continue;
                    };
                    if !ids.contains(&*entry.id) {
                        self.take(runtime, &path, Seen::Unknown, now);
                    } else if entry.asked & bit(runtime) == 0 {
                        entry.asked |= bit(runtime);
                        self.calls.push(Call::Inspect {
                            runtime,
                            path,
                            life: entry.life,
                            id: entry.id.clone(),
                        });
                    }
                }
            }
            Err(_) => {
                for path in waiting {
                    self.take(runtime, &path, Seen::Unknown, now);
                }
            }
        }
    }

    /// Takes one runtime's word about one container.
    fn take(&mut self, runtime: RuntimeIndex, path: &CgroupPath, seen: Seen, now: Duration) {
        let Some(entry) = self.entries.get_mut(path) else {
            return;
        };
        match seen {
            Seen::Known(identity) => {
                entry.starting = None;
                self.name(runtime, path, identity);
            }
            Seen::Starting(identity) => {
                if entry.identity.is_none() {
                    entry.starting = Some((runtime, identity));
                }
                self.round_over(path, now);
            }
            Seen::Unknown => self.round_over(path, now),
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
        self.answers.push(Answer::Named {
            path: CgroupPath::clone(path),
            life: entry.life,
            identity,
        });
    }

    /// If all have been heard and none knows the container, it is asked for again later.
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
            self.say_unclaimed(path);
        }
    }

    /// Says what can be said now: a name without a process, or that there is none.
    pub(super) fn say_unclaimed(&mut self, path: &CgroupPath) {
        let Some(entry) = self.entries.get_mut(path) else {
            return;
        };
        if let Some((runtime, identity)) = entry.starting.take() {
            self.name(runtime, path, identity);
        } else if entry.identity.is_none() && !entry.unclaimed_said {
            entry.unclaimed_said = true;
            self.answers.push(Answer::Unclaimed {
                path: CgroupPath::clone(path),
                life: entry.life,
            });
        }
    }
}
