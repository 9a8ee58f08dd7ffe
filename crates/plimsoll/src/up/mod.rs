//! `plimsoll up`: the control plane and every role, on this machine, with one command.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Args;
use plimsoll_apiserver::{credentials, embed};

use crate::{Failure, runtime, wait_for_signal};

/// How long requests may take to finish after a signal.
const DRAIN: Duration = Duration::from_secs(5);

#[derive(Debug, Args)]
pub struct UpArgs {
    /// Where objects, credentials and the kubeconfig are kept
    #[arg(long, value_name = "DIR", env = "PLIMSOLL_DATA_DIR")]
    data_dir: Option<PathBuf>,
    /// Where the API server listens
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:6443")]
    api_listen: SocketAddr,
    /// Leave out the agent: this machine is then no node of the cluster
    #[arg(long)]
    no_agent: bool,
}

impl UpArgs {
    fn data_dir(&self) -> Result<PathBuf> {
        if let Some(dir) = &self.data_dir {
            return Ok(dir.clone());
        }
        let home = std::env::var_os("HOME")
            .filter(|home| !home.is_empty())
            .context("there is no home directory to keep data in: name a folder with --data-dir")?;
        Ok(PathBuf::from(home).join(".plimsoll"))
    }
}

pub fn run(args: &UpArgs) -> Result<(), Failure> {
    let data_dir = args.data_dir().map_err(Failure::Usage)?;
    let runtime = runtime(2).map_err(Failure::Run)?;
    let outcome = runtime.block_on(async {
        let config = embed::Config {
            listen: args.api_listen,
            data_dir: Some(data_dir.clone()),
        };
        let running = config.build().await?.spawn();
        let kubeconfig = data_dir.join("kubeconfig");
        credentials::write(&kubeconfig, running.kubeconfig().as_bytes(), 0o600)?;
        println!("API server    https://{}", running.local_addr());
        println!("kubeconfig    {}", kubeconfig.display());
        println!();
        println!(
            "ready. Try:   kubectl --kubeconfig {} get nodes -o wide",
            kubeconfig.display()
        );
        wait_for_signal().await?;
        tracing::info!("stopping");
        running.drain(DRAIN).await;
        anyhow::Ok(())
    });
    runtime.shutdown_timeout(Duration::from_secs(1));
    outcome.map_err(Failure::Run)
}
