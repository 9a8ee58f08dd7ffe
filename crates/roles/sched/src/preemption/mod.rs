//! Preemption: which pods would have to go, and where, for a more important one to fit.

mod budgets;
mod importance;
pub mod memo;
mod pick;

use std::sync::Arc;

use rustc_hash::FxHashSet;

use crate::cluster::{Cluster, NodeId, PodId};
use crate::extender::Victims;
use crate::framework::diagnosis::Diagnosis;
use crate::framework::engine::{Attempt, Engine};
use crate::framework::judge::Subject;
use crate::framework::plugin::Plugin;
use crate::framework::state::CycleState;
use crate::framework::status::{Code, Refusal, StatusId};
use crate::model::Pod;
use crate::queue::nominations::{Nominations, Rivals};
use crate::time::Time;

use self::memo::Memory;

/// What came of it.
#[derive(Debug)]
pub enum Preemption {
    /// The pod may not preempt.
    Ineligible(&'static str),
    /// It would not help; with the reasons by node.
    InVain(String),
    /// Nodes to choose from; at least one.
    Candidates(Vec<Arc<Candidate>>),
    Failed(String),
}

/// A node that the pod would fit after some others have gone.
#[derive(Debug, Clone)]
pub struct Candidate {
    node: NodeId,
    /// The most important first.
    victims: Vec<Arc<Pod>>,
    ids: Vec<PodId>,
    violations: usize,
}

pub fn preempt(
    engine: &mut Engine,
    cluster: &mut Cluster,
    nominations: &Nominations,
    attempt: Attempt,
    state: &mut CycleState,
    diagnosis: &Diagnosis,
) -> Preemption {
    let (Some(subject), Some(pod)) = (
        Subject::new(cluster, attempt),
        cluster
            .pods
            .get(attempt.pod)
            .map(|record| Arc::clone(&record.pod)),
    ) else {
        return Preemption::Failed("pod is not known".to_owned());
    };
    let order = cluster.nodes.order().to_vec();
    let hopeful = |node: NodeId| code_of(engine, diagnosis, node) == Some(Code::Unschedulable);
    if let Some(reason) = ineligible(cluster, &pod, |node| code_of(engine, diagnosis, node)) {
        return Preemption::Ineligible(reason);
    }
    let potential: Vec<NodeId> = order
        .iter()
        .copied()
        .filter(|node| hopeful(*node))
        .collect();
    let mut verdict = Diagnosis {
        all_nodes: order.len(),
        absent: Some(Refusal::unresolvable(
            "Preemption is not helpful for scheduling",
        )),
        ..Diagnosis::default()
    };
    let rivals = nominations.rivals(attempt.pod, pod.priority);
    // What nodes would have to give up depends on nothing but themselves: it holds until they change.
    let local = cluster.budgets.is_empty() && !engine.has_live_filters(attempt.profile, state);
    let mut dry_run = DryRun {
        memory: local.then(|| {
            engine
                .dry_runs
                .recall(attempt.profile, &subject, cluster.epoch())
        }),
        engine,
        cluster,
        attempt,
        subject: &subject,
        pod: &pod,
        rivals,
    };
    let candidates = dry_run.candidates(state, &potential, &mut verdict);
    let memory = dry_run.memory.take();
    if let Some(memory) = memory {
        engine.dry_runs.keep(memory);
    }
    let (candidates, failures) = candidates;
    if candidates.is_empty() && !failures.is_empty() {
        return Preemption::Failed(aggregate(failures));
    }
    if candidates.is_empty() {
        return Preemption::InVain(verdict.message(&engine.statuses, &cluster.names));
    }
    Preemption::Candidates(candidates)
}

/// Where the least is lost, and who has to go there.
pub fn best(candidates: &[Arc<Candidate>], now: Time) -> Option<(NodeId, Vec<PodId>)> {
    if candidates.is_empty() {
        return None;
    }
    let best = candidates.get(pick::best(candidates, now))?;
    Some((best.node, best.ids.clone()))
}

impl Candidate {
    pub fn node(&self) -> NodeId {
        self.node
    }

