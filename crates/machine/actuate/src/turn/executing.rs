//! Carries out what was decided: the journal first, then the kernel, then a look at what it has.

use std::collections::BTreeSet;

use plimsoll_plan::{Target, Value};

use super::Work;
use crate::actuator::Actuator;
use crate::entry::{Doing, Kind, is_action};
use crate::journal::{Base, Outcome, Touched};
use crate::order::{Change, Step, arrange};
use crate::slow::{Done, Job, Outcome as SlowOutcome};
use crate::text::{between, render};
use crate::value::same;
use crate::write::{is_inherited, perform, read};
use crate::{Applied, Now, State, sentence};

/// Values of ours that are remembered where no write succeeds.
const MOST_OURS: usize = 32;

impl Actuator {
    pub(super) fn execute(&mut self, work: Vec<Work>, now: Now, applied: &mut Applied) {
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
            let write = || perform(&*self.files, &place, &pieces);
            let outcome = self.durations.time(&item.target, write);
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
            let old = touched.ours.len().saturating_sub(MOST_OURS);
            touched.ours.drain(..old);
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

    pub(crate) fn take_slow(&mut self, now: Now, applied: &mut Applied) {
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
                Ok(Some(has))
                    if same(target, &doing.to, &has)
                        || is_inherited(&*self.files, &place, &doing.to, &has) =>
                {
                    Ok(has)
                }
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
}
