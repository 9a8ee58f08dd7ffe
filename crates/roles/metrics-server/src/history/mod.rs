//! What workloads used in the last hours: for charts, and for requests and limits of the right size.
//!
//! Of each container of each workload, over all its pods, a ring of summaries: least, mean, most, and what 95 % of the
//! samples stayed below. Memory is bounded by the number of series and the length of the rings, whatever pods come and
//! go; nothing is kept on disk.

mod digest;
mod workload;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use self::digest::Digest;
use crate::points::Usage;

pub use digest::Summary;
pub use workload::Workload;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Config {
    /// How far back.
    pub span: Duration,
    /// What one summary is of.
    pub step: Duration,
    /// Containers of workloads that are kept at most.
    pub series: usize,
}

impl Config {
    /// Summaries in a full ring.
    const STEPS: u32 = 288;
    const SHORTEST: Duration = Duration::from_secs(60);

    /// A day in steps of five minutes, and other spans likewise.
    pub fn new(span: Duration) -> Self {
        Self {
            span,
            step: (span / Self::STEPS).max(Self::SHORTEST),
            series: 4096,
        }
    }
}

/// Clones are the same history.
#[derive(Debug, Clone)]
pub struct History(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    config: Config,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    workloads: BTreeMap<Arc<Workload>, Vec<Series>>,
    series: usize,
    refused: u64,
}

#[derive(Debug)]
struct Series {
    container: Arc<str>,
    /// What is being summed up: which step, counted from the epoch.
    step: i64,
    cpu: Digest,
    memory: Digest,
    past: VecDeque<Packed>,
}

/// A step that is over, in little room.
#[derive(Debug, Clone, Copy)]
struct Packed {
    step: i64,
    samples: u32,
    cpu: [f32; 4],
    memory: [f32; 4],
}

/// What was used during one step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bucket {
    /// Seconds since the epoch.
    pub begins: i64,
    pub samples: u32,
    /// In nanocores.
    pub cpu: Summary,
    /// In bytes.
    pub memory: Summary,
}

/// The history of one container of a workload.
#[derive(Debug)]
pub struct Row<'a> {
    pub workload: &'a Workload,
    pub container: &'a str,
    /// Oldest first; steps of which nothing is known are missing, and the last one is not over yet.
    pub buckets: &'a [Bucket],
}

/// One sample of a container.
#[derive(Debug, Clone)]
pub(crate) struct Sample {
    pub workload: Arc<Workload>,
    pub container: Arc<str>,
    pub usage: Usage,
}

impl History {
    pub fn new(config: Config) -> Self {
        Self(Arc::new(Shared {
            config,
            state: Mutex::default(),
        }))
    }

    pub fn config(&self) -> Config {
        self.0.config
    }

    /// How many samples were not taken for want of room.
    pub fn refused(&self) -> u64 {
        self.0.state.lock().refused
    }

    pub(crate) fn record(&self, samples: &[Sample]) {
        let config = &self.0.config;
        let mut state = self.0.state.lock();
        for sample in samples {
            let step = step_of(sample.usage.at, config.step);
            match state.find(&sample.workload, &sample.container, config, step) {
                Some(series) => series.take(&sample.usage, step, config),
                None => state.refused += 1,
            }
        }
    }

