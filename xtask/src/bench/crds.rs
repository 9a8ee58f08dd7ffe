//! `cargo xtask bench crds`: definitions of custom resources, few and many, beside a real kube-apiserver where its
//! programs are at hand.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use clap::Args;

use crate::{kube, workspace};

#[derive(Args, Debug)]
pub struct Options {
    /// Another plimsoll than this checkout's, to compare.
    #[arg(long)]
    program: Option<PathBuf>,
    /// Leave the real one out even if it is there.
    #[arg(long)]
    alone: bool,
    /// Judge nothing: only print.
    #[arg(long)]
    no_bars: bool,
}

pub fn run(options: &Options) -> Result<()> {
    let mut cargo = workspace::cargo()?;
    cargo.args([
        "build",
        "--quiet",
        "--release",
        "--package",
        "plimsoll-load",
    ]);
    if options.program.is_none() {
        cargo.args(["--package", "plimsoll"]);
    }
    workspace::run(&mut cargo).context("build in release")?;
    let release = workspace::target()?.join("release");
    let program = options.program.clone();
    let mut load = Command::new(release.join("plimsoll-load"));
    load.arg("--program")
        .arg(program.unwrap_or_else(|| release.join("plimsoll")))
        .args(["--parts", "crds"]);
    if !options.alone && kube::are_at_hand()? {
        load.arg("--kube-bin").arg(kube::programs()?);
    }
    if options.no_bars {
        load.arg("--no-bars");
    }
    workspace::run(&mut load)
}
