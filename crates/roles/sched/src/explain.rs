//! Why: the verdict of every plugin on every node, as data. Nothing is kept for it; it is asked for.

use std::sync::Arc;

use crate::cluster::{NodeId, PodId};
use crate::framework::local;
use crate::framework::plugin::Plugin;
use crate::framework::score;
use crate::framework::state::{Context, CycleState, PreFilter};
use crate::framework::status::Code;
use crate::plugins;
use crate::queue::Room;
use crate::scheduler::Scheduler;
use crate::time::Time;

/// What would come of a scheduling cycle now, in full.
#[derive(Debug, Clone, Default)]
pub struct Explanation {
    pub namespace: String,
    pub name: String,
    /// Where it is already, or has been given room.
    pub node: Option<String>,
    pub nominated: Option<String>,
    /// Where in the queue it is.
    pub room: Option<Room>,
    /// The plugin that holds it back from being queued.
    pub gated_by: Option<Plugin>,
    pub attempts: u32,
    /// Plugins that refuse the pod before they look at nodes.
    pub refused_by: Vec<Finding>,
    /// In the order in which they are tried.
    pub nodes: Vec<NodeExplanation>,
}

#[derive(Debug, Clone)]
pub struct Finding {
    pub plugin: Plugin,
    pub code: Code,
    pub reasons: Vec<String>,
}

#[derive(Debug, Clone, Default)]
pub struct NodeExplanation {
    pub node: String,
    /// All refusals, not only the first.
    pub refusals: Vec<Finding>,
    /// Where there is too little of something.
    pub shortages: Vec<Shortage>,
    /// By plugin: weight and score, where the pod fits.
    pub scores: Vec<(Plugin, i64, i64)>,
    pub total: i64,
}

