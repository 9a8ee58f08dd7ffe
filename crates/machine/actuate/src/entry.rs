//! What an actuator knows of one target, and what it decides about it. Pure.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_plan::{Asker, Knob, Reason, Target, Value};

use crate::journal::Touched;
use crate::merge::merge;
use crate::value::{fit, same};
use crate::{Form, Pace, Place, State, Unfit};

/// What one asker wants.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Claim {
    pub value: Value,
    pub why: Reason,
    pub at_most: Option<Duration>,
    /// Counted from when it was first wanted: who asks again for the same does not get more time.
    pub until: Option<Duration>,
    /// Its time is over; it counts no more until it is taken back or changed.
    pub spent: bool,
    /// Said already.
    pub unfit: Option<Unfit>,
}

/// What is wanted in the end.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Wanted {
    pub value: Value,
    pub asker: Asker,
    pub why: Reason,
    pub until: Option<Duration>,
    pub overruled: Vec<(Asker, Value)>,
}

/// A write that failed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Retry {
    pub value: Value,
    pub at: Duration,
    pub wait: Duration,
}

#[derive(Debug)]
pub(crate) struct Entry {
    pub place: Option<Place>,
    pub claims: BTreeMap<Asker, Claim>,
    /// A burst must not exceed it. Outer `None`: there is no such rule; inner: no quota.
    pub cap: Option<Cap>,
    pub touched: Option<Touched>,
    /// Its base is on disk.
    pub durable: bool,
    pub has: Option<Value>,
    pub owner: u64,
    pub state: State,
    pub error: Option<String>,
    /// Something about its claims changed.
    pub dirty: bool,
    /// Somebody ordered it back, whatever the mode is.
    pub forced: bool,
    pub look_at: Duration,
    pub looked: bool,
    pub absent_for: u32,
    pub wrote_at: Option<Duration>,
    pub flips: u32,
    pub repair_at: Duration,
    pub repair_wait: Duration,
    /// The foreign value that was told.
    pub told_drift: Option<Value>,
    pub drifts: u64,
    pub retry: Option<Retry>,
    /// The value that was told in mode `observe`.
    pub told_plan: Option<Value>,
    pub told_overruled: Vec<(Asker, Value)>,
    pub told_held: bool,
    /// A slow write is under way.
    pub writing: Option<Doing>,
    /// An action that was carried out.
    pub done: Option<Value>,
    /// Whose claim decided last.
    pub winner: Option<Asker>,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Cap {
    pub quota: Option<u64>,
    pub asker: Option<Asker>,
}

/// Why something is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Apply,
    Repair,
    Restore,
}

/// What is being written.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Doing {
    pub kind: Kind,
    pub to: Value,
    pub before: Option<Value>,
    pub asker: String,
    pub why: Option<Reason>,
    pub until: Option<Duration>,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Decision {
    Nothing,
    Write(Box<Doing>),
    /// The base is there: nothing more to do, ever.
    Finish,
}

impl Entry {
    pub fn new(place: Option<Place>) -> Self {
        Self {
            place,
            claims: BTreeMap::new(),
            cap: None,
            touched: None,
            durable: false,
            has: None,
            owner: 0,
            state: State::Pending,
            error: None,
            dirty: true,
            forced: false,
            look_at: Duration::ZERO,
            looked: false,
            absent_for: 0,
            wrote_at: None,
            flips: 0,
            repair_at: Duration::ZERO,
            repair_wait: Duration::ZERO,
            told_drift: None,
            drifts: 0,
            retry: None,
            told_plan: None,
            told_overruled: Vec::new(),
            told_held: false,
            writing: None,
            done: None,
            winner: None,
        }
    }

    /// What was written for a time only, and the time is over.
    pub fn is_overdue(&self, now: Duration) -> bool {
        let until = self.touched.as_ref().and_then(|touched| touched.until_ms);
        until.is_some_and(|until| Duration::from_millis(until) <= now)
    }

    pub fn form(&self) -> Form {
        self.place.as_ref().map_or(Form::V2, |place| place.form)
    }

    /// Of all claims that make sense and have time left. Those that make none are marked.
    pub fn wanted(&mut self, target: &Target) -> Option<Wanted> {
        let form = self.form();
        let mut fitting: Vec<(Asker, Value)> = Vec::new();
        for (asker, claim) in &mut self.claims {
            match fit(target, form, &claim.value) {
                Ok(value) if !claim.spent => fitting.push((*asker, value)),
                Ok(_) => {}
                Err(unfit) => claim.unfit = Some(unfit),
            }
        }
        let claims: Vec<_> = fitting
            .iter()
            .map(|(asker, value)| (*asker, value))
            .collect();
        let merged = merge(target, &claims);
        let wanted = merged.and_then(|merged| {
            let (asker, _) = fitting.get(merged.winner)?;
            let claim = self.claims.get(asker)?;
            let overruled = merged.overruled.iter().filter_map(|i| fitting.get(*i));
            Some(Wanted {
                value: merged.value,
                asker: *asker,
                why: claim.why,
                until: claim.until,
                overruled: overruled.cloned().collect(),
            })
        });
        self.capped(target, wanted)
    }

