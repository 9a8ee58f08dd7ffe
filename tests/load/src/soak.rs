//! Pods come and go for a long time: what stays behind of each, and whether the last costs what the first did.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use plimsoll_test_support::proc::CpuTime;
use serde_json::Value;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use crate::create::{PODS, pod};
use crate::subject::Subject;
use crate::wire::{Connection, Target};
use crate::{Options, Report};

/// Each makes its share of the pods, and deletes it.
const WORKERS: u64 = 8;
/// Lines of the table.
const SAMPLES: u32 = 30;
/// The log of changes and other things of a fixed size are full by then.
const FILLED: Duration = Duration::from_secs(60);
/// About a hundredth of a core goes into knowing how fast the machine is.
const PIECE: u32 = 300;
const PIECE_EVERY: Duration = Duration::from_millis(500);
/// Too few figures say nothing.
const JUDGED: usize = 6;

/// How many pods have gone.
#[derive(Debug, Default)]
struct Flow {
    deleted: AtomicU64,
}

#[derive(Debug, Clone, Copy)]
struct Sample {
    at: Duration,
    gone: u64,
    rss: f64,
    disk: f64,
    cpu: Duration,
    /// What the same work has cost so far, however fast the machine was.
    pace: Pace,
}

/// A fixed piece of work, done again and again: machines are shared, and not equally fast at all times.
#[derive(Debug, Clone, Copy, Default)]
struct Pace {
    times: u64,
    took: Duration,
}

impl Pace {
    /// What a piece of work took, on average, in between.
    fn since(&self, earlier: &Self) -> f64 {
        let took = self.took.saturating_sub(earlier.took);
        took.as_secs_f64() / (self.times - earlier.times) as f64
    }
}

/// Much like what a server does: it writes and reads JSON.
fn keep_pace(pace: &Mutex<Pace>, stop: &AtomicBool) {
    let object = pod(7, Some("sim-0001".to_owned()));
    while !stop.load(Ordering::Relaxed) {
        let before = own_cpu();
        for _ in 0..PIECE {
            let text = std::hint::black_box(&object).to_string();
            let read: Result<Value, _> = serde_json::from_str(std::hint::black_box(&text));
            std::hint::black_box(read.is_ok());
        }
        let took = own_cpu().saturating_sub(before);
        if let Ok(mut pace) = pace.lock() {
            pace.times += 1;
            pace.took += took;
        }
        std::thread::sleep(PIECE_EVERY);
    }
}

/// The CPU time of this thread.
fn own_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

pub async fn measure(options: &Options, report: &mut Report) -> Result<()> {
    let temp = tempfile::tempdir()?;
    // Room for twice as many as live at a time.
    let nodes = (options.alive / 50).clamp(10, 5_000).to_string();
    let mut flags = vec!["--no-agent", "--simulate-nodes", &nodes];
    // Earlier versions do not know the flag.
    if options.event_ttl != crate::EVENT_TTL {
        flags.extend(["--event-ttl", &options.event_ttl]);
    }
    let subject = Subject::start(&options.program, temp.path(), &flags)?;
    let target = subject.target()?;
    let flow = Arc::new(Flow::default());
    let mut workers = JoinSet::new();
    for worker in 0..WORKERS {
        let share = Share {
            worker,
            every: Duration::from_secs(WORKERS) / options.soak_rate.max(1),
            alive: u64::from(options.alive) / WORKERS,
        };
        workers.spawn(come_and_go(target.clone(), share, flow.clone()));
    }
    let whole = Duration::from_secs(60) * options.minutes.max(1);
    let pace = Arc::new(Mutex::new(Pace::default()));
    let stop = Arc::new(AtomicBool::new(false));
    let pacer = {
        let (pace, stop) = (pace.clone(), stop.clone());
        std::thread::spawn(move || keep_pace(&pace, &stop))
    };
    let samples = tokio::select! {
        samples = follow(&subject, &target, temp.path(), whole, &flow, &pace) => samples?,
        Some(ended) = workers.join_next() => bail!("a client ended: {:?}", ended?),
    };
    stop.store(true, Ordering::Relaxed);
    pacer.join().ok().context("the pacer")?;
    workers.shutdown().await;
    let events = ttl_seconds(&options.event_ttl);
    let steady = steady(options, events);
    judge(report, &samples, steady)?;
    subject.stop()
}

