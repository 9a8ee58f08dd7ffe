//! What a simulated pod uses: a pure function of the pod and the time.

use std::f64::consts::TAU;
use std::hash::Hasher;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, PodSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use plimsoll_api::quantity::Quantity;
use rustc_hash::FxHasher;

use crate::level::{BadLevel, Level};
use crate::pods::BoundPod;
use crate::reports::Amount;
use crate::{CPU, MEMORY};

/// Without annotations, pods use this share of what they request, which is about what clusters see …
const CPU_OF_REQUEST: f64 = 0.5;
const CPU_SPREAD: f64 = 0.2;
const MEMORY_OF_REQUEST: f64 = 0.8;
const MEMORY_SPREAD: f64 = 0.05;
/// … and those that request nothing use this much: cores, bytes.
const CPU_OF_NOTHING: f64 = 0.01;
const MEMORY_OF_NOTHING: f64 = 16.0 * 1024.0 * 1024.0;

/// Ups and downs in seconds: a slow one and a quick one that never fall into step.
const PERIODS: [f64; 2] = [600.0, 47.0];
const WEIGHTS: [f64; 2] = [0.7, 0.3];

#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Usage {
    /// Cores.
    pub cpu: f64,
    pub memory_bytes: u64,
    /// Core-seconds since the pod started.
    pub cpu_seconds: f64,
}

/// How one pod behaves. The same pod always behaves the same.
#[derive(Debug, Clone, PartialEq)]
pub struct Model {
    cpu: Level,
    memory: Level,
    /// When its waves begin, in turns.
    phases: [f64; 2],
}

/// What the pod uses at that time; nothing while it does not run. An annotation that makes no sense counts as none.
pub fn usage(pod: &Pod, at: Timestamp) -> Usage {
    let Some(since) = running_since(pod).filter(|since| *since <= at) else {
        return Usage::default();
    };
    let model = Model::of(pod).unwrap_or_else(|_| Model::by_requests(pod));
    model.usage(since, at)
}

fn running_since(pod: &Pod) -> Option<Timestamp> {
    let status = pod.status.as_ref()?;
    let runs = status.phase.as_deref() == Some("Running");
    let since = status.start_time.as_ref().filter(|_| runs)?;
    Some(since.0)
}

impl Model {
    pub fn of(pod: &Pod) -> Result<Self, BadLevel> {
        Self::by_requests(pod).annotated(&pod.metadata)
    }

    /// The same of the few fields that are watched. An annotation that makes no sense counts as none.
    pub fn of_bound(pod: &BoundPod) -> Self {
        let requested = |name: &str| requested_by(pod, name);
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let model = Self::by(uid, requested);
        let annotated = model.clone().annotated(&pod.metadata);
        annotated.unwrap_or(model)
    }

    fn annotated(mut self, metadata: &ObjectMeta) -> Result<Self, BadLevel> {
        let annotation = |key: &str| metadata.annotations.as_ref()?.get(key);
        if let Some(given) = annotation(CPU) {
            self.cpu = given.parse()?;
        }
        if let Some(given) = annotation(MEMORY) {
            self.memory = given.parse()?;
        }
        Ok(self)
    }

    fn by_requests(pod: &Pod) -> Self {
        let requested = |name: &str| pod.spec.as_ref().map_or(0.0, |spec| requested(spec, name));
        Self::by(pod.metadata.uid.as_deref().unwrap_or_default(), requested)
    }

    fn by(uid: &str, requested: impl Fn(&str) -> f64) -> Self {
        let level = |requested: f64, share: f64, spread: f64, of_nothing: f64| Level {
            base: match requested > 0.0 {
                true => requested * share,
                false => of_nothing,
            },
            spread,
        };
        Self {
            cpu: level(requested("cpu"), CPU_OF_REQUEST, CPU_SPREAD, CPU_OF_NOTHING),
            memory: level(
                requested("memory"),
                MEMORY_OF_REQUEST,
                MEMORY_SPREAD,
                MEMORY_OF_NOTHING,
            ),
            phases: [turn(uid, 0), turn(uid, 1)],
        }
    }

    pub fn usage(&self, since: Timestamp, at: Timestamp) -> Usage {
        let now = seconds(at);
        let run = (now - seconds(since)).max(0.0);
        let waves = self.risen(now) - self.risen(now - run);
        Usage {
            cpu: self.cpu.base * (1.0 + self.cpu.spread * self.wave(now)),
            memory_bytes: (self.memory.base * (1.0 + self.memory.spread * self.wave(now))) as u64,
            cpu_seconds: self.cpu.base * (run + self.cpu.spread * waves),
        }
    }

    /// The most that it ever uses.
    pub fn peak(&self) -> Amount {
        Amount {
            cpu: self.cpu.base * (1.0 + self.cpu.spread),
            memory: self.memory.base * (1.0 + self.memory.spread),
        }
    }

    /// CPU time between two moments.
    pub fn cpu_time(&self, from: Timestamp, to: Timestamp) -> Duration {
        Duration::from_secs_f64(self.usage(from, to).cpu_seconds.max(0.0))
    }

