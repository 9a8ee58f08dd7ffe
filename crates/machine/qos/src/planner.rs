//! All strategies, one after the other.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_api::names::ANNOTATION_EVICTION_POLICY;
use plimsoll_plan::{Asker, Note, Plan, Target, Value};

use crate::eviction::{self, EvictionRound};
use crate::gate::{Gate, GateStatus, Source, Verdict};
use crate::input::{Input, finite};
use crate::metrics::Metrics;
use crate::settings::Settings;
use crate::strategy::{
    Outcome, blkio, cpu_burst, cpu_suppress, host_applications, memory_qos, resctrl, system_config,
};
use crate::windows::Windows;

/// Who wants something, and what it has to know.
type Needs = (Asker, &'static [Source]);

const CPU_SUPPRESS: Needs = (
    Asker::CpuSuppress,
    &[Source::Pods, Source::Node, Source::Cpus, Source::Usage],
);

const CPU_BURST: Needs = (Asker::CpuBurst, &[Source::Pods, Source::Usage]);

const MEMORY_QOS: Needs = (Asker::MemoryQos, &[Source::Pods, Source::Node]);
const RESCTRL: Needs = (Asker::Resctrl, &[Source::Pods]);
const BLKIO: Needs = (Asker::BlkIo, &[Source::Pods, Source::Node]);
const SYSTEM_CONFIG: Needs = (Asker::SystemConfig, &[Source::Node]);
const HOST_APPLICATIONS: Needs = (Asker::HostApplications, &[Source::Node, Source::Cpus]);
const EVICTION: &[Source] = &[Source::Pods, Source::Node, Source::Usage];

/// A node full of bad annotations is not told of without end.
const MOST_NOTES: usize = 100;

/// What comes of one look.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Planned {
    /// One for each asker that has something to say. No plan: what it wanted before stays as it is.
    pub plans: Vec<Plan>,
    /// Who has to go. Each eviction is carried out once; one that fails is told to the planner.
    pub evictions: EvictionRound,
    /// Why a strategy has no new plan, and what is wrong with the policy.
    pub notes: Vec<Note>,
    pub gate: GateStatus,
    pub metrics: Metrics,
}

/// Keeps what the strategies remember.
#[derive(Debug)]
pub struct Planner {
    pub settings: Settings,
    gate: Gate,
    metrics: Metrics,
    states: States,
    /// The last plan of each, and since when it has been standing without grounds.
    last: BTreeMap<Asker, Standing>,
}

/// What strategies remember.
#[derive(Debug, Default)]
struct States {
    windows: Windows,
    cpu_suppress: cpu_suppress::State,
    cpu_burst: cpu_burst::State,
    blkio: blkio::State,
    eviction: eviction::State,
}

#[derive(Debug, Default)]
struct Standing {
    plan: Option<Plan>,
    since: Option<Duration>,
}

