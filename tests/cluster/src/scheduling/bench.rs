//! What scheduling costs end to end over a real API server: ours, and kube-scheduler beside it.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;
use plimsoll_test_support::proc::{CpuTime, rss_kib};
use plimsoll_test_support::{janitor, poll};
use serde_json::{Value, json};

use super::{Api, objects};
use crate::client::Server;
use crate::process::{Process, Scratch};
use crate::real::RealCluster;

const THREADS: usize = 4;
const NAMESPACE: &str = "bench";
const OURS: &str = "plimsoll";
const PATIENCE: Duration = Duration::from_secs(600);
/// The workload that is about memory: so many pods in all, most of them placed before.
const MEMORY: &str = "memory";
const IN_MEMORY: usize = 10_000;
/// What must not cost much more in a larger cluster, and how much larger that is.
const GROWING: [&str; 2] = ["basic", "hostname-anti-affinity"];
const LARGER: usize = 3;

#[derive(Args, Debug)]
pub struct Options {
    /// The plimsoll binary, built in release.
    #[arg(long)]
    program: std::path::PathBuf,
    /// kube-scheduler, to be measured beside it.
    #[arg(long)]
    peer: Option<std::path::PathBuf>,
    #[arg(long, default_value_t = 5000)]
    nodes: usize,
    #[arg(long, default_value_t = 2000)]
    pods: usize,
    /// Pods that are there before, already placed.
    #[arg(long, default_value_t = 1000)]
    placed: usize,
    /// basic, hostname-anti-affinity, zone-spread, zone-affinity, memory
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "basic,hostname-anti-affinity,zone-spread,zone-affinity,memory"
    )]
    only: Vec<String>,
    /// Also what basic and hostname-anti-affinity cost with three times the nodes, and by how much that is more.
    #[arg(long)]
    growth: bool,
}

/// How large a cluster is.
#[derive(Debug, Clone, Copy)]
struct Size {
    nodes: usize,
    pods: usize,
    placed: usize,
}

impl Options {
    fn size(&self, workload: &str) -> Size {
        let placed = match workload {
            MEMORY => IN_MEMORY.saturating_sub(self.pods),
            _ => self.placed,
        };
        Size {
            nodes: self.nodes,
            pods: self.pods,
            placed,
        }
    }
}

/// A line of JSON for each workload and scheduler.
pub fn run(options: &Options, kube_bin: &Path) -> Result<()> {
    // An API server of its own for each: its caches and the pods left behind weigh on the next.
    let tell = |size: Size, workload: &str, name: &str, program: &Path| -> Result<f64> {
        let cluster = RealCluster::start(kube_bin)?;
        let line = measure(size, workload, name, program, &cluster.server)
            .with_context(|| format!("{workload} with {name}"))?;
        println!("{line}");
        Ok(line["cpu_ms_per_pod"].as_f64().unwrap_or_default())
    };
    let mut costs: BTreeMap<&str, f64> = BTreeMap::new();
    for workload in &options.only {
        let size = options.size(workload);
        costs.insert(workload, tell(size, workload, OURS, &options.program)?);
        if let Some(peer) = &options.peer {
            tell(size, workload, "kube-scheduler", peer)?;
        }
    }
    for workload in GROWING.into_iter().filter(|_| options.growth) {
        let size = options.size(workload);
        let cost = match costs.get(workload) {
            Some(cost) => *cost,
            None => tell(size, workload, OURS, &options.program)?,
        };
        let larger = Size {
            nodes: size.nodes * LARGER,
            ..size
        };
        let more = tell(larger, workload, OURS, &options.program)?;
        let growth = json!({
            "workload": workload,
            "scheduler": OURS,
            "nodes": [size.nodes, larger.nodes],
            "cpu_ms_per_pod": [cost, more],
            "growth": round(more / cost),
        });
        println!("{growth}");
    }
    Ok(())
}

