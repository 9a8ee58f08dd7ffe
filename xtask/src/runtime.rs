//! Rung 5a: real container runtimes, started and ended by the tests.

use std::time::Duration;

use anyhow::Result;
use plimsoll_test_support::janitor;
use plimsoll_test_support::report::Filter;

use crate::packages::{self, Need};
use crate::test::{Built, LeaveOut, Progress, follow, with_long};

/// Starting a daemon on a busy machine takes a minute at worst.
const SILENCE: Duration = Duration::from_secs(300);

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

    pub fn needs(self) -> &'static [Need] {
        match self {
            Self::Containerd => &[
                ("/bin/busybox", "busybox-static"),
                ("containerd", "containerd"),
                ("runc", "runc"),
                ("/usr/lib/cni/ptp", "containernetworking-plugins"),
                // The network plugin asks for it even where it makes no rules.
                ("iptables", "iptables"),
                ("strace", "strace"),
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

pub fn test(runtime: Runtime, built: &Built, filter: &Filter, progress: &Progress) -> Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Err(LeaveOut("container runtimes need root".into()).into());
    }
    packages::ensure(runtime.needs()).map_err(LeaveOut::because)?;
    let mut tests = janitor::command_in(None, built.program("plimsoll-runtime-tests"));
    tests
        .arg(runtime.name())
        .arg("--program")
        .arg(built.program("plimsoll"));
    if let Some(filter) = filter.text() {
        tests.args(["--filter", &filter]);
    }
    follow::protocol(with_long(&mut tests), SILENCE, progress)
}
