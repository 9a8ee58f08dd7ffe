//! The scheduler's figures, under the names that dashboards know.

mod batches;
mod core;
mod page;
pub mod pods;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use plimsoll_metrics::Histogram;
use plimsoll_sched::framework::stopwatch::{Ending, Measured, Point};
use plimsoll_sched::framework::{ClusterEvent, Plugin, Profile, score};
use plimsoll_sched::plugins;
use plimsoll_sched::{Cycle, Outcome};
use rustc_hash::FxHashMap;

use self::batches::Batches;
use crate::gates::Gates;

pub use self::core::CoreFigures;

/// Of so many bindings, one is told of by plugin.
const SAMPLED: u64 = 10;
const RESULTS: [&str; 3] = ["scheduled", "unschedulable", "error"];

/// Bounds that grow by a factor.
fn exponential(first: f64, factor: f64, count: usize) -> Arc<[f64]> {
    // Multiplied step by step, so that the last digits are those of the original.
    std::iter::successors(Some(first), |bound| Some(bound * factor))
        .take(count)
        .collect()
}

/// Counts; clones count the same.
#[derive(Debug, Clone)]
pub struct Metrics(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    profiles: Mutex<Vec<Arc<str>>>,
    gates: Gates,
    counts: Mutex<Counts>,
}

#[derive(Debug)]
struct Counts {
    /// By result and profile.
    attempts: BTreeMap<(&'static str, Arc<str>), (u64, Histogram)>,
    algorithm: Histogram,
    /// By the number of attempts it took.
    sli: BTreeMap<String, Histogram>,
    attempts_of_pods: Histogram,
    bindings: u64,
    after_flush: u64,
    preemptions: u64,
    victims: Histogram,
    /// Evictions for one pod, from the first to the last, by result.
    evictions: BTreeMap<&'static str, Histogram>,
    points: BTreeMap<(Point, Ending, Arc<str>), Histogram>,
    plugins: BTreeMap<(Plugin, Point, Ending), Histogram>,
    evaluations: BTreeMap<(Plugin, Point, Arc<str>), u64>,
    hints: FxHashMap<(Plugin, ClusterEvent, bool), Histogram>,
    events: FxHashMap<ClusterEvent, Histogram>,
    /// Claims made for extended resources, by how that ended.
    claims: BTreeMap<&'static str, u64>,
    /// Volumes that could not be bound.
    volume_errors: u64,
    /// `None` if that is switched off.
    batches: Option<Batches>,
    bounds: Bounds,
}

/// Bounds that many histograms share.
#[derive(Debug)]
struct Bounds {
    attempts: Arc<[f64]>,
    points: Arc<[f64]>,
    plugins: Arc<[f64]>,
}

fn seconds(nanos: u64) -> f64 {
    Duration::from_nanos(nanos).as_secs_f64()
}

impl Metrics {
    /// For profiles of these names.
    pub fn new(profiles: Vec<Arc<str>>, gates: Gates) -> Self {
        let bounds = Bounds {
            attempts: exponential(0.001, 2.0, 15),
            points: exponential(0.0001, 2.0, 12),
            plugins: exponential(0.000_01, 1.5, 20),
        };
        let mut attempts = BTreeMap::new();
        for profile in &profiles {
            for result in RESULTS {
                let empty = (0, Histogram::new(Arc::clone(&bounds.attempts)));
                attempts.insert((result, Arc::clone(profile)), empty);
            }
        }
        let batches = gates.is_on("OpportunisticBatching");
        Self(Arc::new(Shared {
            profiles: Mutex::new(profiles),
            gates,
            counts: Mutex::new(Counts {
                attempts,
                algorithm: Histogram::new(Arc::clone(&bounds.attempts)),
                sli: BTreeMap::new(),
                attempts_of_pods: Histogram::new(exponential(1.0, 2.0, 5)),
                bindings: 0,
                after_flush: 0,
                preemptions: 0,
                victims: Histogram::new(exponential(1.0, 2.0, 7)),
                evictions: BTreeMap::new(),
                points: BTreeMap::new(),
                plugins: BTreeMap::new(),
                evaluations: BTreeMap::new(),
                hints: FxHashMap::default(),
                events: FxHashMap::default(),
                claims: BTreeMap::new(),
                volume_errors: 0,
                batches: batches.then(Batches::default),
                bounds,
            }),
        }))
    }

    /// A profile's name.
    pub fn profile(&self, index: Option<usize>) -> Arc<str> {
        let profiles = self.0.profiles.lock();
        let name = index.and_then(|index| profiles.get(index));
        name.map_or_else(|| Arc::from(""), Arc::clone)
    }

    /// A new configuration has others.
    pub fn set_profiles(&self, profiles: Vec<Arc<str>>) {
        *self.0.profiles.lock() = profiles;
    }

