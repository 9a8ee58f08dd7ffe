//! The scheduler's core, in memory: what a pod costs, workload by workload.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::workspace;

const WORKLOADS: &[&str] = &[
    "basic",
    "node-affinity",
    "zone-spread",
    "default-spread",
    "hostname-anti-affinity",
    "zone-affinity",
    "preferred-affinity",
    "preemption",
    "unschedulable-backlog",
    "daemonset",
];

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
}

/// Each workload in a process of its own, so that its memory is its own, too. A line of JSON each.
pub fn run(options: &Options) -> Result<()> {
    let mut build = workspace::cargo()?;
    build.args([
        "build",
        "--release",
        "--package",
        "plimsoll-sched",
        "--example",
        "bench",
    ]);
    workspace::run(&mut build)?;
    let bench = workspace::target()?.join("release/examples/bench");
    for workload in WORKLOADS {
        if !options.only.is_empty() && !options.only.iter().any(|name| name == workload) {
            continue;
        }
        let nodes = match (options.nodes, *workload) {
            (Some(nodes), _) => nodes,
            (None, "daemonset") => 15_000,
            (None, _) => 5_000,
        };
        let status = Command::new(&bench)
            .arg(workload)
            .args([nodes, options.pods].map(|number| number.to_string()))
            .status()
            .with_context(|| format!("run {}", bench.display()))?;
        ensure!(status.success(), "{workload} failed");
    }
    Ok(())
}
