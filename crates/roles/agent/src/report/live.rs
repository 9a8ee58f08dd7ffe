//! Telling the cluster: build, spawn, drain.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use plimsoll_client::reflector::MissingKind;
use plimsoll_client::shutdown;
use plimsoll_client::shutdown::{Failure, ShutdownTrigger};
use plimsoll_host::{Clock, HostRoot};
use plimsoll_waiting::Waiting;
use tokio::task::JoinSet;

use super::figures::Figures;
use super::inventory::Inventory;
use super::layout::Layout;
use super::reporter::Reporter;
use super::send::ADVICE;
use crate::states::{Board, Counter, without_manager};

#[derive(Debug, Clone)]
pub struct Config {
    /// Of the node.
    pub name: String,
    /// Usage that has moved by more than this share of the node is told before its time; 0: it is not.
    pub early: f64,
    /// Tell what is used.
    pub metrics: bool,
    /// Tell how CPUs and memory lie, looking no more often than this.
    pub topology: Option<Duration>,
    pub hugepages: bool,
    pub devices: Devices,
    /// On the machine.
    pub kubelet_folder: String,
    /// Of the kinds that come with the manager.
    pub absence: MissingKind,
}

/// Which accelerators and cards are told of.
#[derive(Debug, Clone)]
pub struct Devices {
    /// GPUs, or whatever files tell of.
    pub gpus: bool,
    /// Network cards that speak RDMA.
    pub rdma: bool,
    /// The folder of those files, on the machine.
    pub told_in: String,
    /// Nothing but what files tell of, even where they tell nothing.
    pub only_told: bool,
}

impl Default for Devices {
    fn default() -> Self {
        Self {
            gpus: false,
            rdma: false,
            told_in: "/var/run/koordlet/xpu-device-infos".to_owned(),
            only_told: false,
        }
    }
}

/// Where it all comes from.
#[derive(Clone)]
pub struct Sources {
    pub board: Board,
    pub figures: Arc<dyn Figures>,
    pub clock: Clock,
    pub root: HostRoot,
}

impl std::fmt::Debug for Sources {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sources").finish_non_exhaustive()
    }
}

/// Put together, not started.
pub struct Reports {
    config: Config,
    client: kube::Client,
    sources: Sources,
}

impl std::fmt::Debug for Reports {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reports")
            .field("config", &self.config)
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
pub struct Counters {
    pub reports: Counter,
    pub early: Counter,
    /// There was no object to write to.
    pub absent: Counter,
    pub failures: Counter,
    /// Knows why a report is not taken, as long as that is so.
    pub sending: Waiting,
    /// Times that the topology object was written, or could not be.
    pub topology: Attempts,
    /// The same of the device object.
    pub devices: Attempts,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            reports: Counter::default(),
            early: Counter::default(),
            absent: Counter::default(),
            failures: Counter::default(),
            sending: Waiting::new("the cluster to take what the node uses", ADVICE),
            topology: Attempts::default(),
            devices: Attempts::default(),
        }
    }
}

#[derive(Debug, Default)]
pub struct Attempts {
    pub written: Counter,
    pub failures: Counter,
}

impl Attempts {
    pub(super) fn count<E>(&self, outcome: &Result<bool, E>) {
        match outcome {
            Ok(true) => self.written.add(),
            Ok(false) => {}
            Err(_) => self.failures.add(),
        }
    }
}

#[derive(Debug)]
pub struct Running {
    stopper: ShutdownTrigger,
    tasks: JoinSet<()>,
    counters: Arc<Counters>,
}

impl Config {
    /// As the flags' defaults have it.
    pub fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            early: 0.05,
            metrics: true,
            topology: Some(Duration::from_secs(3)),
            hugepages: false,
            devices: Devices::default(),
            kubelet_folder: "/var/lib/kubelet".to_owned(),
            absence: without_manager(),
        }
    }

    pub fn build(self, client: kube::Client, sources: Sources) -> Reports {
        Reports {
            config: self,
            client,
            sources,
        }
    }
}

impl Reports {
    /// Must be called within a tokio runtime.
    pub fn spawn(self) -> Running {
        let (stopper, shutdown) = shutdown::channel();
        let counters = Arc::<Counters>::default();
        let mut tasks = JoinSet::new();
        let Self {
            config,
            client,
            sources,
        } = self;
        if config.metrics {
            let reporter = Reporter::new(&config, client.clone(), &sources, &counters);
            let reporting = reporter.run(shutdown.clone());
            tasks.spawn(shutdown.kept("reporting usage", reporting));
        }
        if let Some(every) = config.topology {
            let layout = Layout::new(&config, every, client.clone(), &sources, &counters);
            let reporting = layout.run(shutdown.clone());
            tasks.spawn(shutdown.kept("reporting the topology", reporting));
        }
        if config.devices.gpus || config.devices.rdma {
            let inventory = Inventory::new(&config, client, &sources, &counters);
            let reporting = inventory.run(shutdown.clone());
            tasks.spawn(shutdown.kept("reporting devices", reporting));
        }
        Running {
            stopper,
            tasks,
            counters,
        }
    }
}

impl Running {
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    /// Waits for a failure of what must not fail.
    pub fn failure(&self) -> impl Future<Output = Failure> + Send + use<> {
        self.stopper.failure()
    }

    pub async fn drain(mut self, deadline: Duration) {
        self.stopper.stop();
        let ending = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(deadline, ending).await.is_err() {
            tracing::warn!("reporting did not end in time");
        }
    }
}

impl Sources {
    pub(super) fn now(&self) -> Timestamp {
        let nanos = i128::from(self.clock.now().nanos());
        Timestamp::from_nanosecond(nanos).unwrap_or_default()
    }
}

/// `None`: it ended in a panic, which is in the log.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    tokio::task::spawn_blocking(work).await.ok()
}