impl NodeExplanation {
    pub fn fits(&self) -> bool {
        self.refusals.is_empty()
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shortage {
    pub resource: String,
    pub asked: i64,
    pub taken: i64,
    pub there: i64,
}

impl Scheduler {
    /// `None`: no such pod is known.
    pub fn explain(&mut self, uid: &str, now: Time) -> Option<Explanation> {
        let id = self.cluster.pods.find(uid)?;
        let record = self.cluster.pods.get(id)?.clone();
        // A placed pod is looked at as if it were still to be placed.
        let place = record.place;
        let generation = place.map(|node| self.cluster.nodes.generation(node));
        if place.is_some() {
            self.cluster.unplace(id);
        }
        let mut explanation = self.explain_unplaced(id, now);
        if let (Some(node), Some(generation)) = (place, generation) {
            self.cluster.place(id, node);
            self.cluster.nodes.restore_generation(node, generation);
            explanation.node = Some(self.cluster.node_name(node).to_owned());
        }
        let text = |symbol| self.cluster.names.text(symbol).to_owned();
        explanation.namespace = self.cluster.names.text(record.pod.namespace()).to_owned();
        explanation.name = record.pod.name.to_string();
        explanation.nominated = self.nominations.of(id).or(record.pod.nominated).map(text);
        if let Some(entry) = self.queue.get(id) {
            explanation.room = Some(entry.room);
            explanation.gated_by = entry.gated_by;
            explanation.attempts = entry.attempts;
        }
        Some(explanation)
    }

    fn explain_unplaced(&mut self, id: PodId, now: Time) -> Explanation {
        let mut explanation = Explanation::default();
        let Some(record) = self.cluster.pods.get(id).cloned() else {
            return explanation;
        };
        let name = record.pod.spec.scheduler_name;
        let Some(index) = self
            .engine
            .profiles
            .iter()
            .position(|profile| profile.name == name)
        else {
            return explanation;
        };
        let mut pod = crate::model::Pod::clone(&record.pod);
        pod.node = None;
        let pod = Arc::new(pod);
        let nodes = self.cluster.nodes.order().to_vec();
        let mut state = CycleState::default();
        let profile = &self.engine.profiles[index];
        let mut only: Option<Vec<crate::model::Symbol>> = None;
        for plugin in &profile.pre_filter {
            self.engine
                .plans
                .prepare(*plugin, &mut self.cluster, profile, index, record.class);
            let context = Context {
                cluster: &self.cluster,
                profile,
                pod: &pod,
                class: self.cluster.classes.get(record.class),
                now,
            };
            match plugins::pre_filter(
                *plugin,
                &context,
                &self.engine.plans,
                record.class,
                index,
                &mut state,
            ) {
                PreFilter::Pass => {}
                PreFilter::Skip => state.skipped.insert(*plugin),
                PreFilter::Nodes(nodes) => only = Some(nodes),
                PreFilter::Reject(refusal) => explanation.refused_by.push(Finding {
                    plugin: *plugin,
                    code: refusal.code,
                    reasons: refusal
                        .reasons
                        .iter()
                        .map(|reason| reason.text(&self.cluster.names))
                        .collect(),
                }),
            }
        }
        let context = Context {
            cluster: &self.cluster,
            profile,
            pod: &pod,
            class: self.cluster.classes.get(record.class),
            now,
        };
        explanation.nodes = nodes
            .iter()
            .map(|node| explain_node(&context, &state, only.as_deref(), *node))
            .collect();
        if explanation.refused_by.is_empty() {
            score_all(&context, &state, &nodes, &mut explanation.nodes);
        }
        explanation
    }
}

fn explain_node(
    context: &Context<'_>,
    state: &CycleState,
    only: Option<&[crate::model::Symbol]>,
    node: NodeId,
) -> NodeExplanation {
    let mut found = NodeExplanation {
        node: context.cluster.node_name(node).to_owned(),
        ..NodeExplanation::default()
    };
    if only.is_some_and(|names| !names.contains(&context.cluster.nodes.name(node))) {
        found.refusals.push(Finding {
            plugin: Plugin::NodeAffinity,
            code: Code::Unresolvable,
            reasons: vec!["node(s) didn't satisfy plugin(s) [NodeAffinity]".to_owned()],
        });
    }
    for plugin in context
        .profile
        .filter
        .iter()
        .filter(|plugin| state.runs(**plugin))
    {
        if let Err(refusal) = plugins::filter(*plugin, context, state, node) {
            found.refusals.push(Finding {
                plugin: *plugin,
                code: refusal.code,
                reasons: refusal
                    .reasons
                    .iter()
                    .map(|reason| reason.text(&context.cluster.names))
                    .collect(),
            });
        }
    }
    let nodes = &context.cluster.nodes;
    for (resource, asked) in context.class.spec.local.requests.iter() {
        let (taken, there) = (
            nodes.requested(resource, node),
            nodes.allocatable(resource, node),
        );
        if asked > there - taken {
            found.shortages.push(Shortage {
                resource: context.cluster.names.resource_name(resource).to_owned(),
                asked,
                taken,
                there,
            });
        }
    }
    found
}

/// Scores are relative to the other nodes that fit.
fn score_all(
    context: &Context<'_>,
    state: &CycleState,
    nodes: &[NodeId],
    found: &mut [NodeExplanation],
) {
    let fitting: Vec<usize> = (0..nodes.len())
        .filter(|index| found[*index].fits())
        .collect();
    let rows: Vec<NodeId> = fitting.iter().map(|index| nodes[*index]).collect();
    let locals: Vec<_> = rows
        .iter()
        .map(|node| local::scored(context, *node, false))
        .collect();
    let mut column = Vec::new();
    for (plugin, weight) in &context.profile.score {
        if !score::column(*plugin, context, state, &rows, &locals, &mut column) {
            continue;
        }
        for (index, score) in fitting.iter().zip(&column) {
            let node = &mut found[*index];
            node.scores.push((*plugin, *weight, *score));
            node.total = node.total.saturating_add(weight.saturating_mul(*score));
        }
    }
}
