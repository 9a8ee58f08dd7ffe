//! `InterPodAffinity`: near some pods, away from others.

use std::sync::Arc;

use crate::cluster::{ClassId, Cluster, NodeId, Source, TallyId};
use crate::framework::events::{Action, Change, ClusterEvent, Resource};
use crate::framework::score::MAX_SCORE;
use crate::framework::state::{Context, CycleState};
use crate::framework::status::{Refusal, Verdict};
use crate::model::{AffinityTerm, Labels, Names, Node, Pod, PodMatcher, Selector};

pub const EVENTS: &[ClusterEvent] = &[
    ClusterEvent::new(
        Resource::Pod,
        Action::ADD.or(Action::POD_LABEL).or(Action::DELETE),
    ),
    ClusterEvent::new(Resource::Node, Action::ADD.or(Action::NODE_LABEL)),
];

/// A class's own terms and the tallies that answer them.
#[derive(Debug)]
pub struct AffinityPlan {
    /// By term: pods that match all required terms, counted by the term's key.
    required: Box<[TallyId]>,
    /// Pods of the class match their own required terms.
    suits_itself: bool,
    /// By required anti-affinity term: pods that match it.
    avoided: Box<[TallyId]>,
    preferred: Box<[(TallyId, i64)]>,
}

pub fn plan(cluster: &mut Cluster, class: ClassId) -> AffinityPlan {
    let spec = Arc::clone(&cluster.classes.get(class).spec);
    let affinity = &spec.affinity;
    let all: Vec<PodMatcher> = affinity
        .required
        .iter()
        .map(|term| as_own(&term.pods, &cluster.names))
        .collect();
    let required: Box<[TallyId]> = affinity
        .required
        .iter()
        .map(|term| cluster.follow(Source::Matched, &all, false, Some(term.key), None))
        .collect();
    let mut single = |term: &AffinityTerm| {
        let parts = [as_own(&term.pods, &cluster.names)];
        cluster.follow(Source::Matched, &parts, false, Some(term.key), None)
    };
    let avoided = affinity.required_anti.iter().map(&mut single).collect();
    let preferred = affinity
        .preferred
        .iter()
        .map(|(weight, term)| (single(term), i64::from(*weight)))
        .collect();
    let class = cluster.classes.get(class);
    AffinityPlan {
        suits_itself: required
            .first()
            .is_some_and(|tally| cluster.is_matched(class, *tally)),
        required,
        avoided,
        preferred,
    }
}

/// Whom a pod's own term is about. The original looks up the namespaces that a selector selects, and then holds the selector
/// against no labels at all, too: one that asks for the absence of something selects every namespace.
fn as_own(term: &PodMatcher, names: &Names) -> PodMatcher {
    let mut pods = term.clone();
    if pods.namespace_selector.matches(&Labels::default(), names) {
        pods.namespace_selector = Selector::All(Box::default());
    }
    pods
}

#[derive(Debug)]
pub struct AffinityState {
    plan: Arc<AffinityPlan>,
    class: crate::cluster::LabelClassId,
    /// Terms of placed pods that want none like this one near.
    repelled_by: Vec<TallyId>,
    /// There is nobody to be near to yet, and it suits itself.
    may_be_first: bool,
}

impl AffinityState {
    pub fn new(plan: Arc<AffinityPlan>, context: &Context<'_>) -> Self {
        let mut state = Self {
            plan,
            class: context.class.live,
            repelled_by: Vec::new(),
            may_be_first: false,
        };
        state.refresh(context.cluster);
        state
    }

    pub fn filters(&self) -> bool {
        !self.plan.required.is_empty()
            || !self.plan.avoided.is_empty()
            || !self.repelled_by.is_empty()
    }

    pub fn refresh(&mut self, cluster: &Cluster) {
        let census = &cluster.census;
        self.repelled_by.clear();
        let targeted = census.label_class(self.class).targeted();
        self.repelled_by.extend(targeted.iter().filter(|id| {
            let tally = census.tally(**id);
            tally.key.source == Source::Repelling && tally.total() > 0
        }));
        let nobody = self
            .plan
            .required
            .iter()
            .all(|id| census.tally(*id).total() == 0);
        self.may_be_first = nobody && self.plan.suits_itself;
    }
}

pub fn filter(context: &Context<'_>, state: &CycleState, node: NodeId) -> Verdict {
    let Some(state) = &state.affinity else {
        return Ok(());
    };
    let census = &context.cluster.census;
    let here = |id: TallyId| {
        let tally = census.tally(id);
        let domain = census.topologies.get(tally.key.topology).domain(node);
        domain.map(|domain| tally.count(domain))
    };
    let mut company = true;
    for id in &state.plan.required {
        match here(*id) {
            None => return Err(without_company()),
            Some(pods) => company &= pods > 0,
        }
    }
    if !company && !state.may_be_first {
        return Err(without_company());
    }
    let is_near = |id: &TallyId| here(*id).is_some_and(|pods| pods > 0);
    if state.plan.avoided.iter().any(is_near) {
        return Err(Refusal::unschedulable(
            "node(s) didn't match pod anti-affinity rules",
        ));
    }
    if state.repelled_by.iter().any(is_near) {
        return Err(Refusal::unschedulable(
            "node(s) didn't satisfy existing pods anti-affinity rules",
        ));
    }
    Ok(())
}

