//! The actuator as its callers see it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use plimsoll_host::Timestamp;
use plimsoll_plan::{Asker, Bases, Effect, Eviction, Plan, Target};

use crate::entry::{Claim, Entry};
use crate::files::{Files, MachineFiles};
use crate::journal::{Journal, Kept, Line, Outcome, Why};
use crate::slow::SlowWriter;
use crate::status::is_below;
use crate::{
    Applied, Config, Counters, Durations, Filter, Hold, Mode, Now, OpenError, Overruled, Recovered,
    SecondAgent, Status, TargetStatus, sentence, value,
};

/// Targets that one asker may name. More is a mistake or an attack; what is beyond is left out and said.
const MOST_EFFECTS: usize = 20_000;
/// Notes that are remembered so that each is said once.
const MOST_NOTES: usize = 1000;
const MOST_HOLDS: usize = 1000;

/// The only one who changes the machine. One thread owns it.
#[derive(Debug)]
pub struct Actuator {
    pub(crate) config: Config,
    pub(crate) files: Arc<dyn Files>,
    pub(crate) entries: BTreeMap<Target, Entry>,
    pub(crate) journal: Journal,
    pub(crate) slow: Option<SlowWriter>,
    pub(crate) holds: Vec<Hold>,
    pub(crate) second_agent: Option<SecondAgent>,
    pub(crate) counters: Counters,
    pub(crate) durations: Durations,
    pub(crate) told_unsupported: BTreeSet<String>,
    /// What each asker said last.
    plans: BTreeMap<Asker, Vec<Effect>>,
    /// What plans said that is no change, and was not told yet.
    notes: Vec<(Asker, &'static str, Box<str>, Box<str>)>,
    told_notes: BTreeMap<(Asker, &'static str, Box<str>), Box<str>>,
}

impl Actuator {
    /// Reads what an earlier process left in the journal. Nothing is written to the machine.
    pub fn open(config: Config) -> Result<(Self, Recovered), OpenError> {
        Self::with_files(config, Arc::new(MachineFiles::default()))
    }

    /// For tests: on a simulated kernel.
    pub fn with_files(
        config: Config,
        files: Arc<dyn Files>,
    ) -> Result<(Self, Recovered), OpenError> {
        let boot = boot_id(&config);
        let (journal, replayed) = Journal::open(config.journal.as_deref(), boot)?;
        let recovered = Recovered {
            targets: replayed.touched.keys().cloned().collect(),
            cut_off: replayed.cut_off,
            earlier_boot: replayed.earlier_boot,
            unknown: replayed.unknown,
        };
        let mut entries = BTreeMap::new();
        for (target, touched) in replayed.touched {
            let mut entry = Entry::new(config.machine.place(&target));
            entry.dirty = false;
            entry.durable = true;
            entry.look_at = Duration::MAX;
            entry.touched = Some(touched);
            entries.insert(target, entry);
        }
        let durations = Durations::default();
        let slow = config
            .slow_thread
            .then(|| SlowWriter::new(files.clone(), durations.clone()));
        let actuator = Self {
            config,
            files,
            entries,
            journal,
            slow,
            holds: replayed.holds,
            second_agent: None,
            counters: Counters::default(),
            durations,
            told_unsupported: BTreeSet::new(),
            plans: BTreeMap::new(),
            notes: Vec::new(),
            told_notes: BTreeMap::new(),
        };
        Ok((actuator, recovered))
    }

    /// Takes all that an asker wants now. What it wanted before and does not name here goes back to its base with the
    /// next turn; so does what it wanted in an earlier life of this process.
    pub fn submit(&mut self, mut plan: Plan) {
        let asker = plan.asker;
        for note in plan.notes.drain(..).take(MOST_NOTES) {
            self.notes.push((asker, note.code, note.about, note.text));
        }
        if self.submitted_again(&plan) {
            return;
        }
        let mut named: BTreeMap<Target, Claim> = BTreeMap::new();
        let most = plan.effects.len().min(MOST_EFFECTS);
        if most < plan.effects.len() {
            let text = format!("{} targets are too many", plan.effects.len());
            self.notes
                .push((asker, "too_many_effects", "".into(), text.into()));
        }
        for effect in plan.effects.into_iter().take(most) {
            let claim = Claim {
                value: effect.value,
                why: effect.why,
                at_most: effect.at_most,
                until: None,
                spent: false,
                unfit: None,
            };
            named.insert(effect.target, claim);
        }
        for (target, entry) in &mut self.entries {
            if named.contains_key(target) {
                continue;
            }
            let earlier = entry.claims.is_empty()
                && entry
                    .touched
                    .as_ref()
                    .is_some_and(|touched| touched.asker == asker.as_str());
            if entry.claims.remove(&asker).is_some() || earlier {
                entry.dirty = true;
            }
        }
        for (target, claim) in named {
            let entry = self
                .entries
                .entry(target)
                .or_insert_with_key(|target| Entry::new(self.config.machine.place(target)));
            match entry.claims.get_mut(&asker) {
                Some(old) if old.value == claim.value && old.at_most == claim.at_most => {
                    old.why = claim.why;
                }
                _ => {
                    entry.claims.insert(asker, claim);
                    entry.dirty = true;
                }
            }
        }
    }

    /// The same as last time, as nearly always: only reasons may have other figures.
    fn submitted_again(&mut self, plan: &Plan) -> bool {
        let same = |old: &Effect, new: &Effect| {
            old.target == new.target && old.value == new.value && old.at_most == new.at_most
        };
        let last = self.plans.get_mut(&plan.asker);
        let again = last.filter(|last| {
            last.len() == plan.effects.len()
                && last
                    .iter()
                    .zip(&plan.effects)
                    .all(|(old, new)| same(old, new))
        });
        let Some(last) = again else {
            self.plans.insert(plan.asker, plan.effects.clone());
            return false;
        };
        for (old, new) in last.iter_mut().zip(&plan.effects) {
            if old.why == new.why {
                continue;
            }
            old.why = new.why;
            let entry = self.entries.get_mut(&new.target);
            if let Some(claim) = entry.and_then(|entry| entry.claims.get_mut(&plan.asker)) {
                claim.why = new.why;
            }
        }
        true
    }

    /// Takes back what an earlier process wrote and no asker has named since. To be called once all askers have
    /// submitted a plan: an asker that no longer exists never does.
    pub fn release_unclaimed(&mut self) {
        for entry in self.entries.values_mut() {
            if entry.claims.is_empty() && entry.touched.is_some() {
                entry.dirty = true;
            }
        }
    }

    /// Brings the machine to what is wanted.
    pub fn turn(&mut self, now: Now, bases: &dyn Bases) -> Applied {
        self.tell_notes(now);
        self.run(now, bases, false)
    }

    /// Gives back what matches, in every mode but where an operator holds it. Claims on it are forgotten; plans that are
    /// submitted later bring them back unless the mode is another by then. While [`Applied::writing`] is not zero, the
    /// kernel is still at it; the next turns tell how that ends.
    pub fn restore(&mut self, filter: &Filter, now: Now, bases: &dyn Bases) -> Applied {
        for (target, entry) in &mut self.entries {
            let last = entry.touched.as_ref().map(|touched| &*touched.asker);
            if let Filter::Asker(asker) = filter {
                // What others want of the same target stays.
                if entry.claims.remove(asker).is_none() && last != Some(asker.as_str()) {
                    continue;
                }
            } else if filter.matches(target, last) {
                entry.claims.clear();
                entry.cap = None;
            } else {
                continue;
            }
            entry.dirty = true;
            entry.forced = true;
        }
        self.plans.clear();
        self.run(now, bases, true)
    }

    /// Leaves a cgroup (with all below it) or a file alone, whatever is wanted.
    pub fn hold(&mut self, what: &str, until: Option<Timestamp>, now: Now) {
        self.holds.retain(|hold| hold.what != what);
        if self.holds.len() >= MOST_HOLDS {
            self.holds.remove(0);
        }
        self.holds.push(Hold {
            what: what.to_owned(),
            until: until.map(Timestamp::nanos),
        });
        self.holds_changed(now, format!("{what} is left alone from now on"));
    }

    /// `false`: there was no such hold.
    pub fn release_hold(&mut self, what: &str, now: Now) -> bool {
        let before = self.holds.len();
        self.holds.retain(|hold| hold.what != what);
        let found = self.holds.len() < before;
        if found {
            self.holds_changed(now, format!("{what} is no longer left alone"));
        }
        found
    }

    pub fn holds(&self) -> &[Hold] {
        &self.holds
    }

    pub(crate) fn holds_changed(&mut self, now: Now, text: String) {
        for entry in self.entries.values_mut() {
            // What an earlier process wrote waits until somebody says something about it.
            entry.dirty |= !entry.claims.is_empty();
        }
        let holds = self.holds.clone();
        self.journal.holds(&holds);
        self.journal.line(Self::line(now, Outcome::Held, text));
        self.journal.flush();
    }

    pub(crate) fn is_held(&self, target: &Target, file: Option<&str>) -> bool {
        self.holds.iter().any(|hold| {
            let by_path = target
                .cgroup_path()
                .is_some_and(|path| is_below(path, &hold.what));
            by_path || file == Some(hold.what.as_str())
        })
    }

    /// Changes the mode. What is written stays: see [`Self::restore`].
    pub fn set_mode(&mut self, mode: Mode, now: Now) {
        if self.config.mode == mode {
            return;
        }
        self.config.mode = mode;
        for entry in self.entries.values_mut() {
            entry.dirty |= !entry.claims.is_empty();
            entry.told_plan = None;
        }
        let text = format!("the mode is {} from now on", mode.as_str());
        self.journal
            .line(Self::line(now, Outcome::ModeChanged, text));
        self.journal.flush();
    }

    /// Tells of a pod that was evicted, or whose eviction was asked for. Others do that; the journal has the whole story.
    pub fn note_eviction(&mut self, eviction: &Eviction, asked: bool, now: Now) {
        let pod = format!("{}/{}", eviction.namespace, eviction.name);
        let why = sentence::why(&eviction.why);
        let feature = eviction.feature;
        let did = match asked {
            true => "asked the manager to evict",
            false => "evicted",
        };
        let text = format!("{feature} {did} pod {pod}, because of {why}");
        let mut line = Self::line(now, Outcome::Noted, text);
        line.asker = feature.to_owned();
        line.file = pod;
        line.why = Some(Why::from(&eviction.why));
        self.journal.line(line);
        self.journal.flush();
    }

    /// What is wanted of it.
    pub fn mode(&self) -> Mode {
        self.config.mode
    }

    /// What it does: a second agent makes it observe.
    pub fn effective_mode(&self) -> Mode {
        match (&self.second_agent, self.config.mode) {
            (Some(_), Mode::Enforce) => Mode::Observe,
            (_, mode) => mode,
        }
    }

    pub fn second_agent(&self) -> Option<&SecondAgent> {
        self.second_agent.as_ref()
    }

    /// The other agent is gone, says an operator.
    pub fn forget_second_agent(&mut self) {
        self.second_agent = None;
        for entry in self.entries.values_mut() {
            entry.flips = 0;
            entry.told_plan = None;
            entry.dirty |= !entry.claims.is_empty();
        }
    }

    /// Lines of the story after a number, the oldest first; at most so many of the newest.
    pub fn journal(&self, after: u64, most: usize) -> Vec<Line> {
        self.journal.tail(after, most)
    }

    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// How long writes took.
    pub fn durations(&self) -> &Durations {
        &self.durations
    }

    /// How every target stands.
    pub fn status(&self, bases: &dyn Bases) -> Status {
        let targets = self.entries.iter();
        Status {
            mode: self.mode(),
            effective_mode: self.effective_mode(),
            second_agent: self.second_agent.clone(),
            holds: self.holds.clone(),
            targets: targets
                .map(|(target, entry)| self.target_status(target, entry, bases))
                .collect(),
            counters: self.counters,
            journal_error: self.journal.error().map(str::to_owned),
        }
    }

    fn target_status(&self, target: &Target, entry: &Entry, bases: &dyn Bases) -> TargetStatus {
        let winner = entry.told_winner();
        let overruled = entry.told_overruled.iter().cloned();
        TargetStatus {
            target: target.clone(),
            file: entry.file().unwrap_or_default(),
            state: entry.state,
            found: entry.touched.as_ref().map(|touched| touched.found.clone()),
            base: entry.base(target, self.computed(target, entry, bases)),
            wanted: winner.map(|(_, claim)| claim.value.clone()),
            has: entry.has.clone(),
            asker: winner.map(|(asker, _)| asker),
            why: winner.map_or_else(String::new, |(_, claim)| sentence::why(&claim.why)),
            overruled: overruled
                .map(|(asker, wanted)| Overruled { asker, wanted })
                .collect(),
            error: entry.error.clone(),
            drifts: entry.drifts,
        }
    }

    /// What the kubelet or the runtime would write, in the kernel's unit.
    pub(crate) fn computed(
        &self,
        target: &Target,
        entry: &Entry,
        bases: &dyn Bases,
    ) -> Option<plimsoll_plan::Value> {
        let computed = bases.base(target)?;
        value::fit_base(target, entry.form(), &computed)
    }

    fn tell_notes(&mut self, now: Now) {
        for (asker, code, about, text) in std::mem::take(&mut self.notes) {
            let key = (asker, code, about);
            if self.told_notes.get(&key) == Some(&text) {
                continue;
            }
            if self.told_notes.len() >= MOST_NOTES {
                self.told_notes.clear();
            }
            let (_, _, about) = &key;
            let said = match about.is_empty() {
                true => format!("{asker}: {text}"),
                false => format!("{asker}: {about}: {text}"),
            };
            let mut line = Self::line(now, Outcome::Noted, said);
            line.asker = asker.as_str().to_owned();
            self.journal.line(line);
            self.told_notes.insert(key, text);
        }
    }

    pub(crate) fn line(now: Now, outcome: Outcome, text: String) -> Line {
        Line {
            seq: 0,
            at: now.wall.nanos(),
            outcome,
            target: None,
            file: String::new(),
            asker: String::new(),
            before: None,
            wanted: None,
            has: None,
            through: Vec::new(),
            why: None,
            until_ms: None,
            text,
        }
    }

    pub(crate) fn compact_if_long(&mut self) {
        if !self.journal.must_compact() {
            return;
        }
        let touched = self.entries.iter();
        let kept: Vec<Kept> = touched
            .filter_map(|(target, entry)| Some(entry.touched.as_ref()?.kept(target)))
            .collect();
        self.journal.compact(&kept, &self.holds);
    }
}

impl Entry {
    pub(crate) fn file(&self) -> Option<String> {
        self.place.as_ref().map(|place| place.file.to_string())
    }

    /// The claim that decided last.
    fn told_winner(&self) -> Option<(Asker, &Claim)> {
        let winner = self
            .winner
            .and_then(|asker| Some((asker, self.claims.get(&asker)?)));
        winner.or_else(|| {
            self.claims
                .iter()
                .next()
                .map(|(asker, claim)| (*asker, claim))
        })
    }
}

fn boot_id(config: &Config) -> String {
    let path = config
        .machine
        .root()
        .path("/proc/sys/kernel/random/boot_id");
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.trim().to_owned()
}
