//! The memory itself: what is appended, and what can be asked.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use parking_lot::Mutex;
use plimsoll_predict::reclaim::Reclaimable;
use plimsoll_tsdb::aggregate::percentiles;
use plimsoll_tsdb::{Config as StoreConfig, Error, Facts, Recovered, Scratch, SeriesId, Tsdb};

use super::forecast::Forecasts;
use super::gauges::Gauges;
use super::{Config, Series, Summary, catalogue};
use crate::states::{Board, Known, Pod};

/// Without a disk all samples are in memory, where they must not grow for half a day.
const MEMORY_WITHOUT_DISK: usize = 16 << 20;
/// A folder that another process holds is waited for this long.
const HELD_FOR: Duration = Duration::from_secs(if cfg!(test) { 60 } else { 3 });

/// What the node has used, and what that lets us foresee. Shared: one thread appends, others ask.
#[derive(Debug)]
pub struct Memory {
    config: Config,
    board: Board,
    store: Tsdb,
    facts: Facts,
    forecasts: Mutex<Forecasts>,
    scratch: Mutex<(Scratch, Vec<f64>)>,
    counters: Counters,
    gauges: Mutex<Gauges>,
}

/// What the memory has done, for `/metrics/self`.
#[derive(Debug, Default)]
pub struct Counters {
    pub appended: AtomicU64,
    /// Too late for their series, as after a clock was set back.
    pub refused: AtomicU64,
    pub sealed: AtomicU64,
    /// Given up for want of room.
    pub lost: AtomicU64,
    /// Times that something could not be kept as it should: a full or broken disk.
    pub problems: AtomicU64,
    pub clock_jumps: AtomicU64,
    pub trained: AtomicU64,
    pub checkpoints: AtomicU64,
    pub checkpoint_failures: AtomicU64,
}

pub(super) fn count(counter: &AtomicU64, by: usize) {
    counter.fetch_add(by as u64, Ordering::Relaxed);
}

impl Memory {
    /// Takes up what an earlier process left. What cannot be used is said and done without: a node is better off with a
    /// memory that begins anew than with none.
    pub fn open(mut config: Config, board: Board, now: plimsoll_host::Timestamp) -> Self {
        let store = match opened(&config.store, now.millis()) {
            Ok((store, _)) if config.store.folder.is_some() => store,
            outcome => {
                match outcome {
                    Err(error) => {
                        tracing::warn!(%error, "what the node uses is kept in memory only, and lost with the process")
                    }
                    Ok(_) => tracing::info!(
                        "what the node uses is kept in memory only, and lost with the process; --data-dir keeps it"
                    ),
                }
                config.store.folder = None;
                config.store.memory_bytes = config.store.memory_bytes.min(MEMORY_WITHOUT_DISK);
                in_memory(&config)
            }
        };
        Self {
            forecasts: Mutex::new(Forecasts::restore(&config.forecast)),
            board,
            store,
            facts: Facts::default(),
            scratch: Mutex::default(),
            counters: Counters::default(),
            gauges: Mutex::default(),
            config,
        }
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    pub fn board(&self) -> &Board {
        &self.board
    }

    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// What is known of the machine right now, by the keys in [`super::facts`].
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    pub fn models(&self) -> usize {
        self.forecasts.lock().len()
    }

    pub fn stats(&self) -> plimsoll_tsdb::Stats {
        self.store.stats()
    }

    /// What a series was like during the `window` up to `end`. `None`: nothing was noted in that time.
    pub fn summary(&self, series: &Series, window: Duration, end: Timestamp) -> Option<Summary> {
        self.summaries([series], window, end).pop().flatten()
    }

    /// The same for many series at once.
    pub fn summaries<'a>(
        &self,
        series: impl IntoIterator<Item = &'a Series>,
        window: Duration,
        end: Timestamp,
    ) -> Vec<Option<Summary>> {
        let to = end.as_millisecond();
        let from = to.saturating_sub(i64::try_from(window.as_millis()).unwrap_or(i64::MAX));
        let (scratch, values) = &mut *self.scratch.lock();
        let mut key = String::new();
        series
            .into_iter()
            .map(|series| {
                series.write_key(&mut key);
                let id = self.store.find(&key)?;
                self.summarize(id, from, to, scratch, values)
            })
            .collect()
    }

    /// The newest value noted since `since`.
    pub fn last(&self, series: &Series, since: Timestamp) -> Option<f64> {
        let id = self.store.find(&series.to_string())?;
        let (scratch, _) = &mut *self.scratch.lock();
        let samples = self
            .store
            .read(id, since.as_millisecond(), i64::MAX, scratch);
        samples.last().map(|sample| sample.value)
    }

