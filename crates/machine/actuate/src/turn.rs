//! One turn: look, decide, order, journal, write, look again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use plimsoll_plan::{Asker, Bases, CgroupPath, Knob, Target, Value};

use crate::actuator::Actuator;
use crate::entry::{Cap, Decision, Doing, Entry, Kind, is_action};
use crate::journal::{Base, Line, Outcome, Touched};
use crate::order::{Change, Step, arrange};
use crate::slow::{Done, Job, Outcome as SlowOutcome};
use crate::text::{between, render};
use crate::value::{in_kernel_unit, same};
use crate::write::{Look, look, perform, read};
use crate::{Applied, Filter, Mode, Now, SecondAgent, State, WeightFormula, sentence};

/// A cgroup that is not there yet is looked for after 1, 2, 4, … at most so many seconds.
const ABSENT_MOST: u32 = 16;

/// One change that is under way in this turn.
struct Work {
    target: Target,
    doing: Doing,
    change: Change,
}

impl Actuator {
    pub(crate) fn run(&mut self, now: Now, bases: &dyn Bases, force: Option<&Filter>) -> Applied {
        let mut applied = Applied::default();
        self.take_slow(now, &mut applied);
        self.expire(now);
        if self.config.mode != Mode::Off || force.is_some() {
            let due = self.due(now.monotonic, force);
            let work = self.plan(due, now, bases, force.is_some(), &mut applied);
            match self.effective_mode() {
                Mode::Enforce => self.execute(work, now, &mut applied),
                _ if force.is_some() => self.execute(work, now, &mut applied),
                _ => self.tell_planned(work, now, &mut applied),
            }
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
    fn expire(&mut self, now: Now) {
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
            let left = entry.touched.as_ref().and_then(|touched| touched.until_ms);
            let over = left.is_some_and(|until| Duration::from_millis(until) <= monotonic);
            entry.dirty |= over && entry.claims.is_empty();
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

    fn due(&self, now: Duration, force: Option<&Filter>) -> BTreeSet<Target> {
        let due = |(target, entry): (&Target, &Entry)| {
            let flips = entry
                .wrote_at
                .is_some_and(|wrote| now <= wrote.saturating_add(self.config.pace.flip));
            let due = match force {
                Some(filter) => {
                    entry.dirty
                        && filter.matches(
                            target,
                            entry.touched.as_ref().map(|touched| &*touched.asker),
                        )
                        || entry.dirty && entry.claims.is_empty()
                }
                None => entry.dirty || entry.look_at <= now || flips && !entry.claims.is_empty(),
            };
            (due && entry.writing.is_none()).then(|| target.clone())
        };
        self.entries.iter().filter_map(due).collect()
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
    fn cap_of(&self, path: &CgroupPath, applied: &mut Applied) -> Option<Cap> {
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
        let computed = {
            let entry = self.entries.get(target)?;
            self.computed(target, entry, bases)
        };
        let file = self.entries.get(target)?.file();
        let held = self.is_held(target, file.as_deref());
        if let Target::Cgroup { knob, .. } = target
            && let Some(slow) = &self.slow
            && slow.is_busy_with(*knob)
        {
            // It stays due.
            return None;
        }
        let pace = self.config.pace;
        let formula = self.config.runtime_weights;
        let entry = self.entries.get_mut(target)?;
        entry.dirty = false;
        let wanted = entry.wanted(target);
        entry.winner = wanted.as_ref().map(|wanted| wanted.asker);
        let unfit: Vec<_> = entry
            .claims
            .iter_mut()
            .filter_map(|(asker, claim)| Some((*asker, claim.value.clone(), claim.unfit.take()?)))
            .collect();
        let overruled = wanted.as_ref().map(|wanted| wanted.overruled.clone());
        let overruled = overruled.unwrap_or_default();
        let news = overruled != entry.told_overruled;
        if news {
            entry.told_overruled.clone_from(&overruled);
        }
        let drifted = entry.notice(target);
        let tell_drift = drifted && entry.told_drift != entry.has;
        if tell_drift {
            entry.told_drift.clone_from(&entry.has);
            entry.drifts = entry.drifts.saturating_add(1);
        }
        let held_news = held && !entry.told_held;
        entry.told_held = held;
        let flipped = tell_drift
            && entry.wrote_at.is_some_and(|wrote| {
                now.monotonic.saturating_sub(wrote) <= pace.flip && entry.looked
            })
            && !computed.as_ref().zip(entry.has.as_ref()).is_some_and(
                // The kubelet and systemd write the base again and again; that is their duty.
                |(computed, has)| same(target, computed, has),
            );
        if flipped {
            entry.flips = entry.flips.saturating_add(1);
        } else if !drifted
            && entry
                .wrote_at
                .is_some_and(|wrote| now.monotonic.saturating_sub(wrote) > pace.flip)
        {
            entry.flips = 0;
        }
        let second = entry.flips >= pace.flips;
        let base = entry.base(target, computed.clone());
        let adopted = wanted.is_some() && entry.touched.is_none();
        let mut decision = match held {
            true => {
                entry.state = State::Held;
                Decision::Nothing
            }
            false => entry.decide(target, wanted.as_ref(), base, drifted, force, now.monotonic),
        };
        if !unfit.is_empty() && wanted.is_none() && entry.touched.is_none() {
            entry.state = State::Refused;
            decision = Decision::Nothing;
        }
        let has = entry.has.clone();
        for (asker, value, unfit) in unfit {
            let text = format!(
                "{asker} wants {value} for {}: {unfit}; it is not written",
                file.as_deref().unwrap_or("a file")
            );
            self.refuse_claim(target, asker, text, now, applied);
        }
        if news {
            for (asker, value) in &overruled {
                let winner = wanted
                    .as_ref()
                    .map_or("somebody else", |w| w.asker.as_str());
                let text = format!(
                    "{asker} wants {value} for {}, but {winner} comes first",
                    file.as_deref().unwrap_or("a file")
                );
                let mut line = self.line_of(target, Outcome::Overruled, now, text);
                line.asker = asker.as_str().to_owned();
                line.wanted = Some(value.clone());
                self.journal.line(line);
                applied.overruled += 1;
            }
        }
        if tell_drift {
            applied.drifted += 1;
            let shown = has.as_ref().map_or_else(String::new, Value::to_string);
            let text = format!(
                "somebody else set {} to {shown}",
                file.as_deref().unwrap_or("")
            );
            let line = self.line_of(target, Outcome::Drifted, now, text);
            self.journal.line(line);
        }
        if held_news && wanted.is_some() {
            let text = format!("{} is held", file.as_deref().unwrap_or(""));
            let line = self.line_of(target, Outcome::Held, now, text);
            self.journal.line(line);
        }
        if second && self.second_agent.is_none() {
            self.found_second_agent(target, wanted.as_ref().map(|w| &w.value), now, applied);
        }
        match decision {
            Decision::Nothing => {
                applied.unchanged += u64::from(self.entries.get(target)?.state == State::Applied);
                // The values that we want are there without us. Should we end, whoever comes next must know that they
                // are not the base.
                let takes_over = adopted
                    && computed
                        .as_ref()
                        .zip(has.as_ref())
                        .is_some_and(|(computed, has)| !same(target, computed, has));
                if takes_over && self.effective_mode() == Mode::Enforce && !held {
                    self.adopt(target, now);
                }
                None
            }
            Decision::Finish => {
                self.finish(target, now, false, applied);
                None
            }
            Decision::Write(mut doing) => {
                let formula = match doing.kind {
                    Kind::Restore if is_container(target) => formula,
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
        }
    }

    /// Reads the file. `None`: there is nothing to decide.
    fn look_at(&mut self, target: &Target, now: Now, applied: &mut Applied) -> Option<()> {
        let pace = self.config.pace;
        let entry = self.entries.get_mut(target)?;
        let found = match &entry.place {
            None => Look::Unsupported,
            Some(place) => look(&*self.files, target, place, &mut applied.reads),
        };
        let later = |by: Duration| now.monotonic.saturating_add(by);
        match found {
            Look::Value { owner, has } => {
                // The first look is spread over the interval, so that no turn looks at everything.
                let spread = match entry.looked {
                    true => pace.recheck,
                    false => spread(target, pace.recheck),
                };
                entry.look_at = later(spread);
                entry.looked = true;
                entry.absent_for = 0;
                entry.has = Some(has);
                entry.owner = owner;
                let anew = entry
                    .touched
                    .as_ref()
                    .is_some_and(|touched| touched.owner != owner);
                if anew {
                    self.owner_gone(target, now, applied);
                }
                Some(())
            }
            Look::Absent => {
                entry.has = None;
                entry.state = State::Absent;
                entry.absent_for = entry.absent_for.saturating_mul(2).clamp(1, ABSENT_MOST);
                entry.look_at = later(Duration::from_secs(entry.absent_for.into()));
                entry.dirty = false;
                if entry.touched.is_some() {
                    self.owner_gone(target, now, applied);
                }
                self.drop_idle(target);
                None
            }
            Look::Unsupported => {
                entry.has = None;
                entry.look_at = later(pace.unsupported);
                entry.dirty = false;
                let told = entry.state == State::Unsupported;
                entry.state = State::Unsupported;
                if !told {
                    applied.unsupported += 1;
                    self.tell_unsupported(target, now);
                }
                if self.entries.get(target)?.touched.is_some() {
                    self.owner_gone(target, now, applied);
                }
                self.drop_idle(target);
                None
            }
            Look::Bad(error) => {
                entry.has = None;
                entry.look_at = later(pace.recheck);
                entry.dirty = false;
                let told = entry.error.as_ref() == Some(&error);
                entry.state = State::Refused;
                entry.error = Some(error.clone());
                if !told {
                    applied.refused += 1;
                    let line = self.line_of(target, Outcome::Refused, now, error);
                    self.journal.line(line);
                }
                None
            }
        }
    }

    /// Without a claim there is nothing to wait for.
    fn drop_idle(&mut self, target: &Target) {
        let idle = |entry: &Entry| {
            entry.claims.is_empty() && entry.touched.is_none() && entry.writing.is_none()
        };
        if self.entries.get(target).is_some_and(idle) {
            self.entries.remove(target);
        }
    }

    fn tell_unsupported(&mut self, target: &Target, now: Now) {
        // Once for a kind of value: a kernel that lacks it lacks it everywhere.
        let kind = match target {
            Target::Cgroup { knob, .. } => format!("{knob:?}"),
            Target::Resctrl { knob, .. } => format!("resctrl {knob:?}"),
            Target::Process { file, .. } => format!("{file:?}"),
            Target::Sysctl(sysctl) => format!("{sysctl:?}"),
        };
        if self.told_unsupported.len() < 1000 && self.told_unsupported.insert(kind.clone()) {
            let file = self.entries.get(target).and_then(Entry::file);
            let file = file.map_or_else(String::new, |file| format!(" (no {file})"));
            let text = format!("this machine has no {kind}{file}; it is left out");
            let line = self.line_of(target, Outcome::Unsupported, now, text);
            self.journal.line(line);
        }
    }

    fn owner_gone(&mut self, target: &Target, now: Now, applied: &mut Applied) {
        let Some(entry) = self.entries.get_mut(target) else {
            return;
        };
        entry.touched = None;
        entry.durable = false;
        entry.wrote_at = None;
        entry.flips = 0;
        entry.done = None;
        entry.told_drift = None;
        let file = entry.file().unwrap_or_default();
        applied.forgotten += 1;
        self.journal.closed(target);
        let text = format!("the owner of {file} has gone; nothing is given back");
        let line = self.line_of(target, Outcome::OwnerGone, now, text);
        self.journal.line(line);
    }

    fn adopt(&mut self, target: &Target, now: Now) {
        let Some(entry) = self.entries.get_mut(target) else {
            return;
        };
        let (Some(has), Some(asker)) = (entry.has.clone(), entry.winner) else {
            return;
        };
        if is_action(target) {
            return;
        }
        let base = Base {
            at: now.wall.nanos(),
            target: target.clone(),
            owner: entry.owner,
            found: has.clone(),
            asker: asker.as_str().to_owned(),
        };
        entry.touched = Some(Touched {
            owner: base.owner,
            found: has.clone(),
            asker: base.asker.clone(),
            ours: vec![has],
            verified: true,
            foreign: None,
            until_ms: None,
        });
        entry.durable = true;
        self.journal.base(base);
    }

    /// The base is there.
    fn finish(&mut self, target: &Target, now: Now, wrote: bool, applied: &mut Applied) {
        let Some(entry) = self.entries.get(target) else {
            return;
        };
        let touched = entry.touched.clone();
        let keep = !entry.claims.is_empty();
        if let Some(touched) = touched {
            self.journal.closed(target);
            if !wrote {
                applied.restored += 1;
                let file = entry.file().unwrap_or_default();
                let text = format!("{file} has its base already; {} is done", touched.asker);
                let mut line = self.line_of(target, Outcome::Restored, now, text);
                line.asker = touched.asker;
                self.journal.line(line);
            }
        }
        match self.entries.get_mut(target) {
            Some(entry) if keep => {
                entry.touched = None;
                entry.durable = false;
                entry.wrote_at = None;
                entry.told_drift = None;
            }
            _ => {
                self.entries.remove(target);
            }
        }
    }

    fn refuse_claim(
        &mut self,
        target: &Target,
        asker: Asker,
        text: String,
        now: Now,
        applied: &mut Applied,
    ) {
        let Some(entry) = self.entries.get_mut(target) else {
            return;
        };
        if entry.error.as_ref() == Some(&text) {
            return;
        }
        entry.error = Some(text.clone());
        applied.refused += 1;
        let mut line = self.line_of(target, Outcome::Refused, now, text);
        line.asker = asker.as_str().to_owned();
        self.journal.line(line);
    }

    fn found_second_agent(
        &mut self,
        target: &Target,
        wanted: Option<&Value>,
        now: Now,
        applied: &mut Applied,
    ) {
        let Some(entry) = self.entries.get(target) else {
            return;
        };
        let ours = entry
            .touched
            .as_ref()
            .and_then(|touched| touched.ours.last());
        let (Some(we_want), Some(they_write)) = (wanted.or(ours).cloned(), entry.has.clone())
        else {
            return;
        };
        let file = entry.file().unwrap_or_default();
        let text = format!(
            "somebody else keeps setting {file} to {they_write} where we want {we_want}: a second agent. \
             Nothing is written any more; end one of both and run `plimsoll qos resume`"
        );
        self.second_agent = Some(SecondAgent {
            file,
            we_want,
            they_write,
        });
        applied.second_agent = true;
        let line = self.line_of(target, Outcome::SecondAgent, now, text);
        self.journal.line(line);
    }

    fn tell_planned(&mut self, work: Vec<Work>, now: Now, applied: &mut Applied) {
        for Work { target, doing, .. } in work {
            let Some(entry) = self.entries.get_mut(&target) else {
                continue;
            };
            entry.state = State::Planned;
            if entry.told_plan.as_ref() == Some(&doing.to) {
                continue;
            }
            entry.told_plan = Some(doing.to.clone());
            let file = entry.file().unwrap_or_default();
            applied.planned += 1;
            let text = sentence::planned(
                doing.kind,
                &doing.asker,
                &file,
                &doing.to,
                doing.before.as_ref(),
                doing.why.as_ref(),
            );
            let line = self.line_for(&target, Outcome::Planned, &doing, now, text);
            self.journal.line(line);
        }
    }

    fn execute(&mut self, work: Vec<Work>, now: Now, applied: &mut Applied) {
        if work.is_empty() {
            return;
        }
        let changes: Vec<Change> = work.iter().map(|item| item.change.clone()).collect();
        let steps = arrange(&changes);
        for (index, item) in work.iter().enumerate() {
            let on_the_way = |step: &&Step| step.change == index && !step.last;
            let mut through: Vec<Value> = steps
                .iter()
                .filter(on_the_way)
                .map(|step| step.value.clone())
                .collect();
            let (form, from) = (item.change.form, item.change.from.as_ref());
            let pieces = render(&item.target, form, &item.change.to, from);
            through.extend(between(&pieces, from));
            self.arm(item, through, now);
        }
        let durable = self.journal.flush();
        let mut ready = Vec::new();
        for item in work {
            let Some(entry) = self.entries.get_mut(&item.target) else {
                continue;
            };
            if durable {
                entry.durable = true;
            }
            if entry.durable || is_action(&item.target) {
                ready.push(item);
                continue;
            }
            // What could not be undone is not done.
            let error = "the journal cannot be written".to_owned();
            let pace = self.config.pace;
            entry.failed(item.doing.to.clone(), error, &pace, now.monotonic);
            entry.look_at = now.monotonic.saturating_add(pace.refused);
            applied.refused += 1;
        }
        let changes: Vec<Change> = ready.iter().map(|item| item.change.clone()).collect();
        let mut failed = BTreeSet::new();
        for step in arrange(&changes) {
            let Some(item) = ready.get(step.change) else {
                continue;
            };
            if failed.contains(&step.change) {
                continue;
            }
            let Some(entry) = self.entries.get_mut(&item.target) else {
                continue;
            };
            let Some(place) = entry.place.clone() else {
                continue;
            };
            let pieces = render(
                &item.target,
                place.form,
                &step.value,
                item.change.from.as_ref(),
            );
            applied.writes += pieces.len() as u64;
            entry.writing = Some(item.doing.clone());
            if let Some(slow) = self.slow.as_mut().filter(|_| step.slow) {
                entry.state = State::Writing;
                slow.push(Job {
                    target: item.target.clone(),
                    place,
                    pieces,
                    last: step.last,
                });
                continue;
            }
            let outcome = perform(&*self.files, &place, &pieces);
            if outcome.is_err() {
                failed.insert(step.change);
            }
            if outcome.is_err() || step.last {
                self.ended(
                    &item.target,
                    outcome.map_err(SlowOutcome::Failed),
                    now,
                    applied,
                );
            }
        }
    }

    /// Says in the journal what is about to be written; for a first write, what is there now.
    fn arm(&mut self, item: &Work, through: Vec<Value>, now: Now) {
        if is_action(&item.target) {
            return;
        }
        let Some(entry) = self.entries.get_mut(&item.target) else {
            return;
        };
        let Some(has) = entry.has.clone() else {
            return;
        };
        let until_ms = item
            .doing
            .until
            .map(|until| u64::try_from(until.as_millis()).unwrap_or(u64::MAX));
        if entry.touched.is_none() {
            let base = Base {
                at: now.wall.nanos(),
                target: item.target.clone(),
                owner: entry.owner,
                found: has.clone(),
                asker: item.doing.asker.clone(),
            };
            entry.durable = false;
            entry.touched = Some(Touched {
                owner: base.owner,
                found: has,
                asker: base.asker.clone(),
                ours: Vec::new(),
                verified: false,
                foreign: None,
                until_ms,
            });
            self.journal.base(base);
        }
        if let Some(touched) = &mut entry.touched {
            touched.asker.clone_from(&item.doing.asker);
            touched.until_ms = until_ms;
            touched.ours.extend(through.iter().cloned());
            if touched.ours.last() != Some(&item.doing.to) {
                touched.ours.push(item.doing.to.clone());
            }
        }
        let mut line = self.line_for(
            &item.target,
            Outcome::Armed,
            &item.doing,
            now,
            String::new(),
        );
        line.until_ms = until_ms;
        line.through = through;
        self.journal.line(line);
    }

    fn take_slow(&mut self, now: Now, applied: &mut Applied) {
        let deadline = self.config.pace.slow_write;
        let Some(slow) = &mut self.slow else { return };
        for done in slow.take(now.monotonic, deadline) {
            let Done {
                target,
                last,
                outcome,
            } = done;
            if outcome.is_err() || last {
                self.ended(&target, outcome, now, applied);
            }
        }
    }

    /// A change was written to the end, or failed.
    fn ended(
        &mut self,
        target: &Target,
        outcome: Result<(), SlowOutcome>,
        now: Now,
        applied: &mut Applied,
    ) {
        let pace = self.config.pace;
        let Some(entry) = self.entries.get_mut(target) else {
            return;
        };
        let (Some(doing), Some(place)) = (entry.writing.take(), entry.place.clone()) else {
            return;
        };
        let mut told_as = Outcome::Refused;
        let error = match outcome {
            Ok(()) => None,
            Err(SlowOutcome::Blocked) => {
                applied.blocked += 1;
                told_as = Outcome::Blocked;
                let file = &place.file;
                Some(format!(
                    "write {} to {file}: the kernel does not come back; it is left to itself",
                    doing.to
                ))
            }
            Err(SlowOutcome::Failed(failure)) if failure.is_gone() => {
                // The next look says what became of the owner.
                entry.dirty = true;
                entry.state = State::Absent;
                return;
            }
            Err(SlowOutcome::Failed(failure)) => Some(failure.to_string()),
        };
        let error = match error {
            Some(error) => Err(error),
            None if is_action(target) => Ok(doing.to.clone()),
            None => match read(&*self.files, target, &place, &mut applied.reads) {
                Ok(Some(has)) if same(target, &doing.to, &has) => Ok(has),
                Ok(Some(has)) => {
                    let error = format!("{} says {has} after {} was written", place.file, doing.to);
                    entry.has = Some(has);
                    Err(error)
                }
                Ok(None) => {
                    entry.dirty = true;
                    return;
                }
                Err(error) => Err(error),
            },
        };
        match error {
            Ok(has) => self.succeeded(target, &doing, has, now, applied),
            Err(error) => {
                if told_as == Outcome::Refused {
                    applied.refused += 1;
                }
                let tell = entry.failed(doing.to.clone(), error.clone(), &pace, now.monotonic);
                let retry = entry.retry.as_ref().map(|retry| retry.at);
                entry.look_at = retry.unwrap_or(entry.look_at).min(entry.look_at);
                if let (Some(touched), Ok(Some(has))) = (
                    &mut entry.touched,
                    read(&*self.files, target, &place, &mut applied.reads),
                ) {
                    // Whatever is there after a refused write is not ours to defend.
                    touched.ours.push(has.clone());
                    entry.has = Some(has);
                }
                if tell {
                    let line = self.line_for(target, told_as, &doing, now, error);
                    self.journal.line(line);
                }
            }
        }
    }

    fn succeeded(
        &mut self,
        target: &Target,
        doing: &Doing,
        has: Value,
        now: Now,
        applied: &mut Applied,
    ) {
        let pace = self.config.pace;
        let Some(entry) = self.entries.get_mut(target) else {
            return;
        };
        entry.wrote(doing.kind, &pace, now.monotonic);
        if is_action(target) {
            entry.done = Some(doing.to.clone());
        } else {
            entry.has = Some(has.clone());
        }
        if let Some(touched) = &mut entry.touched {
            touched.ours = vec![has.clone()];
            touched.verified = true;
        }
        entry.told_drift = None;
        let file = entry.file().unwrap_or_default();
        let text = sentence::wrote(
            doing.kind,
            &doing.asker,
            &file,
            &doing.to,
            doing.before.as_ref(),
            doing.why.as_ref(),
        );
        let outcome = match doing.kind {
            Kind::Apply => Outcome::Applied,
            Kind::Repair => Outcome::Repaired,
            Kind::Restore => Outcome::Restored,
        };
        let mut line = self.line_for(target, outcome, doing, now, text);
        line.has = Some(has);
        match doing.kind {
            Kind::Apply => {}
            Kind::Repair => applied.repaired += 1,
            Kind::Restore => applied.restored += 1,
        }
        self.journal.line(line);
        if doing.kind == Kind::Restore {
            self.finish(target, now, true, applied);
        }
    }

    fn line_of(&self, target: &Target, outcome: Outcome, now: Now, text: String) -> Line {
        let mut line = Self::line(now, outcome, text);
        line.target = Some(target.clone());
        if let Some(entry) = self.entries.get(target) {
            line.file = entry.file().unwrap_or_default();
            line.has = entry.has.clone();
        }
        line
    }

    fn line_for(
        &self,
        target: &Target,
        outcome: Outcome,
        doing: &Doing,
        now: Now,
        text: String,
    ) -> Line {
        let mut line = self.line_of(target, outcome, now, text);
        line.asker = doing.asker.clone();
        line.before = doing.before.clone();
        line.wanted = Some(doing.to.clone());
        line.why = doing.why.as_ref().map(Into::into);
        line
    }
}

fn is_container(target: &Target) -> bool {
    target
        .cgroup_path()
        .is_some_and(|path| crate::is_container(path))
}

/// Between nothing and the interval, always the same for a target.
fn spread(target: &Target, interval: Duration) -> Duration {
    let hash = crc32fast::hash(format!("{target:?}").as_bytes());
    interval.mul_f64(f64::from(hash) / f64::from(u32::MAX))
}

#[cfg(test)]
pub(crate) mod tests;
