//! What a metrics-server needs to scrape many kubelets: ours, the data half of ours alone, and the original, on the same
//! simulated kubelets. On loopback, and bounded in count and time.

mod asking;
mod cluster;
mod collector;
mod floor;
mod kubelets;
mod measure;
mod subject;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use clap::Parser;
use plimsoll_test_support::janitor;

use crate::cluster::Cluster;
use crate::kubelets::Kubelets;
use crate::measure::Figures;
use crate::subject::{Kind, Subject};

#[derive(Debug, Parser)]
pub struct Options {
    /// The plimsoll to be measured; without one, the data half of its metrics-server alone.
    #[arg(long)]
    program: Option<PathBuf>,
    /// The original, measured on the same kubelets.
    #[arg(long, env = "PLIMSOLL_PEER_METRICS_SERVER")]
    peer: Option<PathBuf>,
    /// Simulated kubelets.
    #[arg(long, default_value_t = 1_000)]
    nodes: usize,
    /// Pods on each.
    #[arg(long, default_value_t = 30)]
    pods: usize,
    /// The time between two scrapes of a node, in seconds.
    #[arg(long, default_value_t = 15)]
    resolution: u64,
    /// How long CPU time is measured, in seconds.
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// Kubelets compress their pages.
    #[arg(long)]
    gzip: bool,
    /// Print nothing but the JSON line.
    #[arg(long)]
    json_only: bool,
    /// Judge nothing: only print.
    #[arg(long)]
    no_bars: bool,
    /// Used by this program itself: the data half alone, with this kubeconfig.
    #[arg(long, hide = true)]
    collector: Option<PathBuf>,
}

impl Options {
    fn say(&self, text: &str) {
        if !self.json_only {
            println!("{text}");
        }
    }

    fn window(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}

fn main() -> ExitCode {
    if let Some(code) = janitor::helper() {
        return code;
    }
    match run(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> Result<bool> {
    janitor::raise_file_limit();
    let runtime = tokio::runtime::Runtime::new()?;
    if let Some(kubeconfig) = &options.collector {
        return runtime
            .block_on(collector::run(options, kubeconfig))
            .map(|()| true);
    }
    ensure!(options.nodes > 0 && options.pods > 0, "nothing to measure");
    runtime.block_on(bench(options))
}

async fn bench(options: &Options) -> Result<bool> {
    let kubelets = Kubelets::start(options.nodes, options.pods, options.gzip).await?;
    options.say(&format!(
        "{} kubelets with {} pods each, {} bytes a page",
        options.nodes,
        options.pods,
        kubelets.page_length()
    ));
    let cluster = Cluster::start(&kubelets).await?;
    let decode = measure::decode_mb_per_s(&kubelets)?;
    let ours = match &options.program {
        Some(program) => Kind::Ours(program.clone()),
        None => Kind::Collector,
    };
    let figures = figures(options, &kubelets, &cluster, ours).await?;
    let floor = {
        let kubelets = Arc::clone(&kubelets);
        tokio::task::spawn_blocking(move || floor::micros_per_scrape(&kubelets)).await??
    };
    let peer = match &options.peer {
        Some(program) => {
            let peer = Kind::Peer(program.clone());
            Some(figures_of_peer(options, &kubelets, &cluster, peer).await?)
        }
        None => None,
    };
    let missed = measure::report(options, &figures, peer.as_ref(), decode, floor);
    Ok(options.no_bars || missed == 0)
}

async fn figures_of_peer(
    options: &Options,
    kubelets: &Arc<Kubelets>,
    cluster: &Cluster,
    kind: Kind,
) -> Result<Figures> {
    options.say("the original");
    figures(options, kubelets, cluster, kind).await
}

async fn figures(
    options: &Options,
    kubelets: &Arc<Kubelets>,
    cluster: &Cluster,
    kind: Kind,
) -> Result<Figures> {
    let mut subject = Subject::start(kind, options, cluster)?;
    let figures = measure::figures(options, kubelets, &mut subject, cluster).await;
    let ended = subject.stop();
    let figures = figures?;
    ended?;
    Ok(figures)
}
