//! The scheduler as a state machine.

mod asking;
mod binding;
mod cycle;
mod failure;
mod finish;
mod gang;
mod observe;
mod wake;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use rustc_hash::FxHashMap;

pub use observe::Observation;

use crate::action::{Action, ActionId, ActionKind, EventRecord, EventType, PodRef};
use crate::cluster::{Cluster, PodId};
use crate::extender::{Question, Rule};
use crate::features::Features;
use crate::framework::engine::{Engine, Scoreboard};
use crate::framework::plugin::Plugin;
use crate::framework::profile::Profile;
use crate::framework::stopwatch::{Clock, Ending, Measured};
use crate::framework::workers::{Parallelism, Workers};
use crate::model::{Names, Pod};
use crate::queue::nominations::Nominations;
use crate::queue::{Queue, QueueConfig};
use crate::time::Time;

#[derive(Debug)]
pub struct Config {
    pub profiles: Vec<Profile>,
    pub queue: QueueConfig,
    /// Decides between nodes that are equally good.
    pub seed: u64,
}

/// Queue, cache and plugins, and what is under way.
#[derive(Debug)]
pub struct Scheduler {
    pub(crate) cluster: Cluster,
    pub(crate) engine: Engine,
    pub(crate) queue: Queue,
    pub(crate) nominations: Nominations,
    under_way: FxHashMap<ActionId, UnderWay>,
    /// Pods whose victims are still being evicted.
    preempting: FxHashMap<PodId, Preempting>,
    /// Pods with a node that are not ready to be bound yet.
    bindings: FxHashMap<PodId, binding::Binding>,
    /// The cycle that waits for the word of extenders.
    asking: Option<asking::Asking>,
    /// Cycles that are over and have not been told yet.
    more: VecDeque<Cycle>,
    /// Pods that had a node and will not be bound to it.
    gave_up: Vec<GivenUp>,
    /// What came up otherwise than by a cycle or the end of an action.
    outbox: Vec<Action>,
    next_action: u64,
}

/// What an action was for. By UID: until it ends, a pod's number may have become another's.
#[derive(Debug, Clone)]
enum UnderWay {
    Bind {
        pod: Arc<str>,
    },
    /// Something that has to be there before the binding.
    PreBind {
        pod: Arc<str>,
        plugin: Plugin,
    },
    Evict {
        victim: PodRef,
        preemptor: Arc<str>,
        node: Box<str>,
    },
}

/// A pod that had a node and will not be bound to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GivenUp {
    pub uid: Arc<str>,
    /// A plugin refused it; else something went wrong.
    pub is_refused: bool,
}

/// Evictions of one preemption.
#[derive(Debug)]
struct Preempting {
    running: usize,
    /// Evicted when all others are, so that its end wakes the preemptor; taken out when that begins.
    last: Option<ActionKind>,
    last_victim: Arc<str>,
    node: Box<str>,
    failed: bool,
}

impl Preempting {
    /// As long as its last victim lives. What the others leave is not worth a try.
    fn holds_back(&self, cluster: &Cluster) -> bool {
        let victim = cluster.pods.find(&self.last_victim);
        let victim = victim.and_then(|id| cluster.pods.get(id));
        victim.is_some_and(|record| !record.pod.terminating)
    }
}

/// One scheduling cycle.
#[derive(Debug)]
pub struct Cycle {
    pub pod: PodRef,
    /// By its place in the configuration; `None`: no profile of ours.
    pub profile: Option<usize>,
    pub outcome: Outcome,
    pub actions: Vec<Action>,
    pub evaluated_nodes: usize,
    pub feasible_nodes: usize,
    /// What won, if scores are recorded.
    pub scores: Option<Box<Scoreboard>>,
    pub attempts: u32,
    /// It was tried because it had waited too long, not because something had happened.
    pub was_flushed: bool,
    /// Since the pod was first ready to be scheduled.
    pub waited: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    Scheduled {
        node: Box<str>,
    },
    Unschedulable {
        message: String,
    },
    Error {
        message: String,
    },
    /// It was not for us, or not any more.
    Skipped,
    /// Extenders have to be asked; until [`Scheduler::answer`] is told what they say, nobody else is scheduled.
    Asking(Box<Question>),
}

impl Scheduler {
    /// `names` are those that the profiles were made with.
    pub fn new(config: Config, names: Names) -> Self {
        Self {
            cluster: Cluster::new(names),
            engine: Engine::new(config.profiles, config.seed),
            queue: Queue::new(config.queue),
            nominations: Nominations::default(),
            under_way: FxHashMap::default(),
            preempting: FxHashMap::default(),
            bindings: FxHashMap::default(),
            asking: None,
            more: VecDeque::new(),
            gave_up: Vec::new(),
            outbox: Vec::new(),
            next_action: 0,
        }
    }

    /// With some of it switched otherwise than usual.
    pub fn with_features(mut self, features: Features) -> Self {
        for profile in &mut self.engine.profiles {
            profile.switch(&features);
        }
        self.queue.waits_out_backoff = !features.pop_from_backoff;
        self.cluster.names.knows_whole_pods = features.pod_level_resources;
        self.cluster.features = features;
        self
    }