/// From when on as much goes as comes, events included if they expire soon enough to see it.
fn steady(options: &Options, event_ttl: Option<u64>) -> Duration {
    let filled = u64::from(options.alive) / u64::from(options.soak_rate.max(1));
    let half = u64::from(options.minutes.max(1)) * 30;
    // A sweep comes by a step after the time.
    let expired = event_ttl.map_or(0, |ttl| ttl + ttl / 20 + 2);
    let expired = if expired <= half { expired } else { 0 };
    Duration::from_secs(filled.max(expired)) + FILLED
}

/// Only what is written in plain seconds, minutes or hours is known here: the server reads the rest.
fn ttl_seconds(text: &str) -> Option<u64> {
    let mut seconds = 0;
    let mut number = String::new();
    for letter in text.chars() {
        let unit = match letter {
            '0'..='9' => {
                number.push(letter);
                continue;
            }
            's' => 1,
            'm' => 60,
            'h' => 3600,
            _ => return None,
        };
        seconds += number.parse::<u64>().ok()? * unit;
        number.clear();
    }
    (number.is_empty() && seconds > 0).then_some(seconds)
}

struct Share {
    worker: u64,
    every: Duration,
    alive: u64,
}

async fn come_and_go(target: Target, share: Share, flow: Arc<Flow>) -> Result<()> {
    let mut connection = target.connect().await?;
    let mut beat = interval(share.every);
    beat.set_missed_tick_behavior(MissedTickBehavior::Burst);
    for number in 0_u64.. {
        beat.tick().await;
        let mut new = pod(0, None);
        new["metadata"]["name"] = name(share.worker, number).into();
        connection.create(PODS, new.to_string()).await?;
        if let Some(old) = number.checked_sub(share.alive) {
            delete(&mut connection, &name(share.worker, old)).await?;
            flow.deleted.fetch_add(1, Ordering::Relaxed);
        }
    }
    Ok(())
}

fn name(worker: u64, number: u64) -> String {
    format!("soak-{worker}-{number:07}")
}

async fn delete(connection: &mut Connection, name: &str) -> Result<()> {
    let path = format!("{PODS}/{name}?gracePeriodSeconds=1");
    let answer = connection
        .send(Method::DELETE, &path, "application/json", "")
        .await?;
    let status = answer.status();
    let body = answer.into_body().collect().await?.to_bytes();
    if !status.is_success() && status != StatusCode::NOT_FOUND {
        bail!("{path}: {status}: {}", String::from_utf8_lossy(&body));
    }
    Ok(())
}

async fn follow(
    subject: &Subject,
    target: &Target,
    dir: &Path,
    whole: Duration,
    flow: &Flow,
    pace: &Mutex<Pace>,
) -> Result<Vec<Sample>> {
    let mut connection = target.connect().await?;
    let started = Instant::now();
    let mut samples: Vec<Sample> = Vec::new();
    let mut beat = interval(whole / SAMPLES);
    beat.tick().await;
    println!(
        "{:>7} {:>9} {:>9} {:>9} {:>9} {:>10} {:>10} {:>9} {:>9}",
        "s", "gone", "alive", "events", "RSS MiB", "disk MiB", "CPU ms/pod", "pace µs", "pieces"
    );
    while started.elapsed() < whole {
        beat.tick().await;
        let sample = Sample {
            at: started.elapsed(),
            gone: flow.deleted.load(Ordering::Relaxed),
            rss: subject.rss_mib()?,
            disk: on_disk(dir)?,
            cpu: subject.cpu()?.since(&CpuTime::default()),
            pace: pace.lock().map(|pace| *pace).unwrap_or_default(),
        };
        let (alive, events) = (
            count(&mut connection, PODS).await?,
            count(&mut connection, "/api/v1/events").await?,
        );
        let each = samples.last().map_or(f64::NAN, |last| cost(last, &sample));
        let start = Pace::default();
        let pace = sample
            .pace
            .since(samples.last().map_or(&start, |last| &last.pace));
        let pieces = each / 1e3 / pace * f64::from(PIECE);
        println!(
            "{:>7} {:>9} {alive:>9} {events:>9} {:>9.1} {:>10.1} {each:>10.2} {:>9.2} {pieces:>9.1}",
            sample.at.as_secs(),
            sample.gone,
            sample.rss,
            sample.disk,
            pace * 1e6 / f64::from(PIECE),
        );
        samples.push(sample);
    }
    Ok(samples)
}

/// Milliseconds of CPU for each pod that went in between.
fn cost(from: &Sample, to: &Sample) -> f64 {
    let used = to.cpu.saturating_sub(from.cpu);
    used.as_secs_f64() * 1e3 / (to.gone - from.gone) as f64
}

