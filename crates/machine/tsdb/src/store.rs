//! The store: series by key, what is in memory of them, and the blocks.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Mutex, RwLock};
use rustc_hash::FxHashMap;
use thiserror::Error;

use crate::aggregate::{Aggregation, aggregate};
use crate::block::{Block, COLUMN_BYTES, Columns};
use crate::head::{Part, Placed, Series, unscaled};
use crate::journal::Pending;
use crate::seal::Folder;

/// Times are milliseconds since the epoch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    pub at: i64,
    pub value: f64,
}

/// A series, for as long as it has samples. One that was forgotten is told from those that came after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SeriesId {
    slot: u32,
    generation: u32,
}

#[derive(Debug, Clone)]
pub struct Config {
    /// `None`: everything is kept in memory, and lost with the process.
    pub folder: Option<PathBuf>,
    pub keep_for: Duration,
    pub keep_bytes: u64,
    /// How long a block is.
    pub window: Duration,
    /// How long after a later sample one may still come.
    pub late: Duration,
    /// What is asked for most is kept in memory for at least this long.
    pub keep_in_memory: Duration,
    /// Samples in memory beyond this are sealed early, or lost where they cannot be.
    pub memory_bytes: usize,
    /// Knowing which series there are, and where on disk their samples lie, may take this much memory; beyond it those
    /// that ended longest ago are forgotten.
    pub index_bytes: usize,
    /// How often the journal is written.
    pub journal_every: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            folder: None,
            keep_for: Duration::from_hours(12),
            keep_bytes: 100 << 20,
            window: Duration::from_mins(10),
            late: Duration::from_mins(1),
            keep_in_memory: Duration::from_mins(10),
            memory_bytes: 32 << 20,
            index_bytes: 12 << 20,
            journal_every: Duration::from_secs(5),
        }
    }
}

#[derive(Debug, Error)]
pub enum Error {
    #[error("cannot use {path} as a folder for samples: {source}")]
    Folder { path: PathBuf, source: io::Error },
    #[error("{path} is in use by another process")]
    Held { path: PathBuf },
}

/// What became of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Appended {
    pub in_order: usize,
    pub late: usize,
    /// Too late, or of a series that is not known any more.
    pub refused: usize,
}

/// What opening a folder brought to light.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Recovered {
    pub blocks: usize,
    /// Put aside under another name.
    pub bad_blocks: usize,
    /// Samples that were not sealed yet.
    pub from_journal: usize,
    /// Bytes at the end of journals that were not whole.
    pub cut_off: usize,
}

/// What [`Tsdb::maintain`] did.
#[derive(Debug, Default)]
pub struct Maintained {
    /// The clock was set back further than samples may be late.
    pub clock_went_back: bool,
    pub sealed_samples: usize,
    pub removed_blocks: usize,
    /// Samples that could not be sealed and were too many to keep.
    pub lost_samples: usize,
    /// Series that had ended and were too many to know of.
    pub forgotten_series: usize,
    /// What went wrong; the store goes on.
    pub problem: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    pub series: usize,
    pub blocks: usize,
    pub block_bytes: u64,
    pub memory_bytes: usize,
    pub index_bytes: usize,
    /// Columns that could not be read since the start.
    pub bad_columns: u64,
}

/// Reused between readings, so that they allocate nothing.
#[derive(Debug, Default)]
pub struct Scratch {
    samples: Vec<Sample>,
    runs: Vec<Run>,
    values: Vec<f64>,
    columns: Columns,
}

/// Where among the samples those of a block begin, and which block that is.
#[derive(Debug, Clone, Copy)]
struct Run {
    begin: usize,
    made: u64,
}

/// The store. Samples may be appended, read and sealed from different threads.
#[derive(Debug)]
pub struct Tsdb {
    pub(crate) config: Config,
    pub(crate) state: RwLock<State>,
    pub(crate) folder: Mutex<Option<Folder>>,
    bad_columns: std::sync::atomic::AtomicU64,
}

