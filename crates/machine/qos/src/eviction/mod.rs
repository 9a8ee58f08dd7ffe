//! Which pods have to go, for CPU and for memory.
//!
//! Each feature has a rule for how much has to be released and an order in which pods go. Features of one resource are looked
//! at together: what one releases counts for the next. After a round there is a quiet time, so that its effect is seen.

mod feature;
mod needs;
mod select;
mod victims;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use plimsoll_plan::{Eviction, EvictionScope, Note, Urgency};

use crate::input::{Input, NodeView, PodView};
use crate::settings::{EvictBy, Settings};
use crate::windows::Windows;

use feature::Feature;
use select::{Chosen, Selection, Standing, Task};

pub use needs::longest_window;

/// How long an eviction that was asked for is remembered.
const REMEMBERED: Duration = Duration::from_secs(120);
/// A pod that could not be evicted is left alone for as long.
const FAILED: Duration = Duration::from_secs(10);
const MINUTE: Duration = Duration::from_secs(60);

/// Why pods are evicted, as koordlet's events and metrics say it.
pub const REASON: &str = "evicted";

/// Who goes now, in this order.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct EvictionRound {
    pub evictions: Vec<Eviction>,
    pub notes: Vec<Note>,
}

/// What is said about an eviction, in koordlet's words.
pub fn message(eviction: &Eviction) -> String {
    let (feature, name) = (eviction.feature, &eviction.name);
    format!("trigger by koordlet feature {feature}, kill pod: {name}")
}

#[derive(Debug, Clone, Default)]
pub struct State {
    /// Since when there is somebody to evict; CPU has its quiet time at the start, too.
    started: Option<Duration>,
    cpu: Rounds,
    memory: Rounds,
    /// Asked for, and when.
    asked: BTreeMap<Arc<str>, Duration>,
    failed: BTreeMap<Arc<str>, Duration>,
    /// When the last pods of a minute went.
    recent: VecDeque<Duration>,
}

#[derive(Debug, Clone, Default)]
struct Rounds {
    last: Option<Duration>,
    /// What `last` was, and whom the last round chose, in case none of them could be evicted.
    before: Option<Duration>,
    waiting: Vec<Arc<str>>,
}

impl State {
    /// Notes what does not depend on whether anything may be evicted now.
    pub fn begin(&mut self, now: Duration) {
        self.started.get_or_insert(now);
        self.asked
            .retain(|_, at| now.saturating_sub(*at) < REMEMBERED);
        self.failed.retain(|_, at| now.saturating_sub(*at) < FAILED);
        while self
            .recent
            .front()
            .is_some_and(|at| now.saturating_sub(*at) >= MINUTE)
        {
            self.recent.pop_front();
        }
    }

    pub fn plan(
        &mut self,
        input: &Input<'_>,
        windows: &Windows,
        settings: &Settings,
    ) -> EvictionRound {
        let mut round = EvictionRound::default();
        let Some(node) = input.node else {
            return round;
        };
        for scope in [EvictionScope::Cpu, EvictionScope::Memory] {
            if !self.is_quiet(scope, input.now, settings) {
                self.look(scope, input, node, windows, settings, &mut round);
            }
        }
        round
    }

    fn is_quiet(&self, scope: EvictionScope, now: Duration, settings: &Settings) -> bool {
        let (last, quiet) = match scope {
            EvictionScope::Cpu => (self.cpu.last.or(self.started), settings.cpu_evict_cool_down),
            EvictionScope::Memory => (self.memory.last, settings.memory_evict_cool_down),
        };
        last.is_some_and(|last| now.saturating_sub(last) < quiet)
    }

