//! What the store costs: `cargo xtask bench tsdb` runs this in release, on a folder of its own.
//!
//! Time is simulated: a round of samples a second, upkeep every five. The traces are of the kinds an agent has: CPU in
//! microcores, noisy, with bursts and idle stretches; memory in bytes, in pages, mostly still; flags and ratios that
//! hardly ever change. The last line is JSON: the figures that have bars.

use std::error::Error;
use std::hint::black_box;
use std::path::Path;
use std::time::Duration;

use plimsoll_tsdb::aggregate::Aggregation;
use plimsoll_tsdb::{Config, Scratch, SeriesId, Tsdb};
use rustix::time::{ClockId, clock_gettime};

const SECOND: i64 = 1000;
const START: i64 = 1_700_000_400_000;

struct Options {
    series: usize,
    hours: i64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let options = options()?;
    let folder = tempfile::tempdir()?;
    let rounds = options.hours * 3600;
    let mut traces = Traces::new(options.series);
    let floor = floor(&mut traces, 600);
    let (store, _) = Tsdb::open(config(folder.path()), START)?;
    let ids: Vec<SeriesId> = (0..options.series)
        .map(|n| store.series(&key(n), steps(n)))
        .collect();
    let mut batch: Vec<(SeriesId, f64)> = ids.iter().map(|id| (*id, 0.0)).collect();
    let (mut appending, mut upkeep) = (Duration::ZERO, Duration::ZERO);
    for second in 0..rounds {
        traces.next(&mut batch);
        let at = START + second * SECOND;
        let begin = cpu_time();
        store.append(at, &batch);
        let appended = cpu_time();
        appending += appended - begin;
        if second % 5 == 4 {
            let done = store.maintain(at);
            if let Some(problem) = done.problem {
                return Err(problem.into());
            }
            upkeep += cpu_time() - appended;
        }
        if second % 3600 == 3599 {
            eprintln!("hour {} of {}", second / 3600 + 1, options.hours);
        }
    }
    let now = START + (rounds - 1) * SECOND;
    let p95 = p95_of_all(&store, &ids, now);
    let stats = store.stats();
    let rss = resident_mib()?;
    // As after a kill: nothing is closed, and what the journal has not got yet is lost.
    drop(store);
    let begin = std::time::Instant::now();
    let (store, recovered) = Tsdb::open(config(folder.path()), now)?;
    let (from, mut scratch) = (now - 600 * SECOND, Scratch::default());
    let served = store
        .find(&key(0))
        .map_or(0, |id| store.read(id, from, now, &mut scratch).len());
    let recover = begin.elapsed();
    if served < 594 {
        return Err(format!("of the last 601 samples {served} were recovered").into());
    }
    let samples = rounds as f64 * options.series as f64;
    let sealed = samples - recovered.from_journal as f64;
    let mib = |bytes: f64| bytes / 1_048_576.0;
    println!(
        "{} h: {:.1} MiB of blocks, {:.1} MiB of samples and {:.1} MiB of index in memory; sealing and upkeep {:.1} ns \
         a sample, copying it {:.1} ns",
        options.hours,
        mib(stats.block_bytes as f64),
        mib(stats.memory_bytes as f64),
        mib(stats.index_bytes as f64),
        upkeep.as_nanos() as f64 / samples,
        floor.as_nanos() as f64 / (600.0 * options.series as f64),
    );
    println!(
        "{{\"series\":{},\"append_ns\":{:.1},\"bytes_per_sample\":{:.2},\"p95_all_ms\":{:.2},\"rss_mib\":{:.1},\"recover_ms\":{:.1}}}",
        options.series,
        appending.as_nanos() as f64 / samples,
        stats.block_bytes as f64 / sealed,
        p95.as_secs_f64() * 1e3,
        rss,
        recover.as_secs_f64() * 1e3,
    );
    Ok(())
}

