//! The embedded API server and a real one, given the same requests, and the same elections held on both.
//!
//! A program and not a `#[test]`: `cargo xtask cases` and the rung `cluster` of `cargo xtask test` run it. The recordings
//! come from a real kube-apiserver, and whenever its programs are at hand it has to reproduce them, too.

mod admin;
mod answer;
mod attack;
mod authorization;
mod case;
mod certificates;
mod chaos;
mod check;
mod client;
mod colocation;
mod compare;
mod deploy;
mod embedded;
mod first_use;
mod kubectl;
mod kubelet;
mod leader;
mod mask;
mod metrics;
mod open;
mod placeholder;
mod plan;
mod pool;
mod process;
mod real;
mod record;
mod run;
mod scheduler;
mod scheduling;
mod watch;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, Parser, Subcommand};
use plimsoll_test_support::janitor;
use plimsoll_test_support::report::{Filter, LeaveOut};

use crate::case::Case;
use crate::check::Summary;
use crate::client::Server;
use crate::embedded::EmbeddedCluster;
use crate::open::Open;
use crate::plan::Plan;
use crate::real::RealCluster;
use crate::run::Stage;

#[derive(Parser)]
struct Arguments {
    /// The folder with `cases` and `recorded`.
    #[arg(long)]
    folder: PathBuf,
    /// Only cases whose name contains this.
    #[arg(long)]
    filter: Option<String>,
    /// Folder with kube-apiserver, etcd and kubectl.
    #[arg(long)]
    kube_bin: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Asks a real server and writes down its answers.
    Record,
    /// Holds a server against the recordings and shows every difference.
    Check(CheckArguments),
    /// Scenarios of the scheduler.
    Scenarios {
        #[command(subcommand)]
        command: Scenarios,
    },
    /// What scheduling costs over a real server, beside kube-scheduler.
    SchedBench(scheduling::bench::Options),
    /// A real node with pods that run, and what an agent beside it needs, until standard input ends.
    HoldNode(colocation::held::Options),
    /// Hostile tenants against `plimsoll up`, for as long as told.
    Attack(attack::Options),
    /// The same as one test a case, on each server that can be had.
    Test {
        /// The plimsoll binary.
        #[arg(long)]
        program: PathBuf,
        /// Only this half.
        #[arg(long)]
        part: Option<plan::Part>,
    },
}

#[derive(Subcommand)]
enum Scenarios {
    /// Plays them to a real kube-scheduler and writes down what it does.
    Record {
        /// Only those that have no recording yet.
        #[arg(long)]
        new: bool,
    },
    /// Plays random stories to a real kube-scheduler and to the core, and shows every difference.
    Random {
        /// Of the first story.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        #[arg(long, default_value_t = 50)]
        count: u64,
    },
    /// Plays them to the core, or again to a real scheduler, and shows every difference.
    Check {
        #[arg(long)]
        real: bool,
        /// `plimsoll scheduler` of this binary, behind a real API server.
        #[arg(long, conflicts_with = "real")]
        program: Option<PathBuf>,
    },
}

#[derive(Args)]
struct CheckArguments {
    #[command(flatten)]
    which: Which,
    /// PEM file of the certificate authority behind `--url`.
    #[arg(long, requires = "url")]
    ca: Option<PathBuf>,
    /// Bearer token of an administrator there.
    #[arg(long, requires = "url")]
    token: Option<String>,
    /// Only the counts.
    #[arg(long)]
    brief: bool,
}

#[derive(Args)]
#[group(required = true, multiple = false)]
struct Which {
    /// A real server, started for this.
    #[arg(long)]
    real: bool,
    /// The embedded server of this plimsoll binary.
    #[arg(long)]
    program: Option<PathBuf>,
    /// A server that runs already: https://HOST:PORT.
    #[arg(long)]
    url: Option<String>,
    /// A server that runs already, by its kubeconfig.
    #[arg(long)]
    kubeconfig: Option<PathBuf>,
}

