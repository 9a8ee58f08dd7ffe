//! Rung 5b: the embedded API server and a real one against the same recordings, and the same elections held on both; and
//! the tools to work with recordings.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use plimsoll_test_support::janitor;
use plimsoll_test_support::report::{Filter, Outcome};

use crate::packages::{self, Need};
use crate::test::{Built, Progress, follow, in_ci, with_long};
use crate::{kube, workspace};

/// The longest test, real pods on a busy machine, takes minutes.
const SILENCE: Duration = Duration::from_secs(900);

/// What a real node takes beside Kubernetes' own programs.
pub const NODE: &[Need] = &[
    ("/bin/busybox", "busybox-static"),
    ("containerd", "containerd"),
    ("runc", "runc"),
];

#[derive(Subcommand, Debug)]
pub enum Cases {
    /// Asks a real kube-apiserver and writes its answers down.
    Record {
        /// Only cases whose name (AREA/NAME) contains this.
        #[arg(long, value_name = "TEXT")]
        filter: Option<String>,
    },
    /// Holds a server against the recordings; without a server named, the embedded one.
    Check(Check),
}

#[derive(Args, Debug)]
pub struct Check {
    /// Only cases whose name (AREA/NAME) contains this.
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
    /// A real kube-apiserver: proves the recordings.
    #[arg(long)]
    real: bool,
    /// A server that runs already: https://HOST:PORT.
    #[arg(long, requires_all = ["ca", "token"], conflicts_with = "real")]
    url: Option<String>,
    /// PEM file of its certificate authority.
    #[arg(long)]
    ca: Option<PathBuf>,
    /// Bearer token of an administrator.
    #[arg(long)]
    token: Option<String>,
    /// A kubeconfig that says the same.
    #[arg(long, conflicts_with_all = ["url", "real"])]
    kubeconfig: Option<PathBuf>,
    /// Only the counts.
    #[arg(long)]
    brief: bool,
}

#[derive(Subcommand, Debug)]
pub enum Scenarios {
    /// Plays scenarios to a real kube-scheduler and writes down what it does.
    Record {
        /// Only scenarios whose name (FAMILY/NAME) contains this.
        #[arg(long, value_name = "TEXT")]
        filter: Option<String>,
        /// Only those that have no recording yet.
        #[arg(long)]
        new: bool,
    },
    /// Plays random stories to a real kube-scheduler and to the core, and shows every difference.
    Random {
        /// Of the first story; the others follow.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        #[arg(long, default_value_t = 50)]
        count: u64,
    },
    /// Plays scenarios to the core and shows every difference.
    Check {
        /// Only scenarios whose name (FAMILY/NAME) contains this.
        #[arg(long, value_name = "TEXT")]
        filter: Option<String>,
        /// To a real kube-scheduler instead: proves the recordings.
        #[arg(long)]
        real: bool,
        /// To `plimsoll scheduler` behind a real kube-apiserver instead.
        #[arg(long, conflicts_with = "real")]
        live: bool,
    },
}

/// `false` when something differs.
pub fn scenarios(command: &Scenarios) -> Result<bool> {
    let filter = match command {
        Scenarios::Record { filter, .. } | Scenarios::Check { filter, .. } => filter.as_deref(),
        Scenarios::Random { .. } => None,
    };
    let live = matches!(command, Scenarios::Check { live: true, .. });
    let mut tests = program(filter, live)?;
    let needs_servers = live
        || matches!(
            command,
            Scenarios::Record { .. }
                | Scenarios::Random { .. }
                | Scenarios::Check { real: true, .. }
        );
    if needs_servers {
        tests.arg("--kube-bin").arg(kube::programs()?);
    }
    tests.arg("scenarios");
    match command {
        Scenarios::Record { new, .. } => {
            tests.arg("record");
            if *new {
                tests.arg("--new");
            }
        }
        Scenarios::Random { seed, count } => {
            tests.arg("random");
            tests.args(["--seed", &seed.to_string()]);
            tests.args(["--count", &count.to_string()]);
        }
        Scenarios::Check { real, live, .. } => {
            tests.arg("check");
            if *real {
                tests.arg("--real");
            }
            if *live {
                tests.arg("--program").arg(plimsoll()?);
            }
        }
    }
    Ok(tests.status().context("start the cluster tests")?.success())
}

