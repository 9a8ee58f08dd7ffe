//! One turn: look, decide, order, journal, write, look again.

mod executing;
mod looking;
mod telling;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use plimsoll_plan::{Asker, Bases, CgroupPath, Knob, Target, Value};

use crate::actuator::Actuator;
use crate::entry::{Cap, Decision, Doing, Entry, Kind, Wanted};
use crate::order::Change;
use crate::value::{in_kernel_unit, same};
use crate::write::read;
use crate::{Applied, Mode, Now, State, Unfit, WeightFormula};

/// One change that is under way in this turn.
struct Work {
    target: Target,
    doing: Doing,
    change: Change,
}

/// What is wanted of a target, what is there, and what of it was not told yet.
struct Settled {
    wanted: Option<Wanted>,
    unfit: Vec<(Asker, Value, Unfit)>,
    drifted: bool,
    overruled_news: bool,
    drift_news: bool,
    held_news: bool,
    second_agent: bool,
}

impl Settled {
    fn is_news(&self) -> bool {
        let told = self.overruled_news || self.drift_news || self.held_news || self.second_agent;
        told || !self.unfit.is_empty()
    }
}

impl Actuator {
    pub(crate) fn run(&mut self, now: Now, bases: &dyn Bases, force: bool) -> Applied {
        let mut applied = Applied::default();
        self.take_slow(now, &mut applied);
        self.expire(now);
        let due = self.due(now.monotonic, force);
        if !due.is_empty() {
            let work = self.plan(due, now, bases, force, &mut applied);
            let enforce = force || self.effective_mode() == Mode::Enforce;
            // What was for a time only, such as a freeze, goes back in every mode.
            let (write, tell): (Vec<_>, Vec<_>) = work
                .into_iter()
                .partition(|item| enforce || self.is_overdue(&item.target, now.monotonic));
            self.execute(write, now, &mut applied);
            self.tell_planned(tell, now, &mut applied);
            if let Some(slow) = &self.slow
                && slow.under_way() > 0
            {
                slow.wait(self.config.pace.slow_grace);
            }
            self.take_slow(now, &mut applied);
        }
        applied.writing = self.slow.as_ref().map_or(0, |slow| slow.under_way() as u64);
        self.journal.flush();
        self.compact_if_long();
        self.counters.add(&applied);
        applied
    }

    /// Claims and holds whose time is over.
    pub(crate) fn expire(&mut self, now: Now) {
        let monotonic = now.monotonic;
        for entry in self.entries.values_mut() {
            for claim in entry.claims.values_mut() {
                if claim.until.is_none() {
                    claim.until = claim.at_most.map(|most| monotonic.saturating_add(most));
                }
                if !claim.spent && claim.until.is_some_and(|until| until <= monotonic) {
                    claim.spent = true;
                    entry.dirty = true;
                }
            }
            // What an earlier process wrote for a time only goes back even if nobody asks.
            entry.dirty |= entry.claims.is_empty() && entry.is_overdue(monotonic);
        }
        let over = |until: Option<i64>| until.is_some_and(|until| until <= now.wall.nanos());
        let ended: Vec<_> = self
            .holds
            .iter()
            .filter(|hold| over(hold.until))
            .map(|hold| hold.what.clone())
            .collect();
        for what in ended {
            self.release_hold(&what, now);
        }
    }

    fn due(&self, now: Duration, force: bool) -> BTreeSet<Target> {
        let off = self.config.mode == Mode::Off;
        let due = |(target, entry): (&Target, &Entry)| {
            let flips = entry
                .wrote_at
                .is_some_and(|wrote| now <= wrote.saturating_add(self.config.pace.flip));
            let due = match (force, off) {
                (true, _) => entry.forced,
                (false, true) => entry.dirty && entry.is_overdue(now),
                (false, false) => {
                    entry.dirty || entry.look_at <= now || flips && !entry.claims.is_empty()
                }
            };
            (due && entry.writing.is_none()).then(|| target.clone())
        };
        self.entries.iter().filter_map(due).collect()
    }

