//! Configuration, start and shutdown of discovery and runtime queries.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use plimsoll_host::Clock;
use plimsoll_host::cgroup::Hierarchies;
use tokio::sync::watch;

use crate::discovery::{self, Discovery, Intervals, NoRuntimes, Wake};
use crate::names::Rules;
use crate::runtime::cri::ImageFs;
use crate::runtime::docker::Docker;
use crate::runtime::{self, Endpoint, Options, Resolver, RuntimeError};
use crate::{ContainerEvent, Namespace};

/// One bit each in `queries`.
const MOST_RUNTIMES: usize = 32;

#[derive(Debug, Clone)]
pub struct Config {
    pub hierarchies: Hierarchies,
    pub clock: Clock,
    /// Not applied here but by the consumer: only it knows when an identity may still come.
    pub rules: Rules,
    /// The order has no meaning.
    pub runtimes: Vec<Endpoint>,
    /// Prefixes of the environment variables to export.
    pub env_whitelist: Vec<String>,
    /// Interval of full rescans (`--global_housekeeping_interval`).
    pub rescan_interval: Duration,
    /// Interval of polling directories without a watch.
    pub poll_interval: Duration,
}

#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error("{0} runtimes are configured, more than {MOST_RUNTIMES} cannot be asked")]
    TooManyRuntimes(usize),
    #[error("cannot make a wake-up descriptor")]
    Wake(#[source] std::io::Error),
}

impl Config {
    /// The original's intervals, and no runtimes.
    pub fn new(hierarchies: Hierarchies) -> Self {
        Self {
            hierarchies,
            clock: Clock::Real,
            rules: Rules::default(),
            runtimes: Vec::new(),
            env_whitelist: Vec::new(),
            rescan_interval: Duration::from_secs(60),
            poll_interval: Duration::from_millis(500),
        }
    }

    /// Checks; starts nothing.
    pub fn build(self) -> Result<Containers, BuildError> {
        if self.runtimes.len() > MOST_RUNTIMES {
            return Err(BuildError::TooManyRuntimes(self.runtimes.len()));
        }
        let wake = Wake::new().map_err(|error| BuildError::Wake(error.into()))?;
        let runtimes = self.runtimes.iter().map(|endpoint| {
            Arc::new(runtime::Counters {
                kind: endpoint.kind(),
                ..Default::default()
            })
        });
        let counters = Counters {
            discovery: Arc::default(),
            runtimes: runtimes.collect(),
        };
        Ok(Containers {
            config: self,
            wake,
            counters,
        })
    }
}

/// Counters of discovery and of each runtime connection.
#[derive(Debug, Clone)]
pub struct Counters {
    pub discovery: Arc<discovery::Counters>,
    /// In the order of the configuration.
    pub runtimes: Vec<Arc<runtime::Counters>>,
}

/// Built, not started.
#[derive(Debug)]
pub struct Containers {
    config: Config,
    wake: Wake,
    counters: Counters,
}

impl Containers {
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Starts the discovery thread, and on `tokio` the tasks that talk to runtimes. The receiver is handed out once.
    pub fn spawn(
        self,
        tokio: &tokio::runtime::Handle,
    ) -> std::io::Result<(Handle, Receiver<ContainerEvent>)> {
        let Config {
            hierarchies,
            clock,
            rules,
            runtimes,
            env_whitelist,
            rescan_interval,
            poll_interval,
        } = self.config;
        let options = Options { env_whitelist };
        let intervals = Intervals {
            rescan: rescan_interval,
            poll: poll_interval,
        };
        let (change_sender, changes) = channel();
        let (answer_sender, replies) = channel();
        let (stop, mut stopped) = watch::channel(false);
        let discovery_counters = Arc::clone(&self.counters.discovery);
        let parts = discovery::Parts {
            intervals,
            clock: clock.clone(),
            counters: discovery_counters,
            wake: self.wake.clone(),
            replies,
            changes: change_sender,
        };
        let endpoints = runtimes.clone();
        let (thread, task) = if runtimes.is_empty() {
            (
                Discovery::new(&hierarchies, parts, NoRuntimes).spawn()?,
                None,
            )
        } else {
            let (resolver, clerk) = Resolver::new(
                runtimes,
                &self.counters.runtimes,
                options.clone(),
                hierarchies.clone(),
                clock,
                answer_sender,
                self.wake.clone(),
            );
            let thread = Discovery::new(&hierarchies, parts, clerk).spawn()?;
            let task = tokio.spawn(resolver.run(async move {
                let _ = stopped.wait_for(|stop| *stop).await;
            }));
            (thread, Some(task))
        };
        let handle = Handle {
            rules,
            counters: self.counters,
            endpoints,
            options,
            wake: self.wake,
            stop,
            thread: Some(thread),
            task,
        };
        Ok((handle, changes))
    }
}

/// Running discovery and runtime queries. Dropping it stops discovery without waiting.
#[derive(Debug)]
pub struct Handle {
    rules: Rules,
    counters: Counters,
    endpoints: Vec<Endpoint>,
    options: Options,
    wake: Wake,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
    task: Option<tokio::task::JoinHandle<()>>,
}

impl Handle {
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// A connection to the configured Docker, or Podman, for what pages show beyond containers. `Ok(None)`: none is
    /// configured.
    pub async fn engine(&self, namespace: Namespace) -> Result<Option<Docker>, RuntimeError> {
        let socket = self.endpoints.iter().find_map(|endpoint| match endpoint {
            Endpoint::Docker { socket } if namespace == Namespace::Docker => Some(socket),
            Endpoint::Podman { socket } if namespace == Namespace::Podman => Some(socket),
            _ => None,
        });
        let Some(socket) = socket else {
            return Ok(None);
        };
        Docker::connect(socket, namespace, &self.options)
            .await
            .map(Some)
    }

    /// How much of the disk the configured CRI runtime takes, if there is one that tells.
    pub async fn image_fs(&self) -> Option<ImageFs> {
        let sockets = self.endpoints.iter().filter_map(|endpoint| match endpoint {
            Endpoint::Containerd { socket, .. } | Endpoint::Cri { socket } => Some(socket),
            Endpoint::Docker { .. } | Endpoint::Podman { .. } => None,
        });
        for socket in sockets {
            match runtime::cri::image_fs(socket).await {
                Ok(Some(told)) => return Some(told),
                Ok(None) => {}
                Err(error) => tracing::debug!(%error, "cannot get the disk usage of a runtime"),
            }
        }
        None
    }

    /// Only a panic ends discovery or the resolver before it is stopped.
    pub fn has_ended(&self) -> bool {
        let thread = self.thread.as_ref();
        let task = self.task.as_ref();
        thread.is_none_or(JoinHandle::is_finished) || task.is_some_and(|task| task.is_finished())
    }

    /// Stops everything; false where something did not end within `deadline` and was left behind.
    pub async fn shutdown(mut self, deadline: Duration) -> bool {
        self.request_stop();
        let thread = self.thread.take();
        let task = self.task.take();
        let ending = async move {
            if let Some(task) = task {
                let _ = task.await;
            }
            let joining = tokio::task::spawn_blocking(move || thread.map(JoinHandle::join));
            joining.await.is_ok()
        };
        tokio::time::timeout(deadline, ending).await == Ok(true)
    }

    fn request_stop(&self) {
        self.stop.send_replace(true);
        self.wake.stop();
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.request_stop();
    }
}
