//! Nodes that are looked at ahead of their turn, by several threads.
//!
//! A row of a table takes a tenth of a microsecond, which is less than it costs to hand it to a thread. A search for
//! devices takes a hundred times as long, and is done on each node anew. So where devices are searched for, workers look
//! at the nodes that come next. What they find is taken in the order of the nodes, as if each had been looked at in its
//! turn, so that nothing depends on how many workers there are.

use crate::cluster::{Cluster, NodeId};
use crate::framework::judge::Subject;
use crate::framework::local::{self, LocalEntry};
use crate::framework::plugin::Plugin;
use crate::framework::profile::Profile;
use crate::framework::state::CycleState;
use crate::framework::status::Refusal;
use crate::framework::workers::Workers;
use crate::plugins;
use crate::queue::nominations::Rivals;

/// Nodes on which devices were searched for in turn before others are woken: a pod that fits the first ones needs no help.
const IN_TURN: usize = 2;
/// Nodes that are looked at before the findings are taken.
const MOST: usize = 4096;
const FEWEST: usize = 64;

/// What came of looking at a node.
#[derive(Debug, Default)]
pub(super) struct Finding {
    /// Its row of the table, if that is not up to date, and who refuses it.
    pub row: Option<(LocalEntry, Option<(Plugin, Refusal)>)>,
    /// Who refuses it besides. `None`: nobody was asked.
    pub live: Option<Result<(), (Plugin, Refusal)>>,
}

/// Findings about the nodes that come next.
#[derive(Debug, Default)]
pub(super) struct Ahead {
    findings: std::vec::IntoIter<Finding>,
    /// On how many nodes devices were searched for in turn.
    searched: usize,
}

/// Where a cycle stands.
pub(super) struct Progress {
    /// The place of the next node in the order.
    pub at: usize,
    /// Nodes that have not been looked at.
    pub left: usize,
    /// How many more have to fit.
    pub wanted: usize,
}

impl Ahead {
    pub fn next(&mut self) -> Option<Finding> {
        self.findings.next()
    }

    /// A node was looked at in its turn.
    pub fn looked_in_turn(&mut self, live: &[Plugin]) {
        self.searched += usize::from(live.contains(&Plugin::DynamicResources));
    }

    pub fn is_worth_it(&self, workers: &Workers) -> bool {
        let enough = self.searched >= IN_TURN || workers.are_eager();
        enough && self.findings.len() == 0 && workers.are_several()
    }

    /// Has the nodes looked at that come next.
    #[expect(
        clippy::too_many_arguments,
        reason = "all that looking at a node takes"
    )]
    pub fn look(
        &mut self,
        workers: &mut Workers,
        progress: &Progress,
        cluster: &Cluster,
        subject: &Subject,
        profiles: &[Profile],
        prefix: &[Plugin],
        live: &[Plugin],
        state: &CycleState,
        table: &[LocalEntry],
        rivals: Rivals<'_>,
    ) {
        let number = progress.wanted.clamp(FEWEST, MOST).min(progress.left);
        let order = cluster.nodes.current_order();
        let context = subject.context(cluster, profiles);
        let findings = workers.map(number, |index| {
            let node: NodeId = order[(progress.at + index) % order.len()];
            if rivals.stamp(cluster, node).is_some() {
                return Finding::default();
            }
            let row = local::look_ahead(table, &context, prefix, node);
            let fits = match &row {
                Some((_, refused)) => refused.is_none(),
                None => local::fits(table, node),
            };
            let live = fits.then(|| {
                let mut asked = live.iter().filter(|plugin| state.runs(**plugin));
                let refused = asked.find_map(|plugin| {
                    let verdict = plugins::filter(*plugin, &context, state, node);
                    verdict.err().map(|refusal| (*plugin, refusal))
                });
                refused.map_or(Ok(()), Err)
            });
            Finding { row, live }
        });
        self.findings = findings.into_iter();
    }
}
