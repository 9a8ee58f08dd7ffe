//! Benches. Each measures its floor, too, in the same run on the same machine: the ratio is what can be compared.

mod against;
mod agent;
mod agent_real;
mod crds;
mod crowd;
mod floor;
mod observe;
mod predict;
mod sched;
mod scrape;
mod subject;
mod tsdb;
mod up;

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Options {
    /// Another plimsoll, built in release: both do the same work in turns. Fails where this checkout's costs more.
    #[arg(long, value_name = "PROGRAM")]
    against: Option<PathBuf>,
    #[command(subcommand)]
    bench: Option<Bench>,
}

impl Options {
    pub fn run(self) -> Result<()> {
        if let Some(old) = &self.against {
            return against::run(old);
        }
        let bench = self.bench.context("name a bench; --help lists them")?;
        bench.run()
    }
}

#[derive(Subcommand)]
pub enum Bench {
    /// The agent's cost per container-sample and per scrape, its memory, and how soon a new cgroup shows.
    Observe(observe::Options),
    /// The whole agent with half a day of history: what it costs over the observer alone. With --real: beside a stock
    /// kubelet with pods that really run, and koordlet where PLIMSOLL_PEER_KOORDLET names it.
    Agent(agent::Options),
    /// The scheduler's core in memory: pods a second, by workload.
    Sched(sched::Options),
    /// What the metrics-server takes to scrape many simulated kubelets, and to list what it knows.
    Scrape(scrape::Options),
    /// How soon `up` is ready, and what its API server takes: objects, watchers, a kill in the middle of writes.
    Up(up::Options),
    /// What definitions of custom resources cost `up`, few and many, beside a real kube-apiserver.
    Crds(crds::Options),
    /// The time-series store: appending, disk, reading, recovery.
    Tsdb(tsdb::Options),
    /// How often forecasts are exceeded, and how much of what is free they let be lent.
    Predict,
}

impl Bench {
    fn run(self) -> Result<()> {
        match self {
            Self::Observe(options) => observe::run(&options),
            Self::Agent(options) if options.real => agent_real::run(&options),
            Self::Agent(options) => agent::run(&options),
            Self::Sched(options) => sched::run(&options),
            Self::Scrape(options) => scrape::run(&options),
            Self::Up(options) => up::run(&options),
            Self::Crds(options) => crds::run(&options),
            Self::Tsdb(options) => tsdb::run(&options),
            Self::Predict => predict::run(),
        }
    }
}

/// The middle value; of an even number, the upper of the two in the middle.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_of_few() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0]), 4.0);
        assert!(median(Vec::new()).is_nan());
    }
}
