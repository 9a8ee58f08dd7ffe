//! The rungs, weakest first: what each one is called, what it may run beside, and how long it may take.

use std::fmt;
use std::time::Duration;

use crate::kernel::Cgroups;
use crate::runtime::Runtime;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rung {
    Format,
    Clippy,
    Unit,
    Kernel(Cgroups),
    Runtime(Runtime),
    Cluster,
    ClusterQuiet,
}

/// Rungs of one lane run one after the other, lanes beside each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lane {
    /// Needs nothing that is built, and takes a second.
    First,
    Compute,
    Guests,
    /// Waits more than it computes.
    Waiting,
    /// Compares times or usage: nothing runs beside it.
    Quiet,
}

pub const LADDER: &[Rung] = &[
    Rung::Format,
    Rung::Clippy,
    Rung::Unit,
    Rung::Kernel(Cgroups::V2),
    Rung::Kernel(Cgroups::V1),
    Rung::Runtime(Runtime::Containerd),
    Rung::Runtime(Runtime::Podman),
    Rung::Runtime(Runtime::Docker),
    Rung::Cluster,
    Rung::ClusterQuiet,
];

impl Rung {
    pub fn lane(self) -> Lane {
        match self {
            Self::Format => Lane::First,
            Self::Clippy | Self::Unit => Lane::Compute,
            Self::Kernel(_) => Lane::Guests,
            Self::Runtime(_) | Self::Cluster => Lane::Waiting,
            Self::ClusterQuiet => Lane::Quiet,
        }
    }

    /// What it may take on two cores when everything is built, in seconds. New tests have to fit in.
    pub fn budget(self) -> Duration {
        Duration::from_secs(match self {
            Self::Format => 10,
            Self::Clippy => 150,
            Self::Unit => 240,
            Self::Kernel(_) => 330,
            Self::Runtime(_) => 75,
            Self::Cluster => 420,
            Self::ClusterQuiet => 210,
        })
    }

    pub fn is_fast(self) -> bool {
        matches!(self, Self::Format | Self::Clippy | Self::Unit)
    }

    /// Whether it runs programs of this workspace.
    pub fn needs_build(self) -> bool {
        !matches!(self, Self::Format | Self::Clippy)
    }
}

impl fmt::Display for Rung {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Format => "fmt",
            Self::Clippy => "clippy",
            Self::Unit => "unit",
            Self::Kernel(Cgroups::V2) => "kernel-v2",
            Self::Kernel(Cgroups::V1) => "kernel-v1",
            Self::Runtime(Runtime::Containerd) => "runtime-containerd",
            Self::Runtime(Runtime::Podman) => "runtime-podman",
            Self::Runtime(Runtime::Docker) => "runtime-docker",
            Self::Cluster => "cluster",
            Self::ClusterQuiet => "cluster-quiet",
        })
    }
}
