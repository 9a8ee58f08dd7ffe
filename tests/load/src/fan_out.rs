//! Many watchers of the same pods.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use http::Method;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use serde_json::json;
use tokio::time::{MissedTickBehavior, interval, timeout};

use crate::create::{PODS, SERVER_ALONE, create};
use crate::subject::Subject;
use crate::wire::Target;
use crate::{Options, Report, percentile};

/// Updated in turns.
const PODS_UPDATED: u32 = 100;
/// Nothing at all for so long means that something was lost.
const SILENCE: Duration = Duration::from_secs(30);

pub async fn measure(options: &Options, report: &mut Report) -> Result<()> {
    let temp = tempfile::tempdir()?;
    let subject = Subject::start(&options.program, temp.path(), &SERVER_ALONE)?;
    create(&subject, PODS_UPDATED, |_| None).await?;
    let target = subject.target()?;
    let epoch = Instant::now();
    let cpu = subject.cpu()?;
    let mut watchers = Vec::new();
    for _ in 0..options.watchers {
        let events = watch(&target).await?;
        watchers.push(tokio::spawn(follow(events, options.updates, epoch)));
    }
    update(&target, options, epoch).await?;
    let mut latencies = Vec::new();
    for watcher in watchers {
        latencies.extend(watcher.await??);
    }
    let took = epoch.elapsed();
    let cpu = subject.cpu()?.since(&cpu);
    ensure!(
        latencies.len() == options.watchers as usize * options.updates as usize,
        "events were lost"
    );
    report.note(
        "fan-out: events delivered, none lost or out of order",
        latencies.len() as f64,
        "",
    );
    report.note(
        "fan-out: events delivered a second",
        latencies.len() as f64 / took.as_secs_f64(),
        "/s",
    );
    report.note(
        "fan-out: server CPU for each event",
        cpu.as_secs_f64() * 1e6 / latencies.len() as f64,
        "µs",
    );
    report.note(
        "fan-out: median from sending the update to its event",
        percentile(&mut latencies, 0.5),
        "ms",
    );
    report.at_most(
        "fan-out: p99 from sending the update to its event",
        percentile(&mut latencies, 0.99),
        "ms",
        50.0,
    );
    subject.stop()
}

/// Everything that happens to pods from now on.
async fn watch(target: &Target) -> Result<Incoming> {
    let mut connection = target.connect().await?;
    let list: serde_json::Value =
        serde_json::from_slice(&connection.get(&format!("{PODS}?limit=1")).await?)?;
    let version = list["metadata"]["resourceVersion"]
        .as_str()
        .context("a list without a version")?;
    let path = format!("{PODS}?watch=true&resourceVersion={version}");
    let answer = connection
        .send(Method::GET, &path, "application/json", Bytes::new())
        .await?;
    ensure!(answer.status().is_success(), "watch: {}", answer.status());
    // The connection's task goes on; its sender is of no more use.
    Ok(answer.into_body())
}

async fn update(target: &Target, options: &Options, epoch: Instant) -> Result<()> {
    let mut connection = target.connect().await?;
    let mut beat = interval(Duration::from_secs(1) / options.rate.max(1));
    beat.set_missed_tick_behavior(MissedTickBehavior::Burst);
    for number in 0..options.updates {
        beat.tick().await;
        let path = format!("{PODS}/load-{:05}", number % PODS_UPDATED);
        let sent = epoch.elapsed().as_micros();
        let patch = json!({"metadata": {"annotations": {"mark": format!("<{number}@{sent}>")}}});
        connection.merge(&path, patch.to_string()).await?;
    }
    Ok(())
}

/// Reads events until all updates have been seen, in order. Returns how many milliseconds each took.
async fn follow(mut events: Incoming, updates: u32, epoch: Instant) -> Result<Vec<f64>> {
    let finder = Arc::new(memchr::memmem::Finder::new(b"\"mark\":\"<"));
    let mut latencies = Vec::new();
    let mut line = Vec::new();
    while latencies.len() < updates as usize {
        let frame = timeout(SILENCE, events.frame())
            .await
            .with_context(|| format!("nothing more after {} of {updates} events", latencies.len()))?
            .context("the watch ended")??;
        let Ok(data) = frame.into_data() else {
            continue;
        };
        let now = epoch.elapsed().as_micros() as f64;
        let mut rest = data.as_ref();
        while let Some(end) = memchr::memchr(b'\n', rest) {
            line.extend_from_slice(&rest[..end]);
            rest = &rest[end + 1..];
            let (number, sent) = mark(&finder, &line)?;
            if number != latencies.len() as u64 {
                bail!("event {number} where {} was due", latencies.len());
            }
            latencies.push((now - sent) / 1e3);
            line.clear();
        }
        line.extend_from_slice(rest);
    }
    Ok(latencies)
}

/// The number of the update, and when it was sent.
fn mark(finder: &memchr::memmem::Finder<'_>, line: &[u8]) -> Result<(u64, f64)> {
    let unknown = || format!("no update: {}", String::from_utf8_lossy(line));
    let start = finder.find(line).with_context(unknown)? + finder.needle().len();
    let end = start + memchr::memchr(b'>', &line[start..]).with_context(unknown)?;
    let (number, sent) = std::str::from_utf8(&line[start..end])?
        .split_once('@')
        .with_context(unknown)?;
    Ok((number.parse()?, sent.parse()?))
}
