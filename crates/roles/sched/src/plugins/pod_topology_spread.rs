//! `PodTopologySpread`: keeps the numbers of like pods in different domains close to each other.

use std::sync::Arc;

use crate::cluster::{ClassId, Cluster, EligibilityRule, NodeId, Source, TallyId, TopologyId};
use crate::framework::events::{Action, Change, ClusterEvent, Resource};
use crate::framework::profile::{DefaultConstraint, Defaulting, Profile};
use crate::framework::score::MAX_SCORE;
use crate::framework::state::{Context, CycleState};
use crate::framework::status::{Refusal, Verdict};
use crate::model::{Labels, Node, Pod, PodMatcher, PodSpec, Selector, SpreadConstraint, Symbol};

pub const EVENTS: &[ClusterEvent] = &[
    ClusterEvent::new(
        Resource::Pod,
        Action::ADD
            .or(Action::POD_LABEL)
            .or(Action::POD_TOLERATION)
            .or(Action::DELETE),
    ),
    ClusterEvent::new(
        Resource::Node,
        Action::ADD
            .or(Action::DELETE)
            .or(Action::NODE_LABEL)
            .or(Action::NODE_TAINT),
    ),
];

/// A class's constraints and the tallies that answer them.
#[derive(Debug)]
pub struct SpreadPlan {
    required: Box<[Planned]>,
    preferred: Box<[Planned]>,
    /// Nodes that lack a key do not come into question, and score nothing.
    keys_required: bool,
    defaulted: bool,
}

#[derive(Debug)]
struct Planned {
    topology: TopologyId,
    tally: TallyId,
    max_skew: i32,
    min_domains: i32,
    /// The pod itself is one of those that are counted.
    counts_itself: bool,
    /// Scored by the pods of the node itself.
    by_node: bool,
}

impl SpreadPlan {
    pub fn is_defaulted(&self) -> bool {
        self.defaulted
    }
}

/// The constraints that hold for a pod: its own, or the profile's for whoever belongs with it.
fn constraints(cluster: &Cluster, profile: &Profile, spec: &PodSpec) -> Vec<SpreadConstraint> {
    if !spec.spread.is_empty() {
        return spec.spread.to_vec();
    }
    let defaults = match &profile.args.spread.defaulting {
        Defaulting::List(list) => list.clone(),
        Defaulting::System => {
            let known = &cluster.names.known;
            vec![system(known.hostname, 3), system(known.zone, 5)]
        }
    };
    if defaults.is_empty() {
        return Vec::new();
    }
    let selector = cluster.owners.selector(spec);
    if selector.is_empty() {
        return Vec::new();
    }
    let own = |default: DefaultConstraint| SpreadConstraint {
        max_skew: default.max_skew,
        key: default.key,
        required: default.required,
        selector: selector.clone(),
        min_domains: default.min_domains,
        honor_affinity: default.honor_affinity,
        honor_taints: default.honor_taints,
    };
    defaults.into_iter().map(own).collect()
}

fn system(key: Symbol, max_skew: i32) -> DefaultConstraint {
    DefaultConstraint {
        max_skew,
        key,
        required: false,
        min_domains: 1,
        honor_affinity: true,
        honor_taints: false,
    }
}

pub fn plan(cluster: &mut Cluster, profile: &Profile, class: ClassId) -> SpreadPlan {
    let spec = Arc::clone(&cluster.classes.get(class).spec);
    let all = constraints(cluster, profile, &spec);
    let system = profile.args.spread.defaulting == Defaulting::System;
    let keys_required = !spec.spread.is_empty() || !system;
    let (required, preferred): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|constraint| constraint.required);
    SpreadPlan {
        required: plan_side(cluster, &spec, &required, true),
        preferred: plan_side(cluster, &spec, &preferred, keys_required),
        keys_required,
        defaulted: spec.spread.is_empty(),
    }
}