    /// The plugins of a profile are told of before they have been asked anything.
    pub fn expect(&self, name: &Arc<str>, profile: &Profile) {
        let mut counts = self.0.counts.lock();
        let filters = profile.filter.iter().map(|one| (Point::Filter, *one));
        let before = profile.pre_filter.iter().copied();
        let before = before.filter(|one| plugins::has_pre_filter(*one));
        let scores = profile.score.iter().map(|(one, _)| *one);
        let weighed = scores.clone().filter(|one| score::has_pre_score(*one));
        // The original asks it for scores only with a feature that is off, but tells of it.
        let volumes = profile
            .reserve
            .iter()
            .copied()
            .filter(|one| *one == Plugin::VolumeBinding);
        let volumes = volumes.flat_map(|one| [(Point::PreScore, one), (Point::Score, one)]);
        let all = filters
            .chain(volumes)
            .chain(before.map(|one| (Point::PreFilter, one)))
            .chain(weighed.map(|one| (Point::PreScore, one)))
            .chain(scores.map(|one| (Point::Score, one)));
        for (point, plugin) in all {
            let key = (plugin, point, Arc::clone(name));
            counts.evaluations.entry(key).or_default();
        }
    }

    /// One cycle. One that found a node counts when that is bound.
    pub fn cycle(&self, cycle: &Cycle, profile: &Arc<str>, took: Duration) {
        let mut counts = self.0.counts.lock();
        if !matches!(cycle.outcome, Outcome::Skipped | Outcome::Asking(_)) {
            counts.algorithm.observe(took.as_secs_f64());
        }
        match cycle.outcome {
            Outcome::Scheduled { .. } => {
                if let Some(batches) = &mut counts.batches {
                    batches.chosen(profile, cycle.feasible_nodes);
                }
            }
            Outcome::Unschedulable { .. } => counts.attempt("unschedulable", profile, took),
            Outcome::Error { .. } => counts.attempt("error", profile, took),
            Outcome::Skipped | Outcome::Asking(_) => {}
        }
    }

    /// A pod has its node. `waited`: since it was first ready to be scheduled.
    pub fn bound(&self, profile: &Arc<str>, attempts: u32, took: Duration, waited: Duration) {
        let mut counts = self.0.counts.lock();
        counts.attempt("scheduled", profile, took);
        let label = match attempts {
            0..15 => attempts.to_string(),
            _ => "15+".to_owned(),
        };
        counts
            .sli
            .entry(label)
            .or_insert_with(|| Histogram::new(exponential(0.01, 2.0, 20)))
            .observe(waited.as_secs_f64());
        counts.attempts_of_pods.observe(f64::from(attempts));
    }

    /// The pod that was bound had been tried because it had waited too long.
    pub fn bound_after_flush(&self) {
        self.0.counts.lock().after_flush += 1;
    }

    /// A pod had a node, and could not be bound.
    pub fn failed(&self, profile: &Arc<str>, took: Duration) {
        self.0.counts.lock().attempt("error", profile, took);
    }

    /// A pod had a node, and a plugin did not let it be bound.
    pub fn refused(&self, profile: &Arc<str>, took: Duration) {
        self.0.counts.lock().attempt("unschedulable", profile, took);
    }

    /// Something that was written, from the moment that it could be.
    pub fn written(&self, point: Point, is_done: bool, profile: &Arc<str>, took: Duration) {
        let ending = match is_done {
            true => Ending::Success,
            false => Ending::Error,
        };
        let mut counts = self.0.counts.lock();
        counts.point(point, ending, profile, took.as_secs_f64());
        if point == Point::Bind {
            counts.bindings += 1;
            if counts.bindings.is_multiple_of(SAMPLED) {
                let key = (Plugin::DefaultBinder, point, ending);
                counts.plugin(key, took.as_secs_f64());
            }
        }
    }

    pub fn volume_not_bound(&self) {
        self.0.counts.lock().volume_errors += 1;
    }

    /// A claim for extended resources was asked for.
    pub fn claim_made(&self, is_done: bool) {
        let status = if is_done { "success" } else { "failure" };
        *self.0.counts.lock().claims.entry(status).or_default() += 1;
    }

    /// All evictions for one pod have been carried out, or one of them could not be.
    pub fn evicted(&self, is_done: bool, took: Duration) {
        let result = if is_done { "success" } else { "error" };
        let mut counts = self.0.counts.lock();
        let histogram = counts.evictions.entry(result);
        histogram
            .or_insert_with(|| Histogram::new(exponential(0.01, 2.0, 20)))
            .observe(took.as_secs_f64());
    }

