//! What is shown, whichever it is: a node's figures or a pod's.

use crate::labels::Labels;
use crate::points::Usage;
use crate::rows::{NodeRow, PodRow};

use super::figures;

#[derive(Debug, Clone, Copy)]
pub enum Row<'a> {
    Node(NodeRow<'a>),
    Pod(PodRow<'a>),
}

/// Of which resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Node,
    Pod,
}

/// The names by which one kind goes.
impl Kind {
    pub const ALL: [Self; 2] = [Self::Node, Self::Pod];

    pub fn of(resource: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.resource() == resource)
    }

    pub fn resource(self) -> &'static str {
        match self {
            Self::Node => "nodes",
            Self::Pod => "pods",
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Node => "NodeMetrics",
            Self::Pod => "PodMetrics",
        }
    }

    pub fn list_name(self) -> &'static str {
        match self {
            Self::Node => "NodeMetricsList",
            Self::Pod => "PodMetricsList",
        }
    }
}

/// What is used, as clients see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Amounts {
    pub nanocores: u64,
    pub memory: u64,
    pub swap: Option<u64>,
}

impl Amounts {
    fn of(usage: &Usage) -> Self {
        Self {
            nanocores: usage.nanocores,
            memory: usage.memory,
            swap: usage.swap,
        }
    }

    fn and(self, other: Self) -> Self {
        let swap = match (self.swap, other.swap) {
            (Some(one), Some(other)) => Some(one.saturating_add(other)),
            (one, other) => one.or(other),
        };
        Self {
            nanocores: self.nanocores.saturating_add(other.nanocores),
            memory: self.memory.saturating_add(other.memory),
            swap,
        }
    }
}

impl<'a> Row<'a> {
    pub fn name(&self) -> &'a str {
        match self {
            Self::Node(node) => node.name,
            Self::Pod(pod) => pod.name,
        }
    }

    /// Nodes have none.
    pub fn namespace(&self) -> &'a str {
        match self {
            Self::Node(_) => "",
            Self::Pod(pod) => pod.namespace,
        }
    }

    pub fn labels(&self) -> &'a Labels {
        match self {
            Self::Node(node) => node.labels,
            Self::Pod(pod) => pod.labels,
        }
    }

    /// Time and window in nanoseconds. `None`: it has no figures.
    pub fn taken(&self) -> Option<(i64, i64)> {
        match self {
            Self::Node(node) => Some((node.usage.at, node.usage.window)),
            Self::Pod(pod) => pod.taken(),
        }
    }

    /// Whole seconds since the epoch.
    pub fn seconds(&self) -> Option<i64> {
        self.taken().map(|(at, _)| figures::seconds(at))
    }

    pub fn window(&self) -> i64 {
        self.taken().map_or(0, |(_, window)| window)
    }

    /// All containers together. `None`: there are none.
    pub fn total(&self) -> Option<Amounts> {
        match self {
            Self::Node(node) => Some(Amounts::of(&node.usage)),
            Self::Pod(pod) => pod
                .containers
                .iter()
                .map(|(_, usage)| Amounts::of(usage))
                .reduce(Amounts::and),
        }
    }
}
