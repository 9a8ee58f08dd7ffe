//! Many objects: how fast they are made, and what they weigh.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use crate::subject::Subject;
use crate::wire::{Connection, Target};
use crate::{Options, Report};

pub const CONNECTIONS: u32 = 32;
pub const PODS: &str = "/api/v1/namespaces/default/pods";
const RUN_WITHIN: Duration = Duration::from_secs(120);
/// Heartbeats of all nodes come by at least once.
const SETTLED: Duration = Duration::from_secs(15);

/// The embedded server with nobody beside it.
pub const SERVER_ALONE: [&str; 4] = [
    "--no-agent",
    "--no-metrics-server",
    "--no-scheduler",
    "--no-manager",
];
/// What runs on the embedded server is measured by benches of its own.
const WITHOUT_ROLES: [&str; 3] = ["--no-metrics-server", "--no-scheduler", "--no-manager"];

pub async fn measure(options: &Options, report: &mut Report) -> Result<()> {
    let temp = tempfile::tempdir()?;
    let subject = Subject::start(&options.program, temp.path(), &SERVER_ALONE)?;
    let nobody = |_| None;
    let alone = create(&subject, options.pods, nobody).await?;
    subject.stop()?;
    report.at_least(
        "pods created over HTTPS, nothing else going on",
        alone.per_second,
        "/s",
        3000.0,
    );
    report.note("pods created: server CPU for each", alone.micros, "µs");
    report.note(
        "pods created: CPU of this machine that other programs took",
        alone.others * 100.0,
        "%",
    );

    let plain = simulated(options, &WITHOUT_ROLES).await?;
    report.note("up to Ready with simulated nodes", plain.ready, "s");
    report.note(
        "pods created while simulated nodes start them",
        plain.created_per_second,
        "/s",
    );
    report.note("pods created until all of them run", plain.all_run, "s");
    report.note(
        "CPU while nothing but heartbeats goes on",
        plain.idle * 100.0,
        "% of a core",
    );
    report.at_most(
        "RSS with all simulated nodes and running pods",
        plain.rss_mib,
        "MiB",
        150.0,
    );
    let whole = simulated(options, &[]).await?;
    report.note(
        "the same with every role: CPU",
        whole.idle * 100.0,
        "% of a core",
    );
    report.note("the same with every role: RSS", whole.rss_mib, "MiB");
    Ok(())
}

/// What `up` is like with many nodes and pods.
struct Simulated {
    ready: f64,
    created_per_second: f64,
    all_run: f64,
    idle: f64,
    rss_mib: f64,
}

async fn simulated(options: &Options, without: &[&str]) -> Result<Simulated> {
    let temp = tempfile::tempdir()?;
    let nodes = options.nodes.to_string();
    let mut arguments = vec!["--simulate-nodes", &nodes];
    arguments.extend(without);
    let subject = Subject::start(&options.program, temp.path(), &arguments)?;
    let all = options.nodes;
    let bound = create(&subject, options.pods, move |index| {
        Some(format!("sim-{:04}", index % all + 1))
    });
    let bound = bound.await?;
    until_all_run(&subject).await?;
    let all_run = bound.started.elapsed().as_secs_f64();
    let before = (subject.cpu()?, Instant::now());
    tokio::time::sleep(SETTLED).await;
    let idle = subject.cpu()?.since(&before.0).as_secs_f64() / before.1.elapsed().as_secs_f64();
    let measured = Simulated {
        ready: subject.took.as_secs_f64(),
        created_per_second: bound.per_second,
        all_run,
        idle,
        rss_mib: subject.rss_mib()?,
    };
    subject.stop()?;
    Ok(measured)
}

pub async fn until_all_run(subject: &Subject) -> Result<()> {
    let mut connection = subject.target()?.connect().await?;
    let until = Instant::now() + RUN_WITHIN;
    while !all_run(&mut connection).await? {
        ensure!(Instant::now() < until, "some pods never run");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}

/// Asks for one page of those that do not run yet: the answer is short when it matters.
async fn all_run(connection: &mut Connection) -> Result<bool> {
    let path = format!("{PODS}?fieldSelector=status.phase%21%3DRunning&limit=1");
    let answer: Value = serde_json::from_slice(&connection.get(&path).await?)?;
    Ok(answer["items"].as_array().is_some_and(Vec::is_empty))
}

pub struct Created {
    pub started: Instant,
    pub per_second: f64,
    /// CPU time of the server for each object.
    pub micros: f64,
    /// The share of all processors' time that went to neither the server nor this program.
    pub others: f64,
}

/// The machine's processors: time in use, and all time.
fn machine() -> Result<(f64, f64)> {
    let text = std::fs::read_to_string("/proc/stat")?;
    let line = text.lines().next().unwrap_or_default();
    let ticks: Vec<f64> = line
        .split_whitespace()
        .skip(1)
        .take(8)
        .filter_map(|word| word.parse().ok())
        .collect();
    ensure!(ticks.len() == 8, "/proc/stat: {line}");
    let all: f64 = ticks.iter().sum();
    // The fourth and the fifth are idle time.
    Ok((all - ticks[3] - ticks[4], all))
}

pub async fn create(
    subject: &Subject,
    count: u32,
    node: impl Fn(u32) -> Option<String> + Clone + Send + 'static,
) -> Result<Created> {
    let target = subject.target()?;
    let next = Arc::new(AtomicU32::new(0));
    let mut connections = Vec::new();
    for _ in 0..CONNECTIONS {
        connections.push(Target::connect(&target).await?);
    }
    let cpu = subject.cpu()?;
    let both = subject.cpu_of_both()?;
    let (busy, all) = machine()?;
    let started = Instant::now();
    let tasks: Vec<_> = connections
        .into_iter()
        .map(|mut connection| {
            let (next, node) = (Arc::clone(&next), node.clone());
            tokio::spawn(async move {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if index >= count {
                        return anyhow::Ok(());
                    }
                    let body = pod(index, node(index)).to_string();
                    connection.create(PODS, body).await?;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await??;
    }
    let took = started.elapsed();
    let cpu = subject.cpu()?.since(&cpu);
    let (busy_after, all_after) = machine()?;
    let processors = std::thread::available_parallelism()?.get() as f64;
    let ours = (subject.cpu_of_both()?.saturating_sub(both)).as_secs_f64()
        / (took.as_secs_f64() * processors);
    Ok(Created {
        others: ((busy_after - busy) / (all_after - all).max(1.0) - ours).max(0.0),
        started,
        per_second: f64::from(count) / took.as_secs_f64(),
        micros: cpu.as_secs_f64() * 1e6 / f64::from(count),
    })
}

/// What a small service looks like.
pub fn pod(index: u32, node: Option<String>) -> Value {
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": format!("load-{index:05}"),
            "labels": {"app": format!("app-{}", index % 100), "tier": "backend"},
        },
        "spec": {
            "containers": [{
                "name": "main",
                "image": "registry.example.com/team/service:1.2.3",
                "ports": [{"containerPort": 8080}],
                "env": [{"name": "MODE", "value": "production"}],
                "resources": {
                    "requests": {"cpu": "100m", "memory": "128Mi"},
                    "limits": {"cpu": "500m", "memory": "256Mi"},
                },
            }],
        },
    });
    if let Some(node) = node {
        pod["spec"]["nodeName"] = node.into();
    }
    pod
}