    /// From -1 to 1.
    fn wave(&self, seconds: f64) -> f64 {
        self.each(|period, phase| (TAU * (seconds / period + phase)).sin())
    }

    /// The wave summed up to a moment: counters must go with rates.
    fn risen(&self, seconds: f64) -> f64 {
        self.each(|period, phase| -(TAU * (seconds / period + phase)).cos() * period / TAU)
    }

    fn each(&self, of: impl Fn(f64, f64) -> f64) -> f64 {
        let waves = PERIODS.iter().zip(&self.phases).zip(&WEIGHTS);
        waves
            .map(|((period, phase), weight)| weight * of(*period, *phase))
            .sum()
    }
}

fn seconds(at: Timestamp) -> f64 {
    at.as_microsecond() as f64 / 1e6
}

/// Somewhere between 0 and 1, by the pod.
fn turn(uid: &str, which: u8) -> f64 {
    let mut hasher = FxHasher::default();
    hasher.write(uid.as_bytes());
    hasher.write_u8(which);
    hasher.finish() as f64 / u64::MAX as f64
}

/// All containers together; those that run before them are over.
fn requested(spec: &PodSpec, name: &str) -> f64 {
    let requests = spec.containers.iter().filter_map(|container| {
        let amount = container.resources.as_ref()?.requests.as_ref()?.get(name)?;
        amount.0.parse::<Quantity>().ok()
    });
    requests.map(|amount| cores_or_bytes(&amount)).sum()
}

/// Cores or bytes.
pub fn requested_by(pod: &BoundPod, name: &str) -> f64 {
    let containers = pod.spec.containers.iter();
    let amounts =
        containers.filter_map(|container| container.resources.requests.get(name)?.parse().ok());
    amounts.map(|amount| cores_or_bytes(&amount)).sum()
}

fn cores_or_bytes(amount: &Quantity) -> f64 {
    amount.nanos() as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const START: Timestamp = Timestamp::constant(1_700_000_000, 0);

    fn pod(annotations: serde_json::Value, requests: serde_json::Value) -> Pod {
        let pod = json!({
            "metadata": {"uid": "7f0c1d0e", "annotations": annotations},
            "spec": {"containers": [{"name": "a", "resources": {"requests": requests}}]},
            "status": {"phase": "Running", "startTime": START.to_string()},
        });
        serde_json::from_value(pod).unwrap()
    }

    fn after(seconds: i64) -> Timestamp {
        START + jiff::SignedDuration::from_secs(seconds)
    }

    #[test]
    fn stays_within_its_spread_and_moves() {
        let annotations = json!({CPU: "200m±20%", MEMORY: "1Gi±10%"});
        let pod = pod(annotations, json!({"cpu": "4"}));
        let cpu: Vec<f64> = (0..3600).map(|s| usage(&pod, after(s)).cpu).collect();
        assert!(cpu.iter().all(|cpu| (0.16..=0.24).contains(cpu)));
        let (low, high) = cpu
            .iter()
            .fold((1.0_f64, 0.0_f64), |(l, h), c| (l.min(*c), h.max(*c)));
        assert!(low < 0.17 && high > 0.23, "{low} {high}");
        let memory = usage(&pod, after(60)).memory_bytes;
        assert!((966_367_641..=1_181_116_007).contains(&memory), "{memory}");
    }

    #[test]
    fn counters_are_sums_of_rates() {
        let pod = pod(json!({CPU: "2±50%"}), json!({}));
        let mut sum = 0.0;
        for tenth in 0..10_000 {
            let at = START + jiff::SignedDuration::from_millis(tenth * 100 + 50);
            sum += usage(&pod, at).cpu * 0.1;
        }
        let counted = usage(&pod, after(1000)).cpu_seconds;
        assert!((counted - sum).abs() < 0.01, "{counted} {sum}");
        let model = Model::of(&pod).unwrap();
        let parts = model.cpu_time(START, after(400)) + model.cpu_time(after(400), after(1000));
        assert!((parts.as_secs_f64() - counted).abs() < 1e-3);
    }

    #[test]
    fn without_annotations_requests_count() {
        let asking = pod(json!({}), json!({"cpu": "2", "memory": "1Gi"}));
        let used = usage(&asking, after(10));
        assert!((0.8..=1.2).contains(&used.cpu), "{used:?}");
        let share = used.memory_bytes as f64 / f64::from(1 << 30);
        assert!((0.76..=0.84).contains(&share), "{used:?}");
        let modest = pod(json!({}), json!({}));
        assert!(usage(&modest, after(10)).cpu <= 0.012);
        let confused = pod(json!({CPU: "lots"}), json!({"cpu": "2"}));
        assert_eq!(usage(&confused, after(10)).cpu, used.cpu);
        assert!(Model::of(&confused).is_err());
    }

    #[test]
    fn nothing_runs_nothing_is_used() {
        let mut pod = pod(json!({}), json!({"cpu": "2"}));
        assert_eq!(usage(&pod, after(-1)), Usage::default());
        pod.status.as_mut().unwrap().phase = Some("Succeeded".to_owned());
        assert_eq!(usage(&pod, after(10)), Usage::default());
    }
}