    /// Each series of a namespace, or of all, in order; `wanted` says which workloads.
    pub fn visit(
        &self,
        namespace: Option<&str>,
        wanted: &dyn Fn(&Workload) -> bool,
        show: &mut dyn FnMut(Row<'_>),
    ) {
        let state = self.0.state.lock();
        let mut buckets = Vec::new();
        for (workload, series) in &state.workloads {
            if namespace.is_some_and(|namespace| namespace != &*workload.namespace)
                || !wanted(workload)
            {
                continue;
            }
            for one in series {
                buckets.clear();
                buckets.extend(one.buckets(self.0.config.step));
                show(Row {
                    workload,
                    container: &one.container,
                    buckets: &buckets,
                });
            }
        }
    }
}

fn step_of(at: i64, step: Duration) -> i64 {
    let step = i64::try_from(step.as_nanos()).unwrap_or(i64::MAX);
    at.div_euclid(step.max(1))
}

impl State {
    /// The series of a container, a new one if there is room. `None`: there is not, and nothing is old enough to go.
    fn find(
        &mut self,
        workload: &Arc<Workload>,
        container: &Arc<str>,
        config: &Config,
        step: i64,
    ) -> Option<&mut Series> {
        let known = |series: &[Series]| series.iter().position(|one| one.container == *container);
        let found = self
            .workloads
            .get(workload)
            .and_then(|series| known(series));
        if found.is_none() && self.series >= config.series && !self.make_room(config, step) {
            return None;
        }
        let series = self.workloads.entry(Arc::clone(workload)).or_default();
        let index = found.unwrap_or_else(|| {
            self.series += 1;
            let at = series.partition_point(|one| one.container < *container);
            series.insert(at, Series::new(Arc::clone(container), step));
            at
        });
        series.get_mut(index)
    }

    /// Gives up what nothing was heard of for longer than the span; else the one that has been silent longest, if it has
    /// been for a while.
    fn make_room(&mut self, config: &Config, step: i64) -> bool {
        let steps = steps(config);
        let before = self.series;
        let silent = |state: &Self| {
            let all = state.workloads.values().flatten();
            all.map(|one| one.step).min()
        };
        let oldest = silent(self).unwrap_or(step);
        // A workload that is at work is heard of in every step.
        let bound = match oldest < step - steps {
            true => step - steps,
            false if oldest < step - 2 => oldest + 1,
            false => return false,
        };
        self.workloads.retain(|_, series| {
            series.retain(|one| one.step >= bound);
            !series.is_empty()
        });
        self.series = self.workloads.values().map(Vec::len).sum();
        self.series < before
    }
}

fn steps(config: &Config) -> i64 {
    let steps = config
        .span
        .as_nanos()
        .div_ceil(config.step.as_nanos().max(1));
    i64::try_from(steps).unwrap_or(i64::MAX)
}

impl Series {
    fn new(container: Arc<str>, step: i64) -> Self {
        Self {
            container,
            step,
            cpu: Digest::default(),
            memory: Digest::default(),
            past: VecDeque::new(),
        }
    }

    fn take(&mut self, usage: &Usage, step: i64, config: &Config) {
        // A sample that comes late is counted with those of now: it is hardly older.
        if step > self.step {
            self.past.extend(self.pack());
            self.cpu.clear();
            self.memory.clear();
            self.step = step;
            let oldest = step - steps(config);
            while self.past.front().is_some_and(|one| one.step <= oldest) {
                self.past.pop_front();
            }
        }
        self.cpu.take(usage.nanocores);
        self.memory.take(usage.memory);
    }

    fn pack(&self) -> Option<Packed> {
        let (cpu, memory) = (self.cpu.summary()?, self.memory.summary()?);
        let packed = |one: Summary| [one.min, one.mean, one.max, one.p95].map(|value| value as f32);
        Some(Packed {
            step: self.step,
            samples: self.cpu.count(),
            cpu: packed(cpu),
            memory: packed(memory),
        })
    }

    fn buckets(&self, step: Duration) -> impl Iterator<Item = Bucket> {
        let summary = |[min, mean, max, p95]: [f32; 4]| Summary {
            min: min.into(),
            mean: mean.into(),
            max: max.into(),
            p95: p95.into(),
        };
        let seconds = i64::try_from(step.as_secs()).unwrap_or(i64::MAX);
        let all = self.past.iter().copied().chain(self.pack());
        all.map(move |one| Bucket {
            begins: one.step.saturating_mul(seconds),
            samples: one.samples,
            cpu: summary(one.cpu),
            memory: summary(one.memory),
        })
    }
}

#[cfg(test)]
mod tests;