    pub fn victims(&self) -> &[Arc<Pod>] {
        &self.victims
    }

    pub fn violations(&self) -> usize {
        self.violations
    }

    /// With these victims in its place, and as many violated budgets as others have counted. `None`: nobody would be left
    /// to go.
    pub fn only(&self, cluster: &Cluster, left: &Victims) -> Option<Self> {
        let named = left.pods.iter().filter_map(|pod| {
            let id = cluster.pods.find(&pod.uid)?;
            Some((Arc::clone(&cluster.pods.get(id)?.pod), id))
        });
        let (victims, ids): (Vec<_>, Vec<_>) = named.unzip();
        (!ids.is_empty()).then_some(Self {
            node: self.node,
            violations: left.violations,
            victims,
            ids,
        })
    }
}

/// Several failures are bracketed, one is not, and the same one is told once.
fn aggregate(mut failures: Vec<String>) -> String {
    let mut told = FxHashSet::default();
    failures.retain(|failure| told.insert(failure.clone()));
    match failures.as_slice() {
        [one] => one.clone(),
        all => format!("[{}]", all.join(", ")),
    }
}

/// With which code a node was refused in the cycle that went before.
fn code_of(engine: &Engine, diagnosis: &Diagnosis, node: NodeId) -> Option<Code> {
    if diagnosis.pre_filter.is_some() {
        return diagnosis.absent.as_ref().map(|refusal| refusal.code);
    }
    let id = engine.refused().get(node.index())?;
    engine.statuses.get(*id).map(|status| status.refusal.code)
}

fn ineligible(
    cluster: &Cluster,
    pod: &Pod,
    code: impl Fn(NodeId) -> Option<Code>,
) -> Option<&'static str> {
    if pod.never_preempts {
        return Some("not eligible due to preemptionPolicy=Never.");
    }
    let node = cluster.nodes.find(pod.nominated?)?;
    if code(node) == Some(Code::Unresolvable) {
        return None;
    }
    let makes_room = cluster.nodes.pods(node).iter().any(|other| {
        cluster.pods.get(*other).is_some_and(|record| {
            record.pod.priority < pod.priority && record.pod.terminating && record.pod.preempted
        })
    });
    makes_room.then_some("not eligible due to a terminating pod on the nominated node.")
}

/// Whom a node would have to give up, or why that would not help.
type Finding = Result<Arc<Candidate>, StatusId>;

struct DryRun<'a> {
    engine: &'a mut Engine,
    cluster: &'a mut Cluster,
    attempt: Attempt,
    subject: &'a Subject,
    pod: &'a Pod,
    rivals: Rivals<'a>,
    memory: Option<Memory>,
}

