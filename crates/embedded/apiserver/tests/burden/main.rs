//! Hostile clients against a server in a process of its own. Whatever they do, an administrator is answered, and the
//! server's memory stays within bounds.
//!
//! The server is this program again, so that its memory can be told from that of its clients. `PLIMSOLL_CLASS_SECONDS`
//! says how long the clients go on; seeds are printed.

#![allow(clippy::unwrap_used)] // a test that cannot go on says so by panicking

mod client;
mod hostile;
mod rig;

use std::time::{Duration, Instant};

use client::Client;
use rig::{Rig, serve_if_asked};

/// For what is not at once.
const PATIENCE: Duration = Duration::from_secs(60);
/// What the server may take beyond what it took before: what its limits on requests, answers, changes and followers come
/// to together.
const MOST_KIB: u64 = 768 << 10;

fn seconds(unless_told: u64) -> Duration {
    let told = std::env::var("PLIMSOLL_CLASS_SECONDS").ok();
    let told = told.and_then(|text| text.parse().ok());
    Duration::from_secs(told.unwrap_or(unless_told))
}

fn seed() -> u64 {
    // The ladder sets the second: its runs must not fail by chance.
    let told = ["PLIMSOLL_CLASS_SEED", "PROPTEST_RNG_SEED"].map(|name| std::env::var(name).ok());
    let seed = told
        .into_iter()
        .flatten()
        .find_map(|text| text.parse().ok());
    let seed = seed.unwrap_or_else(|| fastrand::u64(..));
    println!("PLIMSOLL_CLASS_SEED={seed}");
    seed
}

fn runtime() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).enable_all().build().unwrap()
}

/// Not a test of its own: what the others ask for.
#[test]
fn the_server() {
    serve_if_asked(runtime);
}

/// How long an administrator waits for an answer, on a connection of their own each time.
async fn probe(admin: &Client) -> Duration {
    let began = Instant::now();
    for path in ["/readyz", "/api/v1/namespaces/tenant/configmaps/small"] {
        let asked = tokio::time::timeout(PATIENCE, admin.get(path));
        let (status, body) = asked.await.expect("an answer in time").expect("an answer");
        assert_eq!(status, 200, "{path}: {body}");
    }
    began.elapsed()
}

fn median(mut all: Vec<Duration>) -> Duration {
    all.sort_unstable();
    all[all.len() / 2]
}

/// What an administrator may have to wait while others do their worst: the machine has few cores, and clients, server
/// and prober share them.
fn bound(before: Duration) -> Duration {
    before * 50 + Duration::from_secs(3)
}

/// As many connections as there are places, each with a body that never comes, of somebody who may do nothing.
#[test]
fn unfinished_bodies_lock_nobody_out() {
    runtime().block_on(async {
        let rig = Rig::start(256).await;
        let mut before = Vec::new();
        for _ in 0..5 {
            before.push(probe(&rig.admin).await);
        }
        let started = rig.memory_kib();
        let mut held = Vec::new();
        let mut refused = 0;
        for _ in 0..rig.connections * 3 / 2 {
            // Some are turned away at once, which is as it should be.
            match rig.nobody.unfinished(1 << 20, 30_000).await {
                Ok(stream) => held.push(stream),
                Err(_) => refused += 1,
            }
        }
        let mut during = Vec::new();
        for _ in 0..5 {
            during.push(probe(&rig.admin).await);
        }
        let (before, during) = (median(before), median(during));
        println!(
            "held {} refused {refused}, probe {before:?} {during:?}",
            held.len()
        );
        assert!(during <= bound(before), "{before:?} {during:?}");
        // Other users are served as well.
        let (status, _) = rig
            .editor
            .get("/api/v1/namespaces/tenant/configmaps/small")
            .await
            .unwrap();
        assert_eq!(status, 200);
        // Who has too much is told so.
        let metrics = rig.admin.get("/metrics").await.unwrap().1;
        let count = metric(&metrics, "plimsoll_http_refused_for_others_total");
        assert!(count > 0, "{count}");
        let taken = rig.memory_kib().saturating_sub(started);
        assert!(taken <= MOST_KIB, "{taken} KiB");
        // One of too many is told when to come back; a body that does not come is not waited for.
        let mut ended = Vec::new();
        for mut one in [held.swap_remove(0), held.pop().unwrap()] {
            let told = tokio::time::timeout(PATIENCE, one.answer()).await;
            ended.push(told.expect("an answer in time").expect("an answer"));
        }
        assert_eq!(ended[0].status, 408, "{}", ended[0].body);
        assert_eq!(ended[1].status, 429, "{}", ended[1].body);
        let head = &ended[1].head;
        assert!(
            head.contains("retry-after: 1") && head.contains("connection: close"),
            "{head}"
        );
        drop(rig);
    });
}

fn metric(page: &str, name: &str) -> u64 {
    let line = page.lines().find_map(|line| line.strip_prefix(name));
    line.and_then(|value| value.trim().parse().ok())
        .unwrap_or_default()
}

/// All kinds of hostile clients at once.
#[test]
fn an_administrator_is_answered_whatever_others_do() {
    let seed = seed();
    runtime().block_on(async {
        let rig = Rig::start(512).await;
        let mut before = Vec::new();
        for _ in 0..5 {
            before.push(probe(&rig.admin).await);
        }
        let started = rig.memory_kib();
        let until = Instant::now() + seconds(5);
        let clients = hostile::start(&rig, seed, until);
        let (mut during, mut most) = (Vec::new(), 0);
        while Instant::now() < until {
            during.push(probe(&rig.admin).await);
            most = most.max(rig.memory_kib());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let did = clients.end().await;
        println!("{did:?}");
        let (before, during) = (median(before), median(during));
        let taken = most.saturating_sub(started);
        println!("probe {before:?} {during:?}, memory {started} KiB and {taken} more");
        assert!(during <= bound(before), "{before:?} {during:?}");
        assert!(taken <= MOST_KIB, "{taken} KiB");
        // Nothing broke, and nothing is left of them.
        let metrics = rig.admin.get("/metrics").await.unwrap().1;
        assert_eq!(metric(&metrics, "plimsoll_http_panics_total"), 0);
        assert_eq!(metric(&metrics, "plimsoll_task_restarts_total"), 0);
        let open = async || {
            let metrics = rig.admin.get("/metrics").await.unwrap().1;
            metric(&metrics, "plimsoll_http_connections_open")
        };
        let deadline = Instant::now() + PATIENCE;
        while open().await > 1 {
            assert!(Instant::now() < deadline, "connections stay");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
}
