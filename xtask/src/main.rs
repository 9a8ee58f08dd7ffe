//! The workspace's own tools: `cargo xtask test`, `bench`, `cases` and `kube`.

#[cfg(test)]
mod architecture;
mod attack;
mod bench;
mod cluster;
mod kernel;
mod kube;
mod packages;
mod runtime;
mod soak;
mod test;
mod workspace;

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use plimsoll_test_support::janitor;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Tests and benches of the workspace")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Runs the whole test ladder: format, clippy, unit tests, kernel tests, runtime tests, cluster tests.
    Test(test::Options),
    /// Measures the agent against the floor of bare kernel reads.
    Bench(bench::Options),
    /// Lets things come and go for a long time, and says what stays behind.
    Soak {
        #[command(subcommand)]
        soak: soak::Soak,
    },
    /// Attacks `plimsoll up` as hostile tenants do, and says what came of it.
    Attack(attack::Options),
    /// Obtains kube-apiserver, etcd, kubelet, kubectl, kube-scheduler and kube-controller-manager for the cluster tests.
    Kube,
    /// Requests to API servers and their recorded answers.
    Cases {
        #[command(subcommand)]
        cases: cluster::Cases,
    },
    /// Scenarios for schedulers and what kube-scheduler made of them.
    Scenarios {
        #[command(subcommand)]
        scenarios: cluster::Scenarios,
    },
}

fn main() -> ExitCode {
    if let Some(code) = janitor::helper() {
        return code;
    }
    match run(Arguments::parse().command) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<bool> {
    match command {
        Command::Test(options) => test::run(&options),
        Command::Bench(options) => options.run().map(|()| true),
        Command::Soak { soak } => soak::run(&soak).map(|()| true),
        Command::Attack(options) => attack::run(&options),
        Command::Kube => {
            println!("{}", kube::obtain()?.display());
            Ok(true)
        }
        Command::Cases { cases } => cluster::cases(&cases),
        Command::Scenarios { scenarios } => cluster::scenarios(&scenarios),
    }
}