fn options() -> Result<Options, Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: i64| arguments.next().map_or(Ok(default), |text| text.parse());
    Ok(Options {
        series: usize::try_from(number(3000)?)?,
        hours: number(12)?.max(1),
    })
}

fn config(folder: &Path) -> Config {
    Config {
        folder: Some(folder.to_owned()),
        // All of it is to be measured.
        keep_bytes: u64::MAX,
        ..Config::default()
    }
}

fn key(n: usize) -> String {
    let metric = [
        "container_cpu_usage",
        "container_memory_usage",
        "container_cpu_throttled",
    ][n % 3];
    format!("{metric}{{container_id=\"containerd://{:064x}\"}}", n / 3)
}

fn steps(n: usize) -> f64 {
    [1e6, 1.0, 1e6][n % 3]
}

/// The bare copying of samples, a time and a value each, into memory that is there.
fn floor(traces: &mut Traces, rounds: usize) -> Duration {
    let mut batch = vec![((), 0.0); traces.states.len()];
    let mut memory = vec![(0i64, 0.0f64); traces.states.len() * 16];
    let mut spent = Duration::ZERO;
    for round in 0..rounds {
        traces.next(&mut batch);
        let begin = cpu_time();
        let from = round % 16 * batch.len();
        for (place, (_, value)) in memory[from..].iter_mut().zip(&batch) {
            *place = (round as i64, *value);
        }
        black_box(&mut memory);
        spent += cpu_time() - begin;
    }
    spent
}

/// The median of five readings of five minutes of everything.
fn p95_of_all(store: &Tsdb, ids: &[SeriesId], now: i64) -> Duration {
    let mut scratch = Scratch::default();
    let mut took: Vec<Duration> = (0..5)
        .map(|_| {
            let begin = cpu_time();
            for id in ids {
                black_box(store.aggregate(
                    *id,
                    now - 300 * SECOND,
                    now,
                    Aggregation::Percentile(0.95),
                    &mut scratch,
                ));
            }
            cpu_time() - begin
        })
        .collect();
    took.sort();
    took[2]
}

fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn resident_mib() -> Result<f64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib: f64 = line
        .unwrap_or_default()
        .trim()
        .trim_end_matches(" kB")
        .parse()?;
    Ok(kib / 1024.0)
}

struct Traces {
    states: Vec<State>,
    random: u64,
}

struct State {
    level: f64,
    busy: bool,
    pages: i64,
}

impl Traces {
    fn new(series: usize) -> Self {
        let states = (0..series)
            .map(|n| State {
                level: 0.001 * (1 + n % 300) as f64,
                busy: n % 4 == 0,
                pages: 1000 + 97 * n as i64,
            })
            .collect();
        Self {
            states,
            random: 0x9e37_79b9_7f4a_7c15,
        }
    }

    /// 0 to 1.
    fn chance(&mut self) -> f64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as f64 / (1u64 << 53) as f64
    }

    fn next<I>(&mut self, batch: &mut [(I, f64)]) {
        for (n, sample) in batch.iter_mut().enumerate() {
            let (change, size) = (self.chance(), self.chance());
            let state = &mut self.states[n];
            sample.1 = match n % 3 {
                0 => {
                    if change < 0.005 {
                        state.busy = !state.busy;
                    }
                    let level = if state.busy { state.level } else { 0.0004 };
                    // An idle process uses a few microseconds a second, or none.
                    if !state.busy && change > 0.6 {
                        0.0
                    } else {
                        level * (0.9 + 0.2 * size)
                    }
                }
                1 => {
                    if change < 0.1 {
                        state.pages = (state.pages + (size * 41.0) as i64 - 20).max(10);
                    }
                    (state.pages * 4096) as f64
                }
                _ => {
                    if change < 0.002 {
                        state.level = size;
                    }
                    if state.busy {
                        0.0
                    } else {
                        (state.level * 100.0).round() / 100.0
                    }
                }
            };
        }
    }
}
