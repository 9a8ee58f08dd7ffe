//! The embedded API server and a real one, given the same requests.
//!
//! A program and not a `#[test]`: `cargo xtask cases` and the rung `cluster` of `cargo xtask test` run it. The recordings
//! come from a real kube-apiserver, and whenever its programs are at hand it has to reproduce them, too.

mod case;
mod certificates;
mod check;
mod client;
mod compare;
mod embedded;
mod placeholder;
mod pool;
mod process;
mod real;
mod record;
mod run;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::{Args, Parser, Subcommand};
use plimsoll_test_support::janitor;
use plimsoll_test_support::report::Runner;

use crate::check::Summary;
use crate::client::Server;
use crate::embedded::EmbeddedCluster;
use crate::real::RealCluster;

#[derive(Parser)]
struct Arguments {
    /// The folder with `cases` and `recorded`.
    #[arg(long)]
    folder: PathBuf,
    /// Only cases whose name contains this.
    #[arg(long)]
    filter: Option<String>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Asks a real server and writes down its answers.
    Record(RealArguments),
    /// Holds a server against the recordings and shows every difference.
    Check(CheckArguments),
    /// The same as one test a case.
    Test(TestArguments),
}

#[derive(Args)]
struct RealArguments {
    /// Folder with kube-apiserver and etcd.
    #[arg(long)]
    kube_bin: PathBuf,
}

#[derive(Args)]
struct CheckArguments {
    /// An API server that runs already: https://HOST:PORT.
    #[arg(long, requires_all = ["ca", "token"])]
    url: Option<String>,
    /// PEM file of its certificate authority.
    #[arg(long)]
    ca: Option<PathBuf>,
    /// Bearer token of an administrator.
    #[arg(long)]
    token: Option<String>,
    /// A kubeconfig that says the same.
    #[arg(long, conflicts_with = "url")]
    kubeconfig: Option<PathBuf>,
    /// Folder with kube-apiserver and etcd: checks a real server.
    #[arg(long, conflicts_with_all = ["url", "kubeconfig"])]
    kube_bin: Option<PathBuf>,
    /// The plimsoll binary: checks its embedded server.
    #[arg(long, conflicts_with_all = ["url", "kubeconfig", "kube_bin"])]
    program: Option<PathBuf>,
    /// Only the counts.
    #[arg(long)]
    brief: bool,
}

#[derive(Args)]
struct TestArguments {
    #[arg(long)]
    program: PathBuf,
    #[arg(long)]
    kube_bin: Option<PathBuf>,
}

fn main() -> ExitCode {
    if let Some(code) = janitor::helper() {
        return code;
    }
    match run_command(Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run_command(arguments: Arguments) -> Result<bool> {
    let recordings = arguments.folder.join("recorded");
    let filter = arguments.filter.as_deref();
    let cases = case::load(&arguments.folder.join("cases"), filter)?;
    match arguments.command {
        Command::Record(real) => record_all(&cases, &recordings, &real.kube_bin),
        Command::Check(options) => check_with(&cases, &recordings, &options),
        Command::Test(options) => test(&cases, &recordings, &options),
    }
}

fn record_all(cases: &[case::Case], recordings: &Path, kube_bin: &Path) -> Result<bool> {
    let cluster = RealCluster::start(kube_bin)?;
    let recorded = pool::each(cases, |case| {
        let outcome = run::run(case, &cluster.server)?;
        record::write(recordings, case, &outcome)
    });
    let mut failed = 0;
    for (case, recorded) in cases.iter().zip(recorded) {
        if let Err(error) = recorded {
            println!("{}: {error:#}", case.name);
            failed += 1;
        }
    }
    println!("{} cases recorded, {failed} failed", cases.len() - failed);
    Ok(failed == 0)
}

fn check_with(cases: &[case::Case], recordings: &Path, options: &CheckArguments) -> Result<bool> {
    if let Some(programs) = &options.kube_bin {
        let cluster = RealCluster::start(programs)?;
        return Ok(check_all(cases, recordings, &cluster.server, options.brief));
    }
    if let Some(program) = &options.program {
        let cluster = EmbeddedCluster::start(program)?;
        return Ok(check_all(cases, recordings, &cluster.server, options.brief));
    }
    let server = match (
        &options.url,
        &options.ca,
        &options.token,
        &options.kubeconfig,
    ) {
        (Some(url), Some(ca), Some(token), _) => {
            let ca = std::fs::read(ca).with_context(|| format!("read {}", ca.display()))?;
            Server::new(url, &ca, token)?
        }
        (_, _, _, Some(kubeconfig)) => embedded::server_of(kubeconfig)?,
        _ => bail!(
            "which server? --url with --ca and --token, --kubeconfig, --kube-bin or --program"
        ),
    };
    Ok(check_all(cases, recordings, &server, options.brief))
}

fn check_all(cases: &[case::Case], recordings: &Path, server: &Server, brief: bool) -> bool {
    let mut summary = Summary::default();
    let checked = pool::each(cases, |case| check::check(case, recordings, server));
    for (case, checked) in cases.iter().zip(checked) {
        summary.add(case, checked.as_ref().ok());
        if brief {
            continue;
        }
        match checked {
            Ok(checked) if checked.failed.is_empty() => {}
            Ok(checked) => print!("{}: {}\n{}", case.name, case.about, checked.describe()),
            Err(error) => println!("{}: {error:#}", case.name),
        }
    }
    summary.print();
    summary.all_passed()
}

/// One line a case for each server that can be had.
fn test(cases: &[case::Case], recordings: &Path, options: &TestArguments) -> Result<bool> {
    let mut runner = Runner::new(std::io::stdout(), None);
    let mut run_on = |name: &str, server: Result<&Server>| {
        let server = match server {
            Ok(server) => server,
            Err(error) => {
                runner.case(&format!("{name}::start"), || Err(error));
                return;
            }
        };
        let checked = pool::each(cases, |case| check::check(case, recordings, server));
        for (case, checked) in cases.iter().zip(checked) {
            runner.case(&format!("{name}::{}", case.name), || {
                let checked = checked?;
                if !checked.failed.is_empty() {
                    bail!("{}\n{}", case.about, checked.describe());
                }
                Ok(format!("{} steps", checked.steps))
            });
        }
    };
    let embedded = EmbeddedCluster::start(&options.program);
    run_on(
        "embedded",
        embedded
            .as_ref()
            .map(|cluster| &cluster.server)
            .map_err(copy),
    );
    drop(embedded);
    if let Some(programs) = &options.kube_bin {
        let real = RealCluster::start(programs);
        run_on(
            "real",
            real.as_ref().map(|cluster| &cluster.server).map_err(copy),
        );
    }
    Ok(runner.finish())
}

fn copy(error: &anyhow::Error) -> anyhow::Error {
    anyhow::anyhow!("{error:#}")
}
