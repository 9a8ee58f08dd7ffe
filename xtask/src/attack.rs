//! `cargo xtask attack`: hostile tenants against `plimsoll up`, made up at random, for a long time.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result};
use clap::Args;

use crate::workspace;

#[derive(Args, Debug)]
pub struct Options {
    /// How long.
    #[arg(long, default_value_t = 30)]
    minutes: u32,
    /// Of the first round; the others follow. A finding says its seed.
    #[arg(long)]
    seed: Option<u64>,
    /// Only this class of requests, such as `documents` or `storm`.
    #[arg(long)]
    class: Option<String>,
    /// Only this request of the class, with the seed: what a finding says.
    #[arg(long, requires_all = ["class", "seed"])]
    number: Option<u64>,
    /// The program as users get it. Otherwise one that checks its arithmetic, and whose stacks are used up sooner.
    #[arg(long)]
    release: bool,
    /// Another plimsoll than this checkout's, to compare.
    #[arg(long, conflicts_with = "release")]
    program: Option<PathBuf>,
}

/// `false` when something was found.
pub fn run(options: &Options) -> Result<bool> {
    let mut cargo = workspace::cargo()?;
    cargo.args(["build", "--quiet", "--package", "plimsoll-cluster-tests"]);
    if options.program.is_none() {
        cargo.args(["--package", "plimsoll"]);
    }
    if options.release {
        cargo.arg("--release");
    }
    workspace::run(&mut cargo).context("build the program and its attackers")?;
    let profile = if options.release { "release" } else { "debug" };
    let built = workspace::target()?.join(profile);
    let program = options.program.clone();
    let mut attack = Command::new(built.join("plimsoll-cluster-tests"));
    attack
        .arg("--folder")
        .arg(workspace::root()?.join("tests/cluster"))
        .arg("attack")
        .arg("--program")
        .arg(program.unwrap_or_else(|| built.join("plimsoll")))
        .args(["--minutes", &options.minutes.to_string()]);
    if let Some(seed) = options.seed {
        attack.args(["--seed", &seed.to_string()]);
    }
    if let Some(class) = &options.class {
        attack.args(["--class", class]);
    }
    if let Some(number) = options.number {
        attack.args(["--number", &number.to_string()]);
    }
    Ok(attack.status().context("start the attackers")?.success())
}
