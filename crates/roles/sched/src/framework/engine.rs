//! One cycle: from a pod to a node, or to the reasons why there is none.

mod ahead;
mod choose;
mod paused;
mod pre_filter;

pub use choose::{Choice, Scoreboard};
pub use paused::{Heard, Paused};

use rustc_hash::FxHashMap;

use self::ahead::{Ahead, Finding, Progress};
use super::diagnosis::Diagnosis;
pub use super::judge::Attempt;
use super::judge::{Notes, Subject, Tools, judge_live, judge_with_rivals, local_prefix, told};
use super::local::{self, LocalEntry, Tables};
use super::plugin::Plugin;
use super::profile::Profile;
use super::state::CycleState;
use super::status::{Code, Refusal, StatusId, Statuses};
use super::stopwatch::{Ending, Point, Stopwatch};
use super::workers::Workers;
use crate::cluster::{Cluster, LocalClassId, NodeId, PodId};
use crate::extender::Rule;
use crate::plugins::plans::Plans;
use crate::preemption::memo::DryRuns;
use crate::queue::nominations::{Nominations, Rivals};

/// How a cycle ended.
#[derive(Debug)]
pub enum Decision {
    Chosen(Choice),
    /// No node fits.
    Unfit(Box<Diagnosis>),
    /// There are no nodes at all.
    NoNodes,
    /// A plugin could not tell.
    Failed(String),
    /// Extenders have to be asked about some nodes.
    Asking(Box<Paused>),
}

/// Below that many nodes, all of them are looked at.
const MIN_FEASIBLE_NODES: usize = 100;
const MIN_PERCENTAGE: usize = 5;
/// Of verdicts on nodes that others have been promised.
const MOST_REMEMBERED: usize = 1 << 16;

#[derive(Debug)]
pub struct Engine {
    pub profiles: Vec<Profile>,
    pub statuses: Statuses,
    pub plans: Plans,
    pub dry_runs: DryRuns,
    pub extenders: Vec<Rule>,
    pub stopwatch: Stopwatch,
    /// Keep the scores of every choice.
    pub record_scores: bool,
    pub workers: Workers,
    tables: Tables,
    /// Verdicts on nodes that others have been promised, with what they depend on.
    beside_rivals: FxHashMap<(usize, LocalClassId, NodeId), (RowState, StatusId)>,
    rivals_epoch: u64,
    random: fastrand::Rng,
    next_start: usize,
    scratch: Scratch,
}

/// A node's generation, the stamp of its promises, and the priority that they were judged by.
type RowState = (u32, u64, i32);

/// Buffers that outlive a cycle.
#[derive(Debug, Default)]
struct Scratch {
    feasible: Vec<NodeId>,
    locals: Vec<LocalEntry>,
    /// By node: what it was refused with in this cycle.
    refused: Vec<StatusId>,
    counts: Vec<usize>,
    column: Vec<i64>,
    totals: Vec<i64>,
    live: Vec<Plugin>,
}

impl Engine {
    pub fn new(profiles: Vec<Profile>, seed: u64) -> Self {
        Self {
            profiles,
            statuses: Statuses::default(),
            plans: Plans::default(),
            dry_runs: DryRuns::default(),
            extenders: Vec::new(),
            stopwatch: Stopwatch::default(),
            record_scores: false,
            workers: Workers::default(),
            tables: Tables::default(),
            beside_rivals: FxHashMap::default(),
            rivals_epoch: 0,
            random: fastrand::Rng::with_seed(seed),
            next_start: 0,
            scratch: Scratch::default(),
        }
    }

    pub fn random(&mut self) -> &mut fastrand::Rng {
        &mut self.random
    }

    /// What nodes were refused with in the last cycle; only good if that found none.
    pub fn refused(&self) -> &[StatusId] {
        &self.scratch.refused
    }

    /// Looks for the best node. Puts nothing anywhere, but for what it takes away again.
    pub fn decide(
        &mut self,
        cluster: &mut Cluster,
        attempt: Attempt,
        nominations: &Nominations,
    ) -> (Decision, CycleState) {
        let mut state = CycleState::default();
        let decision = self.decide_with(cluster, attempt, nominations, &mut state);
        (decision, state)
    }

