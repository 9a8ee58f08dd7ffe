//! Lines of the journal for people.

use plimsoll_plan::{Asker, Target, Value};

use super::{Settled, Work};
use crate::actuator::Actuator;
use crate::entry::{Doing, Entry};
use crate::journal::{Line, Outcome};
use crate::{Applied, Now, SecondAgent, State, sentence};

impl Actuator {
    /// What is new about a target since it was told last.
    pub(super) fn tell_settled(
        &mut self,
        target: &Target,
        settled: &Settled,
        now: Now,
        applied: &mut Applied,
    ) {
        let Some(entry) = self.entries.get(target) else {
            return;
        };
        let file = entry.file().unwrap_or_default();
        let (has, overruled) = (entry.has.clone(), entry.told_overruled.clone());
        for (asker, value, unfit) in &settled.unfit {
            let text = format!("{asker} wants {value} for {file}: {unfit}; it is not written");
            self.refuse_claim(target, *asker, text, now, applied);
        }
        if settled.overruled_news {
            let winner = settled.wanted.as_ref().map(|wanted| wanted.asker);
            let winner = winner.map_or("somebody else", Asker::as_str);
            for (asker, value) in overruled {
                let text = format!("{asker} wants {value} for {file}, but {winner} comes first");
                let mut line = self.line_of(target, Outcome::Overruled, now, text);
                line.asker = asker.as_str().to_owned();
                line.wanted = Some(value);
                self.journal.line(line);
                applied.overruled += 1;
            }
        }
        if settled.drift_news {
            applied.drifted += 1;
            let shown = has.map_or_else(String::new, |has| has.to_string());
            let text = format!("somebody else set {file} to {shown}");
            let line = self.line_of(target, Outcome::Drifted, now, text);
            self.journal.line(line);
        }
        if settled.held_news {
            let text = format!("{file} is held: it stays as it is");
            let line = self.line_of(target, Outcome::Held, now, text);
            self.journal.line(line);
        }
        if settled.second_agent {
            let wanted = settled.wanted.as_ref().map(|wanted| &wanted.value);
            self.found_second_agent(target, wanted, now, applied);
        }
    }

    pub(crate) fn tell_unsupported(&mut self, target: &Target, now: Now) {
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

    pub(crate) fn refuse_claim(
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

    pub(crate) fn found_second_agent(
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
             Nothing is written any more; end one of both and run `plimsoll qos mode enforce`"
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

    pub(super) fn tell_planned(&mut self, work: Vec<Work>, now: Now, applied: &mut Applied) {
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

    pub(crate) fn line_of(
        &self,
        target: &Target,
        outcome: Outcome,
        now: Now,
        text: String,
    ) -> Line {
        let mut line = Self::line(now, outcome, text);
        line.target = Some(target.clone());
        if let Some(entry) = self.entries.get(target) {
            line.file = entry.file().unwrap_or_default();
            line.has = entry.has.clone();
        }
        line
    }

    pub(crate) fn line_for(
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