    fn is_overdue(&self, target: &Target, now: Duration) -> bool {
        let entry = self.entries.get(target);
        entry.is_some_and(|entry| entry.is_overdue(now))
    }

    /// Looks at everything that is due and decides.
    fn plan(
        &mut self,
        due: BTreeSet<Target>,
        now: Now,
        bases: &dyn Bases,
        force: bool,
        applied: &mut Applied,
    ) -> Vec<Work> {
        let mut work: BTreeMap<Target, Work> = BTreeMap::new();
        let mut bursts: BTreeMap<CgroupPath, Option<Cap>> = BTreeMap::new();
        for target in due {
            if let Target::Cgroup {
                path,
                knob: Knob::CpuBurst,
            } = &target
            {
                bursts.entry(path.clone()).or_insert(None);
                continue;
            }
            let Some(found) = self.consider(&target, now, bases, force, applied) else {
                continue;
            };
            if let (
                Target::Cgroup {
                    path,
                    knob: Knob::CpuQuota,
                },
                Value::Quota { quota_us, .. },
            ) = (&target, &found.doing.to)
            {
                let asker = Asker::ALL
                    .into_iter()
                    .find(|asker| asker.as_str() == found.doing.asker);
                let quota = *quota_us;
                bursts.insert(path.clone(), Some(Cap { quota, asker }));
            }
            work.insert(target, found);
        }
        for (path, cap) in bursts {
            let target = Target::cgroup(&path, Knob::CpuBurst);
            let cap = cap.or_else(|| self.cap_of(&path, applied));
            let place = self.config.machine.place(&target);
            let entry = self.entries.entry(target.clone());
            let entry = entry.or_insert_with(|| {
                let mut entry = Entry::new(place);
                entry.dirty = false;
                entry
            });
            entry.cap = cap;
            if let Some(found) = self.consider(&target, now, bases, force, applied) {
                work.insert(target.clone(), found);
            }
            let idle = |entry: &Entry| {
                entry.claims.is_empty() && entry.touched.is_none() && entry.writing.is_none()
            };
            if !work.contains_key(&target) && self.entries.get(&target).is_some_and(idle) {
                self.entries.remove(&target);
            }
        }
        work.into_values().collect()
    }

    /// The quota that a burst must not exceed, where no plan changes it now.
    pub(crate) fn cap_of(&self, path: &CgroupPath, applied: &mut Applied) -> Option<Cap> {
        let target = Target::cgroup(path, Knob::CpuQuota);
        let place = self.config.machine.place(&target)?;
        match read(&*self.files, &target, &place, &mut applied.reads) {
            Ok(Some(Value::Quota { quota_us, .. })) => Some(Cap {
                quota: quota_us,
                asker: None,
            }),
            _ => None,
        }
    }

