//! `cargo xtask bench scrape`: the kubelets are a program of their own, built in release like what it measures.

use std::process::Command;

use anyhow::{Context, Result};
use clap::Args;

use crate::workspace;

#[derive(Args, Debug)]
pub struct Options {
    /// Measure the data half alone: no API, no lists
    #[arg(long)]
    collector_only: bool,
    /// Handed on to the kubelets: --nodes, --pods, --resolution, --seconds, --gzip and so on; --help lists them
    #[arg(last = true)]
    arguments: Vec<String>,
}

pub fn run(options: &Options) -> Result<()> {
    let mut cargo = workspace::cargo()?;
    cargo.args([
        "build",
        "--quiet",
        "--release",
        "--package",
        "plimsoll-scrape-load",
    ]);
    if !options.collector_only {
        cargo.args(["--package", "plimsoll"]);
    }
    workspace::run(&mut cargo).context("build in release")?;
    let release = workspace::target()?.join("release");
    let mut load = Command::new(release.join("plimsoll-scrape-load"));
    if !options.collector_only {
        load.arg("--program").arg(release.join("plimsoll"));
    }
    load.args(&options.arguments);
    workspace::run(&mut load)
}
