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

use super::device_reporter::DeviceReporter;
use super::node_metric_reporter::NodeMetricReporter;
use super::topology_reporter::TopologyReporter;
use super::upsert::ADVICE;
use super::usage_source::UsageSource;
use crate::states::{ClusterStateCell, Counter, crds_missing};

#[derive(Debug, Clone)]
pub struct Config {
    /// Of the node.
    pub name: String,
    /// A report is sent early when usage has changed by more than this share of the node; 0: never.
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

/// Which devices are reported.
#[derive(Debug, Clone)]
pub struct Devices {
    /// GPUs, or whatever files tell of.
    pub gpus: bool,
    /// Network cards that speak RDMA.
    pub rdma: bool,
    /// The folder of those files, on the machine.
    pub xpu_dir: String,
    /// Nothing but what files tell of, even where they tell nothing.
    pub only_xpu_files: bool,
}

impl Default for Devices {
    fn default() -> Self {
        Self {
            gpus: false,
            rdma: false,
            xpu_dir: "/var/run/koordlet/xpu-device-infos".to_owned(),
            only_xpu_files: false,
        }
    }
}

/// Where it all comes from.
#[derive(Clone)]
pub struct Sources {
    pub cluster_state: ClusterStateCell,
    pub figures: Arc<dyn UsageSource>,
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
    pub topology: WriteCounters,
    /// The same of the device object.
    pub devices: WriteCounters,
}

impl Default for Counters {
    fn default() -> Self {
        Self {
            reports: Counter::default(),
            early: Counter::default(),
            absent: Counter::default(),
            failures: Counter::default(),
            sending: Waiting::new("the cluster to take what the node uses", ADVICE),
            topology: WriteCounters::default(),
            devices: WriteCounters::default(),
        }
    }
}

#[derive(Debug, Default)]
pub struct WriteCounters {
    pub written: Counter,
    pub failures: Counter,
}

impl WriteCounters {
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
            absence: crds_missing(),
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
            let reporter = NodeMetricReporter::new(&config, client.clone(), &sources, &counters);
            let reporting = reporter.run(shutdown.clone());
            tasks.spawn(shutdown.kept("reporting usage", reporting));
        }
        if let Some(every) = config.topology {
            let layout = TopologyReporter::new(&config, every, client.clone(), &sources, &counters);
            let reporting = layout.run(shutdown.clone());
            tasks.spawn(shutdown.kept("reporting the topology", reporting));
        }
        if config.devices.gpus || config.devices.rdma {
            let inventory = DeviceReporter::new(&config, client, &sources, &counters);
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
