//! The usage history: append samples, query summaries and forecasts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use parking_lot::Mutex;
use plimsoll_predict::reclaim::Reclaimable;
use plimsoll_tsdb::aggregate::percentiles;
use plimsoll_tsdb::{Config as StoreConfig, Error, Facts, Recovered, Scratch, SeriesId, Tsdb};

use super::forecast::PeakPredictor;
use super::latest::Latest;
use super::usage_now::{UsageNow, UsageNowCell};
use super::{Config, Series, Summary, metrics};
use crate::{Pod, Workloads};

/// Without a disk all samples are in memory; this bounds them.
const MEMORY_WITHOUT_DISK: usize = 16 << 20;
/// How long to wait for the lock of a folder that another process holds.
const HELD_FOR: Duration = Duration::from_secs(if cfg!(test) { 60 } else { 3 });

/// Past usage of the node, and forecasts from it. Shared: one thread appends, others query.
#[derive(Debug)]
pub struct UsageHistory {
    config: Config,
    store: Tsdb,
    facts: Facts,
    forecasts: Mutex<PeakPredictor>,
    scratch: Mutex<(Scratch, Vec<f64>)>,
    counters: Counters,
    latest: Mutex<Latest>,
    usage_now: UsageNowCell,
}

/// Counters for `/metrics/self`.
#[derive(Debug, Default)]
pub struct Counters {
    pub appended: AtomicU64,
    /// Older than the newest sample of their series, as after the clock was set back.
    pub refused: AtomicU64,
    pub sealed: AtomicU64,
    /// Dropped because there was no room.
    pub lost: AtomicU64,
    /// Failed writes: a full or broken disk.
    pub problems: AtomicU64,
    pub clock_jumps: AtomicU64,
    pub trained: AtomicU64,
    pub checkpoints: AtomicU64,
    pub checkpoint_failures: AtomicU64,
}

pub(super) fn count(counter: &AtomicU64, by: usize) {
    counter.fetch_add(by as u64, Ordering::Relaxed);
}

impl UsageHistory {
    /// Opens the store and loads the models of an earlier process. What cannot be used is logged and left out: an empty
    /// history is better than none.
    pub fn open(mut config: Config, now: plimsoll_host::Timestamp) -> Self {
        let store = match opened(&config.store, now.millis()) {
            Ok((store, _)) if config.store.folder.is_some() => store,
            outcome => {
                match outcome {
                    Err(error) => {
                        tracing::warn!(%error, "usage history is not persistent")
                    }
                    Ok(_) => tracing::info!("usage history is not persistent; set --data-dir"),
                }
                config.store.folder = None;
                config.store.memory_bytes = config.store.memory_bytes.min(MEMORY_WITHOUT_DISK);
                in_memory(&config)
            }
        };
        Self {
            forecasts: Mutex::new(PeakPredictor::restore(&config.forecast)),
            store,
            facts: Facts::default(),
            scratch: Mutex::default(),
            counters: Counters::default(),
            latest: Mutex::default(),
            usage_now: UsageNowCell::default(),
            config,
        }
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Current facts of the machine, by the keys in [`super::machine_facts`].
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    pub fn models(&self) -> usize {
        self.forecasts.lock().len()
    }

    pub fn stats(&self) -> plimsoll_tsdb::Stats {
        self.store.stats()
    }

    /// Summary of a series over the `window` up to `end`. `None`: it has no sample in that time.
    pub fn summary(&self, series: &Series, window: Duration, end: Timestamp) -> Option<Summary> {
        self.summaries([series], window, end).pop().flatten()
    }

    /// The same for many series.
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

    /// The newest value since `since`.
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

    /// Every series of a metric, with its summary over the `window` up to `end`.
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

    /// How much of the prod pods' requests can be reclaimed, and their predicted peak. Only pods with a sample in the
    /// `window` up to now count; the sample may be from an earlier process.
    pub fn forecast(&self, workloads: &Workloads, window: Duration, now: Timestamp) -> Reclaimable {
        let since = now.saturating_sub(window).unwrap_or(now);
        let has_samples = |pod: &Pod| {
            let series = metrics::POD_CPU_USAGE.of(&[&pod.uid]);
            self.last(&series, since).is_some()
        };
        let config = &self.config.forecast.reclaim;
        let forecasts = self.forecasts.lock();
        let forecast = forecasts.reclaimable(workloads, has_samples, now, config);
        drop(forecasts);
        let latest = &mut *self.latest.lock();
        latest.forecast = Some(forecast);
        forecast.min()
    }

    pub(super) fn forecasts(&self) -> &Mutex<PeakPredictor> {
        &self.forecasts
    }

    pub fn latest(&self) -> &Mutex<Latest> {
        &self.latest
    }

    /// The newest usage. It is made from the first call on, so the first one gives `None`.
    pub fn usage_now(&self) -> Option<Arc<UsageNow>> {
        self.usage_now.want();
        self.usage_now.latest()
    }

    /// Hands the newest usage to those who act on it.
    pub fn publish_usage(&self, usage: UsageNow) {
        self.usage_now.put(usage);
    }

    pub(super) fn usage_now_cell(&self) -> &UsageNowCell {
        &self.usage_now
    }

    /// The store's id of a series.
    pub(super) fn series(&self, series: &Series) -> SeriesId {
        let steps = f64::from(series.metric.resolution);
        self.store.series(&series.to_string(), steps)
    }

    /// Appends samples of one time. `false`: some were refused, and series ids must be looked up again.
    pub(super) fn append(&self, at: i64, batch: &[(SeriesId, f64)]) -> bool {
        let appended = self.store.append(at, batch);
        count(&self.counters.appended, appended.in_order + appended.late);
        count(&self.counters.refused, appended.refused);
        appended.refused == 0
    }

    /// Appends samples of one time, by series. Slower than what the history thread does; for other callers.
    pub fn record(&self, at: plimsoll_host::Timestamp, figures: &[(Series, f64)]) {
        let with_ids = figures
            .iter()
            .map(|(series, value)| (self.series(series), *value));
        let batch: Vec<(SeriesId, f64)> = with_ids.collect();
        self.append(at.millis(), &batch);
    }

    /// Store maintenance: seals blocks, writes the journal, drops old blocks. Call it every few seconds.
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

    /// Writes the journal. For an orderly end.
    pub(super) fn close(&self) {
        if let Err(problem) = self.store.close() {
            tracing::warn!(
                problem,
                "cannot write the last seconds of the usage history"
            );
        }
    }
}

/// A killed process may still hold the lock when the next one starts.
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
