//! What nodes by themselves say about a class of pods, remembered until the node changes.
//!
//! Most pods of a cluster are copies of few templates, and between two cycles few nodes change. So the answers of the
//! plugins that look at nothing but pod and node are kept in a table a class, a row a node, stamped with the node's
//! generation.

use rustc_hash::FxHashMap;

use super::judge::Notes;
use super::plugin::Plugin;
use super::state::{Context, CycleState};
use super::status::{Refusal, StatusId, Statuses};
use crate::cluster::{LocalClassId, NodeId};
use crate::plugins;

/// The findings about one node.
#[derive(Debug, Clone, Copy)]
pub struct LocalEntry {
    /// 0: never looked at. Generations of nodes that exist are greater.
    generation: u32,
    pub status: StatusId,
    pub affinity: i32,
    pub untolerated: u16,
    pub fit: u8,
    pub balance: u8,
}

impl LocalEntry {
    const UNKNOWN: Self = Self {
        generation: 0,
        status: StatusId::FITS,
        affinity: 0,
        untolerated: 0,
        fit: 0,
        balance: 0,
    };
}

/// Whether a plugin looks at nothing but the pod's [`LocalSpec`](crate::model::LocalSpec) and the node's row.
pub fn is_local(plugin: Plugin) -> bool {
    matches!(
        plugin,
        Plugin::NodeUnschedulable
            | Plugin::NodeName
            | Plugin::TaintToleration
            | Plugin::NodeAffinity
            | Plugin::NodePorts
            | Plugin::NodeResourcesFit
    )
}

/// Asks the plugins in order; the first refusal counts. Scores are taken only where the node fits.
fn evaluate(
    context: &Context<'_>,
    plugins: &[Plugin],
    node: NodeId,
    notes: &mut Notes<'_>,
) -> LocalEntry {
    let mut entry = LocalEntry {
        generation: context.cluster.nodes.generation(node),
        status: judge(context, plugins, node, notes),
        ..LocalEntry::UNKNOWN
    };
    if entry.status == StatusId::FITS {
        score(context, node, false, &mut entry);
    }
    entry
}

/// The scores of a node that is known to fit. `as_empty`: as if nothing were on it.
pub fn scored(context: &Context<'_>, node: NodeId, as_empty: bool) -> LocalEntry {
    let mut entry = LocalEntry {
        generation: context.cluster.nodes.generation(node),
        ..LocalEntry::UNKNOWN
    };
    score(context, node, as_empty, &mut entry);
    entry
}

/// The first refusal, if there is one.
pub(super) fn judge(
    context: &Context<'_>,
    plugins: &[Plugin],
    node: NodeId,
    notes: &mut Notes<'_>,
) -> StatusId {
    let state = CycleState::default();
    for plugin in plugins {
        if let Err(refusal) = notes.ask(*plugin, context, &state, node) {
            return notes.statuses.id(*plugin, refusal);
        }
    }
    StatusId::FITS
}

/// Scores that only node and pod decide.
fn score(context: &Context<'_>, node: NodeId, as_empty: bool, entry: &mut LocalEntry) {
    for (plugin, _) in &context.profile.score {
        match plugin {
            Plugin::TaintToleration => {
                entry.untolerated =
                    plugins::taint_toleration::untolerated_preferences(context, node);
            }
            Plugin::NodeAffinity => {
                entry.affinity = plugins::node_affinity::preference(context, node);
            }
            Plugin::NodeResourcesFit => {
                entry.fit = plugins::node_resources_fit::score(context, node, as_empty) as u8;
            }
            Plugin::NodeResourcesBalancedAllocation => {
                entry.balance = plugins::balanced_allocation::score(context, node, as_empty) as u8;
            }
            _ => {}
        }
    }
}

#[derive(Debug)]
struct Table {
    key: (usize, LocalClassId),
    entries: Vec<LocalEntry>,
    used: u64,
}

/// How many classes are remembered. A row takes 20 bytes; pods come in batches of few classes.
const TABLES: usize = 64;

/// The tables of the classes that were seen last.
#[derive(Debug, Default)]
pub struct Tables {
    list: Vec<Table>,
    by_key: FxHashMap<(usize, LocalClassId), usize>,
    clock: u64,
    epoch: u64,
}

impl Tables {
    /// The table of a class under a profile, made or cleared if need be.
    pub fn table(
        &mut self,
        profile: usize,
        class: LocalClassId,
        epoch: u64,
        rows: usize,
    ) -> &mut [LocalEntry] {
        if self.epoch != epoch {
            *self = Self {
                epoch,
                ..Self::default()
            };
        }
        self.clock += 1;
        let key = (profile, class);
        let index = match self.by_key.get(&key) {
            Some(index) => *index,
            None => self.take(key),
        };
        let table = &mut self.list[index];
        table.used = self.clock;
        if table.entries.len() < rows {
            table.entries.resize(rows, LocalEntry::UNKNOWN);
        }
        &mut table.entries
    }

    fn take(&mut self, key: (usize, LocalClassId)) -> usize {
        let index = if self.list.len() < TABLES {
            self.list.push(Table {
                key,
                entries: Vec::new(),
                used: 0,
            });
            self.list.len() - 1
        } else {
            let oldest = self
                .list
                .iter()
                .enumerate()
                .min_by_key(|(_, table)| table.used);
            let index = oldest.map_or(0, |(index, _)| index);
            let table = &mut self.list[index];
            self.by_key.remove(&table.key);
            table.key = key;
            table.entries.clear();
            index
        };
        self.by_key.insert(key, index);
        index
    }
}

/// What [`look_up`] would find and keep, with who refuses the node; `None`: the entry is up to date.
pub(super) fn look_ahead(
    table: &[LocalEntry],
    context: &Context<'_>,
    plugins: &[Plugin],
    node: NodeId,
) -> Option<(LocalEntry, Option<(Plugin, Refusal)>)> {
    let generation = context.cluster.nodes.generation(node);
    if table[node.index()].generation == generation {
        return None;
    }
    let mut entry = LocalEntry {
        generation,
        ..LocalEntry::UNKNOWN
    };
    let state = CycleState::default();
    let refused = plugins.iter().find_map(|plugin| {
        let verdict = plugins::filter(*plugin, context, &state, node);
        verdict.err().map(|refusal| (*plugin, refusal))
    });
    if refused.is_none() {
        score(context, node, false, &mut entry);
    }
    Some((entry, refused))
}

/// Whether the entry of a node says that it fits.
pub(super) fn fits(table: &[LocalEntry], node: NodeId) -> bool {
    table[node.index()].status == StatusId::FITS
}

/// Keeps what was found ahead, as [`look_up`] would have.
pub(super) fn keep(
    table: &mut [LocalEntry],
    node: NodeId,
    found: (LocalEntry, Option<(Plugin, Refusal)>),
    statuses: &mut Statuses,
) {
    let (mut entry, refused) = found;
    if let Some((plugin, refusal)) = refused {
        entry.status = statuses.id(plugin, refusal);
    }
    table[node.index()] = entry;
}

/// The entry of a node, asked for anew if the node has changed since.
pub(super) fn look_up(
    table: &mut [LocalEntry],
    context: &Context<'_>,
    plugins: &[Plugin],
    node: NodeId,
    notes: &mut Notes<'_>,
) -> LocalEntry {
    let entry = &mut table[node.index()];
    if entry.generation != context.cluster.nodes.generation(node) {
        *entry = evaluate(context, plugins, node, notes);
    }
    *entry
}
