//! The best of the nodes that fit.

use super::Engine;
use crate::cluster::{Cluster, NodeId};
use crate::framework::judge::Subject;
use crate::framework::plugin::{Plugin, PluginSet};
use crate::framework::score;
use crate::framework::state::CycleState;
use crate::framework::stopwatch::{Ending, Point};
use crate::model::Symbol;

#[derive(Debug, Clone)]
pub struct Choice {
    pub node: NodeId,
    pub evaluated: usize,
    pub feasible: usize,
    /// What won, if somebody wants to know: by plugin, weighted.
    pub scores: Option<Box<Scoreboard>>,
}

/// Scores of the nodes that came into question.
#[derive(Debug, Clone, Default)]
pub struct Scoreboard {
    pub nodes: Vec<Symbol>,
    /// By plugin: its weight, and a score between 0 and 100 a node.
    pub columns: Vec<(Plugin, i64, Vec<i64>)>,
}

impl Engine {
    pub(super) fn choose(
        &mut self,
        cluster: &Cluster,
        subject: &Subject,
        state: &CycleState,
        evaluated: usize,
        extra: Option<&[i64]>,
    ) -> Choice {
        let feasible = self.scratch.feasible.len();
        let mut choice = Choice {
            node: self.scratch.feasible[0],
            evaluated,
            feasible,
            scores: None,
        };
        if feasible == 1 {
            return choice;
        }
        let context = subject.context(cluster, &self.profiles);
        let scratch = &mut self.scratch;
        scratch.totals.clear();
        scratch.totals.extend_from_slice(extra.unwrap_or_default());
        scratch.totals.resize(feasible, 0);
        let mut board = self.record_scores.then(Scoreboard::default);
        let watch = &mut self.stopwatch;
        let profile = subject.profile;
        let began = watch.now();
        let mut silent = PluginSet::EMPTY;
        for (plugin, _) in &context.profile.score {
            let began = watch.now();
            let ending = match score::has_say(*plugin, &context, state) {
                true => Ending::Success,
                false => Ending::Skip,
            };
            if ending == Ending::Skip {
                silent.insert(*plugin);
            }
            if score::has_pre_score(*plugin) {
                watch.plugin(*plugin, Point::PreScore, ending, began);
            } else {
                // It is asked about every node, even if it has nothing to say.
                watch.asked(*plugin, Point::Score, profile, feasible as u64);
            }
        }
        watch.point(Point::PreScore, Ending::Success, profile, began);
        let began = watch.now();
        for (plugin, weight) in &context.profile.score {
            if silent.contains(*plugin) {
                continue;
            }
            let asked = watch.now();
            let scored = score::column(
                *plugin,
                &context,
                state,
                &scratch.feasible,
                &scratch.locals,
                &mut scratch.column,
            );
            if !scored {
                continue;
            }
            watch.plugin(*plugin, Point::Score, Ending::Success, asked);
            if score::has_pre_score(*plugin) {
                watch.asked(*plugin, Point::PreScore, profile, 1);
                watch.asked(*plugin, Point::Score, profile, feasible as u64);
            }
            for (total, score) in scratch.totals.iter_mut().zip(&scratch.column) {
                *total = total.saturating_add(weight.saturating_mul(*score));
            }
            if let Some(board) = &mut board {
                board
                    .columns
                    .push((*plugin, *weight, scratch.column.clone()));
            }
        }
        watch.point(Point::Score, Ending::Success, profile, began);
        let best = scratch.totals.iter().copied().max().unwrap_or(0);
        let ties = scratch
            .totals
            .iter()
            .filter(|total| **total == best)
            .count();
        let pick = if ties > 1 {
            self.random.usize(..ties)
        } else {
            0
        };
        let mut tied = scratch
            .totals
            .iter()
            .zip(&scratch.feasible)
            .filter(|(total, _)| **total == best);
        if let Some((_, node)) = tied.nth(pick) {
            choice.node = *node;
        }
        choice.scores = board.map(|mut board| {
            board.nodes = scratch
                .feasible
                .iter()
                .map(|node| cluster.nodes.name(*node))
                .collect();
            Box::new(board)
        });
        choice
    }
}
