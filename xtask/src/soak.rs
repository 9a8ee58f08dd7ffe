//! `cargo xtask soak up`: pods come and go for a long time, and nothing may only grow.

use std::process::Command;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};

use crate::workspace;

#[derive(Subcommand, Debug)]
pub enum Soak {
    /// The embedded control plane with simulated nodes.
    Up(Options),
}

#[derive(Args, Debug)]
pub struct Options {
    /// How long.
    #[arg(long, default_value_t = 30)]
    minutes: u32,
    /// How many pods come and go a second.
    #[arg(long, default_value_t = 20)]
    rate: u32,
    /// How many live at a time.
    #[arg(long, default_value_t = 2_000)]
    alive: u32,
    /// How long events are kept; shorter ones show sooner whether all goes that comes.
    #[arg(long, default_value = "1h0m0s")]
    event_ttl: String,
    /// Another plimsoll than this checkout's, to compare.
    #[arg(long)]
    program: Option<std::path::PathBuf>,
}

pub fn run(soak: &Soak) -> Result<()> {
    let Soak::Up(options) = soak;
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
        .args(["--parts", "soak", "--event-ttl", &options.event_ttl])
        .args(["--minutes", &options.minutes.to_string()])
        .args(["--soak-rate", &options.rate.to_string()])
        .args(["--alive", &options.alive.to_string()]);
    workspace::run(&mut load)
}
