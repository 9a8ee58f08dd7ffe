//! All strategies, one after the other.

use std::collections::BTreeMap;
use std::time::Duration;

use plimsoll_plan::{Asker, Note, Plan, Target};

use crate::eviction::EvictionRound;
use crate::gate::{Gate, GateStatus, Source, Verdict, Wait};
use crate::input::Input;
use crate::metrics::Metrics;
use crate::settings::Settings;
use crate::strategy::Outcome;
use crate::windows::Windows;

/// What comes of one look.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Planned {
    /// One for each asker that has something to say. No plan: what it wanted before stays as it is.
    pub plans: Vec<Plan>,
    /// Who has to go. Each eviction is carried out once; one that fails is told to the planner.
    pub evictions: EvictionRound,
    /// Why a strategy has no new plan, and what is wrong with the policy.
    pub notes: Vec<Note>,
    pub gate: GateStatus,
    pub metrics: Metrics,
}

/// Keeps what the strategies remember.
#[derive(Debug)]
pub struct Planner {
    pub settings: Settings,
    gate: Gate,
    windows: Windows,
    /// The last plan of each, and since when it has been standing without grounds.
    last: BTreeMap<Asker, Standing>,
}

#[derive(Debug, Default)]
struct Standing {
    plan: Option<Plan>,
    since: Option<Duration>,
}

impl Planner {
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            gate: Gate::default(),
            windows: Windows::default(),
            last: BTreeMap::new(),
        }
    }

    /// What the kernel has of these is to be in the next input.
    pub fn reads(&self, _input: &Input<'_>) -> Vec<Target> {
        Vec::new()
    }

    pub fn plan(&mut self, input: &Input<'_>) -> Planned {
        let mut planned = Planned::default();
        let waits = Gate::waits(input);
        planned.gate.open = self.gate.look(&waits);
        planned.gate.waiting.clone_from(&waits);
        planned.notes.clone_from(&input.policy.notes);
        self.windows.take(input, Duration::from_secs(60));
        planned
    }

    /// Runs one strategy, or lets its last plan stand.
    #[expect(dead_code, reason = "strategies come next")]
    fn run(
        &mut self,
        planned: &mut Planned,
        input: &Input<'_>,
        waits: &[Wait],
        (asker, needs): (Asker, &[Source]),
        strategy: impl FnOnce(&mut Self, &mut Metrics) -> Outcome,
    ) {
        let since = self.last.get(&asker).and_then(|standing| standing.since);
        let hold = self.settings.hold;
        let verdict = self.gate.verdict(waits, needs, since, input.now, hold);
        let outcome = match verdict {
            Verdict::Wait => return,
            Verdict::Act => Some(strategy(self, &mut planned.metrics)),
            Verdict::Hold | Verdict::Release => None,
        };
        let standing = self.last.entry(asker).or_default();
        match outcome {
            Some(Outcome::Plan(plan)) => {
                *standing = Standing {
                    plan: Some(plan),
                    since: None,
                };
            }
            Some(Outcome::Keep(note)) => {
                standing.since = None;
                planned.notes.extend(note);
            }
            None => {
                let since = *standing.since.get_or_insert(input.now);
                planned
                    .gate
                    .held
                    .push((asker.as_str(), input.now.saturating_sub(since)));
                if verdict == Verdict::Release && standing.plan.is_some() {
                    standing.plan = Some(Plan::empty(asker));
                }
            }
        }
        planned.plans.extend(standing.plan.clone());
    }
}
