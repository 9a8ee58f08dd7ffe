//! The last cycles, in bounded memory: what was decided, and by which scores.

use std::collections::VecDeque;
use std::sync::Arc;

use jiff::Timestamp;
use plimsoll_sched::action::Action;
use plimsoll_sched::framework::engine::Scoreboard;
use plimsoll_sched::model::Names;
use plimsoll_sched::{Cycle, Outcome};
use serde::Serialize;

/// Nodes whose scores are kept of each cycle.
const BEST: usize = 5;

#[derive(Debug)]
pub struct Journal {
    entries: VecDeque<Entry>,
    longest: usize,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    #[serde(skip)]
    pub uid: Arc<str>,
    pub at: Timestamp,
    pub attempt: u32,
    pub outcome: Verdict,
    pub evaluated_nodes: usize,
    pub feasible_nodes: usize,
    /// The best first, that which was chosen among them.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub scores: Vec<NodeScores>,
}

#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase", tag = "result")]
pub enum Verdict {
    Scheduled { node: String },
    Unschedulable { message: String },
    Error { message: String },
}

#[derive(Debug, Clone, Serialize)]
pub struct NodeScores {
    pub node: String,
    pub total: i64,
    pub plugins: Vec<PluginScore>,
}

#[derive(Debug, Clone, Serialize)]
pub struct PluginScore {
    pub plugin: &'static str,
    pub score: i64,
    pub weight: i64,
}

impl Journal {
    /// Remembers at most so many cycles.
    pub fn new(longest: usize) -> Self {
        Self {
            entries: VecDeque::new(),
            longest,
        }
    }

    /// Keeps what is worth keeping; gives back what is to be done.
    pub fn add(&mut self, cycle: Cycle, names: &Names, at: Timestamp) -> Vec<Action> {
        let (outcome, chosen) = match cycle.outcome {
            Outcome::Scheduled { node } => {
                let chosen = names.find(&node);
                let node = node.into();
                (Verdict::Scheduled { node }, chosen)
            }
            Outcome::Unschedulable { message } => (Verdict::Unschedulable { message }, None),
            Outcome::Error { message } => (Verdict::Error { message }, None),
            Outcome::Skipped | Outcome::Asking(_) => return cycle.actions,
        };
        if self.longest == 0 {
            return cycle.actions;
        }
        while self.entries.len() >= self.longest {
            self.entries.pop_front();
        }
        let scores = cycle
            .scores
            .map(|board| best(&board, chosen, names))
            .unwrap_or_default();
        self.entries.push_back(Entry {
            uid: cycle.pod.uid,
            at,
            attempt: cycle.attempts,
            outcome,
            evaluated_nodes: cycle.evaluated_nodes,
            feasible_nodes: cycle.feasible_nodes,
            scores,
        });
        cycle.actions
    }

    /// Of one pod, the oldest first.
    pub fn of(&self, uid: &str) -> Vec<Entry> {
        let own = self.entries.iter().filter(|entry| &*entry.uid == uid);
        own.cloned().collect()
    }
}

fn best(
    board: &Scoreboard,
    chosen: Option<plimsoll_sched::model::Symbol>,
    names: &Names,
) -> Vec<NodeScores> {
    let total = |row: usize| -> i64 {
        let columns = board.columns.iter();
        columns
            .map(|(_, weight, scores)| weight * scores.get(row).copied().unwrap_or(0))
            .sum()
    };
    let mut rows: Vec<(i64, bool, usize)> = (0..board.nodes.len())
        .map(|row| (total(row), Some(board.nodes[row]) == chosen, row))
        .collect();
    if rows.len() > BEST {
        // The chosen one is among the best, and before its equals.
        rows.select_nth_unstable_by(BEST - 1, |a, b| b.cmp(a));
        rows.truncate(BEST);
    }
    rows.sort_unstable_by(|a, b| b.cmp(a));
    rows.into_iter()
        .map(|(total, _, row)| NodeScores {
            node: names.text(board.nodes[row]).to_owned(),
            total,
            plugins: board
                .columns
                .iter()
                .map(|(plugin, weight, scores)| PluginScore {
                    plugin: plugin.name(),
                    score: scores.get(row).copied().unwrap_or(0),
                    weight: *weight,
                })
                .collect(),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use plimsoll_sched::framework::Plugin;

    use super::*;

    #[test]
    fn the_chosen_one_comes_first_among_its_equals() {
        let mut names = Names::default();
        let nodes: Vec<_> = (0..9).map(|n| names.intern(&format!("n{n}"))).collect();
        let board = Scoreboard {
            columns: vec![(Plugin::NodeResourcesFit, 2, vec![1, 5, 5, 0, 5, 5, 5, 5, 4])],
            nodes: nodes.clone(),
        };
        let found = best(&board, Some(nodes[7]), &names);
        assert_eq!(found.len(), BEST);
        assert_eq!(found[0].node, "n7");
        assert!(found.iter().all(|node| node.total == 10));
    }
}
