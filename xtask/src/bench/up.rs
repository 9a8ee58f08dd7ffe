//! `cargo xtask bench up`: the load generator is a program of its own, built in release like what it measures.

use std::process::Command;

use anyhow::{Context, Result};
use clap::Args;

use crate::workspace;

#[derive(Args, Debug)]
pub struct Options {
    /// Handed on to the load generator: --parts, --pods, --rate and so on; --help lists them
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
        "plimsoll",
        "--package",
        "plimsoll-load",
    ]);
    workspace::run(&mut cargo).context("build in release")?;
    let release = workspace::target()?.join("release");
    let mut load = Command::new(release.join("plimsoll-load"));
    load.arg("--program")
        .arg(release.join("plimsoll"))
        .args(&options.arguments);
    workspace::run(&mut load)
}
