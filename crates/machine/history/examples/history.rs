//! Half a day of history, fast-forwarded: `cargo xtask bench agent` has the agent start on it.
//!
//! `history FOLDER HOURS` reads lines `POD CONTAINER…` from its input and writes samples of the node, those pods and
//! those containers up to now, as the agent would have: the same series, the same store, upkeep every five seconds.

use std::error::Error;
use std::io::BufRead;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use plimsoll_history::metrics as c;
use plimsoll_history::{Metric, StoreConfig};
use plimsoll_tsdb::{SeriesId, Tsdb};

const SECOND: i64 = 1000;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder: PathBuf = arguments.next().ok_or("which folder?")?.into();
    let hours: i64 = arguments.next().ok_or("how many hours?")?.parse()?;
    let now = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH)?.as_millis())?;
    let begin = now - hours * 3600 * SECOND;
    let config = StoreConfig {
        folder: Some(folder),
        ..StoreConfig::default()
    };
    let (store, _) = Tsdb::open(config, begin)?;
    let mut traces = Vec::new();
    let mut add = |metric: Metric, of: &[&str], kind: Kind| {
        let key = metric.of(of).to_string();
        let id = store.series(&key, f64::from(metric.resolution));
        traces.push(Trace::new(id, kind, traces.len() as u64));
    };
    for metric in [c::NODE_CPU_USAGE, c::SYS_CPU_USAGE] {
        add(metric, &[], Kind::Cpu);
    }
    for metric in [c::NODE_MEMORY_USAGE, c::SYS_MEMORY_USAGE] {
        add(metric, &[], Kind::Bytes);
    }
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let mut names = line.split_whitespace();
        let Some(pod) = names.next() else {
            continue;
        };
        add(c::POD_CPU_USAGE, &[pod], Kind::Cpu);
        add(c::POD_MEMORY_USAGE, &[pod], Kind::Bytes);
        add(c::POD_CPU_THROTTLED, &[pod], Kind::Ratio);
        for container in names {
            add(c::CONTAINER_CPU_USAGE, &[container], Kind::Cpu);
            add(c::CONTAINER_MEMORY_USAGE, &[container], Kind::Bytes);
            add(c::CONTAINER_CPU_THROTTLED, &[container], Kind::Ratio);
        }
    }
    let mut batch: Vec<(SeriesId, f64)> = Vec::with_capacity(traces.len());
    let mut at = begin;
    while at < now {
        batch.clear();
        batch.extend(traces.iter_mut().map(|trace| (trace.id, trace.next())));
        store.append(at, &batch);
        if (at - begin) / SECOND % 5 == 4 {
            let done = store.maintain(at);
            if let Some(problem) = done.problem {
                return Err(problem.into());
            }
        }
        at += SECOND;
    }
    store.close()?;
    let stats = store.stats();
    println!("{} {}", stats.series, stats.block_bytes);
    Ok(())
}

#[derive(Clone, Copy)]
enum Kind {
    Cpu,
    Bytes,
    Ratio,
}

/// One figure as it goes on: CPU is noisy, with bursts and idle stretches; memory moves by pages, and seldom; ratios
/// are zero but for bursts.
struct Trace {
    id: SeriesId,
    kind: Kind,
    seed: u64,
    level: f64,
    busy: bool,
}

impl Trace {
    fn new(id: SeriesId, kind: Kind, number: u64) -> Self {
        let mut trace = Self {
            id,
            kind,
            seed: number.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1,
            level: 0.0,
            busy: false,
        };
        trace.level = match kind {
            Kind::Cpu => 0.002 + trace.random() * 0.2,
            Kind::Bytes => 4096.0 * (trace.random() * 100_000.0).floor(),
            Kind::Ratio => 0.0,
        };
        trace
    }

    /// Between 0 and 1.
    fn random(&mut self) -> f64 {
        self.seed ^= self.seed << 13;
        self.seed ^= self.seed >> 7;
        self.seed ^= self.seed << 17;
        (self.seed >> 11) as f64 / (1u64 << 53) as f64
    }

    fn next(&mut self) -> f64 {
        if self.random() < 0.005 {
            self.busy = !self.busy;
        }
        match self.kind {
            Kind::Cpu if self.busy => self.level * (0.8 + 0.4 * self.random()),
            // An idle program wakes up now and then.
            Kind::Cpu => (self.random() * 20.0).floor() * 1e-5,
            Kind::Bytes => {
                if self.busy && self.random() < 0.1 {
                    let pages = (self.random() * 64.0).floor() - 31.0;
                    self.level = (self.level + pages * 4096.0).max(0.0);
                }
                self.level
            }
            Kind::Ratio => match self.busy && self.random() < 0.2 {
                true => (self.random() * 10.0).floor() / 10.0,
                false => 0.0,
            },
        }
    }
}
