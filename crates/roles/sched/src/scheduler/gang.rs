//! Pods of a group, tried together: all that are needed get a node, or none does.

use std::sync::Arc;

use super::binding::Stage;
use super::failure::Nominating;
use super::{Cycle, Outcome, Scheduler};
use crate::action::{Action, ActionKind};
use crate::cluster::PodId;
use crate::framework::engine::Attempt;
use crate::framework::plugin::{Plugin, PluginSet};
use crate::model::{GroupCondition, Key};
use crate::queue::{Entry, Room};
use crate::time::Time;

const UNSCHEDULABLE: &str = "pod group is unschedulable";
/// For pods that would have had a node.
const TOO_FEW: &str = "pod group is unschedulable, waiting for minCount pods from a gang to be scheduled, \
    one or more plugins asked to wait and no plugin rejected pod";

impl Scheduler {
    /// The group that a pod has to be tried with.
    pub(super) fn group_of(&self, id: PodId, profile: usize) -> Option<Key> {
        let pod = &self.cluster.pods.get(id)?.pod;
        let gangs = &self.engine.profiles[profile].permit;
        let name = pod.spec.group.clone()?;
        // A cycle that has to ask others cannot be one of several.
        let together = gangs.contains(&Plugin::GangScheduling) && self.engine.extenders.is_empty();
        together.then(|| (pod.namespace(), name))
    }

    /// Tries a pod and all others of its group that wait. The cycles of the others follow.
    pub(super) fn try_group(
        &mut self,
        first: PodId,
        group: &Key,
        profile: usize,
        now: Time,
    ) -> Option<Cycle> {
        let mut tried: Vec<(PodId, Cycle)> = Vec::new();
        for id in self.take_members(first, group, now) {
            let Some(cycle) = self.begin(id, now) else {
                continue;
            };
            let attempt = Attempt {
                pod: id,
                profile,
                now,
            };
            let (decision, state) =
                self.engine
                    .decide(&mut self.cluster, attempt, &self.nominations);
            tried.push((id, self.conclude(decision, state, attempt, cycle)));
        }
        let is_waiting = |scheduler: &Self, id: PodId| {
            let binding = scheduler.bindings.get(&id);
            binding.is_some_and(|binding| matches!(binding.stage, Stage::Permit { .. }))
        };
        let complete = tried.iter().any(|(id, cycle)| {
            matches!(cycle.outcome, Outcome::Scheduled { .. }) && !is_waiting(self, *id)
        });
        for (id, cycle) in &mut tried {
            if is_waiting(self, *id) {
                // It was given a node only to see whether the others find one, too.
                self.take_back(*id);
                let rejectors = PluginSet::of(Plugin::GangScheduling);
                cycle.actions = self.fail(
                    *id,
                    "Unschedulable",
                    TOO_FEW,
                    Nominating::Clear,
                    rejectors,
                    PluginSet::EMPTY,
                    now,
                );
                cycle.outcome = Outcome::Unschedulable {
                    message: TOO_FEW.to_owned(),
                };
            }
        }
        let told = self.tell_group(group, complete);
        if let Some((_, last)) = tried.last_mut() {
            last.actions.extend(told);
        }
        self.more.extend(tried.into_iter().map(|(_, cycle)| cycle));
        self.more.pop_front()
    }

    /// Takes the group's pods out of the queue: the most important first, then those that have been tried for longest, then
    /// whoever made the gang complete by coming.
    fn take_members(&mut self, first: PodId, group: &Key, now: Time) -> Vec<PodId> {
        let waits = |id: PodId| {
            self.queue.get(id).is_some_and(|entry| {
                let free = !matches!(entry.room, Room::InFlight | Room::Settled);
                free && entry.gated_by.is_none()
            })
        };
        let others = self.cluster.pods.iter().filter(|(id, record)| {
            let pod = &record.pod;
            let member = pod.namespace() == group.0 && pod.spec.group.as_ref() == Some(&group.1);
            member && *id != first && !pod.terminating && waits(*id)
        });
        let mut members: Vec<PodId> = others.map(|(id, _)| id).collect();
        for id in &members {
            self.queue.take(*id);
        }
        members.push(first);
        members.sort_by_key(|id| {
            let entry = self.queue.get(*id);
            let priority = entry.map_or(0, |entry| entry.priority);
            let since = entry.and_then(|entry| entry.first_attempt).unwrap_or(now);
            let added = entry.map_or(now, |entry| entry.added);
            let was_gated = entry.is_some_and(|entry| entry.was_gated);
            let rank = (was_gated, *id != first, added);
            (std::cmp::Reverse(priority), since, rank, *id)
        });
        members
    }

    /// Once scheduled, a group stays so, whatever becomes of further pods.
    fn tell_group(&mut self, key: &Key, complete: bool) -> Option<Action> {
        let group = self.cluster.groups.get(key)?;
        let condition = GroupCondition {
            holds: complete,
            reason: if complete {
                "Scheduled"
            } else {
                "Unschedulable"
            }
            .into(),
            message: if complete { "" } else { UNSCHEDULABLE }.into(),
        };
        let known = group.scheduled.as_ref();
        if known == Some(&condition) || known.is_some_and(|known| known.holds) {
            return None;
        }
        let kind = ActionKind::PatchGroup {
            namespace: self.cluster.names.text(key.0).into(),
            name: key.1.clone(),
            uid: group.uid.clone(),
            observed_generation: group.generation,
            condition,
        };
        Some(self.action(kind))
    }

    /// A cycle that has not come to anything yet.
    pub(super) fn begin(&self, id: PodId, now: Time) -> Option<Cycle> {
        let record = self.cluster.pods.get(id)?;
        let pod = Arc::clone(&record.pod);
        let entry = self.queue.get(id);
        let (attempts, waited) = entry.map_or((0, Default::default()), |entry| {
            (
                entry.attempts,
                now.since(entry.first_attempt.unwrap_or(entry.added)),
            )
        });
        Some(Cycle {
            pod: self.pod_ref(&pod),
            profile: self.profile_of(&pod),
            outcome: Outcome::Skipped,
            actions: Vec::new(),
            evaluated_nodes: 0,
            feasible_nodes: 0,
            scores: None,
            attempts,
            was_flushed: entry.is_some_and(Entry::was_flushed),
            waited,
        })
    }
}
