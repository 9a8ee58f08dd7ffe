//! Rung 5a: real container runtimes, started and ended by the tests.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use anyhow::{Context, Result, bail};
use plimsoll_test_support::janitor;
use plimsoll_test_support::report::Line;

use crate::ladder::{LeaveOut, Progress};
use crate::packages::{self, Need};
use crate::workspace;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runtime {
    Containerd,
    Podman,
    Docker,
}

impl Runtime {
    fn name(self) -> &'static str {
        match self {
            Self::Containerd => "containerd",
            Self::Podman => "podman",
            Self::Docker => "docker",
        }
    }

    fn needs(self) -> &'static [Need] {
        match self {
            Self::Containerd => &[
                ("/bin/busybox", "busybox-static"),
                ("containerd", "containerd"),
                ("runc", "runc"),
                ("/usr/lib/cni/ptp", "containernetworking-plugins"),
                // The network plugin asks for it even where it makes no rules.
                ("iptables", "iptables"),
            ],
            Self::Podman => &[
                ("/bin/busybox", "busybox-static"),
                ("podman", "podman"),
                ("runc", "runc"),
            ],
            Self::Docker => &[("/bin/busybox", "busybox-static"), ("dockerd", "docker.io")],
        }
    }
}

pub fn test(runtime: Runtime, filter: Option<&str>, progress: &mut Progress) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Err(LeaveOut("container runtimes need root".into()).into());
    }
    packages::ensure(runtime.needs()).map_err(LeaveOut::because)?;
    let mut cargo = workspace::cargo()?;
    cargo.args([
        "build",
        "--package",
        "plimsoll",
        "--package",
        "plimsoll-runtime-tests",
        "--target-dir",
    ]);
    let target = workspace::target()?;
    cargo.arg(&target);
    workspace::run(&mut cargo).context("build the agent and its tests")?;

    let programs = target.join("debug");
    let mut tests = janitor::command_in(None, programs.join("plimsoll-runtime-tests"));
    tests
        .arg(runtime.name())
        .arg("--program")
        .arg(programs.join("plimsoll"));
    if let Some(filter) = filter {
        tests.args(["--filter", filter]);
    }
    let mut tests = tests
        .stdout(Stdio::piped())
        .spawn()
        .context("start the runtime tests")?;
    let output = tests
        .stdout
        .take()
        .context("no output of the runtime tests")?;
    for line in BufReader::new(output).lines() {
        let line = line?;
        match Line::parse(&line) {
            Some(parsed) => progress.line(&parsed),
            None => println!("    {line}"),
        }
    }
    let status = tests.wait()?;
    if !progress.has_verdict() {
        bail!("the runtime tests ended with {status} and without a verdict");
    }
    Ok(())
}