fn measure(
    options: Size,
    workload: &str,
    name: &str,
    program: &Path,
    server: &Server,
) -> Result<Value> {
    let api = Api { server };
    api.post(
        "/api/v1/namespaces",
        &json!({"metadata": {"name": NAMESPACE}}),
    )?;
    in_parallel(options.nodes, |index| {
        let labels = json!({"topology.kubernetes.io/zone": format!("zone-{}", index % 3)});
        let node = objects::node(&format!("node-{index}"), "4", labels);
        api.post("/api/v1/nodes", &node).map(drop)
    })?;
    let pods = format!("/api/v1/namespaces/{NAMESPACE}/pods");
    in_parallel(options.placed, |index| {
        let mut pod = objects::pod(&format!("placed-{index}"), "100m");
        pod["spec"]["nodeName"] = format!("node-{}", index % options.nodes).into();
        if workload != "zone-affinity" {
            pod["metadata"]["labels"] = json!({});
        }
        api.post(&pods, &pod).map(drop)
    })?;
    // Made while nobody looks, so that the schedulers and not their load are measured.
    in_parallel(options.pods, |index| {
        api.post(&pods, &wanted(workload, index)?).map(drop)
    })?;
    let mut scratch = Scratch::make()?;
    let scheduler = start(name, program, server, &mut scratch)?;
    let began = Instant::now();
    let begins = Duration::from_secs(240);
    let first = poll::until("the first pod is bound", begins, || {
        let bound = bound(&api)?;
        Ok((bound > options.placed).then_some((
            Instant::now(),
            CpuTime::of(scheduler.id())?,
            bound,
        )))
    });
    let (from, cpu, before) = match first {
        Ok(first) => first,
        Err(error) => bail!("{error:#}; {}", scheduler.last_words()),
    };
    let all = options.placed + options.pods;
    let mut peak = 0;
    let (until, cpu_then) = poll::until("all pods are bound", PATIENCE, || {
        std::thread::sleep(Duration::from_millis(200));
        peak = peak.max(rss_kib(scheduler.id())?);
        let bound = bound(&api)?;
        Ok((bound >= all).then_some((Instant::now(), CpuTime::of(scheduler.id())?)))
    })?;
    let events = poll::until("all are told of", PATIENCE, || {
        let told = count(
            &api,
            &format!("/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events"),
        )?;
        // The original drops events when it is in a hurry.
        Ok((told >= options.pods || until.elapsed() > Duration::from_secs(5)).then_some(told))
    })?;
    let in_all = CpuTime::of(scheduler.id())?;
    let counted = all - before;
    let elapsed = until.duration_since(from).as_secs_f64();
    let start_ms = from.duration_since(began).as_millis();
    // From the first binding seen to the last event; what came before that is reading the cluster.
    let spent = in_all.since(&cpu).max(cpu_then.since(&cpu));
    Ok(json!({
        "workload": workload,
        "scheduler": name,
        "nodes": options.nodes,
        "pods": options.pods,
        "placed": options.placed,
        "pods_per_s": (counted as f64 / elapsed).round(),
        "cpu_ms_per_pod": round(spent.as_secs_f64() * 1e3 / counted as f64),
        "cpu_ms_in_all": in_all.since(&CpuTime::default()).as_millis() as u64,
        "start_ms": start_ms as u64,
        "events": events,
        "rss_mib": round(peak as f64 / 1024.0),
    }))
}

fn round(value: f64) -> f64 {
    (value * 1000.0).round() / 1000.0
}

fn count(api: &Api<'_>, path: &str) -> Result<usize> {
    let list = api.get(&format!("{path}?limit=1"))?;
    let more = list["metadata"]["remainingItemCount"].as_u64().unwrap_or(0);
    Ok(list["items"].as_array().map_or(0, Vec::len) + more as usize)
}

/// Counted by those that are left, so that little has to be read.
fn bound(api: &Api<'_>) -> Result<usize> {
    let pods = format!("/api/v1/namespaces/{NAMESPACE}/pods");
    let pending = api.get(&format!(
        "{pods}?fieldSelector=spec.nodeName%3D&limit=10000"
    ))?;
    let pending = pending["items"].as_array().map_or(0, Vec::len);
    Ok(count(api, &pods)? - pending)
}

fn start(name: &str, program: &Path, server: &Server, scratch: &mut Scratch) -> Result<Process> {
    let folder = scratch.path().to_owned();
    let kubeconfig = folder.join("kubeconfig");
    fs::write(
        &kubeconfig,
        server.kubeconfig(server.address, "default").to_string(),
    )?;
    let mut command = janitor::command_in(None, program);
    if name == OURS {
        command.arg("scheduler");
    } else {
        // The original is not to be held back by its default.
        command.args(["--kube-api-qps", "5000", "--kube-api-burst", "5000"]);
    }
    command.arg("--kubeconfig").arg(&kubeconfig).args([
        "--leader-elect=false",
        "--secure-port",
        "0",
    ]);
    let process = Process::start("scheduler", command, &folder.join("scheduler.log"))?;
    scratch.process(&process)?;
    Ok(process)
}

fn wanted(workload: &str, index: usize) -> Result<Value> {
    let mut pod = objects::pod(&format!("pod-{index}"), "100m");
    let selector = json!({"matchLabels": {"app": "x"}});
    let term = |key: &str| json!([{"topologyKey": key, "labelSelector": selector}]);
    let required = "requiredDuringSchedulingIgnoredDuringExecution";
    match workload {
        "basic" | MEMORY => {}
        "hostname-anti-affinity" => {
            pod["spec"]["affinity"] =
                json!({"podAntiAffinity": {required: term("kubernetes.io/hostname")}});
        }
        "zone-affinity" => {
            pod["spec"]["affinity"] =
                json!({"podAffinity": {required: term("topology.kubernetes.io/zone")}});
        }
        "zone-spread" => {
            pod["spec"]["topologySpreadConstraints"] = json!([{"maxSkew": 5, "topologyKey": "topology.kubernetes.io/zone",
                "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}]);
        }
        other => bail!("there is no workload {other}"),
    }
    Ok(pod)
}

/// On a few threads, whoever is free takes the next.
pub fn in_parallel(number: usize, work: impl Fn(usize) -> Result<()> + Sync) -> Result<()> {
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                scope.spawn(|| -> Result<()> {
                    loop {
                        let index = next.fetch_add(1, Ordering::Relaxed);
                        if index >= number {
                            return Ok(());
                        }
                        work(index)?;
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().map_err(|_| anyhow!("panicked"))??;
        }
        Ok(())
    })
}
