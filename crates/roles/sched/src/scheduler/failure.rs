//! What follows when a pod could not be placed.

use std::sync::Arc;

use super::{Preempting, Scheduler, UnderWay};
use crate::action::{Action, ActionKind, EventType, NominatedNode, ScheduledCondition};
use crate::cluster::PodId;
use crate::framework::diagnosis::Diagnosis;
use crate::framework::engine::Attempt;
use crate::framework::judge::Subject;
use crate::framework::plugin::{Plugin, PluginSet};
use crate::framework::state::CycleState;
use crate::framework::stopwatch::{Ending, Point};
use crate::model::{Pod, Symbol};
use crate::plugins::dynamic_resources;
use crate::preemption::{self, Candidate, Preemption};
use crate::time::Time;

/// What becomes of the node that the pod was promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Nominating {
    Keep,
    Clear,
    Node(Symbol),
}

/// What came of asking those who can change something.
#[derive(Debug)]
pub(super) enum PostFilter {
    Done(Nominating),
    /// Extenders have a say about who has to go; with what others have said before.
    Ask(Vec<Arc<Candidate>>, Vec<String>),
}

impl Scheduler {
    /// Asks those who can change something about it.
    pub(super) fn post_filter(
        &mut self,
        id: PodId,
        profile: usize,
        state: &mut CycleState,
        diagnosis: &mut Diagnosis,
        now: Time,
        actions: &mut Vec<Action>,
    ) -> PostFilter {
        let mut messages: Vec<String> = Vec::new();
        let mut nominating = Nominating::Keep;
        let began = self.engine.stopwatch.now();
        let mut ending = Ending::Unschedulable;
        for plugin in self.engine.profiles[profile].post_filter.clone() {
            let asked = self.engine.stopwatch.now();
            match plugin {
                Plugin::DynamicResources => {
                    // Refused before it was asked, it knows nothing of the pod, and says so in these words.
                    if diagnosis.pre_filter.is_some() && !state.claims_were_asked {
                        messages = vec!["not found".to_owned()];
                        ending = Ending::Error;
                        break;
                    }
                    messages.push(self.deallocate(id, profile, state, now, actions).to_owned());
                }
                Plugin::DefaultPreemption => {
                    let watch = &mut self.engine.stopwatch;
                    watch.asked(plugin, Point::PostFilter, profile, 1);
                    let found = preemption::preempt(
                        &mut self.engine,
                        &mut self.cluster,
                        &self.nominations,
                        Attempt {
                            pod: id,
                            profile,
                            now,
                        },
                        state,
                        diagnosis,
                    );
                    match found {
                        Preemption::Ineligible(text) => {
                            messages.push(format!("preemption: {text}"))
                        }
                        Preemption::InVain(text) => {
                            nominating = Nominating::Clear;
                            messages.push(format!("preemption: {text}"));
                        }
                        Preemption::Candidates(candidates)
                            if self.preempting_extenders(id).next().is_some() =>
                        {
                            return PostFilter::Ask(candidates, messages);
                        }
                        Preemption::Candidates(candidates) => {
                            messages.clear();
                            nominating = self.preempt(id, &candidates, now, actions);
                            ending = Ending::Success;
                            let watch = &mut self.engine.stopwatch;
                            watch.plugin(plugin, Point::PostFilter, ending, asked);
                            break;
                        }
                        Preemption::Failed(text) => {
                            messages = vec![format!("preemption: {text}")];
                            ending = Ending::Error;
                            break;
                        }
                    }
                }
                _ => {}
            }
            let watch = &mut self.engine.stopwatch;
            watch.plugin(plugin, Point::PostFilter, ending, asked);
        }
        let watch = &mut self.engine.stopwatch;
        watch.point(Point::PostFilter, ending, profile, began);
        diagnosis.post_filter = Some(messages.join(", "));
        PostFilter::Done(nominating)
    }

    /// Takes the best candidate.
    pub(super) fn preempt(
        &mut self,
        id: PodId,
        candidates: &[Arc<Candidate>],
        now: Time,
        actions: &mut Vec<Action>,
    ) -> Nominating {
        let Some((node, victims)) = preemption::best(candidates, now) else {
            return Nominating::Clear;
        };
        self.evict(id, node, &victims, now, actions);
        Nominating::Node(self.cluster.nodes.name(node))
    }