/// `false` when something differs.
pub fn cases(command: &Cases) -> Result<bool> {
    let mut tests = match command {
        Cases::Record { filter } => {
            let mut tests = program(filter.as_deref(), false)?;
            tests.arg("--kube-bin").arg(kube::programs()?).arg("record");
            tests
        }
        Cases::Check(options) => check(options)?,
    };
    Ok(tests.status().context("start the cluster tests")?.success())
}

fn check(options: &Check) -> Result<Command> {
    let names_server = options.real || options.url.is_some() || options.kubeconfig.is_some();
    let mut tests = program(options.filter.as_deref(), !names_server)?;
    // Other servers need it only for the cases with kubectl, which is not worth a long build.
    if options.real || kube::are_at_hand()? {
        tests.arg("--kube-bin").arg(kube::programs()?);
    }
    tests.arg("check");
    if options.brief {
        tests.arg("--brief");
    }
    if options.real {
        tests.arg("--real");
    } else if let (Some(url), Some(ca), Some(token)) = (&options.url, &options.ca, &options.token) {
        tests
            .args(["--url", url, "--token", token])
            .arg("--ca")
            .arg(ca);
    } else if let Some(kubeconfig) = &options.kubeconfig {
        tests.arg("--kubeconfig").arg(kubeconfig);
    } else {
        tests.arg("--program").arg(plimsoll()?);
    }
    Ok(tests)
}

/// A rung of the ladder: the half that may run beside anything, or the one that may not.
pub fn test(part: &str, built: &Built, filter: &Filter, progress: &Progress) -> Result<()> {
    let mut tests = janitor::command_in(None, built.program("plimsoll-cluster-tests"));
    tests
        .arg("--folder")
        .arg(workspace::root()?.join("tests/cluster"));
    if let Some(filter) = filter.text() {
        tests.args(["--filter", &filter]);
    }
    match kube::programs() {
        Ok(folder) => {
            tests.arg("--kube-bin").arg(folder);
        }
        Err(error) if in_ci() => return Err(error).context("a real Kubernetes"),
        Err(error) => progress.outcome("real", &Outcome::LeftOut(format!("{error:#}"))),
    }
    // Tests that want a node say themselves what is missing.
    if let Err(error) = packages::ensure(NODE)
        && in_ci()
    {
        return Err(error).context("a real node");
    }
    tests.args(["test", "--part", part]).arg("--program");
    tests.arg(built.program("plimsoll"));
    follow::protocol(with_long(&mut tests), SILENCE, progress)
}

/// Builds the test program, and the binary under test where it is wanted.
fn program(filter: Option<&str>, with_plimsoll: bool) -> Result<Command> {
    let target = workspace::target()?;
    let mut cargo = workspace::cargo()?;
    cargo.args(["build", "--quiet", "--package", "plimsoll-cluster-tests"]);
    if with_plimsoll {
        cargo.args(["--package", "plimsoll"]);
    }
    cargo.arg("--target-dir").arg(&target);
    workspace::run(&mut cargo).context("build the cluster tests")?;
    let mut tests = janitor::command_in(None, target.join("debug/plimsoll-cluster-tests"));
    tests
        .arg("--folder")
        .arg(workspace::root()?.join("tests/cluster"));
    if let Some(filter) = filter {
        tests.args(["--filter", filter]);
    }
    Ok(tests)
}

fn plimsoll() -> Result<PathBuf> {
    Ok(workspace::target()?.join("debug/plimsoll"))
}
