//! Verdicts on single nodes.

use std::sync::Arc;

use super::local;
use super::plugin::Plugin;
use super::profile::Profile;
use super::state::{Context, CycleState};
use super::status::{Code, Refusal, StatusId, Statuses, Verdict};
use super::stopwatch::{Ending, Point, Stopwatch};
use crate::cluster::{ClassId, Cluster, NodeId, PodId};
use crate::model::Pod;
use crate::plugins;
use crate::time::Time;

/// Whom to find a node for, under which profile, when.
#[derive(Debug, Clone, Copy)]
pub struct Attempt {
    pub pod: PodId,
    pub profile: usize,
    pub now: Time,
}

/// An attempt with what is known of its pod.
#[derive(Debug, Clone)]
pub struct Subject {
    pub(super) profile: usize,
    pub(super) pod: Arc<Pod>,
    pub(super) class: ClassId,
    now: Time,
}

impl Subject {
    pub fn new(cluster: &Cluster, attempt: Attempt) -> Option<Self> {
        let record = cluster.pods.get(attempt.pod)?;
        Some(Self {
            profile: attempt.profile,
            pod: Arc::clone(&record.pod),
            class: record.class,
            now: attempt.now,
        })
    }

    pub fn context<'a>(&'a self, cluster: &'a Cluster, profiles: &'a [Profile]) -> Context<'a> {
        Context {
            cluster,
            profile: &profiles[self.profile],
            pod: &self.pod,
            class: cluster.classes.get(self.class),
            now: self.now,
        }
    }

    pub fn class(&self) -> ClassId {
        self.class
    }

    pub fn priority(&self) -> i32 {
        self.pod.priority
    }
}

/// How many of a profile's first filters look at nothing but pod and node.
pub(super) fn local_prefix(profile: &Profile) -> usize {
    profile
        .filter
        .iter()
        .take_while(|plugin| local::is_local(**plugin))
        .count()
}

/// What judging a node takes.
pub(super) struct Tools<'a> {
    pub profiles: &'a [Profile],
    pub prefix: &'a [Plugin],
    pub live: &'a [Plugin],
    pub statuses: &'a mut Statuses,
    pub stopwatch: &'a mut Stopwatch,
}

/// What judging leaves behind.
pub(super) struct Notes<'a> {
    pub statuses: &'a mut Statuses,
    pub stopwatch: &'a mut Stopwatch,
}

impl Notes<'_> {
    /// Asks one plugin about one node.
    pub fn ask(
        &mut self,
        plugin: Plugin,
        context: &Context<'_>,
        state: &CycleState,
        node: NodeId,
    ) -> Verdict {
        if !self.stopwatch.is_sampled() {
            return plugins::filter(plugin, context, state, node);
        }
        let began = self.stopwatch.now();
        let verdict = plugins::filter(plugin, context, state, node);
        let ending = verdict.as_ref().err();
        let ending = ending.map_or(Ending::Success, |refusal| refusal.code.into());
        self.stopwatch.plugin(plugin, Point::Filter, ending, began);
        verdict
    }
}

/// The pod must fit beside the pods nominated to the node, and, should they go elsewhere, without them.
pub(super) fn judge_with_rivals(
    cluster: &mut Cluster,
    subject: &Subject,
    state: &mut CycleState,
    node: NodeId,
    rivals: &[PodId],
    tools: Tools<'_>,
) -> Result<StatusId, String> {
    let Tools {
        profiles,
        prefix,
        live,
        statuses,
        stopwatch,
    } = tools;
    let mut notes = Notes {
        statuses,
        stopwatch,
    };
    if !rivals.is_empty() {
        let generation = cluster.nodes.generation(node);
        for rival in rivals {
            cluster.place(*rival, node);
        }
        state.refresh(cluster);
        let context = subject.context(cluster, profiles);
        let beside = judge_once(&context, state, node, prefix, live, &mut notes);
        for rival in rivals.iter().rev() {
            cluster.unplace(*rival);
        }
        cluster.nodes.restore_generation(node, generation);
        state.refresh(cluster);
        match beside {
            Ok(StatusId::FITS) => {}
            other => return other,
        }
    }
    let context = subject.context(cluster, profiles);
    judge_once(&context, state, node, prefix, live, &mut notes)
}

fn judge_once(
    context: &Context<'_>,
    state: &CycleState,
    node: NodeId,
    prefix: &[Plugin],
    live: &[Plugin],
    notes: &mut Notes<'_>,
) -> Result<StatusId, String> {
    match local::judge(context, prefix, node, notes) {
        StatusId::FITS => judge_live(context, live, state, node, notes),
        refused => Ok(refused),
    }
}

pub(super) fn judge_live(
    context: &Context<'_>,
    live: &[Plugin],
    state: &CycleState,
    node: NodeId,
    notes: &mut Notes<'_>,
) -> Result<StatusId, String> {
    for plugin in live.iter().filter(|plugin| state.runs(**plugin)) {
        if let Err(refusal) = notes.ask(*plugin, context, state, node) {
            return told(context, Err((*plugin, refusal)), notes);
        }
    }
    Ok(StatusId::FITS)
}

/// What follows from the verdict of those filters.
pub(super) fn told(
    context: &Context<'_>,
    verdict: Result<(), (Plugin, Refusal)>,
    notes: &mut Notes<'_>,
) -> Result<StatusId, String> {
    match verdict {
        Ok(()) => Ok(StatusId::FITS),
        Err((plugin, refusal)) if refusal.code == Code::Error => Err(format!(
            "running {:?} filter plugin: {}",
            plugin.name(),
            refusal.message(&context.cluster.names)
        )),
        Err((plugin, refusal)) => Ok(notes.statuses.id(plugin, refusal)),
    }
}