fn plan_side(
    cluster: &mut Cluster,
    spec: &PodSpec,
    side: &[SpreadConstraint],
    keys_required: bool,
) -> Box<[Planned]> {
    let mut keys: Vec<Symbol> = side.iter().map(|constraint| constraint.key).collect();
    keys.sort_unstable();
    keys.dedup();
    if !keys_required {
        keys.clear();
    }
    let hostname = cluster.names.known.hostname;
    side.iter()
        .map(|constraint| {
            let by_node = !constraint.required && constraint.key == hostname;
            let rule = EligibilityRule {
                nodes: (constraint.honor_affinity && !spec.local.nodes.is_empty())
                    .then(|| spec.local.nodes.clone()),
                tolerations: constraint
                    .honor_taints
                    .then(|| spec.local.tolerations.clone()),
                keys: keys.clone().into(),
            };
            // An empty selector counts nobody, though the pod itself matches it.
            let counted = match &constraint.selector {
                selector if selector.is_empty() => Selector::Nothing,
                selector => selector.clone(),
            };
            let parts = [PodMatcher {
                namespaces: [spec.namespace].into(),
                namespace_selector: Selector::Nothing,
                selector: counted,
            }];
            let tally = if by_node {
                cluster.follow(Source::Matched, &parts, true, None, None)
            } else {
                cluster.follow(
                    Source::Matched,
                    &parts,
                    true,
                    Some(constraint.key),
                    Some(rule),
                )
            };
            let nodes = cluster.nodes.iter().map(|(id, node)| (id, &node.labels));
            Planned {
                topology: cluster
                    .census
                    .topologies
                    .follow(Some(constraint.key), nodes),
                tally,
                max_skew: constraint.max_skew,
                min_domains: constraint.min_domains,
                counts_itself: constraint.selector.matches(&spec.labels, &cluster.names),
                by_node,
            }
        })
        .collect()
}

#[derive(Debug)]
pub struct SpreadState {
    plan: Arc<SpreadPlan>,
    /// By required constraint: the number of pods in the emptiest domain.
    least: Vec<i32>,
}

impl SpreadState {
    pub fn new(plan: Arc<SpreadPlan>, cluster: &Cluster) -> Self {
        let mut state = Self {
            least: Vec::with_capacity(plan.required.len()),
            plan,
        };
        state.refresh(cluster);
        state
    }

    pub fn filters(&self) -> bool {
        !self.plan.required.is_empty()
    }

    pub fn refresh(&mut self, cluster: &Cluster) {
        self.least.clear();
        for constraint in &self.plan.required {
            let (least, domains) = cluster.census.tally(constraint.tally).least();
            let enough = i64::from(domains) >= i64::from(constraint.min_domains);
            self.least.push(if enough { least } else { 0 });
        }
    }
}

pub fn filter(context: &Context<'_>, state: &CycleState, node: NodeId) -> Verdict {
    let Some(state) = &state.spread else {
        return Ok(());
    };
    let census = &context.cluster.census;
    for (constraint, least) in state.plan.required.iter().zip(&state.least) {
        let Some(domain) = census.topologies.get(constraint.topology).domain(node) else {
            return Err(Refusal::unresolvable(
                "node(s) didn't match pod topology spread constraints (missing required label)",
            ));
        };
        let there =
            census.tally(constraint.tally).count(domain) + i32::from(constraint.counts_itself);
        if there.saturating_sub(*least) > constraint.max_skew {
            return Err(Refusal::unschedulable(
                "node(s) didn't match pod topology spread constraints",
            ));
        }
    }
    Ok(())
}