    fn summarize(
        &self,
        id: SeriesId,
        from: i64,
        to: i64,
        scratch: &mut Scratch,
        values: &mut Vec<f64>,
    ) -> Option<Summary> {
        let samples = self.store.read(id, from, to, scratch);
        let (first, last) = (samples.first()?, samples.last()?);
        values.clear();
        values.extend(samples.iter().map(|sample| sample.value));
        let avg = values.iter().sum::<f64>() / values.len() as f64;
        let [p50, p90, p95, p99] = percentiles(values, [0.5, 0.9, 0.95, 0.99])?;
        Some(Summary {
            avg,
            last: last.value,
            p50,
            p90,
            p95,
            p99,
            count: samples.len(),
            span: Duration::from_millis(last.at.abs_diff(first.at)),
        })
    }

    /// Every series of a metric with what it was like during the `window` up to `end`, by key.
    pub fn listing(
        &self,
        metric: &str,
        window: Duration,
        end: Timestamp,
    ) -> Vec<(std::sync::Arc<str>, Summary)> {
        let to = end.as_millisecond();
        let from = to.saturating_sub(i64::try_from(window.as_millis()).unwrap_or(i64::MAX));
        let mut keys = self.store.keys(|key| {
            key.strip_prefix(metric)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('{'))
        });
        keys.sort();
        let (scratch, values) = &mut *self.scratch.lock();
        keys.into_iter()
            .filter_map(|key| {
                let id = self.store.find(&key)?;
                let summary = self.summarize(id, from, to, scratch, values)?;
                Some((key, summary))
            })
            .collect()
    }

    /// What may be lent of production pods' requests, and what production will need. Pods count that were noted during
    /// the `window` up to now, by this process or the one before: models outlast a restart, and so do forecasts.
    pub fn forecast(&self, known: &Known, window: Duration, now: Timestamp) -> Reclaimable {
        let since = now.saturating_sub(window).unwrap_or(now);
        let noted = |pod: &Pod| {
            let series = catalogue::POD_CPU_USAGE.of(&[&pod.uid]);
            self.last(&series, since).is_some()
        };
        let config = &self.config.forecast.reclaim;
        let forecasts = self.forecasts.lock();
        let forecast = forecasts.reclaimable(known, noted, now, config);
        drop(forecasts);
        let gauges = &mut *self.gauges.lock();
        gauges.forecast = Some(forecast);
        forecast.smaller()
    }

    pub(super) fn forecasts(&self) -> &Mutex<Forecasts> {
        &self.forecasts
    }

    pub(crate) fn gauges(&self) -> &Mutex<Gauges> {
        &self.gauges
    }

    /// The series under which a figure is kept.
    pub(super) fn series(&self, series: &Series) -> SeriesId {
        let steps = f64::from(series.metric.steps);
        self.store.series(&series.to_string(), steps)
    }

    /// Figures of one time. `false`: some were refused, and their series have to be asked for anew.
    pub(super) fn append(&self, at: i64, batch: &[(SeriesId, f64)]) -> bool {
        let appended = self.store.append(at, batch);
        count(&self.counters.appended, appended.in_order + appended.late);
        count(&self.counters.refused, appended.refused);
        appended.refused == 0
    }

    /// Seals, journals and forgets; to be called every few seconds.
    pub(super) fn maintain(&self, now: i64) {
        let done = self.store.maintain(now);
        count(&self.counters.sealed, done.sealed_samples);
        count(&self.counters.lost, done.lost_samples);
        count(&self.counters.problems, usize::from(done.problem.is_some()));
        count(
            &self.counters.clock_jumps,
            usize::from(done.clock_went_back),
        );
    }

    /// Writes what the disk still lacks. For an orderly end.
    pub(super) fn close(&self) {
        if let Err(problem) = self.store.close() {
            tracing::warn!(problem, "the last seconds could not be saved");
        }
    }
}

/// A process that was killed may still be on its way out when the next one is there.
fn opened(config: &StoreConfig, now: i64) -> Result<(Tsdb, Recovered), Error> {
    let begun = Instant::now();
    loop {
        match Tsdb::open(config.clone(), now) {
            Err(Error::Held { .. }) if begun.elapsed() < HELD_FOR => {
                std::thread::sleep(Duration::from_millis(20));
            }
            outcome => return outcome,
        }
    }
}

fn in_memory(config: &Config) -> Tsdb {
    match Tsdb::open(config.store.clone(), 0) {
        Ok((store, _)) => store,
        Err(_) => unreachable!("without a folder there is nothing to open"),
    }
}