    /// Looks at one target and says what is to be written.
    fn consider(
        &mut self,
        target: &Target,
        now: Now,
        bases: &dyn Bases,
        force: bool,
        applied: &mut Applied,
    ) -> Option<Work> {
        self.look_at(target, now, applied)?;
        if let Target::Cgroup { knob, .. } = target
            && let Some(slow) = &self.slow
            && slow.is_busy_with(*knob)
        {
            // It stays due.
            return None;
        }
        let entry = self.entries.get(target)?;
        let computed = self.computed(target, entry, bases);
        let held = !self.holds.is_empty() && self.is_held(target, entry.file().as_deref());
        let settled = self.settle(target, computed.as_ref(), held, now)?;
        if settled.is_news() {
            self.tell_settled(target, &settled, now, applied);
        }
        let entry = self.entries.get_mut(target)?;
        let base = entry.base(target, computed.clone());
        let adopted = settled.wanted.is_some() && entry.touched.is_none();
        let senseless =
            settled.wanted.is_none() && entry.touched.is_none() && !settled.unfit.is_empty();
        let decision = if held {
            entry.state = State::Held;
            Decision::Nothing
        } else if senseless {
            entry.state = State::Refused;
            Decision::Nothing
        } else {
            let wanted = settled.wanted.as_ref();
            entry.decide(target, wanted, base, settled.drifted, force, now.monotonic)
        };
        match decision {
            Decision::Nothing => {
                applied.unchanged += u64::from(entry.state == State::Applied);
                // The values that we want are there without us. Should we end, whoever comes next must know that they
                // are not the base.
                let other = computed
                    .as_ref()
                    .zip(entry.has.as_ref())
                    .is_some_and(|(computed, has)| !same(target, computed, has));
                if adopted && other && self.effective_mode() == Mode::Enforce && !held {
                    self.adopt(target, now);
                }
                None
            }
            Decision::Finish => {
                self.finish(target, now, false, applied);
                None
            }
            Decision::Write(doing) => self.work(target, *doing),
        }
    }

    fn work(&self, target: &Target, mut doing: Doing) -> Option<Work> {
        let formula = match doing.kind {
            Kind::Restore if is_container(target) => self.config.runtime_weights,
            // Koordinator's own agent writes weights so; the runtime's way counts as right, too.
            _ => WeightFormula::Linear,
        };
        let entry = self.entries.get(target)?;
        doing.to = in_kernel_unit(entry.form(), doing.to, formula);
        let change = Change {
            target: target.clone(),
            form: entry.form(),
            from: entry.has.clone(),
            to: doing.to.clone(),
        };
        Some(Work {
            target: target.clone(),
            doing,
            change,
        })
    }

    /// What is wanted in the end, and what of it is news.
    fn settle(
        &mut self,
        target: &Target,
        computed: Option<&Value>,
        held: bool,
        now: Now,
    ) -> Option<Settled> {
        let pace = self.config.pace;
        let entry = self.entries.get_mut(target)?;
        entry.dirty = false;
        entry.forced = false;
        let wanted = entry.wanted(target);
        entry.winner = wanted.as_ref().map(|wanted| wanted.asker);
        let claims = entry.claims.iter_mut();
        let unfit = claims
            .filter_map(|(asker, claim)| Some((*asker, claim.value.clone(), claim.unfit.take()?)));
        let unfit = unfit.collect();
        let overruled = wanted.as_ref().map(|wanted| wanted.overruled.clone());
        let overruled = overruled.unwrap_or_default();
        let overruled_news = overruled != entry.told_overruled;
        entry.told_overruled = overruled;
        let drifted = entry.notice(target);
        let drift_news = drifted && entry.told_drift != entry.has;
        if drift_news {
            entry.told_drift.clone_from(&entry.has);
            entry.drifts = entry.drifts.saturating_add(1);
        }
        let held_news = held && !entry.told_held && wanted.is_some();
        entry.told_held = held;
        // The kubelet and systemd write the base again and again; that is their duty.
        let dutiful = computed
            .zip(entry.has.as_ref())
            .is_some_and(|(computed, has)| same(target, computed, has));
        let since = entry
            .wrote_at
            .map(|wrote| now.monotonic.saturating_sub(wrote));
        match since {
            Some(since) if since <= pace.flip && drift_news && !dutiful => {
                entry.flips = entry.flips.saturating_add(1);
            }
            Some(since) if since > pace.flip && !drifted => entry.flips = 0,
            _ => {}
        }
        Some(Settled {
            second_agent: entry.flips >= pace.flips && self.second_agent.is_none(),
            wanted,
            unfit,
            drifted,
            overruled_news,
            drift_news,
            held_news,
        })
    }
}

fn is_container(target: &Target) -> bool {
    target
        .cgroup_path()
        .is_some_and(|path| crate::is_container(path))
}

#[cfg(test)]
pub(crate) mod tests;