    fn decide_with(
        &mut self,
        cluster: &mut Cluster,
        attempt: Attempt,
        nominations: &Nominations,
        state: &mut CycleState,
    ) -> Decision {
        cluster.nodes.refresh_order();
        let all_nodes = cluster.nodes.current_order().len();
        if all_nodes == 0 {
            return Decision::NoNodes;
        }
        let Some(subject) = Subject::new(cluster, attempt) else {
            return Decision::Failed("pod is not known".to_owned());
        };
        let pod = std::sync::Arc::clone(&subject.pod);
        let mut diagnosis = Diagnosis {
            all_nodes,
            ..Diagnosis::default()
        };
        let began = self.stopwatch.now();
        let asked = self.pre_filter(cluster, &subject, state, &mut diagnosis);
        let ending = asked.as_ref().err();
        let ending = ending.map_or(Ending::Success, |refusal| refusal.code.into());
        self.stopwatch
            .point(Point::PreFilter, ending, attempt.profile, began);
        let wanted = match asked {
            Ok(wanted) => wanted,
            Err(refusal) if refusal.code == Code::Error => {
                return Decision::Failed(refusal.message(&cluster.names));
            }
            Err(refusal) => {
                diagnosis.pre_filter = Some(refusal.message(&cluster.names));
                diagnosis.absent = Some(refusal);
                return Decision::Unfit(Box::new(diagnosis));
            }
        };
        let rivals = nominations.rivals(attempt.pod, pod.priority);
        if let Some(node) = pod.nominated.and_then(|name| cluster.nodes.find(name))
            && cluster.nodes.object(node).is_some()
            && wanted.as_ref().is_none_or(|nodes| nodes.contains(&node))
        {
            let beside = rivals.on(cluster, node);
            let began = self.stopwatch.now();
            let verdict = self.judge(cluster, &subject, state, node, &beside);
            let ending = match &verdict {
                Ok(_) => Ending::Success,
                Err(_) => Ending::Error,
            };
            self.stopwatch
                .point(Point::Filter, ending, attempt.profile, began);
            match verdict {
                Ok(StatusId::FITS) if self.must_ask(cluster, subject.class) => {
                    return Decision::Asking(Box::new(Paused {
                        attempt,
                        diagnosis,
                        wanted,
                        nodes: vec![node],
                        is_nominated: true,
                        evaluated: 1,
                    }));
                }
                Ok(StatusId::FITS) => {
                    return Decision::Chosen(Choice {
                        node,
                        evaluated: 1,
                        feasible: 1,
                        scores: None,
                    });
                }
                Ok(_) => {}
                Err(message) => return Decision::Failed(message),
            }
        }
        self.search(cluster, attempt, &subject, state, diagnosis, wanted, rivals)
    }

