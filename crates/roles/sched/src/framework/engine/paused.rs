//! A cycle that waits for the word of extenders.

use super::super::judge::{Attempt, Subject};
use super::{Choice, Decision, Engine, count};
use crate::cluster::{ClassId, Cluster, NodeId};
use crate::framework::diagnosis::Diagnosis;
use crate::framework::local;
use crate::framework::plugin::Plugin;
use crate::framework::state::CycleState;
use crate::framework::status::{Code, Refusal, StatusId, Statuses};
use crate::queue::nominations::Nominations;

#[derive(Debug)]
pub struct Paused {
    pub attempt: Attempt,
    pub nodes: Vec<NodeId>,
    pub(super) diagnosis: Diagnosis,
    pub(super) wanted: Option<Vec<NodeId>>,
    /// Only the node that the pod was promised was looked at.
    pub(super) is_nominated: bool,
    pub(super) evaluated: usize,
}

/// What extenders said, by node.
#[derive(Debug, Default)]
pub struct Heard {
    pub nodes: Vec<(NodeId, i64)>,
    /// With why, and whether evicting pods would not help. A node that nobody knows is told of all the same.
    pub refused: Vec<(Option<NodeId>, String, bool)>,
    /// Whether nodes are scored as if nothing were on them.
    pub as_empty: bool,
}

impl Engine {
    /// Whether anybody outside has a say about which nodes will do.
    pub(super) fn must_ask(&self, cluster: &Cluster, class: ClassId) -> bool {
        self.extenders
            .iter()
            .any(|rule| (rule.filters || rule.scores) && rule.concerns(cluster, class))
    }

    /// Goes on with what was heard. Nothing but observations may have come in between.
    pub fn resume(
        &mut self,
        cluster: &mut Cluster,
        paused: Paused,
        heard: &Heard,
        nominations: &Nominations,
        state: &mut CycleState,
    ) -> Decision {
        let Some(subject) = Subject::new(cluster, paused.attempt) else {
            return Decision::Failed("pod is not known".to_owned());
        };
        state.refresh(cluster);
        let left: Vec<(NodeId, i64)> = heard
            .nodes
            .iter()
            .copied()
            .filter(|(node, _)| cluster.nodes.object(*node).is_some())
            .collect();
        let mut diagnosis = paused.diagnosis;
        if paused.is_nominated {
            if let Some((node, _)) = left.first() {
                return Decision::Chosen(Choice {
                    node: *node,
                    evaluated: 1,
                    feasible: 1,
                    scores: None,
                });
            }
            cluster.nodes.refresh_order();
            diagnosis.all_nodes = cluster.nodes.current_order().len();
            if diagnosis.all_nodes == 0 {
                return Decision::NoNodes;
            }
            let rivals = nominations.rivals(paused.attempt.pod, subject.priority());
            let (attempt, wanted) = (paused.attempt, paused.wanted);
            return self.search(cluster, attempt, &subject, state, diagnosis, wanted, rivals);
        }
        let rows = cluster.nodes.rows();
        if self.scratch.refused.len() < rows {
            self.scratch.refused.resize(rows, StatusId::FITS);
        }
        for (node, message, for_good) in &heard.refused {
            let code = match for_good {
                true => Code::Unresolvable,
                false => Code::Unschedulable,
            };
            let refusal = Refusal::worded(code, message.as_str());
            let status = self.statuses.id(Plugin::Extender, refusal);
            if let Some(node) = node {
                // What a plugin said about it before does not hold any more.
                let before = std::mem::replace(&mut self.scratch.refused[node.index()], status);
                if before != StatusId::FITS {
                    self.scratch.counts[Statuses::index(before)] -= 1;
                }
            }
            count(&mut self.scratch.counts, status);
        }
        if left.is_empty() {
            self.diagnose(&mut diagnosis);
            diagnosis.rejectors.insert(Plugin::Extender);
            return Decision::Unfit(Box::new(diagnosis));
        }
        let context = subject.context(cluster, &self.profiles);
        self.scratch.feasible.clear();
        self.scratch.locals.clear();
        for (node, _) in &left {
            self.scratch.feasible.push(*node);
            let entry = local::scored(&context, *node, heard.as_empty);
            self.scratch.locals.push(entry);
        }
        state.nodes_as_empty = heard.as_empty;
        let extra: Vec<i64> = left.iter().map(|(_, score)| *score).collect();
        Decision::Chosen(self.choose(cluster, &subject, state, paused.evaluated, Some(&extra)))
    }
}
