//! What is measured, and the bars.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use plimsoll_metrics_server::decode::{Reading, decode};
use serde_json::{Value, json};

use crate::Options;
use crate::asking::{Connection, GROUP};
use crate::cluster::Cluster;
use crate::floor::thread_time;
use crate::kubelets::{Kubelets, Sent, node_name};
use crate::subject::{Face, Subject};

/// For a list of all nodes after the start.
const COMPLETE_WITHIN: Duration = Duration::from_secs(300);
/// How many pages are followed from when they were sent to when they are shown.
const FOLLOWED: usize = 200;
const LISTS: usize = 5;
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";

#[derive(Debug)]
pub struct Figures {
    cpu_us_per_scrape: f64,
    rss_mib: f64,
    complete_s: f64,
    shown: Option<Shown>,
}

/// What only the API can tell.
#[derive(Debug)]
struct Shown {
    publish_ms_p99: f64,
    list_pods_json_ms: f64,
    list_pods_proto_ms: f64,
    rss_growth_mib: f64,
}

pub fn decode_mb_per_s(kubelets: &Kubelets) -> Result<f64> {
    let (page, _) = kubelets.page(0);
    let mut best = Duration::MAX;
    // The best of some: the kubelets and everybody else are at work, too.
    for _ in 0..20 {
        const TIMES: u32 = 200;
        let before = thread_time();
        for _ in 0..TIMES {
            let page = decode(std::hint::black_box(page.as_bytes()), 0, Reading::default())?;
            ensure!(page.containers.len() == kubelets.pods, "pods are missing");
        }
        best = best.min(thread_time().saturating_sub(before) / TIMES);
    }
    Ok(page.len() as f64 / best.as_secs_f64() / 1e6)
}

pub async fn figures(
    options: &Options,
    kubelets: &Arc<Kubelets>,
    subject: &mut Subject,
    cluster: &Cluster,
) -> Result<Figures> {
    let complete = match subject.face {
        Face::Api(address) => complete(options, subject, address, cluster.token()).await?,
        Face::Output(_) => tokio::task::block_in_place(|| subject.wait_for_word())?,
    };
    options.say(&format!(
        "all nodes listed after {:.1} s",
        complete.as_secs_f64()
    ));
    // Past whatever is different at the beginning.
    tokio::time::sleep(Duration::from_secs(2 * options.resolution)).await;
    let (served, before) = (kubelets.served(), subject.cpu()?);
    tokio::time::sleep(options.window()).await;
    let (served, after) = (kubelets.served() - served, subject.cpu()?);
    ensure!(served > 0, "nothing was scraped");
    let rss_mib = subject.rss_mib()?;
    let shown = match subject.face {
        Face::Api(address) => Some(shown(kubelets, subject, address, cluster.token()).await?),
        Face::Output(_) => None,
    };
    Ok(Figures {
        cpu_us_per_scrape: after.since(&before).as_secs_f64() * 1e6 / served as f64,
        rss_mib,
        complete_s: complete.as_secs_f64(),
        shown,
    })
}

async fn complete(
    options: &Options,
    subject: &mut Subject,
    address: SocketAddr,
    token: &str,
) -> Result<Duration> {
    let mut connection = None;
    loop {
        subject.check()?;
        let elapsed = subject.started.elapsed();
        ensure!(
            elapsed < COMPLETE_WITHIN,
            "not all nodes are listed after {elapsed:?}"
        );
        let listed = nodes_listed(&mut connection, address, token).await;
        match listed {
            Ok(listed) if listed >= options.nodes => return Ok(subject.started.elapsed()),
            Ok(_) => {}
            // Not listening yet.
            Err(_) => connection = None,
        }
        tokio::time::sleep(Duration::from_millis(250)).await;
    }
}

async fn nodes_listed(
    connection: &mut Option<Connection>,
    address: SocketAddr,
    token: &str,
) -> Result<usize> {
    const ANSWER_WITHIN: Duration = Duration::from_secs(5);
    let ask = async {
        let mut asked = match connection.take() {
            Some(connection) => connection,
            None => Connection::open(address, token).await?,
        };
        let body = asked
            .get(&format!("{GROUP}/nodes"), "application/json")
            .await?;
        *connection = Some(asked);
        let list: Value = serde_json::from_slice(&body)?;
        Ok(list["items"].as_array().map_or(0, Vec::len))
    };
    tokio::time::timeout(ANSWER_WITHIN, ask).await?
}

async fn shown(
    kubelets: &Arc<Kubelets>,
    subject: &Subject,
    address: SocketAddr,
    token: &str,
) -> Result<Shown> {
    let publish_ms_p99 = publish_p99(kubelets, address, token).await?;
    let before = subject.rss_mib()?;
    let json = list(address, token, "application/json").await?;
    let proto = list(address, token, PROTOBUF).await?;
    Ok(Shown {
        publish_ms_p99,
        list_pods_json_ms: json,
        list_pods_proto_ms: proto,
        rss_growth_mib: subject.rss_mib()? - before,
    })
}

/// The median of some lists of all pods, to the last byte.
async fn list(address: SocketAddr, token: &str, accept: &str) -> Result<f64> {
    let mut connection = Connection::open(address, token).await?;
    let mut took = Vec::new();
    for _ in 0..LISTS {
        let began = Instant::now();
        let length = connection.read(&format!("{GROUP}/pods"), accept).await?;
        ensure!(length > 0, "an empty list of pods");
        took.push(began.elapsed().as_secs_f64() * 1e3);
    }
    took.sort_by(f64::total_cmp);
    Ok(took[took.len() / 2])
}

