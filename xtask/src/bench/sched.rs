//! The scheduler's core, in memory: what a pod costs, workload by workload.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::{Value, json};

use crate::{kube, workspace};

const WORKLOADS: &[&str] = &[
    "basic",
    "node-affinity",
    "zone-spread",
    "default-spread",
    "hostname-anti-affinity",
    "zone-affinity",
    "preferred-affinity",
    "preemption",
    "preemption-budgets",
    "preemption-spread",
    "first-of-class",
    "first-of-class-none-fits",
    "devices",
    "unschedulable-backlog",
    "daemonset",
];

/// What must not cost much more in a larger cluster, and how large that is.
const GROWING: [&str; 2] = ["basic", "hostname-anti-affinity"];
const LARGER: usize = 15_000;

#[derive(Args)]
pub struct Options {
    /// Only these workloads; all by default.
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// How many nodes; 5000 by default, 15000 for daemonset.
    #[arg(long)]
    nodes: Option<usize>,
    /// How many pods to schedule.
    #[arg(long, default_value_t = 2000)]
    pods: usize,
    /// How many threads the core may use.
    #[arg(long, default_value_t = 1)]
    parallelism: usize,
    /// Pods that are there before, already placed; with --real only.
    #[arg(long, default_value_t = 1000)]
    placed: usize,
    /// End to end over a real API server; beside the kube-scheduler that PLIMSOLL_PEER_KUBE_SCHEDULER names.
    #[arg(long)]
    real: bool,
}

/// Each workload in a process of its own, so that its memory is its own, too. A line of JSON each.
pub fn run(options: &Options) -> Result<()> {
    if options.real {
        return real(options);
    }
    let mut build = workspace::cargo()?;
    build.args([
        "build",
        "--release",
        "--package",
        "plimsoll-sched",
        "--example",
        "throughput",
    ]);
    workspace::run(&mut build)?;
    let bench = workspace::target()?.join("release/examples/throughput");
    for workload in WORKLOADS {
        if !options.only.is_empty() && !options.only.iter().any(|name| name == workload) {
            continue;
        }
        let nodes = match (options.nodes, *workload) {
            (Some(nodes), _) => nodes,
            (None, "daemonset") => 15_000,
            (None, _) => 5_000,
        };
        let cost = measure(&bench, workload, nodes, options)?;
        if options.nodes.is_none() && GROWING.contains(workload) {
            let more = measure(&bench, workload, LARGER, options)?;
            let growth = json!({
                "workload": workload,
                "nodes": [nodes, LARGER],
                "us_per_pod": [cost, more],
                "growth": (more / cost * 100.0).round() / 100.0,
            });
            println!("{growth}");
        }
    }
    Ok(())
}

/// One workload; its line is told. What a pod costs, in microseconds.
fn measure(bench: &Path, workload: &str, nodes: usize, options: &Options) -> Result<f64> {
    let output = Command::new(bench)
        .arg(workload)
        .args([nodes, options.pods].map(|number| number.to_string()))
        // As many as the workload has placed before.
        .arg("-")
        .arg(options.parallelism.to_string())
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("run {}", bench.display()))?;
    ensure!(output.status.success(), "{workload} failed");
    let line = String::from_utf8_lossy(&output.stdout);
    print!("{line}");
    let line: Value = serde_json::from_str(line.trim())?;
    let cost = line["us_per_pod"].as_f64();
    cost.with_context(|| format!("{workload} does not say what a pod costs"))
}

/// The whole process over a real API server with nodes that only its books know.
fn real(options: &Options) -> Result<()> {
    let mut build = workspace::cargo()?;
    build.args(["build", "--quiet", "--release"]);
    build.args([
        "--package",
        "plimsoll",
        "--package",
        "plimsoll-cluster-tests",
    ]);
    workspace::run(&mut build).context("build in release")?;
    let release = workspace::target()?.join("release");
    let mut bench = Command::new(release.join("plimsoll-cluster-tests"));
    bench
        .arg("--folder")
        .arg(workspace::root()?.join("tests/cluster"))
        .arg("--kube-bin")
        .arg(kube::programs()?)
        .arg("sched-bench")
        .arg("--program")
        .arg(release.join("plimsoll"))
        .args(["--pods", &options.pods.to_string()])
        .args(["--placed", &options.placed.to_string()])
        .args(["--nodes", &options.nodes.unwrap_or(5_000).to_string()]);
    match options.only.is_empty() {
        true if options.nodes.is_none() => {
            bench.arg("--growth");
        }
        true => {}
        false => {
            bench.args(["--only", &options.only.join(",")]);
        }
    }
    if let Some(peer) =
        std::env::var_os("PLIMSOLL_PEER_KUBE_SCHEDULER").filter(|peer| !peer.is_empty())
    {
        bench.arg("--peer").arg(peer);
    }
    workspace::run(&mut bench)
}
