//! Public types: container events and identities.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use plimsoll_host::Timestamp;

/// A cgroup's path below the hierarchy root, `/` for the root itself. It identifies a container in this program.
pub type CgroupPath = Arc<str>;

/// What discovery and the runtimes report, in order, on one channel.
#[derive(Debug, Clone, PartialEq)]
pub enum ContainerEvent {
    /// A cgroup exists that was not there before. `identity_pending` is set where its name looks like a runtime's
    /// container id and a runtime is reachable, so an [`ContainerEvent::Identified`] is likely to follow at once.
    Appeared {
        path: CgroupPath,
        identity_pending: bool,
    },
    /// No runtime knows this container (now), although `identity_pending` was set.
    NoRuntime { path: CgroupPath },
    /// A runtime identified this container, or its identity has changed (restart count, health, a late answer).
    Identified {
        path: CgroupPath,
        identity: Arc<Identity>,
    },
    /// The cgroup is gone from every hierarchy. The exit code is set if the runtime still knew it.
    Vanished {
        path: CgroupPath,
        exit_code: Option<i32>,
    },
}

/// The runtime that owns a container; cAdvisor's "namespace".
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Namespace {
    Docker,
    Podman,
    Containerd,
    Crio,
}

impl Namespace {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Docker => "docker",
            Self::Podman => "podman",
            Self::Containerd => "containerd",
            Self::Crio => "crio",
        }
    }
}

/// What a runtime knows of one container.
#[derive(Debug, Clone, PartialEq)]
pub struct Identity {
    pub namespace: Namespace,
    /// The runtime's 64-character id.
    pub id: String,
    /// First the name people know, then whatever else finds the container (cAdvisor's aliases, in its order).
    pub aliases: Vec<String>,
    pub image: String,
    pub labels: BTreeMap<String, String>,
    /// Only the variables that the environment whitelist names.
    pub envs: BTreeMap<String, String>,
    pub created: Option<Timestamp>,
    pub started: Option<Timestamp>,
    /// The container's first process, as the host sees it.
    pub pid: Option<u32>,
    /// False where the container lives in another's network namespace, whose figures would be counted twice.
    pub owns_network: bool,
    pub health: Health,
    /// The writable layer as the runtime names it: a directory of the machine, wherever that is mounted for us.
    pub writable_layer: Option<PathBuf>,
    /// Where it keeps the container's log, likewise.
    pub log_dir: Option<PathBuf>,
}

impl Identity {
    /// The name on the `name` label.
    pub fn name(&self) -> &str {
        self.aliases.first().map_or("", String::as_str)
    }

    /// What a container writes is shown with its figures, but for containerd's: there the original shows none.
    pub fn shows_files(&self) -> bool {
        self.namespace != Namespace::Containerd
    }

    pub fn label(&self, key: &str) -> &str {
        self.labels.get(key).map_or("", String::as_str)
    }
}

/// A container's health check, as Docker words it; empty where there is none.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Health(pub String);

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A container that is nothing but its id.
    pub(crate) fn identity(id: &str) -> Identity {
        Identity {
            namespace: Namespace::Docker,
            id: id.to_owned(),
            aliases: Vec::new(),
            image: String::new(),
            labels: BTreeMap::new(),
            envs: BTreeMap::new(),
            created: None,
            started: None,
            pid: None,
            owns_network: true,
            health: Health::default(),
            writable_layer: None,
            log_dir: None,
        }
    }
}