impl DryRun<'_> {
    /// Tries nodes until there are enough to choose from; with what went wrong on others.
    fn candidates(
        &mut self,
        state: &mut CycleState,
        potential: &[NodeId],
        verdict: &mut Diagnosis,
    ) -> (Vec<Arc<Candidate>>, Vec<String>) {
        let mut failures = Vec::new();
        if potential.is_empty() {
            return (Vec::new(), failures);
        }
        let args = &self.engine.profiles[self.attempt.profile].args.preemption;
        let wanted = (potential.len() * args.min_candidate_nodes_percentage / 100)
            .max(args.min_candidate_nodes_absolute)
            .min(potential.len());
        let offset = self.engine.random().usize(..potential.len());
        let (mut clean, mut violating) = (Vec::new(), Vec::new());
        let mut refusals: Vec<(StatusId, usize)> = Vec::new();
        for index in 0..potential.len() {
            let node = potential[(offset + index) % potential.len()];
            let finding = match self.remembered(state, node) {
                Ok(finding) => finding,
                Err(failure) => {
                    failures.push(failure);
                    continue;
                }
            };
            match finding {
                Ok(candidate) => {
                    if candidate.violations == 0 {
                        clean.push(candidate);
                    } else {
                        violating.push(candidate);
                    }
                    if !clean.is_empty() && clean.len() + violating.len() >= wanted {
                        break;
                    }
                }
                Err(status) => match refusals.iter_mut().find(|(other, _)| *other == status) {
                    Some((_, nodes)) => *nodes += 1,
                    None => refusals.push((status, 1)),
                },
            }
        }
        verdict.counts = refusals;
        clean.extend(violating);
        (clean, failures)
    }

    fn remembered(&mut self, state: &mut CycleState, node: NodeId) -> Result<Finding, String> {
        let generation = self.cluster.nodes.generation(node);
        let is_free = self.rivals.stamp(self.cluster, node).is_none();
        if let Some(memory) = self.memory.as_ref().filter(|_| is_free)
            && let Some(finding) = memory.get(node, generation)
        {
            return Ok(finding);
        }
        let finding = self.victims_on(state, node)?.map(Arc::new);
        if let Some(memory) = self.memory.as_mut().filter(|_| is_free) {
            memory.set(node, generation, finding.clone());
        }
        Ok(finding)
    }

    /// The fewest and least important pods whose going would make room.
    fn victims_on(
        &mut self,
        state: &mut CycleState,
        node: NodeId,
    ) -> Result<Result<Candidate, StatusId>, String> {
        let mut lower: Vec<(PodId, Arc<Pod>)> = self
            .cluster
            .nodes
            .pods(node)
            .iter()
            .filter_map(|id| Some((*id, Arc::clone(&self.cluster.pods.get(*id)?.pod))))
            .filter(|(_, other)| other.priority < self.pod.priority)
            .collect();
        if lower.is_empty() {
            let refusal = Refusal::unresolvable("No preemption victims found for incoming pod");
            return Ok(Err(self
                .engine
                .statuses
                .id(Plugin::DefaultPreemption, refusal)));
        }
        importance::sort(&mut lower, |(_, pod)| Arc::clone(pod));
        let generation = self.cluster.nodes.generation(node);
        let order = self.cluster.nodes.pods(node).to_vec();
        for (id, _) in &lower {
            self.cluster.unplace(*id);
        }
        let judged = self.reprieve(state, node, &lower);
        for (id, _) in &lower {
            if self
                .cluster
                .pods
                .get(*id)
                .is_some_and(|record| record.place.is_none())
            {
                self.cluster.place(*id, node);
            }
        }
        self.cluster.nodes.restore_generation(node, generation);
        self.cluster.nodes.restore_order(node, order);
        state.refresh(self.cluster);
        judged
    }

    /// With all of them gone: brings back whoever can stay, those protected by a budget first.
    fn reprieve(
        &mut self,
        state: &mut CycleState,
        node: NodeId,
        lower: &[(PodId, Arc<Pod>)],
    ) -> Result<Result<Candidate, StatusId>, String> {
        let status = self.fits(state, node)?;
        if status != StatusId::FITS {
            return Ok(Err(status));
        }
        let violating = budgets::violating(self.cluster, lower);
        let mut candidate = Candidate {
            node,
            victims: Vec::new(),
            ids: Vec::new(),
            violations: 0,
        };
        let mut victims = Vec::new();
        for protected in [true, false] {
            for (index, (id, _)) in lower.iter().enumerate() {
                if violating[index] != protected {
                    continue;
                }
                self.cluster.place(*id, node);
                if self.fits(state, node)? == StatusId::FITS {
                    continue;
                }
                self.cluster.unplace(*id);
                victims.push(index);
                candidate.violations += usize::from(protected);
            }
        }
        if victims.is_empty() {
            return Err(format!(
                "expected at least one victim pod on node {:?}",
                self.cluster.node_name(node)
            ));
        }
        importance::sort(&mut victims, |index| Arc::clone(&lower[*index].1));
        candidate.victims = victims
            .iter()
            .map(|index| Arc::clone(&lower[*index].1))
            .collect();
        candidate.ids = victims.iter().map(|index| lower[*index].0).collect();
        Ok(Ok(candidate))
    }

    fn fits(&mut self, state: &mut CycleState, node: NodeId) -> Result<StatusId, String> {
        let rivals = self.rivals.on(self.cluster, node);
        self.engine
            .would_fit(self.cluster, self.subject, state, node, &rivals)
    }
}