    fn look(
        &mut self,
        scope: EvictionScope,
        input: &Input<'_>,
        node: &NodeView,
        windows: &Windows,
        settings: &Settings,
        round: &mut EvictionRound,
    ) {
        let policy = &input.policy.threshold;
        let capacity = match scope {
            EvictionScope::Cpu => node.cpu_milli(),
            EvictionScope::Memory => node.memory(),
        };
        if policy.enable != Some(true) || capacity <= 0 {
            return;
        }
        let mut tasks = Vec::new();
        for feature in Feature::of(scope) {
            if !feature.is_on(&settings.gates) {
                continue;
            }
            if let Err(problem) = needs::check(feature, policy) {
                round.notes.push(Note {
                    code: "eviction_policy_refused",
                    about: feature.name().into(),
                    text: format!("{problem}. This feature evicts nobody.").into(),
                });
                continue;
            }
            let need = needs::need(feature, input, node, windows, settings.interval);
            let Some(mut need) = need else {
                continue;
            };
            if settings.smallest_set && feature.aim() == feature::Aim::Requested {
                // Nobody's end gives back what is not lent.
                need.amounts
                    .retain(|resource, _| resource.class().is_some());
            }
            if need.amounts.is_empty() {
                continue;
            }
            let victims = victims::victims(feature, input, &need);
            tasks.push(Task {
                feature,
                need,
                victims,
            });
        }
        let selection = Selection::new(&tasks, |task, pod| {
            victims::releases(task.feature, input, pod, &task.need)
        });
        let standing = |pod: &PodView| self.standing(pod, settings);
        let mut chosen = match settings.smallest_set {
            true => selection.smallest(standing),
            false => selection.like_koordlet(standing),
        };
        self.cut_to_budget(&mut chosen, settings, round);
        self.remember(scope, &chosen, input.now, settings);
        let evictions = chosen.iter().map(|one| eviction(one, &tasks));
        round.evictions.extend(evictions);
    }

    fn standing(&self, pod: &PodView, settings: &Settings) -> Standing {
        if victims::is_spared(pod, settings.own_pod.as_deref()) {
            return Standing::Spared;
        }
        let leaves =
            self.asked.contains_key(&pod.uid) || settings.evict_by == EvictBy::Api && pod.deleting;
        if leaves {
            return match pod.is_active() {
                true => Standing::Leaving,
                false => Standing::Spared,
            };
        }
        match self.failed.contains_key(&pod.uid) {
            true => Standing::Spared,
            false => Standing::Candidate,
        }
    }

    fn cut_to_budget(
        &self,
        chosen: &mut Vec<Chosen<'_>>,
        settings: &Settings,
        round: &mut EvictionRound,
    ) {
        let Some(most) = settings.evictions_per_minute else {
            return;
        };
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let free = most.saturating_sub(self.recent.len());
        if chosen.len() > free {
            round.notes.push(Note {
                code: "eviction_budget_spent",
                about: "evictions".into(),
                text: format!(
                    "{} pods would have to go, and {free} may, as only {most} may in a minute.",
                    chosen.len()
                )
                .into(),
            });
            chosen.truncate(free);
        }
    }

    fn remember(
        &mut self,
        scope: EvictionScope,
        chosen: &[Chosen<'_>],
        now: Duration,
        settings: &Settings,
    ) {
        if chosen.is_empty() {
            return;
        }
        let uids: Vec<Arc<str>> = chosen.iter().map(|one| one.pod.uid.clone()).collect();
        self.recent.extend(uids.iter().map(|_| now));
        if settings.evict_by == EvictBy::Api {
            self.asked.extend(uids.iter().map(|uid| (uid.clone(), now)));
        }
        let rounds = self.rounds(scope);
        rounds.before = rounds.last;
        rounds.last = Some(now);
        rounds.waiting = uids;
    }

    fn rounds(&mut self, scope: EvictionScope) -> &mut Rounds {
        match scope {
            EvictionScope::Cpu => &mut self.cpu,
            EvictionScope::Memory => &mut self.memory,
        }
    }

    /// The pod could not be evicted. It is passed over for a while; a round in which nobody went needs no quiet time.
    pub fn failed(&mut self, uid: &Arc<str>, now: Duration) {
        self.asked.remove(uid);
        self.failed.insert(uid.clone(), now);
        self.recent.pop_back();
        for rounds in [&mut self.cpu, &mut self.memory] {
            let before = rounds.waiting.len();
            rounds.waiting.retain(|one| one != uid);
            if before > 0 && rounds.waiting.is_empty() {
                rounds.last = rounds.before;
            }
        }
    }
}

fn eviction(chosen: &Chosen<'_>, tasks: &[Task<'_>]) -> Eviction {
    let task = &tasks[chosen.task];
    let pod = chosen.pod;
    let victim = task.victims.iter().find(|one| one.pod.uid == pod.uid);
    let released = victim.into_iter().flat_map(|one| one.releases.values());
    let released = released.fold(0_i64, |sum, amount| sum.saturating_add(*amount));
    Eviction {
        uid: pod.uid.clone(),
        namespace: pod.namespace.clone(),
        name: pod.name.clone(),
        scope: task.feature.scope(),
        releases: u64::try_from(released).unwrap_or(0),
        urgency: Urgency::Orderly,
        feature: task.feature.name(),
        why: task.need.why,
    }
}

#[cfg(test)]
mod tests;
