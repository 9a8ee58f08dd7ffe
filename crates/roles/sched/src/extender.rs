//! Others who have a say about some pods. The core cannot ask them itself: a cycle that needs their word stops, says what
//! is to be asked as its outcome, and goes on when it is told the answer.

use crate::action::PodRef;
use crate::cluster::{ClassId, Cluster};
use crate::model::ResourceId;

/// What an extender is there for.
#[derive(Debug, Clone, Default)]
pub struct Rule {
    pub filters: bool,
    pub scores: bool,
    /// It has a say about who has to go for a pod.
    pub preempts: bool,
    /// It binds, and nobody does in its place.
    pub binds: bool,
    /// Only for pods that ask for one of these; empty: for all.
    pub resources: Vec<ResourceId>,
}

impl Rule {
    pub(crate) fn concerns(&self, cluster: &Cluster, class: ClassId) -> bool {
        let local = &cluster.classes.get(class).spec.local;
        self.resources.is_empty()
            || self.resources.iter().any(|resource| {
                local.requests.find(*resource).is_some() || local.limits.find(*resource).is_some()
            })
    }
}

/// What extenders are to be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Question {
    pub pod: PodRef,
    /// Which ones, by their place in the configuration.
    pub extenders: Vec<usize>,
    pub about: About,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum About {
    /// Which of these nodes will do, and how well.
    Nodes(Vec<Box<str>>),
    /// Who may be evicted.
    Victims(Vec<Victims>),
}

/// Pods that would have to go from a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Victims {
    pub node: Box<str>,
    pub pods: Vec<PodRef>,
    /// Everybody who is there: who has a say may name any of them instead.
    pub present: Vec<PodRef>,
    /// How many victims a disruption budget protects.
    pub violations: usize,
}

/// What they said.
#[derive(Debug, Clone, Default)]
pub struct Answer {
    /// Nodes that will do, each with what is added to its score.
    pub nodes: Vec<(Box<str>, i64)>,
    pub refused: Vec<RefusedNode>,
    /// One of them was sent whole nodes and has sent them back, without what is on them: that is how they are scored.
    pub nodes_as_empty: bool,
    /// In answer to a question about victims: who is left of them.
    pub victims: Vec<Victims>,
    /// One that must not be passed over gave no answer.
    pub error: Option<String>,
}

impl Answer {
    /// Somebody who must be heard could not be.
    pub fn failed(error: impl Into<String>) -> Self {
        Self {
            error: Some(error.into()),
            ..Self::default()
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefusedNode {
    pub node: Box<str>,
    pub message: String,
    /// Evicting pods would not help.
    pub for_good: bool,
}
