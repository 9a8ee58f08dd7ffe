//! Cycles that wait for the word of extenders.

use std::sync::Arc;

use super::failure::Nominating;
use super::{Cycle, Outcome, Scheduler};
use crate::action::PodRef;
use crate::cluster::{NodeId, PodId};
use crate::extender::{About, Answer, Question, Victims};
use crate::framework::diagnosis::Diagnosis;
use crate::framework::engine::{Attempt, Decision, Heard, Paused};
use crate::framework::state::CycleState;
use crate::preemption::Candidate;
use crate::time::Time;

/// A cycle in the middle.
#[derive(Debug)]
pub(super) struct Asking {
    attempt: Attempt,
    state: CycleState,
    cycle: Cycle,
    about: Subject,
}

#[derive(Debug)]
enum Subject {
    Nodes(Box<Paused>),
    Victims {
        diagnosis: Box<Diagnosis>,
        candidates: Vec<Arc<Candidate>>,
        messages: Vec<String>,
    },
}

impl Asking {
    pub fn about_victims(
        attempt: Attempt,
        state: CycleState,
        cycle: Cycle,
        diagnosis: Box<Diagnosis>,
        candidates: Vec<Arc<Candidate>>,
        messages: Vec<String>,
    ) -> Self {
        Self {
            attempt,
            state,
            cycle,
            about: Subject::Victims {
                diagnosis,
                candidates,
                messages,
            },
        }
    }
}

impl Scheduler {
    /// Those with a say about who has to go for a pod.
    pub(super) fn preempting_extenders(&self, id: PodId) -> impl Iterator<Item = usize> + '_ {
        let class = self.cluster.pods.get(id).map(|record| record.class);
        let rules = self.engine.extenders.iter().enumerate();
        rules
            .filter(move |(_, rule)| {
                rule.preempts && class.is_some_and(|class| rule.concerns(&self.cluster, class))
            })
            .map(|(index, _)| index)
    }

    pub(super) fn ask_about_nodes(
        &mut self,
        paused: Box<Paused>,
        state: CycleState,
        cycle: Cycle,
    ) -> Cycle {
        let class = self.cluster.pods.get(paused.attempt.pod);
        let class = class.map(|record| record.class);
        let rules = self.engine.extenders.iter().enumerate();
        let extenders = rules
            .filter(|(_, rule)| {
                (rule.filters || rule.scores)
                    && class.is_some_and(|class| rule.concerns(&self.cluster, class))
            })
            .map(|(index, _)| index)
            .collect();
        let nodes = paused.nodes.iter();
        let nodes = nodes.map(|node| self.cluster.node_name(*node).into());
        let question = Question {
            pod: cycle.pod.clone(),
            extenders,
            about: About::Nodes(nodes.collect()),
        };
        self.pause(
            Asking {
                attempt: paused.attempt,
                state,
                cycle,
                about: Subject::Nodes(paused),
            },
            question,
        )
    }

    pub(super) fn ask_about_victims(&mut self, asking: Asking) -> Cycle {
        let Subject::Victims { candidates, .. } = &asking.about else {
            return asking.cycle;
        };
        let victims = candidates.iter().map(|candidate| Victims {
            node: self.cluster.node_name(candidate.node()).into(),
            pods: candidate
                .victims()
                .iter()
                .map(|victim| self.pod_ref(victim))
                .collect(),
            present: self.present(candidate.node()),
            violations: candidate.violations(),
        });
        let question = Question {
            pod: asking.cycle.pod.clone(),
            extenders: self.preempting_extenders(asking.attempt.pod).collect(),
            about: About::Victims(victims.collect()),
        };
        self.pause(asking, question)
    }

    fn present(&self, node: NodeId) -> Vec<PodRef> {
        let pods = self.cluster.nodes.pods(node).iter();
        pods.filter_map(|id| Some(self.pod_ref(&self.cluster.pods.get(*id)?.pod)))
            .collect()
    }

    fn pause(&mut self, asking: Asking, question: Question) -> Cycle {
        let told = Cycle {
            pod: asking.cycle.pod.clone(),
            outcome: Outcome::Asking(Box::new(question)),
            actions: Vec::new(),
            scores: None,
            ..asking.cycle
        };
        self.asking = Some(asking);
        told
    }

    /// Goes on with the cycle that waits. `None`: the pod has gone in the meantime.
    pub fn answer(&mut self, answer: Answer, now: Time) -> Option<Cycle> {
        let Asking {
            mut attempt,
            mut state,
            mut cycle,
            about,
        } = self.asking.take()?;
        let id = self.cluster.pods.find(&cycle.pod.uid)?;
        if id != attempt.pod || !self.queue.is_in_flight(id) {
            return None;
        }
        attempt.now = now;
        match about {
            Subject::Nodes(_) if answer.error.is_some() => {
                let decision = Decision::Failed(answer.error.unwrap_or_default());
                Some(self.conclude(decision, state, attempt, cycle))
            }
            Subject::Victims { mut diagnosis, .. } if answer.error.is_some() => {
                let message = answer.error.unwrap_or_default();
                diagnosis.post_filter = Some(format!("preemption: {message}"));
                Some(self.unfit(id, &diagnosis, Nominating::Keep, now, cycle))
            }
            Subject::Nodes(mut paused) => {
                paused.attempt = attempt;
                let find = |name: &str| {
                    let name = self.cluster.names.find(name)?;
                    self.cluster.nodes.find(name)
                };
                let heard = Heard {
                    nodes: answer
                        .nodes
                        .iter()
                        .filter_map(|(name, score)| Some((find(name)?, *score)))
                        .collect(),
                    refused: answer
                        .refused
                        .iter()
                        .map(|refused| {
                            let node = find(&refused.node);
                            (node, refused.message.clone(), refused.for_good)
                        })
                        .collect(),
                    as_empty: answer.nodes_as_empty,
                };
                let decision = self.engine.resume(
                    &mut self.cluster,
                    *paused,
                    &heard,
                    &self.nominations,
                    &mut state,
                );
                Some(self.conclude(decision, state, attempt, cycle))
            }
            Subject::Victims {
                mut diagnosis,
                candidates,
                mut messages,
            } => {
                let left: Vec<Arc<Candidate>> = answer
                    .victims
                    .iter()
                    .filter_map(|left| {
                        let candidate = candidates.iter().find(|candidate| {
                            self.cluster.node_name(candidate.node()) == &*left.node
                        })?;
                        candidate.only(&self.cluster, left).map(Arc::new)
                    })
                    .collect();
                let nominating = match left.is_empty() {
                    true => {
                        messages.push("preemption: no candidate node for preemption".to_owned());
                        Nominating::Keep
                    }
                    false => {
                        messages.clear();
                        self.preempt(id, &left, now, &mut cycle.actions)
                    }
                };
                diagnosis.post_filter = Some(messages.join(", "));
                Some(self.unfit(id, &diagnosis, nominating, now, cycle))
            }
        }
    }
}
