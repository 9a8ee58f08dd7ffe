//! What a look at a file tells about its owner and about what was there before us.

use std::time::Duration;

use plimsoll_plan::Target;

use crate::actuator::Actuator;
use crate::entry::{Entry, is_action};
use crate::journal::{Base, Outcome, Touched};
use crate::write::{Look, look};
use crate::{Applied, Now, State};

/// A cgroup that is not there yet is looked for after 1, 2, 4, … at most so many seconds.
const ABSENT_MOST: u32 = 16;

impl Actuator {
    /// Reads the file. `None`: there is nothing to decide.
    pub(crate) fn look_at(
        &mut self,
        target: &Target,
        now: Now,
        applied: &mut Applied,
    ) -> Option<()> {
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
    pub(crate) fn drop_idle(&mut self, target: &Target) {
        let idle = |entry: &Entry| {
            entry.claims.is_empty() && entry.touched.is_none() && entry.writing.is_none()
        };
        if self.entries.get(target).is_some_and(idle) {
            self.entries.remove(target);
        }
    }

    pub(crate) fn owner_gone(&mut self, target: &Target, now: Now, applied: &mut Applied) {
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

    pub(crate) fn adopt(&mut self, target: &Target, now: Now) {
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
    pub(crate) fn finish(&mut self, target: &Target, now: Now, wrote: bool, applied: &mut Applied) {
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
}

/// Between nothing and the interval, always the same for a target.
fn spread(target: &Target, interval: Duration) -> Duration {
    let hash = crc32fast::hash(format!("{target:?}").as_bytes());
    interval.mul_f64(f64::from(hash) / f64::from(u32::MAX))
}
