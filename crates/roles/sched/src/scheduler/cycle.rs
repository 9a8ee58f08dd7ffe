//! One scheduling cycle.

use std::sync::Arc;

use super::asking::Asking;
use super::failure::{Nominating, PostFilter};
use super::{Cycle, Outcome, Scheduler, UnderWay};
use crate::action::{Action, ActionKind};
use crate::cluster::PodId;
use crate::framework::diagnosis::Diagnosis;
use crate::framework::engine::{Attempt, Choice, Decision};
use crate::framework::plugin::PluginSet;
use crate::framework::state::CycleState;
use crate::model::Pod;
use crate::time::Time;

impl Scheduler {
    /// Takes the next pod and decides about it. `None`: nobody is ready; see [`Scheduler::next_wakeup`].
    pub fn step(&mut self, now: Time) -> Option<Cycle> {
        {
            let (queue, gate) = self.queue_and_gate(now);
            queue.flush(now, &gate);
        }
        self.check_bindings(now);
        if self.asking.is_some() {
            return None;
        }
        if let Some(cycle) = self.more.pop_front() {
            return Some(cycle);
        }
        let id = self.queue.pop()?;
        self.engine.stopwatch.begin();
        let mut cycle = self.begin(id, now)?;
        let pod = Arc::clone(&self.cluster.pods.get(id)?.pod);
        let Some(profile) = cycle.profile else {
            self.queue.done(id);
            return Some(cycle);
        };
        if pod.terminating {
            self.queue.done(id);
            let note = format!(
                "skip schedule deleting pod: {}/{}",
                self.cluster.names.text(pod.namespace()),
                pod.name
            );
            let event = self.failure_event(&pod, note);
            cycle.actions.push(event);
            return Some(cycle);
        }
        if record_is_assumed(self, id) {
            self.queue.done(id);
            return Some(cycle);
        }
        if let Some(group) = self.group_of(id, profile) {
            return self.try_group(id, &group, profile, now);
        }
        let attempt = Attempt {
            pod: id,
            profile,
            now,
        };
        let (decision, state) = self
            .engine
            .decide(&mut self.cluster, attempt, &self.nominations);
        Some(self.conclude(decision, state, attempt, cycle))
    }

    /// What follows from a decision.
    pub(super) fn conclude(
        &mut self,
        decision: Decision,
        mut state: CycleState,
        attempt: Attempt,
        mut cycle: Cycle,
    ) -> Cycle {
        let Attempt {
            pod: id,
            profile,
            now,
        } = attempt;
        match decision {
            Decision::Asking(paused) => return self.ask_about_nodes(paused, state, cycle),
            Decision::Chosen(choice) => {
                self.chosen(id, choice, &mut cycle);
                let actions = self.reserve(id, profile, &state, now);
                cycle.actions.extend(actions);
            }
            Decision::NoNodes => {
                let message = "no nodes available to schedule pods".to_owned();
                let actions = self.fail(
                    id,
                    "Unschedulable",
                    &message,
                    Nominating::Clear,
                    PluginSet::EMPTY,
                    PluginSet::EMPTY,
                    now,
                );
                cycle.actions.extend(actions);
                cycle.outcome = Outcome::Unschedulable { message };
            }
            Decision::Failed(message) => {
                let actions = self.fail(
                    id,
                    "SchedulerError",
                    &message,
                    Nominating::Clear,
                    PluginSet::EMPTY,
                    PluginSet::EMPTY,
                    now,
                );
                cycle.actions.extend(actions);
                cycle.outcome = Outcome::Error { message };
            }
            Decision::Unfit(mut diagnosis) => {
                // What others have to do for the pod begins when it has been told about itself.
                let mut evictions = Vec::new();
                let found =
                    self.post_filter(id, profile, &mut state, &mut diagnosis, now, &mut evictions);
                let nominating = match found {
                    PostFilter::Done(nominating) => nominating,
                    PostFilter::Ask(candidates, messages) => {
                        return self.ask_about_victims(Asking::about_victims(
                            attempt, state, cycle, diagnosis, candidates, messages,
                        ));
                    }
                };
                let mut cycle = self.unfit(id, &diagnosis, nominating, now, cycle);
                cycle.actions.extend(evictions);
                return cycle;
            }
        }
        cycle
    }

    /// No node will do.
    pub(super) fn unfit(
        &mut self,
        id: PodId,
        diagnosis: &Diagnosis,
        nominating: Nominating,
        now: Time,
        mut cycle: Cycle,
    ) -> Cycle {
        let message = diagnosis.message(&self.engine.statuses, &self.cluster.names);
        let actions = self.fail(
            id,
            "Unschedulable",
            &message,
            nominating,
            diagnosis.rejectors,
            diagnosis.pending,
            now,
        );
        cycle.actions.extend(actions);
        cycle.evaluated_nodes = diagnosis.counts.iter().map(|(_, nodes)| nodes).sum();
        cycle.outcome = Outcome::Unschedulable { message };
        cycle
    }

    fn chosen(&mut self, id: PodId, choice: Choice, cycle: &mut Cycle) {
        let node: Box<str> = self.cluster.node_name(choice.node).into();
        cycle.evaluated_nodes = choice.evaluated;
        cycle.feasible_nodes = choice.feasible;
        cycle.scores = choice.scores;
        cycle.outcome = Outcome::Scheduled { node };
        self.nominations.set(id, None);
        self.cluster.place(id, choice.node);
        self.cluster.set_assumed(id, true);
    }

    pub(super) fn bind(&mut self, pod: &Pod, node: Box<str>) -> Action {
        let uid = Arc::clone(&pod.uid);
        let pod = self.pod_ref(pod);
        let action = self.action(ActionKind::Bind { pod, node });
        self.under_way
            .insert(action.id, UnderWay::Bind { pod: uid });
        action
    }
}

fn record_is_assumed(scheduler: &Scheduler, id: PodId) -> bool {
    scheduler
        .cluster
        .pods
        .get(id)
        .is_some_and(|record| record.assumed)
}