impl Planner {
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            gate: Gate::default(),
            metrics: Metrics::default(),
            states: States::default(),
            last: BTreeMap::new(),
        }
    }

    /// What the kernel has of these is to be in the next input.
    pub fn reads(&self, input: &Input<'_>) -> Vec<Target> {
        let gates = &self.settings.gates;
        let mut reads = Vec::new();
        if gates.be_cpu_suppress {
            reads.extend(cpu_suppress::State::reads(input));
        }
        if gates.cpu_burst {
            reads.extend(cpu_burst::State::reads(input));
        }
        reads
    }

    pub fn plan(&mut self, input: &Input<'_>) -> Planned {
        // Gauges stay as they are until something new is known, but those of containers are made anew.
        let mut planned = Planned {
            metrics: std::mem::take(&mut self.metrics),
            ..Planned::default()
        };
        planned.metrics.container_scaled_cfs_burst_us.clear();
        planned.metrics.container_scaled_cfs_quota_us.clear();
        let best_effort = input
            .usage
            .and_then(|seen| finite(seen.value.best_effort_cpu));
        if best_effort.is_some() {
            planned.metrics.be_suppress_be_used_cpu_cores = best_effort;
        }
        self.look(&mut planned, input);
        self.metrics = planned.metrics.clone();
        planned
    }

    fn look(&mut self, planned: &mut Planned, input: &Input<'_>) {
        let waits = Gate::waits(input);
        planned.gate.open = self.gate.look(&waits);
        planned.gate.waiting.clone_from(&waits);
        planned.notes = notes(input);
        let interval = self.settings.interval;
        let keep = eviction::longest_window(&input.policy.threshold, interval);
        self.states.windows.take(input, keep);
        self.states.eviction.begin(input.now);
        // Nothing is measured often enough to act by it.
        if self.settings.interval < Duration::from_secs(1) {
            return;
        }
        let gates = self.settings.gates;
        let on = gates.be_cpu_suppress;
        self.run(planned, input, on, CPU_SUPPRESS, |states, metrics| {
            states.cpu_suppress.plan(input, &gates, metrics)
        });
        let (on, every) = (gates.cpu_burst, self.settings.reconcile_interval);
        self.run(planned, input, on, CPU_BURST, |states, metrics| {
            let (burst, windows) = (&mut states.cpu_burst, &states.windows);
            burst.plan(input, windows, every, metrics)
        });
        let on = gates.cgroup_reconcile;
        self.run(planned, input, on, MEMORY_QOS, |_, _| {
            memory_qos::plan(input)
        });
        self.run(planned, input, gates.rdt_resctrl, RESCTRL, |_, _| {
            resctrl::plan(input)
        });
        let on = gates.blkio_reconcile;
        self.run(planned, input, on, BLKIO, |states, _| {
            states.blkio.plan(input)
        });
        let on = gates.system_config;
        self.run(planned, input, on, SYSTEM_CONFIG, |_, _| {
            system_config::plan(input)
        });
        let on = gates.group_identity || gates.cpuset_allocator;
        self.run(planned, input, on, HOST_APPLICATIONS, |_, _| {
            host_applications::plan(input, &gates)
        });
        let known = !planned
            .gate
            .waiting
            .iter()
            .any(|wait| EVICTION.contains(&wait.source));
        if planned.gate.open && known {
            let (evict, windows) = (&mut self.states.eviction, &self.states.windows);
            planned.evictions = evict.plan(input, windows, &self.settings);
        }
    }

    /// A pod of the last round could not be evicted.
    pub fn eviction_failed(&mut self, uid: &Arc<str>, now: Duration) {
        self.states.eviction.failed(uid, now);
    }

    /// Runs one strategy, or lets its last plan stand.
    fn run(
        &mut self,
        planned: &mut Planned,
        input: &Input<'_>,
        on: bool,
        (asker, needs): Needs,
        strategy: impl FnOnce(&mut States, &mut Metrics) -> Outcome,
    ) {
        if !on {
            // What an earlier run with other gates wanted goes back.
            if planned.gate.open {
                planned.plans.push(Plan::empty(asker));
            }
            return;
        }
        let since = self.last.get(&asker).and_then(|standing| standing.since);
        let hold = self.settings.hold;
        let waits = &planned.gate.waiting;
        let verdict = self.gate.verdict(waits, needs, since, input.now, hold);
        let outcome = match verdict {
            Verdict::Wait => return,
            Verdict::Act => Some(strategy(&mut self.states, &mut planned.metrics)),
            Verdict::Hold | Verdict::Release => None,
        };
        let standing = self.last.entry(asker).or_default();
        match outcome {
            Some(Outcome::Plan(plan)) => {
                *standing = Standing {
                    plan: Some(plan),
                    since: None,
                };
            }
            Some(Outcome::Keep(note)) => {
                standing.since = None;
                planned.notes.extend(note);
            }
            None => {
                let since = *standing.since.get_or_insert(input.now);
                planned
                    .gate
                    .held
                    .push((asker.as_str(), input.now.saturating_sub(since)));
                if let Some(plan) = &mut standing.plan {
                    // Threads end, and their numbers are given to others.
                    plan.effects
                        .retain(|one| !matches!(one.value, Value::Ids(_)));
                }
                if verdict == Verdict::Release && standing.plan.is_some() {
                    standing.plan = Some(Plan::empty(asker));
                }
            }
        }
        planned.plans.extend(standing.plan.clone());
    }
}

/// What is wrong with the policy and with annotations. It is said each time; whoever tells people says it once.
fn notes(input: &Input<'_>) -> Vec<Note> {
    let mut notes = input.policy.notes.clone();
    let refused = |about: Box<str>, text: String| Note {
        code: "annotation_refused",
        about,
        text: text.into(),
    };
    let node = input.node.into_iter().flat_map(|node| &node.problems);
    notes.extend(
        node.map(|problem| refused("node".into(), format!("{problem}. It is passed over."))),
    );
    for pod in input.all_pods() {
        let about = || format!("{}/{}", pod.namespace, pod.name).into();
        let problems = pod.annotations.problems();
        notes.extend(problems.map(|(name, problem)| {
            let then = match name {
                ANNOTATION_EVICTION_POLICY => "No feature evicts this pod.",
                _ => "It is passed over.",
            };
            refused(about(), format!("annotation {name}: {problem}. {then}"))
        }));
    }
    notes.truncate(MOST_NOTES);
    notes
}

#[cfg(test)]
mod tests;