    /// Threads change how long things take, and no decision.
    pub fn with_parallelism(mut self, parallelism: Parallelism) -> Self {
        self.engine.workers = Workers::new(parallelism);
        self
    }

    /// With others who have a say.
    pub fn with_extenders(mut self, extenders: Vec<Rule>) -> Self {
        self.engine.extenders = extenders;
        self
    }

    /// Whether an extender has a say about a pod.
    pub fn concerns(&self, extender: usize, uid: &str) -> bool {
        let record = self
            .cluster
            .pods
            .find(uid)
            .and_then(|id| self.cluster.pods.get(id));
        record.is_some_and(|record| {
            self.engine
                .extenders
                .get(extender)
                .is_some_and(|rule| rule.concerns(&self.cluster, record.class))
        })
    }

    /// Whose binding an action is, if it is one that has not ended.
    pub fn binds(&self, action: ActionId) -> Option<Arc<str>> {
        match self.under_way.get(&action) {
            Some(UnderWay::Bind { pod }) => Some(Arc::clone(pod)),
            _ => None,
        }
    }

    /// For whose binding something is written that has to be there first.
    pub fn prepares(&self, action: ActionId) -> Option<Arc<str>> {
        match self.under_way.get(&action) {
            Some(UnderWay::PreBind { pod, .. }) => Some(Arc::clone(pod)),
            _ => None,
        }
    }

    /// For decoding objects.
    pub fn names_mut(&mut self) -> &mut Names {
        &mut self.cluster.names
    }

    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    pub fn queue(&self) -> &Queue {
        &self.queue
    }

    /// Whether the scores of every cycle are kept in its outcome.
    pub fn record_scores(&mut self, record: bool) {
        self.engine.record_scores = record;
    }

    /// Has things timed by this clock.
    pub fn lend_clock(&mut self, clock: Clock) {
        self.engine.stopwatch.lend(clock);
    }

    /// How many measurements wait to be taken.
    pub fn has_measured(&self) -> usize {
        self.engine.stopwatch.waiting()
    }

    /// What has been measured since the last time.
    pub fn take_measured(&mut self) -> Measured {
        self.engine.stopwatch.take()
    }

    /// When time alone would change something. Asked after [`Scheduler::step`] has had nothing to do.
    pub fn next_wakeup(&self) -> Option<Time> {
        self.queue
            .next_wakeup()
            .into_iter()
            .chain(self.next_deadline())
            .min()
    }

    /// What is to be done because of something observed, or because time has passed. To be asked for after
    /// [`Scheduler::observe`] and [`Scheduler::step`].
    pub fn take_actions(&mut self) -> Vec<Action> {
        std::mem::take(&mut self.outbox)
    }

    /// Pods whose attempts came to nothing after a node had been chosen; since the last time.
    pub fn take_given_up(&mut self) -> Vec<GivenUp> {
        std::mem::take(&mut self.gave_up)
    }

    /// Actions that have not been reported as finished.
    pub fn under_way(&self) -> usize {
        self.under_way.len()
    }

    fn profile_of(&self, pod: &Pod) -> Option<usize> {
        let name = pod.spec.scheduler_name;
        self.engine
            .profiles
            .iter()
            .position(|profile| profile.name == name)
    }

    fn action(&mut self, kind: ActionKind) -> Action {
        self.next_action += 1;
        Action {
            id: ActionId(self.next_action),
            kind,
        }
    }

    fn pod_ref(&self, pod: &Pod) -> PodRef {
        PodRef {
            namespace: self.cluster.names.text(pod.namespace()).into(),
            name: pod.name.clone(),
            uid: pod.uid.clone(),
            resource_version: pod.resource_version.clone(),
        }
    }

    fn event(
        &mut self,
        pod: &Pod,
        kind: EventType,
        reason: &'static str,
        action: &'static str,
        note: String,
    ) -> Action {
        let record = EventRecord {
            regarding: self.pod_ref(pod),
            related: None,
            kind,
            reason,
            action,
            note: crate::action::shorten(note),
            controller: self.cluster.names.text(pod.spec.scheduler_name).into(),
        };
        self.action(ActionKind::Event(record))
    }
}

/// Which plugin holds a pod back from being queued.
fn gate(
    cluster: &Cluster,
    engine: &Engine,
    preempting: &FxHashMap<PodId, Preempting>,
    now: Time,
    id: PodId,
) -> Option<Plugin> {
    let record = cluster.pods.get(id)?;
    let name = record.pod.spec.scheduler_name;
    let index = engine
        .profiles
        .iter()
        .position(|profile| profile.name == name)?;
    let profile = &engine.profiles[index];
    let began = engine.stopwatch.now();
    let context = crate::framework::state::Context {
        cluster,
        profile,
        pod: &record.pod,
        class: cluster.classes.get(record.class),
        now,
    };
    let mut plugins = profile.pre_enqueue.iter().copied();
    let held_by = plugins.find(|plugin| match plugin {
        Plugin::DefaultPreemption => preempting
            .get(&id)
            .is_some_and(|preempting| preempting.holds_back(cluster)),
        other => crate::plugins::pre_enqueue(*other, &context).is_err(),
    });
    // The original tells of all of them as of a success.
    engine.stopwatch.gated(Ending::Success, index, began);
    held_by
}

#[cfg(test)]
mod tests;