#[derive(Debug)]
pub(crate) struct State {
    slots: Vec<Slot>,
    by_key: FxHashMap<Arc<str>, u32>,
    free: Vec<u32>,
    /// Sorted by their oldest sample.
    pub blocks: Vec<Block>,
    /// Of all samples; `i64::MIN` before the first.
    pub newest: i64,
    /// Everything before this is in blocks, or lost.
    pub sealed_to: i64,
    /// Everything from here on is in memory.
    pub memory_from: i64,
    pub journal: Pending,
    /// The window that the journal's entries are for.
    pub journal_window: Option<i64>,
    /// Entries for files of earlier windows.
    pub turned: Vec<(i64, Vec<u8>)>,
    /// What a clock that was set back left behind, to be sealed.
    pub retired: Vec<Retired>,
}

#[derive(Debug)]
pub(crate) struct Retired {
    /// What is older is sealed already.
    pub from: i64,
    pub parts: Vec<Part>,
}

#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    series: Option<Series>,
}

impl State {
    pub fn new() -> Self {
        Self {
            slots: Vec::new(),
            by_key: FxHashMap::default(),
            free: Vec::new(),
            blocks: Vec::new(),
            newest: i64::MIN,
            sealed_to: i64::MIN,
            memory_from: i64::MIN,
            journal: Pending::default(),
            journal_window: None,
            turned: Vec::new(),
            retired: Vec::new(),
        }
    }

    pub fn series(&mut self, key: &str, steps: f64) -> SeriesId {
        let slot = match self.by_key.get(key) {
            Some(&slot) => slot,
            None => {
                let slot = self.free.pop().unwrap_or_else(|| {
                    self.slots.push(Slot::default());
                    self.slots.len() as u32 - 1
                });
                let key: Arc<str> = key.into();
                self.by_key.insert(key.clone(), slot);
                self.slots[slot as usize].series = Some(Series::new(key, steps, self.newest));
                slot
            }
        };
        SeriesId {
            slot,
            generation: self.slots[slot as usize].generation,
        }
    }

    pub fn get(&self, id: SeriesId) -> Option<&Series> {
        let slot = self.slots.get(id.slot as usize)?;
        slot.series
            .as_ref()
            .filter(|_| slot.generation == id.generation)
    }

    pub fn slot_of(&mut self, key: &str, steps: f64) -> u32 {
        self.series(key, steps).slot
    }

    pub fn knows(&self, key: &str) -> bool {
        self.by_key.contains_key(key)
    }

    /// These have their newest samples then.
    pub fn touch(&mut self, slots: &[u32], at: i64) {
        for slot in slots {
            if let Some(series) = &mut self.slots[*slot as usize].series {
                series.touched = at;
            }
        }
    }

    pub fn all_series(&mut self) -> impl Iterator<Item = (u32, &mut Series)> {
        (0..)
            .zip(&mut self.slots)
            .filter_map(|(slot, one)| Some((slot, one.series.as_mut()?)))
    }

    /// Frees the slots of series that nothing is left of.
    pub fn sweep(&mut self, unused_since: i64) {
        let mut in_blocks = vec![false; self.slots.len()];
        for slot in self.blocks.iter().flat_map(|block| block.slots()) {
            in_blocks[slot as usize] = true;
        }
        for (slot, in_block) in in_blocks.into_iter().enumerate() {
            let forgotten = self.slots[slot].series.as_ref().is_some_and(|series| {
                !in_block && series.is_empty() && series.touched < unused_since
            });
            if forgotten {
                self.free(slot);
            }
        }
    }

    fn free(&mut self, slot: usize) {
        let one = &mut self.slots[slot];
        if let Some(series) = one.series.take() {
            one.generation = one.generation.wrapping_add(1);
            self.by_key.remove(&series.key);
            self.free.push(slot as u32);
        }
    }

    /// About how much memory it takes to know which series there are, and where in blocks their samples lie.
    pub fn index_bytes(&self) -> usize {
        let series: usize = self.by_key.keys().map(|key| series_bytes(key)).sum();
        let columns = self.blocks.iter().map(|block| block.slots().count());
        series + columns.sum::<usize>() * COLUMN_BYTES
    }