    /// A burst above its quota is refused by the kernel, and would make it refuse the quota.
    fn capped(&self, target: &Target, wanted: Option<Wanted>) -> Option<Wanted> {
        let burst = matches!(
            target,
            Target::Cgroup {
                knob: Knob::CpuBurst,
                ..
            }
        );
        let Some(Cap {
            quota: Some(quota),
            asker,
        }) = self.cap.filter(|_| burst)
        else {
            return wanted;
        };
        let most = i64::try_from(quota).unwrap_or(i64::MAX);
        match wanted {
            Some(mut wanted) => {
                if let Value::Number(number) = &mut wanted.value {
                    *number = (*number).min(most);
                }
                Some(wanted)
            }
            None => {
                let natural = match &self.touched {
                    Some(touched) => Some(&touched.found),
                    None => self.has.as_ref(),
                };
                let exceeds = matches!(natural, Some(Value::Number(number)) if *number > most);
                exceeds.then(|| Wanted {
                    value: Value::Number(most),
                    asker: asker.unwrap_or(Asker::CpuBurst),
                    why: Reason::new("burst_within_quota"),
                    until: None,
                    overruled: Vec::new(),
                })
            }
        }
    }

    /// Whether the kernel has something that we did not write. Remembers who wrote what.
    pub fn notice(&mut self, target: &Target) -> bool {
        let (Some(touched), Some(has)) = (&mut self.touched, &self.has) else {
            return false;
        };
        if let Some(ours) = touched
            .ours
            .iter()
            .rposition(|ours| same(target, ours, has))
        {
            // What was armed and what came of it are one now.
            let exact = touched.ours.len() == 1 && touched.ours[ours] == *has;
            if !exact {
                touched.ours = vec![has.clone()];
            }
            touched.verified = true;
            self.told_drift = None;
            return false;
        }
        if !touched.verified && same(target, &touched.found, has) {
            // The process ended before it wrote.
            return false;
        }
        touched.foreign = Some(has.clone());
        true
    }

    /// What would be there without us. `computed` is what the kubelet or the runtime would write now.
    pub fn base(&self, target: &Target, computed: Option<Value>) -> Option<Value> {
        let left = self
            .touched
            .as_ref()
            .map(|touched| touched.foreign.clone().unwrap_or(touched.found.clone()));
        match (computed, left) {
            // What was found is right in the unit of whoever wrote it.
            (Some(computed), Some(left)) if same(target, &computed, &left) => Some(left),
            (Some(computed), _) => Some(computed),
            (None, left) => left,
        }
    }

    /// What is to be done, now that it was looked at.
    pub fn decide(
        &mut self,
        target: &Target,
        wanted: Option<&Wanted>,
        base: Option<Value>,
        drifted: bool,
        force: bool,
        now: Duration,
    ) -> Decision {
        let Some(has) = self.has.clone() else {
            return Decision::Nothing;
        };
        if self.writing.is_some() {
            return Decision::Nothing;
        }
        let (to, asker, why, until, kind) = match wanted {
            Some(wanted) => {
                let kind = if drifted { Kind::Repair } else { Kind::Apply };
                let asker = wanted.asker.as_str().to_owned();
                (
                    wanted.value.clone(),
                    asker,
                    Some(wanted.why),
                    wanted.until,
                    kind,
                )
            }
            None => {
                let Some(base) = base.filter(|_| !is_action(target)) else {
                    return Decision::Finish;
                };
                if same(target, &base, &has) {
                    return Decision::Finish;
                }
                let asker = self.touched.as_ref().map(|touched| touched.asker.clone());
                (base, asker.unwrap_or_default(), None, None, Kind::Restore)
            }
        };
        let there = match is_action(target) {
            true => self.done.as_ref() == Some(&to),
            false => same(target, &to, &has),
        };
        if there {
            self.state = State::Applied;
            self.error = None;
            self.retry = None;
            return Decision::Nothing;
        }
        if drifted && !force && now < self.repair_at {
            self.state = State::Drifted;
            return Decision::Nothing;
        }
        let refused = self.retry.as_ref().filter(|retry| retry.value == to);
        if refused.is_some_and(|retry| now < retry.at && !force) {
            self.state = State::Refused;
            return Decision::Nothing;
        }
        self.state = match kind {
            Kind::Restore => State::Releasing,
            _ => State::Pending,
        };
        Decision::Write(Box::new(Doing {
            kind,
            to,
            before: Some(has),
            asker,
            why,
            until,
        }))
    }

    /// A write went well at `now`.
    pub fn wrote(&mut self, kind: Kind, pace: &Pace, now: Duration) {
        if kind == Kind::Repair {
            // Again within two waits: they go on, so we slow down.
            let again = now < self.repair_at.saturating_add(self.repair_wait);
            self.repair_wait = match again {
                true => self
                    .repair_wait
                    .saturating_mul(2)
                    .clamp(pace.repair, pace.repair_most),
                false => pace.repair,
            };
            self.repair_at = now.saturating_add(self.repair_wait);
        }
        self.wrote_at = Some(now);
        self.retry = None;
        self.error = None;
        self.state = State::Applied;
    }

    /// A write of this value failed.
    pub fn failed(&mut self, value: Value, error: String, pace: &Pace, now: Duration) -> bool {
        let again = self.retry.as_ref().filter(|retry| retry.value == value);
        let told = again.is_some() && self.error.as_ref() == Some(&error);
        let wait = match again {
            Some(retry) => retry.wait.saturating_mul(2).min(pace.refused_most),
            None => pace.refused,
        };
        self.retry = Some(Retry {
            value,
            at: now.saturating_add(wait),
            wait,
        });
        self.state = State::Refused;
        self.error = Some(error);
        !told
    }
}

/// It is done once, and nothing of it can be given back.
pub(crate) fn is_action(target: &Target) -> bool {
    matches!(
        target,
        Target::Cgroup {
            knob: Knob::MemoryReclaim,
            ..
        } | Target::Resctrl {
            knob: plimsoll_plan::ResctrlKnob::Tasks,
            ..
        }
    )
}
