//! Queries the container runtimes for the identity of containers.
//!
//! Discovery never waits for this module. Each configured runtime has a task (`session`) that connects, reports the
//! state of the connection, and subscribes to events. One `resolver` task runs the pure `queries`, makes the calls, each
//! with a deadline, and delivers the replies. A runtime that hangs, sends garbage or is absent leaves only its own
//! containers without names.

mod containerd;
pub mod cri;
pub mod docker;
mod grpc;
mod http;
mod queries;
mod resolver;
mod session;

use std::collections::BTreeMap;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

use parking_lot::Mutex;

pub(crate) use resolver::Resolver;

use crate::names::is_crio;
use crate::{Identity, Namespace};

/// A runtime and its socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// containerd's own services; CRI on the same socket where those do not answer.
    Containerd {
        socket: PathBuf,
        namespace: String,
    },
    /// Any CRI runtime; the name it reports decides the namespace.
    Cri {
        socket: PathBuf,
    },
    Docker {
        socket: PathBuf,
    },
    Podman {
        socket: PathBuf,
    },
}

impl Endpoint {
    pub fn socket(&self) -> &Path {
        match self {
            Self::Containerd { socket, .. }
            | Self::Cri { socket }
            | Self::Docker { socket }
            | Self::Podman { socket } => socket,
        }
    }

    /// The same runtime by another path of its socket.
    #[must_use]
    pub fn at(self, socket: PathBuf) -> Self {
        match self {
            Self::Containerd { namespace, .. } => Self::Containerd { socket, namespace },
            Self::Cri { .. } => Self::Cri { socket },
            Self::Docker { .. } => Self::Docker { socket },
            Self::Podman { .. } => Self::Podman { socket },
        }
    }

    pub fn kind(&self) -> &'static str {
        match self {
            Self::Containerd { .. } => "containerd",
            Self::Cri { .. } => "cri",
            Self::Docker { .. } => "docker",
            Self::Podman { .. } => "podman",
        }
    }

    /// Deadline of one call.
    pub fn deadline(&self) -> Duration {
        match self {
            Self::Containerd { .. } | Self::Cri { .. } => Duration::from_secs(2),
            Self::Docker { .. } | Self::Podman { .. } => Duration::from_secs(10),
        }
    }
}

/// The path in `unix:///run/x.sock`, or the text itself where it is a path already.
pub fn socket_path(address: &str) -> Option<PathBuf> {
    let path = address.strip_prefix("unix://").unwrap_or(address);
    path.starts_with('/').then(|| PathBuf::from(path))
}

/// Why a query to a runtime failed.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    #[error("cannot connect to {socket}")]
    Connect {
        socket: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("no answer within {0:?}")]
    Timeout(Duration),
    #[error("connection broke: {0}")]
    Broken(Box<str>),
    #[error("answer is larger than {0} bytes")]
    TooLarge(usize),
    #[error("answer cannot be understood: {0}")]
    Malformed(Box<str>),
    #[error("refused with {code}: {message}")]
    Refused { code: Box<str>, message: Box<str> },
    /// This runtime does not implement the call.
    #[error("not offered by this runtime")]
    Unsupported,
}

/// What a runtime knows about one id.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum InspectResult {
    Unknown,
    /// It has the container but no running process of it yet.
    Starting(Box<Identity>),
    CgroupTree(Box<Identity>),
}

/// A runtime's answer about all its containers.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ListResult {
    Full(Vec<InspectResult>),
    /// Only ids; each container must be inspected.
    Ids(HashSet<String>),
}

/// An event that a runtime reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Event {
    /// This container may have changed.
    Changed(String),
    Exited(String, i32),
    /// The runtime has no event stream: refresh everything periodically.
    Refresh,
}

/// A connected runtime.
#[derive(Debug)]
pub(crate) enum Client {
    Containerd(containerd::Containerd),
    Cri(cri::Cri),
    Docker(docker::Docker),
}

impl Client {
    /// Connects and checks that the peer is the expected runtime.
    pub async fn connect(endpoint: &Endpoint, options: &Options) -> Result<Self, RuntimeError> {
        match endpoint {
            Endpoint::Containerd { socket, namespace } => {
                let native = containerd::Containerd::connect(socket, namespace, options).await;
                match native {
                    // The socket answers gRPC but not these services: perhaps they are switched off.
                    Err(RuntimeError::Unsupported | RuntimeError::Refused { .. }) => {
                        Ok(Self::Cri(cri::Cri::connect(socket, options).await?))
                    }
                    native => Ok(Self::Containerd(native?)),
                }
            }
            Endpoint::Cri { socket } => Ok(Self::Cri(cri::Cri::connect(socket, options).await?)),
            Endpoint::Docker { socket } => {
                let docker = docker::Docker::connect(socket, Namespace::Docker, options).await?;
                Ok(Self::Docker(docker))
            }
            Endpoint::Podman { socket } => {
                let podman = docker::Docker::connect(socket, Namespace::Podman, options).await?;
                Ok(Self::Docker(podman))
            }
        }
    }

    /// Whether this runtime could have made a cgroup of this name.
    pub fn could_own(&self, path: &str) -> bool {
        match self {
            Self::Cri(cri) if cri.namespace() == Namespace::Crio => is_crio(path),
            _ => true,
        }
    }