/// Fewer like pods in a node's domains score higher; domains of small topologies weigh less.
pub fn score(
    context: &Context<'_>,
    state: &CycleState,
    nodes: &[NodeId],
    out: &mut Vec<i64>,
) -> bool {
    let as_empty = state.nodes_as_empty;
    let Some(state) = &state.spread else {
        return false;
    };
    let constraints = &state.plan.preferred;
    if constraints.is_empty() {
        return false;
    }
    let census = &context.cluster.census;
    let domain = |constraint: &Planned, node: NodeId| {
        census.topologies.get(constraint.topology).domain(node)
    };
    let is_ignored = |node: NodeId| {
        state.plan.keys_required
            && constraints
                .iter()
                .any(|constraint| domain(constraint, node).is_none())
    };
    const IGNORED: i64 = -1;
    out.extend(
        nodes
            .iter()
            .map(|node| if is_ignored(*node) { IGNORED } else { 0 }),
    );
    let considered = out.iter().filter(|score| **score != IGNORED).count();
    let weights: Vec<f64> = constraints
        .iter()
        .map(|constraint| {
            let size = if constraint.by_node {
                considered
            } else {
                let there = nodes
                    .iter()
                    .zip(&*out)
                    .filter(|(_, score)| **score != IGNORED);
                distinct(there.map(|(node, _)| domain(constraint, *node)))
            };
            ((size + 2) as f64).ln()
        })
        .collect();
    for (node, score) in nodes.iter().zip(&mut *out) {
        if *score == IGNORED {
            continue;
        }
        let mut sum = 0.0;
        for (constraint, weight) in constraints.iter().zip(&weights) {
            let Some(domain) = domain(constraint, *node) else {
                continue;
            };
            let tally = census.tally(constraint.tally);
            let pods = match constraint.by_node {
                true if as_empty => 0,
                true => tally.count(node.0),
                false => tally.count(domain),
            };
            sum += f64::from(pods) * weight + (f64::from(constraint.max_skew) - 1.0);
        }
        *score = sum.round() as i64;
    }
    let scored = || out.iter().copied().filter(|score| *score != IGNORED);
    let (least, most) = (scored().min().unwrap_or(0), scored().max().unwrap_or(0));
    for score in out {
        *score = match *score {
            IGNORED => 0,
            _ if most == 0 => MAX_SCORE,
            raw => {
                let [raw, least, most] = [raw, least, most].map(i128::from);
                let score = i128::from(MAX_SCORE) * (most + least - raw) / most;
                i64::try_from(score).unwrap_or(0)
            }
        };
    }
    true
}

/// How many different domains; nodes without one share the lack of it.
fn distinct(domains: impl Iterator<Item = Option<u32>>) -> usize {
    let mut seen = crate::cluster::bits::BitSet::default();
    let (mut number, mut without) = (0, false);
    for domain in domains {
        match domain {
            Some(domain) => number += usize::from(seen.set(domain as usize, true)),
            None => without = true,
        }
    }
    number + usize::from(without)
}

pub fn may_help(context: &Context<'_>, change: Change<'_>) -> bool {
    let spec = &context.class.spec;
    let all = constraints(context.cluster, context.profile, spec);
    let required: Vec<_> = all
        .iter()
        .filter(|constraint| constraint.required)
        .collect();
    let names = &context.cluster.names;
    let counted = |labels: &Labels| {
        required
            .iter()
            .any(|constraint| constraint.selector.matches(labels, names))
    };
    match change {
        Change::Pod(old, new) => {
            let involved = |pod: &Pod| {
                pod.uid == context.pod.uid
                    || ((pod.node.is_some() || pod.nominated.is_some())
                        && pod.spec.namespace == spec.namespace)
            };
            if old.is_some_and(|pod| !involved(pod)) || new.is_some_and(|pod| !involved(pod)) {
                return false;
            }
            match (old, new) {
                (Some(old), Some(new)) => {
                    let tolerates_more = new.uid == context.pod.uid
                        && old.spec.local.tolerations != new.spec.local.tolerations
                        && required.iter().any(|constraint| constraint.honor_taints);
                    let flips = |constraint: &&SpreadConstraint| {
                        let matches =
                            |pod: &Pod| constraint.selector.matches(&pod.spec.labels, names);
                        matches(old) != matches(new)
                    };
                    tolerates_more || required.iter().any(flips)
                }
                (Some(pod), None) | (None, Some(pod)) => counted(&pod.spec.labels),
                (None, None) => true,
            }
        }
        Change::Node(old, new) => {
            let has_keys = |node: &Node| {
                required
                    .iter()
                    .all(|constraint| node.labels.get(constraint.key).is_some())
            };
            match (old, new) {
                (Some(old), Some(new)) => {
                    let moved = required.iter().any(|constraint| {
                        old.labels.get(constraint.key) != new.labels.get(constraint.key)
                    });
                    has_keys(old) != has_keys(new)
                        || (has_keys(new) && (moved || old.taints != new.taints))
                }
                (Some(node), None) | (None, Some(node)) => has_keys(node),
                (None, None) => true,
            }
        }
        _ => true,
    }
}

#[cfg(test)]
mod tests;
