//! Tests of the agent beside real container runtimes, which this program starts and ends itself.
//!
//! `cargo xtask test --only runtime` runs it as root. It is a program and not a `#[test]`, so that `cargo test` needs
//! neither root nor a runtime.

mod containerd;
mod cri;
mod docker;
mod growth;
mod podman;
mod scene;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, ValueEnum};
use plimsoll_test_support::janitor;
use plimsoll_test_support::report::{Filter, Runner};

use crate::scene::Scene;

#[derive(Parser)]
struct Arguments {
    runtime: Runtime,
    /// The plimsoll binary under test.
    #[arg(long)]
    program: PathBuf,
    /// Only tests whose name contains this.
    #[arg(long)]
    filter: Option<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Runtime {
    Containerd,
    Podman,
    Docker,
}

fn main() -> ExitCode {
    if let Some(code) = janitor::helper() {
        return code;
    }
    match run(Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> Result<bool> {
    let mut scene = Scene::new(arguments.program)?;
    let mut runner = Runner::new(std::io::stdout(), Filter::new(arguments.filter.as_deref()));
    match arguments.runtime {
        Runtime::Containerd => {
            runner.case("growth_is_flat", || growth::is_flat(&scene));
            containerd::cases(&mut runner, &mut scene);
        }
        Runtime::Podman => podman::cases(&mut runner, &mut scene),
        Runtime::Docker => docker::cases(&mut runner, &mut scene),
    }
    // What a runtime leaves behind is a finding, too: the machine must be as it was.
    runner.case("nothing_left_behind", || {
        scene.end()?;
        Ok(String::new())
    });
    Ok(runner.finish())
}