/// From when a page was sent to when the API shows what was on it.
async fn publish_p99(kubelets: &Arc<Kubelets>, address: SocketAddr, token: &str) -> Result<f64> {
    const AT_ONCE: usize = 16;
    let mut sent = kubelets.watch();
    let mut took = Vec::new();
    let mut following = tokio::task::JoinSet::new();
    while took.len() + following.len() < FOLLOWED || !following.is_empty() {
        while following.len() < AT_ONCE && took.len() + following.len() < FOLLOWED {
            // Not one that has waited in the queue.
            while sent.try_recv().is_ok() {}
            let page = sent.recv().await.context("no more pages")?;
            let token = token.to_owned();
            following.spawn(async move { follow(page, address, &token).await });
        }
        if let Some(followed) = following.join_next().await {
            took.push(followed??);
        }
    }
    took.sort_by(f64::total_cmp);
    Ok(took[took.len() * 99 / 100])
}

async fn follow(page: Sent, address: SocketAddr, token: &str) -> Result<f64> {
    let path = format!("{GROUP}/nodes/{}", node_name(page.node));
    let mut connection = Connection::open(address, token).await?;
    let mut pause = Duration::from_millis(1);
    loop {
        let body = connection.get(&path, "application/json").await?;
        let node: Value = serde_json::from_slice(&body)?;
        let shown = node["usage"]["memory"].as_str().unwrap_or_default();
        // A later page may be shown by now.
        if shown.parse::<u64>().is_ok_and(|shown| shown >= page.memory) {
            return Ok(page.at.elapsed().as_secs_f64() * 1e3);
        }
        ensure!(page.at.elapsed() < COMPLETE_WITHIN, "{path} is never shown");
        tokio::time::sleep(pause).await;
        // Who takes seconds need not be asked every millisecond.
        pause = (pause * 5 / 4).min(Duration::from_millis(100));
    }
}

/// Prints everything, and last the line that programs read; says how many bars were missed.
pub fn report(
    options: &Options,
    ours: &Figures,
    peer: Option<&Figures>,
    decode: f64,
    floor: f64,
) -> usize {
    let mut missed = 0;
    let mut judge = |name: &str, value: f64, unit: &str, bar: Option<(f64, bool)>| {
        let verdict = match bar {
            None => String::new(),
            Some((bar, at_least)) => {
                let reached = if at_least { value >= bar } else { value <= bar };
                missed += usize::from(!reached);
                let sign = if at_least { "≥" } else { "≤" };
                let word = if reached { "reached" } else { "MISSED" };
                format!("{sign} {bar} {word}")
            }
        };
        options.say(&format!("{name:<40} {value:>10.1} {unit:<6} {verdict}"));
    };
    let at_most = |bar: f64| Some((bar, false));
    // The bars are for these two sizes.
    let (small, large) = (options.nodes <= 1_000, options.nodes <= 5_000);
    judge(
        "CPU per scrape",
        ours.cpu_us_per_scrape,
        "µs",
        at_most(100.0),
    );
    judge("its floor: the same bytes over TLS", floor, "µs", None);
    judge("decode", decode, "MB/s", Some((700.0, true)));
    let rss = if small { 60.0 } else { 200.0 };
    judge(
        "memory",
        ours.rss_mib,
        "MiB",
        at_most(rss).filter(|_| large),
    );
    let soon = at_most(17.0).filter(|_| small && options.resolution == 15);
    judge(
        "from the start to a complete list",
        ours.complete_s,
        "s",
        soon,
    );
    if let Some(shown) = &ours.shown {
        judge(
            "page sent to page shown, p99",
            shown.publish_ms_p99,
            "ms",
            None,
        );
        judge(
            "list of all pods, JSON",
            shown.list_pods_json_ms,
            "ms",
            at_most(400.0),
        );
        judge(
            "list of all pods, protobuf",
            shown.list_pods_proto_ms,
            "ms",
            at_most(150.0),
        );
        judge(
            "memory that lists take",
            shown.rss_growth_mib,
            "MiB",
            at_most(64.0),
        );
    }
    let line = |figures: &Figures| {
        let shown = figures.shown.as_ref();
        json!({
            "nodes": options.nodes, "pods_per_node": options.pods,
            "cpu_us_per_scrape": round(figures.cpu_us_per_scrape),
            "rss_mib": round(figures.rss_mib),
            "publish_ms_p99": shown.map(|shown| round(shown.publish_ms_p99)),
            "list_pods_json_ms": shown.map(|shown| round(shown.list_pods_json_ms)),
            "list_pods_proto_ms": shown.map(|shown| round(shown.list_pods_proto_ms)),
        })
    };
    let mut all = line(ours);
    all["decode_mb_per_s"] = json!(round(decode));
    all["floor_us_per_scrape"] = json!(round(floor));
    if let Some(peer) = peer {
        // What the line does not have.
        judge(
            "the original: to a complete list",
            peer.complete_s,
            "s",
            None,
        );
        let shown = peer.shown.as_ref();
        let growth = shown.map_or(0.0, |shown| shown.rss_growth_mib);
        judge("the original: memory that lists take", growth, "MiB", None);
        all["peer"] = line(peer);
    }
    println!("{all}");
    missed
}

fn round(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}