fn without_company() -> Refusal {
    Refusal::unresolvable("node(s) didn't match pod affinity rules")
}

/// Own preferences, and those of placed pods about pods like this one.
pub fn score(
    context: &Context<'_>,
    state: &CycleState,
    nodes: &[NodeId],
    out: &mut Vec<i64>,
) -> bool {
    let Some(state) = &state.affinity else {
        return false;
    };
    let args = &context.profile.args.affinity;
    if args.ignore_preferred_terms_of_existing_pods && state.plan.preferred.is_empty() {
        return false;
    }
    let census = &context.cluster.census;
    let targeted = census.label_class(state.class).targeted().iter();
    let theirs = targeted.filter_map(|id| match census.tally(*id).key.source {
        Source::Attached if args.hard_pod_affinity_weight > 0 => {
            Some((*id, args.hard_pod_affinity_weight))
        }
        Source::Preferring => Some((*id, 1)),
        _ => None,
    });
    out.resize(nodes.len(), 0);
    let mut any = false;
    for (id, weight) in state.plan.preferred.iter().copied().chain(theirs) {
        let tally = census.tally(id);
        if tally.counts().iter().all(|pods| *pods == 0) {
            continue;
        }
        any = true;
        let topology = census.topologies.get(tally.key.topology);
        for (score, node) in out.iter_mut().zip(nodes) {
            if let Some(domain) = topology.domain(*node) {
                let more = weight.saturating_mul(i64::from(tally.count(domain)));
                *score = score.saturating_add(more);
            }
        }
    }
    if !any {
        return false;
    }
    let (least, most) = (
        out.iter().copied().min().unwrap_or(0),
        out.iter().copied().max().unwrap_or(0),
    );
    let range = most.saturating_sub(least);
    for score in out {
        *score = match range {
            0 => 0,
            _ => (MAX_SCORE as f64 * (score.saturating_sub(least) as f64 / range as f64)) as i64,
        };
    }
    true
}

/// The labels of namespaces are not looked up when something has happened: of pods in a namespace that is selected by them,
/// nobody is told.
fn matches_all(context: &Context<'_>, terms: &[AffinityTerm], pod: &Pod) -> bool {
    let none = Labels::default();
    let names = &context.cluster.names;
    !terms.is_empty()
        && terms.iter().all(|term| {
            let here = term.pods.namespaces.contains(&pod.spec.namespace)
                || term.pods.namespace_selector.matches(&none, names);
            here && term.pods.selector.matches(&pod.spec.labels, names)
        })
}

pub fn may_help(context: &Context<'_>, change: Change<'_>) -> bool {
    let affinity = &context.class.spec.affinity;
    match change {
        Change::Pod(old, new) => pod_may_help(context, old, new),
        Change::Node(old, Some(new)) => {
            let value = |node: &Node, term: &AffinityTerm| node.labels.get(term.key);
            let Some(old) = old else {
                return !affinity.required_anti.is_empty()
                    || affinity
                        .required
                        .iter()
                        .any(|term| value(new, term).is_some());
            };
            let joins = |term: &AffinityTerm| {
                value(new, term).is_some() && value(old, term) != value(new, term)
            };
            let leaves = |term: &AffinityTerm| {
                value(old, term).is_some() && value(old, term) != value(new, term)
            };
            affinity.required.iter().any(joins) || affinity.required_anti.iter().any(leaves)
        }
        _ => true,
    }
}

fn pod_may_help(context: &Context<'_>, old: Option<&Pod>, new: Option<&Pod>) -> bool {
    let affinity = &context.class.spec.affinity;
    if let (Some(_), Some(new)) = (old, new)
        && new.uid == context.pod.uid
    {
        return true;
    }
    let nowhere = |pod: &Pod| pod.node.is_none() && pod.nominated.is_none();
    if old.is_some_and(nowhere) || new.is_some_and(nowhere) {
        return false;
    }
    let company = |pod: &Pod| matches_all(context, &affinity.required, pod);
    let foe = |pod: &Pod| matches_all(context, &affinity.required_anti, pod);
    match (old, new) {
        (Some(old), Some(new)) => (!company(old) && company(new)) || (foe(old) && !foe(new)),
        (None, Some(new)) => company(new),
        (Some(old), None) => {
            foe(old) || matches_all(context, &old.spec.affinity.required_anti, context.pod)
        }
        (None, None) => true,
    }
}

#[cfg(test)]
mod tests;