    /// Looks at all nodes that come into question.
    #[expect(
        clippy::too_many_arguments,
        reason = "all that is known of the attempt so far"
    )]
    fn search(
        &mut self,
        cluster: &mut Cluster,
        attempt: Attempt,
        subject: &Subject,
        state: &mut CycleState,
        mut diagnosis: Diagnosis,
        wanted: Option<Vec<NodeId>>,
        rivals: Rivals<'_>,
    ) -> Decision {
        let began = self.stopwatch.now();
        let filtered = self.filter(cluster, subject, state, wanted.as_deref(), rivals);
        let ending = match &filtered {
            Ok(_) => Ending::Success,
            Err(_) => Ending::Error,
        };
        self.stopwatch
            .point(Point::Filter, ending, attempt.profile, began);
        if wanted.is_none() {
            let filters = &self.profiles[attempt.profile].filter;
            self.stopwatch.filtered(
                filters.iter().copied().filter(|plugin| state.runs(*plugin)),
                &self.scratch.counts,
                &self.statuses,
                self.scratch.feasible.len(),
                attempt.profile,
            );
        }
        let evaluated = match filtered {
            Ok(evaluated) => evaluated,
            Err(message) => return Decision::Failed(message),
        };
        self.next_start = (self.next_start + evaluated) % diagnosis.all_nodes;
        if self.scratch.feasible.is_empty() {
            self.diagnose(&mut diagnosis);
            return Decision::Unfit(Box::new(diagnosis));
        }
        if self.must_ask(cluster, subject.class) {
            return Decision::Asking(Box::new(Paused {
                attempt,
                diagnosis,
                wanted,
                nodes: self.scratch.feasible.clone(),
                is_nominated: false,
                evaluated,
            }));
        }
        // Only where there is a choice anybody looks at preferences.
        let scores = &self.profiles[attempt.profile].score;
        if self.scratch.feasible.len() > 1
            && scores.iter().any(|(one, _)| *one == Plugin::NodeAffinity)
            && let Some(problem) = &subject.pod.spec.local.preference_problem
        {
            let problem = format!("running PreScore plugin \"NodeAffinity\": {problem}");
            return Decision::Failed(problem);
        }
        Decision::Chosen(self.choose(cluster, subject, state, evaluated, None))
    }

    /// Collects nodes that fit, until there are enough of them. How many were looked at.
    fn filter(
        &mut self,
        cluster: &mut Cluster,
        subject: &Subject,
        state: &mut CycleState,
        wanted: Option<&[NodeId]>,
        rivals: Rivals<'_>,
    ) -> Result<usize, String> {
        let profile = &self.profiles[subject.profile];
        let prefix = local_prefix(profile);
        self.scratch.feasible.clear();
        self.scratch.locals.clear();
        self.scratch.live.clear();
        self.scratch.live.extend(
            profile.filter[prefix..]
                .iter()
                .filter(|plugin| state.runs(**plugin)),
        );
        let rows = cluster.nodes.rows();
        if self.scratch.refused.len() < rows {
            self.scratch.refused.resize(rows, StatusId::FITS);
        }
        self.scratch.counts.clear();
        if let Some(wanted) = wanted {
            return self.filter_some(cluster, subject, state, wanted, rivals);
        }
        let total = cluster.nodes.current_order().len();
        let enough = self.enough(subject.profile, total);
        let local_class = cluster.classes.get(subject.class).local;
        if self.beside_rivals.len() > MOST_REMEMBERED || self.rivals_epoch != cluster.epoch() {
            self.beside_rivals.clear();
            self.rivals_epoch = cluster.epoch();
        }
        let table = self
            .tables
            .table(subject.profile, local_class, cluster.epoch(), rows);
        let start = self.next_start % total;
        let mut evaluated = 0;
        let mut at = start;
        let mut ahead = Ahead::default();
        // Where plugins are timed, one is asked after the other.
        let in_turn = self.stopwatch.is_sampled();
        while evaluated < total {
            if !in_turn && ahead.is_worth_it(&self.workers) {
                let progress = Progress {
                    at,
                    left: total - evaluated,
                    wanted: enough - self.scratch.feasible.len(),
                };
                let plugins = &self.profiles[subject.profile].filter[..prefix];
                ahead.look(
                    &mut self.workers,
                    &progress,
                    cluster,
                    subject,
                    &self.profiles,
                    plugins,
                    &self.scratch.live,
                    state,
                    table,
                    rivals,
                );
            }
            let finding = ahead.next();
            let node = cluster.nodes.current_order()[at];
            at += 1;
            if at == total {
                at = 0;
            }
            evaluated += 1;
            let entry = if let Some(stamp) = rivals.stamp(cluster, node) {
                let key = (subject.profile, local_class, node);
                let state_of_node = (cluster.nodes.generation(node), stamp, subject.priority());
                let known = self
                    .beside_rivals
                    .get(&key)
                    .filter(|(then, _)| *then == state_of_node);
                let status = match known.filter(|_| self.scratch.live.is_empty()) {
                    Some((_, status)) => *status,
                    None => {
                        let beside = rivals.on(cluster, node);
                        let tools = Tools {
                            profiles: &self.profiles,
                            prefix: &self.profiles[subject.profile].filter[..prefix],
                            live: &self.scratch.live,
                            statuses: &mut self.statuses,
                            stopwatch: &mut self.stopwatch,
                        };
                        let status =
                            judge_with_rivals(cluster, subject, state, node, &beside, tools)?;
                        self.beside_rivals.insert(key, (state_of_node, status));
                        status
                    }
                };
                let context = subject.context(cluster, &self.profiles);
                let mut entry = local::scored(&context, node, false);
                entry.status = status;
                entry
            } else {
                let context = subject.context(cluster, &self.profiles);
                let plugins = &context.profile.filter[..prefix];
                let mut notes = Notes {
                    statuses: &mut self.statuses,
                    stopwatch: &mut self.stopwatch,
                };
                let finding = match finding {
                    Some(finding) => finding,
                    None => {
                        ahead.looked_in_turn(&self.scratch.live);
                        Finding::default()
                    }
                };
                if let Some(row) = finding.row {
                    local::keep(table, node, row, notes.statuses);
                }
                let mut entry = local::look_up(table, &context, plugins, node, &mut notes);
                if entry.status == StatusId::FITS {
                    entry.status = match finding.live {
                        Some(verdict) => told(&context, verdict, &mut notes)?,
                        None => judge_live(&context, &self.scratch.live, state, node, &mut notes)?,
                    };
                }
                entry
            };
            if entry.status == StatusId::FITS {
                self.scratch.feasible.push(node);
                self.scratch.locals.push(entry);
                if self.scratch.feasible.len() >= enough {
                    break;
                }
            } else {
                self.scratch.refused[node.index()] = entry.status;
                count(&mut self.scratch.counts, entry.status);
            }
        }
        Ok(evaluated)
    }

    /// The same for a few given nodes; a table would not pay.
    fn filter_some(
        &mut self,
        cluster: &mut Cluster,
        subject: &Subject,
        state: &mut CycleState,
        wanted: &[NodeId],
        rivals: Rivals<'_>,
    ) -> Result<usize, String> {
        // Nodes that were not wanted count as refused, whatever an earlier cycle said about them.
        let outside = self.statuses.id(
            Plugin::NodeAffinity,
            Refusal::unresolvable("node(s) didn't satisfy plugin(s)"),
        );
        self.scratch.refused.fill(outside);
        let enough = self.enough(subject.profile, wanted.len());
        for (index, node) in wanted.iter().enumerate() {
            let beside = rivals.on(cluster, *node);
            let status = self.judge(cluster, subject, state, *node, &beside)?;
            if status == StatusId::FITS {
                let context = subject.context(cluster, &self.profiles);
                self.scratch.feasible.push(*node);
                self.scratch
                    .locals
                    .push(local::scored(&context, *node, false));
                if self.scratch.feasible.len() >= enough {
                    return Ok(index + 1);
                }
            } else {
                self.scratch.refused[node.index()] = status;
                count(&mut self.scratch.counts, status);
            }
        }
        Ok(wanted.len())
    }

    /// Asks all filters about one node, remembering nothing.
    fn judge(
        &mut self,
        cluster: &mut Cluster,
        subject: &Subject,
        state: &mut CycleState,
        node: NodeId,
        rivals: &[PodId],
    ) -> Result<StatusId, String> {
        let profile = &self.profiles[subject.profile];
        let (prefix, rest) = profile.filter.split_at(local_prefix(profile));
        let tools = Tools {
            profiles: &self.profiles,
            prefix,
            live: rest,
            statuses: &mut self.statuses,
            stopwatch: &mut self.stopwatch,
        };
        let verdict = judge_with_rivals(cluster, subject, state, node, rivals, tools);
        if self.stopwatch.is_on() {
            let refused = verdict.as_ref().ok().and_then(|id| self.statuses.get(*id));
            for plugin in &self.profiles[subject.profile].filter {
                if state.runs(*plugin) {
                    let point = Point::Filter;
                    self.stopwatch.asked(*plugin, point, subject.profile, 1);
                }
                if refused.is_some_and(|status| status.plugin == *plugin) {
                    break;
                }
            }
        }
        verdict
    }

    /// For preemption: whether the pod would fit a node as it is now, nominated pods included.
    pub fn would_fit(
        &mut self,
        cluster: &mut Cluster,
        subject: &Subject,
        state: &mut CycleState,
        node: NodeId,
        rivals: &[PodId],
    ) -> Result<StatusId, String> {
        state.refresh(cluster);
        self.judge(cluster, subject, state, node, rivals)
    }

    /// The filters of a profile that look at more than pod and node, and have something to say about this pod.
    pub fn has_live_filters(&self, profile: usize, state: &CycleState) -> bool {
        let filters = &self.profiles[profile].filter;
        filters
            .iter()
            .any(|plugin| !local::is_local(*plugin) && state.runs(*plugin))
    }

    /// How many nodes that fit are enough to choose from.
    fn enough(&self, profile: usize, nodes: usize) -> usize {
        let profile = &self.profiles[profile];
        if profile.score.is_empty() && self.extenders.is_empty() {
            return 1;
        }
        nodes_to_find(profile.percentage_of_nodes_to_score as usize, nodes)
    }

    fn diagnose(&self, diagnosis: &mut Diagnosis) {
        for (index, nodes) in self.scratch.counts.iter().enumerate() {
            if *nodes == 0 {
                continue;
            }
            let id = Statuses::from_index(index);
            diagnosis.counts.push((id, *nodes));
            if let Some(status) = self.statuses.get(id) {
                diagnosis.rejectors.insert(status.plugin);
                if status.refusal.code == Code::Pending {
                    diagnosis.pending.insert(status.plugin);
                }
            }
        }
    }
}

/// The adaptive rule: the more nodes, the smaller the share of them that is looked for.
pub fn nodes_to_find(percentage: usize, nodes: usize) -> usize {
    if nodes < MIN_FEASIBLE_NODES {
        return nodes;
    }
    let percentage = match percentage {
        0 => 50_usize.saturating_sub(nodes / 125).max(MIN_PERCENTAGE),
        given => given,
    };
    (nodes * percentage / 100).max(MIN_FEASIBLE_NODES)
}

fn count(counts: &mut Vec<usize>, status: StatusId) {
    let index = Statuses::index(status);
    if index >= counts.len() {
        counts.resize(index + 1, 0);
    }
    counts[index] += 1;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_of_nodes_shrinks_with_the_cluster() {
        for (percentage, nodes, expected) in [
            (0, 99, 99),
            (0, 100, 100),
            (0, 1000, 420),
            (0, 5000, 500),
            (0, 15000, 750),
            (30, 5000, 1500),
            (1, 5000, 100),
            (100, 5000, 5000),
        ] {
            assert_eq!(
                nodes_to_find(percentage, nodes),
                expected,
                "{percentage} {nodes}"
            );
        }
    }
}