    /// Forgets series that have ended, those first that did so longest ago, until what is known fits into `bytes`. Says
    /// how many.
    pub fn forget_ended(&mut self, bytes: usize) -> usize {
        let mut excess = self.index_bytes().saturating_sub(bytes);
        let mut columns = vec![0; self.slots.len()];
        for slot in self.blocks.iter().flat_map(|block| block.slots()) {
            columns[slot as usize] += 1;
        }
        let series = (0..).zip(&self.slots);
        let series = series.filter_map(|(slot, one)| Some((slot, one.series.as_ref()?)));
        let ended = series.filter(|(_, series)| series.is_empty());
        let mut ended: Vec<(i64, usize, usize)> = ended
            .map(|(slot, series): (usize, _)| {
                let bytes = series_bytes(&series.key) + columns[slot] * COLUMN_BYTES;
                (series.touched, slot, bytes)
            })
            .collect();
        ended.sort_unstable();
        let mut gone = vec![false; self.slots.len()];
        let mut count = 0;
        for (_, slot, bytes) in ended {
            if excess == 0 {
                break;
            }
            excess = excess.saturating_sub(bytes);
            gone[slot] = true;
            count += 1;
        }
        self.blocks.retain_mut(|block| {
            let stays = block.forget(|slot| gone[slot as usize]);
            if !stays {
                let _ = std::fs::remove_file(&block.path);
            }
            stays
        });
        for slot in (0..gone.len()).filter(|&slot| gone[slot]) {
            self.free(slot);
        }
        count
    }

    pub fn append(&mut self, config: &Config, at: i64, samples: &[(SeriesId, f64)]) -> Appended {
        let (window, late) = (millis(config.window), millis(config.late));
        let mut appended = Appended::default();
        self.newest = self.newest.max(at);
        if at < self.sealed_to.max(self.newest.saturating_sub(late)) {
            appended.refused = samples.len();
            return appended;
        }
        if config.folder.is_some() {
            let now = Some(self.newest.div_euclid(window));
            if self.journal_window != now {
                let entries = self.journal.turn();
                if let Some(before) = self.journal_window.filter(|_| !entries.is_empty()) {
                    self.turned.push((before, entries));
                }
                self.journal_window = now;
            }
            self.journal.begin(at);
        }
        for &(id, value) in samples {
            let series = self
                .slots
                .get_mut(id.slot as usize)
                .filter(|slot| slot.generation == id.generation)
                .and_then(|slot| slot.series.as_mut());
            let Some(series) = series else {
                appended.refused += 1;
                continue;
            };
            let scaled = series.scaled(value);
            match series.append(at, scaled, window) {
                Placed::InOrder => appended.in_order += 1,
                Placed::Late => appended.late += 1,
            }
            if config.folder.is_some() {
                let (steps, key) = (series.steps, &series.key);
                let define = || (steps, key.to_string());
                self.journal
                    .sample(id.slot, scaled, &mut series.written, define);
            }
        }
        if config.folder.is_some() {
            self.journal.end();
        }
        appended
    }

    /// Time begins anew at `at`: what is in memory lies in the future now, and is only to be sealed.
    pub fn retire(&mut self, at: i64) {
        let from = self.sealed_to;
        let parts: Vec<Part> = self
            .all_series()
            .filter_map(|(_, series)| {
                let part = series.part(i64::MAX);
                series.forget(i64::MAX);
                series.touched = at;
                part
            })
            .collect();
        // The journals tell of that time, too, and end with it.
        self.journal.turn();
        self.turned.clear();
        self.journal_window = None;
        if !parts.is_empty() {
            self.retired.push(Retired { from, parts });
        }
        (self.newest, self.sealed_to, self.memory_from) = (at, at, at);
    }

    pub fn memory_bytes(&self) -> usize {
        let series = self.slots.iter().filter_map(|slot| slot.series.as_ref());
        series.map(Series::bytes).sum()
    }
}

/// A clock that was set back makes times come twice. What was said last counts: of a block nothing stays for a time that
/// a later one tells of.
fn keep_the_later_word(samples: &mut Vec<Sample>, runs: &[Run]) {
    let ends = runs.iter().skip(1).map(|next| next.begin);
    let ends = ends.chain([samples.len()]);
    let spans: Vec<(Run, usize, i64, i64)> = runs
        .iter()
        .zip(ends)
        .filter_map(|(run, end)| {
            let run_samples = &samples[run.begin..end];
            let (first, last) = (run_samples.first()?.at, run_samples.last()?.at);
            Some((*run, end, first, last))
        })
        .collect();
    let mut kept: Vec<Sample> = Vec::with_capacity(samples.len());
    for (run, end, ..) in &spans {
        let of_run = samples[run.begin..*end].iter();
        kept.extend(of_run.filter(|sample| {
            let told = |(other, _, first, last): &(Run, usize, i64, i64)| {
                other.made > run.made && (*first..=*last).contains(&sample.at)
            };
            !spans.iter().any(told)
        }));
    }
    kept.sort_by_key(|sample| sample.at);
    *samples = kept;
}

