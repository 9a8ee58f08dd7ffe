//! `cargo xtask bench tsdb`: half a day of samples, fast-forwarded.

use anyhow::{Context, Result};
use clap::Args;

use crate::workspace;

#[derive(Args, Debug)]
pub struct Options {
    /// How many series, each with a sample a second
    #[arg(long, default_value_t = 3000)]
    series: usize,
    #[arg(long, default_value_t = 12)]
    hours: u32,
}

pub fn run(options: &Options) -> Result<()> {
    let mut cargo = workspace::cargo()?;
    cargo
        .args(["run", "--quiet", "--release", "--package", "plimsoll-tsdb"])
        .args(["--example", "half_day", "--"])
        .args([options.series.to_string(), options.hours.to_string()]);
    workspace::run(&mut cargo).context("measure the store")
}