    pub async fn inspect(&self, id: &str) -> Result<InspectResult, RuntimeError> {
        match self {
            Self::Containerd(client) => client.inspect(id).await,
            Self::Cri(client) => client.inspect(id).await,
            Self::Docker(client) => client.inspect(id).await,
        }
    }

    pub async fn list(&self) -> Result<ListResult, RuntimeError> {
        match self {
            Self::Containerd(client) => client.list().await,
            Self::Cri(client) => client.list().await,
            Self::Docker(client) => client.list().await,
        }
    }

    /// `None`: it has not ended, or the runtime has forgotten it.
    pub async fn exit_code(&self, id: &str) -> Result<Option<i32>, RuntimeError> {
        match self {
            Self::Containerd(client) => client.exit_code(id).await,
            Self::Cri(client) => client.exit_code(id).await,
            Self::Docker(client) => client.exit_code(id).await,
        }
    }

    /// A cheap call that a working runtime answers at once.
    pub async fn ping(&self) -> Result<(), RuntimeError> {
        match self {
            Self::Containerd(client) => client.ping().await,
            Self::Cri(client) => client.ping().await,
            Self::Docker(client) => client.ping().await,
        }
    }

    /// Name and version as nodes report them: `containerd://2.1.4`.
    pub async fn version(&self, endpoint: &Endpoint) -> Result<String, RuntimeError> {
        let (name, version) = match self {
            Self::Containerd(client) => (endpoint.kind().to_owned(), client.version().await?),
            Self::Cri(client) => client.version().await?,
            Self::Docker(client) => (endpoint.kind().to_owned(), client.version().await?),
        };
        Ok(format!("{name}://{}", version.trim_start_matches('v')))
    }

    /// Where Docker keeps its images.
    pub fn docker_root(&self) -> Option<&Path> {
        match self {
            Self::Docker(client) => client.docker_root(),
            Self::Containerd(_) | Self::Cri(_) => None,
        }
    }

    /// Reads the event stream until it ends. `Unsupported`: there is none.
    pub async fn follow(&self, each: impl FnMut(Event) + Send) -> Result<(), RuntimeError> {
        match self {
            Self::Containerd(client) => client.follow(each).await,
            Self::Cri(client) => client.follow(each).await,
            Self::Docker(client) => client.follow(each).await,
        }
    }
}

/// What every client needs to know.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// Prefixes of the environment variables that are exported.
    pub env_whitelist: Vec<String>,
}

impl Options {
    /// The whitelisted ones of some `KEY=value` variables.
    fn envs<'a>(
        &self,
        variables: impl IntoIterator<Item = &'a str>,
        key_case: impl Fn(&str) -> String,
    ) -> BTreeMap<String, String> {
        let mut out = BTreeMap::new();
        for variable in variables {
            let Some((key, value)) = variable.split_once('=') else {
                continue;
            };
            let wanted = |prefix: &String| !prefix.is_empty() && key.starts_with(prefix.as_str());
            if self.env_whitelist.iter().any(wanted) {
                out.insert(key_case(key), value.to_owned());
            }
        }
        out
    }
}

/// Counters of one runtime, for the program's own metrics.
#[derive(Debug, Default)]
pub struct Counters {
    pub kind: &'static str,
    pub up: AtomicBool,
    pub connects: AtomicU64,
    pub calls: AtomicU64,
    pub errors: AtomicU64,
    pub timeouts: AtomicU64,
    /// Answers that could not be parsed or were too large.
    pub malformed: AtomicU64,
    pub lists: AtomicU64,
    pub events: AtomicU64,
    /// Name and version of the last connected runtime, `containerd://2.1.4`; empty before.
    pub version: Mutex<String>,
    /// The directory in which the last Docker that was connected keeps its images.
    pub docker_root: Mutex<Option<PathBuf>>,
}

impl Counters {
    pub(crate) fn count(&self, error: &RuntimeError) {
        use std::sync::atomic::Ordering::Relaxed;
        self.errors.fetch_add(1, Relaxed);
        match error {
            RuntimeError::Timeout(_) => self.timeouts.fetch_add(1, Relaxed),
            RuntimeError::Malformed(_) | RuntimeError::TooLarge(_) => {
                self.malformed.fetch_add(1, Relaxed)
            }
            _ => 0,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn socket_addresses() {
        assert_eq!(
            socket_path("unix:///run/docker.sock"),
            Some("/run/docker.sock".into())
        );
        assert_eq!(socket_path("/run/x.sock"), Some("/run/x.sock".into()));
        assert_eq!(socket_path("tcp://127.0.0.1:2375"), None);
        assert_eq!(socket_path(""), None);
    }

    #[test]
    fn whitelisted_variables() {
        let options = Options {
            env_whitelist: vec![String::new(), "APP_".to_owned()],
        };
        let vars = [
            "APP_NAME=x=y",
            "APP_",
            "PATH=/bin",
            "NOVALUE",
            "",
            "app_low=1",
        ];
        let envs = options.envs(vars, str::to_lowercase);
        assert_eq!(envs, BTreeMap::from([("app_name".into(), "x=y".into())]));
    }
}