fn on_disk(dir: &Path) -> Result<f64> {
    use std::os::unix::fs::MetadataExt;
    let store = dir.join("objects.redb");
    let file = store
        .metadata()
        .with_context(|| store.display().to_string())?;
    Ok(file.blocks() as f64 * 512.0 / f64::from(1 << 20))
}

async fn count(connection: &mut Connection, path: &str) -> Result<u64> {
    let page: Value = serde_json::from_slice(&connection.get(&format!("{path}?limit=1")).await?)?;
    let shown = page["items"].as_array().map_or(0, Vec::len) as u64;
    Ok(shown + page["metadata"]["remainingItemCount"].as_u64().unwrap_or(0))
}

fn judge(report: &mut Report, samples: &[Sample], steady: Duration) -> Result<()> {
    let judged: Vec<Sample> = samples
        .iter()
        .filter(|sample| sample.at >= steady)
        .copied()
        .collect();
    ensure!(
        judged.len() >= JUDGED,
        "too short: steady from {} s on, run for at least twice as long",
        steady.as_secs()
    );
    let third = judged.len() / 3;
    let (early, late) = (
        &judged[..third.max(2)],
        &judged[judged.len() - third.max(2)..],
    );
    let gone = mean(late, |s| s.gone as f64) - mean(early, |s| s.gone as f64);
    let grown = |of: fn(&Sample) -> f64| {
        let mib = mean(late, of) - mean(early, of);
        mib * f64::from(1 << 20) / gone
    };
    report.note("soak: pods that came and went", gone, "");
    report.note("soak: RSS at the end", mean(late, |s| s.rss), "MiB");
    report.note(
        "soak: store on disk at the end",
        mean(late, |s| s.disk),
        "MiB",
    );
    report.at_most(
        "soak: RSS kept for each pod that came and went",
        grown(|s| s.rss),
        "bytes",
        300.0,
    );
    report.note(
        "soak: disk kept for each pod that came and went",
        grown(|s| s.disk),
        "bytes",
    );
    let (first, last) = (span_cost(early), span_cost(late));
    report.note("soak: CPU for each pod, early", first.0, "ms");
    report.note("soak: CPU for each pod, late", last.0, "ms");
    report.at_most(
        "soak: CPU for each pod in pieces of work, late to early",
        last.1 / first.1,
        "",
        1.1,
    );
    Ok(())
}

fn mean(samples: &[Sample], of: fn(&Sample) -> f64) -> f64 {
    samples.iter().map(of).sum::<f64>() / samples.len() as f64
}

/// Milliseconds of CPU for each pod, and the same in pieces of the fixed work.
fn span_cost(samples: &[Sample]) -> (f64, f64) {
    match (samples.first(), samples.last()) {
        (Some(first), Some(last)) => {
            let each = cost(first, last);
            (each, each / last.pace.since(&first.pace))
        }
        _ => (f64::NAN, f64::NAN),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_durations() {
        assert_eq!(ttl_seconds("1h0m0s"), Some(3600));
        assert_eq!(ttl_seconds("90s"), Some(90));
        assert_eq!(ttl_seconds("1.5h"), None);
        assert_eq!(ttl_seconds("0s"), None);
        assert_eq!(ttl_seconds("5"), None);
    }

    fn sample(second: u64, rss: f64, cpu_each: f64) -> Sample {
        let gone = second * 20;
        Sample {
            at: Duration::from_secs(second),
            gone,
            rss,
            disk: 10.0,
            cpu: Duration::from_secs_f64(gone as f64 * cpu_each / 1e3),
            pace: Pace {
                times: second,
                took: Duration::from_millis(second),
            },
        }
    }

    #[test]
    fn what_only_grows_is_found() {
        let flat: Vec<Sample> = (0..30).map(|n| sample(n * 60, 100.0, 5.0)).collect();
        let mut report = Report::default();
        judge(&mut report, &flat, Duration::from_secs(120)).unwrap();
        assert!(report.missed.is_empty(), "{:?}", report.missed);
        // A kilobyte for each pod.
        let mib_each = 1024.0 / f64::from(1 << 20);
        let grows: Vec<Sample> = (0..30)
            .map(|n| sample(n * 60, 100.0 + (n * 60 * 20) as f64 * mib_each, 5.0))
            .collect();
        let mut report = Report::default();
        judge(&mut report, &grows, Duration::from_secs(120)).unwrap();
        assert_eq!(report.missed.len(), 1, "{:?}", report.missed);
        assert!(judge(&mut report, &grows[..6], Duration::from_secs(120)).is_err());
    }
}