fn main() -> ExitCode {
    if let Some(code) = janitor::helper() {
        return code;
    }
    match run_command(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run_command(arguments: &Arguments) -> Result<bool> {
    if let Command::Scenarios { command } = &arguments.command {
        return play_scenarios(arguments, command);
    }
    if let Command::SchedBench(options) = &arguments.command {
        let kube_bin = arguments.kube_bin.as_deref();
        scheduling::bench::run(options, kube_bin.context("a real server needs --kube-bin")?)?;
        return Ok(true);
    }
    if let Command::Attack(options) = &arguments.command {
        return attack::run(options);
    }
    if let Command::HoldNode(options) = &arguments.command {
        let kube_bin = arguments.kube_bin.as_deref();
        let kube_bin = kube_bin.context("a real node needs --kube-bin")?;
        colocation::held::run(options, kube_bin, &arguments.folder)?;
        return Ok(true);
    }
    let recordings = arguments.folder.join("recorded");
    let filter = arguments.filter.as_deref();
    let kube_bin = arguments.kube_bin.as_deref();
    if let Command::Test { program, part } = &arguments.command {
        // Tests are chosen by their whole names.
        let plan = Plan {
            cases: &case::load(&arguments.folder.join("cases"), None)?,
            recordings: &recordings,
            open: &Open::load(&arguments.folder.join("open.txt"))?,
            metrics: &arguments.folder.join(METRICS),
            kube_bin,
            program,
            filter: &Filter::new(filter),
        };
        return Ok(plan::test(&plan, *part));
    }
    let cases = case::load(&arguments.folder.join("cases"), filter)?;
    ensure!(
        !cases.is_empty() || (matches!(arguments.command, Command::Record) && of_metrics(filter)),
        "no case in {} has such a name",
        arguments.folder.display()
    );
    match &arguments.command {
        Command::Record => record_all(&cases, &recordings, kube_bin, &arguments.folder, filter),
        Command::Check(options) => check_with(&cases, &recordings, kube_bin, options),
        // Done above: they do without cases of that name.
        Command::SchedBench(_)
        | Command::HoldNode(_)
        | Command::Attack(_)
        | Command::Scenarios { .. }
        | Command::Test { .. } => Ok(true),
    }
}

fn play_scenarios(arguments: &Arguments, command: &Scenarios) -> Result<bool> {
    let folder = arguments.folder.join(scheduler::FOLDER);
    let filter = arguments.filter.as_deref();
    let programs = || {
        let programs = arguments.kube_bin.as_deref();
        programs.context("a real scheduler needs --kube-bin")
    };
    match command {
        Scenarios::Record { new } => scheduler::record(&folder, filter, *new, programs()?),
        Scenarios::Random { seed, count } => scheduler::random(programs()?, *seed, *count),
        Scenarios::Check { real, program } => {
            let player = match program {
                Some(program) => scheduler::Player::Ours(program, programs()?),
                None if *real => scheduler::Player::Real(programs()?),
                None => scheduler::Player::Core,
            };
            scheduler::check(&folder, filter, player)
        }
    }
}

/// Tests of the metrics server begin with this, and their files are in the folder of this name.
const METRICS: &str = "metrics-server";

fn of_metrics(filter: Option<&str>) -> bool {
    filter.is_none_or(|filter| filter.contains(METRICS) || METRICS.contains(filter))
}

fn start_real(kube_bin: Option<&Path>) -> Result<RealCluster> {
    RealCluster::start(kube_bin.context("a real server needs --kube-bin")?)
}

fn record_all(
    cases: &[Case],
    recordings: &Path,
    kube_bin: Option<&Path>,
    folder: &Path,
    filter: Option<&str>,
) -> Result<bool> {
    let cluster = start_real(kube_bin)?;
    let stage = Stage::new(&cluster.server, kube_bin);
    let recorded = pool::each(cases, |case| {
        let outcome = run::run(case, &stage)?;
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
    if of_metrics(filter) {
        let stage = metrics::Stage {
            folder: &folder.join(METRICS),
            program: Path::new(""),
            kube_bin,
        };
        let recorded = metrics::record(&stage, &cluster.server)?;
        println!("{METRICS}: {recorded} recorded");
    }
    Ok(failed == 0)
}

fn check_with(
    cases: &[Case],
    recordings: &Path,
    kube_bin: Option<&Path>,
    options: &CheckArguments,
) -> Result<bool> {
    let check = |server: &Server| {
        let stage = Stage::new(server, kube_bin);
        check_all(cases, recordings, &stage, options.brief)
    };
    let which = &options.which;
    if which.real {
        return Ok(check(&start_real(kube_bin)?.server));
    }
    if let Some(program) = &which.program {
        return Ok(check(&EmbeddedCluster::start(program)?.server));
    }
    if let Some(kubeconfig) = &which.kubeconfig {
        return Ok(check(&embedded::server_of(kubeconfig)?));
    }
    match (&which.url, &options.ca, &options.token) {
        (Some(url), Some(ca), Some(token)) => {
            let ca = std::fs::read(ca).with_context(|| format!("read {}", ca.display()))?;
            Ok(check(&Server::new(url, &ca, token)?))
        }
        _ => bail!("--url needs --ca and --token"),
    }
}

fn check_all(cases: &[Case], recordings: &Path, stage: &Stage, brief: bool) -> bool {
    let mut summary = Summary::default();
    let checked = pool::each(cases, |case| check::check(case, recordings, stage));
    for (case, checked) in cases.iter().zip(checked) {
        match checked {
            Err(error) if error.is::<LeaveOut>() => {
                println!("{}: left out: {error}", case.name);
                continue;
            }
            Err(error) => {
                summary.add(case, None);
                println!("{}: {error:#}", case.name);
            }
            Ok(checked) => {
                summary.add(case, Some(&checked));
                if !brief && !checked.failed.is_empty() {
                    print!("{}: {}\n{}", case.name, case.about, checked.describe());
                }
            }
        }
    }
    summary.print();
    summary.all_passed()
}