    /// Takes devices from a claim that are where the pod cannot go.
    fn deallocate(
        &mut self,
        id: PodId,
        profile: usize,
        state: &CycleState,
        now: Time,
        actions: &mut Vec<Action>,
    ) -> &'static str {
        let (Some(claims), Some(subject)) = (
            state.claims.as_ref().filter(|claims| !claims.is_empty()),
            Subject::new(
                &self.cluster,
                Attempt {
                    pod: id,
                    profile,
                    now,
                },
            ),
        ) else {
            return "no new claims to deallocate";
        };
        let context = subject.context(&self.cluster, &self.engine.profiles);
        let Some(key) = dynamic_resources::to_deallocate(&context, claims) else {
            let Some(key) = claims.left_behind.clone() else {
                return "still not schedulable";
            };
            if let Some(claim) = self.cluster.devices.claims().get(&key) {
                let kind = ActionKind::DeleteClaim {
                    namespace: self.cluster.names.text(key.0).into(),
                    claim: key.1,
                    uid: claim.uid.clone(),
                };
                actions.push(self.action(kind));
            }
            return "deletion of ResourceClaim completed";
        };
        if let Some(claim) = self.cluster.devices.claims().get(&key) {
            let kind = ActionKind::DeallocateClaim {
                namespace: self.cluster.names.text(key.0).into(),
                claim: key.1,
                uid: claim.uid.clone(),
                resource_version: claim.resource_version.clone(),
            };
            actions.push(self.action(kind));
        }
        "deallocation of ResourceClaim completed"
    }

    /// Puts the pod back, and tells the pod's condition and the world.
    #[expect(clippy::too_many_arguments, reason = "all of it is about one failure")]
    pub(super) fn fail(
        &mut self,
        id: PodId,
        reason: &'static str,
        message: &str,
        nominating: Nominating,
        rejectors: PluginSet,
        pending: PluginSet,
        now: Time,
    ) -> Vec<Action> {
        let Some(pod) = self
            .cluster
            .pods
            .get(id)
            .map(|record| Arc::clone(&record.pod))
        else {
            return Vec::new();
        };
        {
            let (queue, gate) = self.queue_and_gate(now);
            queue.put_back(id, rejectors, pending, now, &gate);
        }
        match nominating {
            Nominating::Keep => {}
            Nominating::Clear => self.nominations.set(id, None),
            Nominating::Node(node) => self.nominations.set(id, Some(node)),
        }
        let mut actions = vec![self.failure_event(&pod, message.to_owned())];
        let condition = ScheduledCondition {
            reason,
            message: message.into(),
            observed_generation: pod.generation,
            is_new: pod.unscheduled.is_none(),
        };
        let known = pod.unscheduled.as_ref().is_some_and(|known| {
            &*known.reason == reason
                && &*known.message == message
                && known.observed_generation == pod.generation
        });
        let nominated = match nominating {
            Nominating::Clear if pod.nominated.is_some() => NominatedNode::Clear,
            Nominating::Node(node) if pod.nominated != Some(node) => {
                NominatedNode::Set(self.cluster.names.text(node).into())
            }
            _ => NominatedNode::Keep,
        };
        if !known || nominated != NominatedNode::Keep {
            let pod = self.pod_ref(&pod);
            actions.push(self.action(ActionKind::PatchStatus {
                pod,
                condition: (!known).then_some(condition),
                nominated,
            }));
        }
        actions
    }

    /// Tells the world why a pod was not placed.
    pub(super) fn failure_event(&mut self, pod: &Pod, note: String) -> Action {
        let kind = EventType::Warning;
        self.event(pod, kind, "FailedScheduling", "Scheduling", note)
    }

    /// Starts the evictions that make room for a pod.
    fn evict(
        &mut self,
        id: PodId,
        node: crate::cluster::NodeId,
        victims: &[PodId],
        now: Time,
        actions: &mut Vec<Action>,
    ) {
        let Some(preemptor) = self
            .cluster
            .pods
            .get(id)
            .map(|record| Arc::clone(&record.pod))
        else {
            return;
        };
        let living: Vec<_> = victims
            .iter()
            .filter_map(|victim| Some(Arc::clone(&self.cluster.pods.get(*victim)?.pod)))
            .filter(|victim| !victim.terminating)
            .collect();
        if living.is_empty() {
            return;
        }
        self.engine.stopwatch.victims(victims.len());
        let node_symbol = self.cluster.nodes.name(node);
        for rival in self.nominations.on(node_symbol).to_vec() {
            let Some(pod) = self
                .cluster
                .pods
                .get(rival)
                .map(|record| Arc::clone(&record.pod))
            else {
                continue;
            };
            if pod.priority >= preemptor.priority {
                continue;
            }
            self.nominations.set(rival, None);
            let pod = self.pod_ref(&pod);
            actions.push(self.action(ActionKind::PatchStatus {
                pod,
                condition: None,
                nominated: NominatedNode::Clear,
            }));
        }
        let node_name: Box<str> = self.cluster.names.text(node_symbol).into();
        let (unbound, living): (Vec<_>, Vec<_>) = living.into_iter().partition(|victim| {
            let id = self.cluster.pods.find(&victim.uid);
            id.is_some_and(|id| self.is_being_prepared(id))
        });
        for victim in unbound {
            actions.extend(self.stop_binding(&victim, &preemptor, &node_name, now));
        }
        if living.is_empty() {
            return;
        }
        let scheduler = self.cluster.names.text(preemptor.spec.scheduler_name);
        let message: Box<str> =
            format!("{scheduler}: preempting to accommodate a higher priority pod").into();
        let node = node_name;
        let mut evictions: Vec<ActionKind> = living
            .iter()
            .map(|victim| ActionKind::Evict {
                victim: self.pod_ref(victim),
                observed_generation: victim.generation,
                preemptor: self.pod_ref(&preemptor),
                message: message.clone(),
            })
            .collect();
        // The last goes when the others have gone; one alone is the last and goes at once.
        let last = match evictions.len() {
            1 => None,
            _ => evictions.pop(),
        };
        let Some(last_victim) = living.last().map(|victim| Arc::clone(&victim.uid)) else {
            return;
        };
        self.preempting.insert(
            id,
            Preempting {
                running: evictions.len(),
                last,
                last_victim,
                node: node.clone(),
                failed: false,
            },
        );
        for eviction in evictions {
            actions.push(self.start_eviction(id, &node, eviction));
        }
    }

    pub(super) fn start_eviction(
        &mut self,
        preemptor: PodId,
        node: &str,
        kind: ActionKind,
    ) -> Action {
        let victim = match &kind {
            ActionKind::Evict { victim, .. } => Some(victim.clone()),
            _ => None,
        };
        let uid = self
            .cluster
            .pods
            .get(preemptor)
            .map(|record| Arc::clone(&record.pod.uid));
        let action = self.action(kind);
        if let (Some(victim), Some(preemptor)) = (victim, uid) {
            let node = node.into();
            self.under_way.insert(
                action.id,
                UnderWay::Evict {
                    victim,
                    preemptor,
                    node,
                },
            );
        }
        action
    }
}