    /// What the core has measured of itself.
    pub fn measured(&self, measured: &Measured) {
        let profiles = self.0.profiles.lock();
        let name = |index: usize| profiles.get(index).cloned().unwrap_or_default();
        let mut counts = self.0.counts.lock();
        for time in &measured.points {
            let profile = name(time.profile);
            if let Some(batches) = &mut counts.batches
                && (time.point, time.ending) == (Point::PreFilter, Ending::Success)
            {
                batches.looked(&profile);
            }
            counts.point(time.point, time.ending, &profile, seconds(time.nanos));
        }
        for time in &measured.plugins {
            let key = (time.plugin, time.point, time.ending);
            counts.plugin(key, seconds(time.nanos));
        }
        for hint in &measured.hints {
            let bounds = Arc::clone(&counts.bounds.plugins);
            let key = (hint.plugin, hint.event, hint.helps);
            let histogram = counts.hints.entry(key);
            histogram
                .or_insert_with(|| Histogram::new(bounds))
                .observe(seconds(hint.nanos));
        }
        for one in &measured.evaluations {
            if one.point == Point::PostFilter {
                counts.preemptions += one.times;
                continue;
            }
            let key = (one.plugin, one.point, name(one.profile));
            *counts.evaluations.entry(key).or_default() += one.times;
        }
        for (event, nanos) in &measured.events {
            let bounds = Arc::clone(&counts.bounds.points);
            let histogram = counts.events.entry(*event);
            histogram
                .or_insert_with(|| Histogram::new(bounds))
                .observe(seconds(*nanos));
        }
        for victims in &measured.victims {
            counts.victims.observe(*victims as f64);
        }
    }
}

impl Counts {
    fn attempt(&mut self, result: &'static str, profile: &Arc<str>, took: Duration) {
        let bounds = Arc::clone(&self.bounds.attempts);
        let entry = self.attempts.entry((result, Arc::clone(profile)));
        let (number, histogram) = entry.or_insert_with(|| (0, Histogram::new(bounds)));
        *number += 1;
        histogram.observe(took.as_secs_f64());
    }

    fn point(&mut self, point: Point, ending: Ending, profile: &Arc<str>, seconds: f64) {
        let bounds = Arc::clone(&self.bounds.points);
        let histogram = self.points.entry((point, ending, Arc::clone(profile)));
        histogram
            .or_insert_with(|| Histogram::new(bounds))
            .observe(seconds);
    }

    fn plugin(&mut self, key: (Plugin, Point, Ending), seconds: f64) {
        let bounds = Arc::clone(&self.bounds.plugins);
        let histogram = self.plugins.entry(key);
        histogram
            .or_insert_with(|| Histogram::new(bounds))
            .observe(seconds);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_hints_are_given() {
        let profile: Arc<str> = "default-scheduler".into();
        let metrics = Metrics::new(vec![Arc::clone(&profile)], Gates::default());
        let mut measured = Measured::default();
        measured
            .points
            .push(plimsoll_sched::framework::stopwatch::PointTime {
                point: Point::PreFilter,
                ending: Ending::Success,
                profile: 0,
                nanos: 5,
            });
        metrics.measured(&measured);
        let line =
            "scheduler_batch_attempts_total{profile=\"default-scheduler\",result=\"no_hint\"} 1\n";
        assert!(metrics.render(None, None).contains(line));
        let gates = Gates::parse(["OpportunisticBatching=false"]).unwrap();
        let metrics = Metrics::new(vec![profile], gates);
        metrics.measured(&measured);
        assert!(!metrics.render(None, None).contains("scheduler_batch_"));
    }

    #[test]
    fn what_is_told() {
        let profile: Arc<str> = "default-scheduler".into();
        let metrics = Metrics::new(vec![Arc::clone(&profile)], Gates::default());
        let (took, waited) = (Duration::from_millis(3), Duration::from_millis(30));
        metrics.bound(&profile, 1, took, waited);
        metrics.bound(&profile, 16, took, waited);
        metrics.written(Point::Bind, true, &profile, took);
        let page = metrics.render(None, None);
        for line in [
            "scheduler_schedule_attempts_total{profile=\"default-scheduler\",result=\"scheduled\"} 2\n",
            "scheduler_scheduling_attempt_duration_seconds_bucket{profile=\"default-scheduler\",result=\"scheduled\",le=\"0.004\"} 2\n",
            "scheduler_pod_scheduling_sli_duration_seconds_bucket{attempts=\"15+\",le=\"0.04\"} 1\n",
            "scheduler_pod_scheduling_attempts_bucket{le=\"16\"} 2\n",
            "scheduler_framework_extension_point_duration_seconds_bucket{extension_point=\"Bind\",profile=\"default-scheduler\",status=\"Success\",le=\"0.0032\"} 1\n",
            "kubernetes_feature_enabled{name=\"SchedulerAsyncPreemption\",stage=\"BETA\"} 1\n",
        ] {
            assert!(page.contains(line), "{line}\n{page}");
        }
    }
}