/// What a series takes, and the ways to find it, apart from its samples.
pub(crate) fn series_bytes(key: &str) -> usize {
    // The key is shared; the map has a pointer, a number and some slack.
    key.len() + 16 + size_of::<Slot>() + 2 * size_of::<(Arc<str>, u32)>()
}

pub(crate) fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

impl Tsdb {
    pub(crate) fn new(config: Config, state: State, folder: Option<Folder>) -> Self {
        Self {
            config,
            state: RwLock::new(state),
            folder: Mutex::new(folder),
            bad_columns: std::sync::atomic::AtomicU64::new(0),
        }
    }

    /// The series of a key, which is made if there is none. `steps` is how many steps of precision a unit has (1 000 000
    /// for figures that matter to six decimals, 1 for whole numbers); 0 keeps values to the bit, at five times the room.
    pub fn series(&self, key: &str, steps: f64) -> SeriesId {
        if let Some(id) = self.find(key) {
            return id;
        }
        self.state.write().series(key, steps)
    }

    pub fn find(&self, key: &str) -> Option<SeriesId> {
        let state = self.state.read();
        let slot = *state.by_key.get(key)?;
        Some(SeriesId {
            slot,
            generation: state.slots[slot as usize].generation,
        })
    }

    /// The keys of all series of which `wanted` says so.
    pub fn keys(&self, wanted: impl Fn(&str) -> bool) -> Vec<Arc<str>> {
        let state = self.state.read();
        state
            .by_key
            .keys()
            .filter(|key| wanted(key))
            .cloned()
            .collect()
    }

    /// Samples of one time.
    pub fn append(&self, at: i64, samples: &[(SeriesId, f64)]) -> Appended {
        self.state.write().append(&self.config, at, samples)
    }

    /// The samples from `from` up to `to`, both included, in the order of time.
    pub fn read<'a>(
        &self,
        id: SeriesId,
        from: i64,
        to: i64,
        scratch: &'a mut Scratch,
    ) -> &'a [Sample] {
        let Scratch {
            samples,
            runs,
            columns,
            ..
        } = scratch;
        samples.clear();
        runs.clear();
        let state = self.state.read();
        let Some(series) = state.get(id) else {
            return samples;
        };
        let memory_from = state.memory_from;
        let mut last = i64::MIN;
        let mut sorted = true;
        for block in &state.blocks {
            if block.newest < from || block.oldest > to || block.oldest >= memory_from {
                continue;
            }
            match block.read(id.slot, columns) {
                Ok(true) => {}
                Ok(false) => continue,
                Err(error) => {
                    self.bad_columns
                        .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    tracing::warn!(path = %block.path.display(), series = &*series.key, %error, "samples cannot be read");
                    continue;
                }
            }
            runs.push(Run {
                begin: samples.len(),
                made: block.made,
            });
            for (&at, &value) in columns.times.iter().zip(&columns.values) {
                if at >= from && at <= to && at < memory_from {
                    sorted &= at > last;
                    last = at;
                    let value = unscaled(value, series.steps);
                    samples.push(Sample { at, value });
                }
            }
        }
        if !sorted {
            keep_the_later_word(samples, runs);
        }
        if to >= memory_from {
            series.read(from.max(memory_from), to, samples);
        }
        samples
    }

    /// What the samples from `from` up to `to` amount to.
    pub fn aggregate(
        &self,
        id: SeriesId,
        from: i64,
        to: i64,
        how: Aggregation,
        scratch: &mut Scratch,
    ) -> Option<f64> {
        self.read(id, from, to, scratch);
        let Scratch {
            samples, values, ..
        } = scratch;
        values.clear();
        values.extend(samples.iter().map(|sample| sample.value));
        aggregate(values, how)
    }

    pub fn stats(&self) -> Stats {
        let state = self.state.read();
        Stats {
            series: state.by_key.len(),
            blocks: state.blocks.len(),
            block_bytes: state.blocks.iter().map(|block| block.bytes).sum(),
            memory_bytes: state.memory_bytes(),
            index_bytes: state.index_bytes(),
            bad_columns: self.bad_columns.load(std::sync::atomic::Ordering::Relaxed),
        }
    }
}
