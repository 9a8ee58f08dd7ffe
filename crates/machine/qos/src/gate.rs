//! When a strategy may act: only while what it looks at is known and fresh.
//!
//! Until everything has been known once, nothing is planned at all. Later, what is not known any more lets the last plan
//! stand for a while, without anything new; then it is given back.

use std::time::Duration;

use crate::input::Input;

/// What strategies look at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    Pods,
    Node,
    Cpus,
    Usage,
}

impl Source {
    pub const ALL: [Self; 4] = [Self::Pods, Self::Node, Self::Cpus, Self::Usage];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pods => "pods",
            Self::Node => "node",
            Self::Cpus => "cpus",
            Self::Usage => "usage",
        }
    }
}

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wait {
    pub source: Source,
    /// How old it is; `None`: it is not known at all.
    pub age: Option<Duration>,
}

/// For people and for tools.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct GateStatus {
    /// Everything has been known once.
    pub open: bool,
    pub waiting: Vec<Wait>,
    /// Strategies whose last plan stands since some time, by the names of their askers.
    pub held: Vec<(&'static str, Duration)>,
}

/// What a strategy may do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    Act,
    /// The last plan stands, without evictions and without anything new.
    Hold,
    /// What was planned goes back.
    Release,
    /// Nothing is planned, and nothing is given back.
    Wait,
}

#[derive(Debug, Clone, Default)]
pub struct Gate {
    opened: bool,
}

impl Gate {
    /// What is missing or old.
    pub fn waits(input: &Input<'_>) -> Vec<Wait> {
        let wait = |source| {
            let (known, age) = match source {
                Source::Pods => {
                    let pods = input
                        .pods
                        .map(|seen| (seen.is_fresh(input.now), seen.age(input.now)));
                    (
                        pods.is_some_and(|(fresh, _)| fresh),
                        pods.map(|(_, age)| age),
                    )
                }
                Source::Node => (
                    input
                        .node
                        .is_some_and(|node| node.cpu_milli() > 0 && node.memory() > 0),
                    None,
                ),
                Source::Cpus => (input.node.is_some_and(|node| !node.cpus.is_empty()), None),
                Source::Usage => {
                    let usage = input.usage.filter(|seen| {
                        seen.value.node_cpu.is_some() && seen.value.node_memory.is_some()
                    });
                    let usage = usage.map(|seen| (seen.is_fresh(input.now), seen.age(input.now)));
                    (
                        usage.is_some_and(|(fresh, _)| fresh),
                        usage.map(|(_, age)| age),
                    )
                }
            };
            (!known).then_some(Wait { source, age })
        };
        Source::ALL.into_iter().filter_map(wait).collect()
    }

    pub fn look(&mut self, waits: &[Wait]) -> bool {
        self.opened |= waits.is_empty();
        self.opened
    }

    /// `since`: since when its last plan has been standing.
    pub fn verdict(
        &self,
        waits: &[Wait],
        needs: &[Source],
        since: Option<Duration>,
        now: Duration,
        hold: Duration,
    ) -> Verdict {
        if !self.opened {
            return Verdict::Wait;
        }
        if !waits.iter().any(|wait| needs.contains(&wait.source)) {
            return Verdict::Act;
        }
        match since {
            Some(since) if now.saturating_sub(since) > hold => Verdict::Release,
            _ => Verdict::Hold,
        }
    }
}
