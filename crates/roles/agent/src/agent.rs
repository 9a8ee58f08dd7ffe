//! Build, spawn and drain of the node role.

use std::path::{Path, PathBuf};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use plimsoll_cadvisor::exposition::Exporter;
use plimsoll_client::shutdown::{Cause, Failure};
use plimsoll_containers::{ContainerEvent, Containers, names};
use plimsoll_host::cgroup::{Controller, Hierarchies};
use plimsoll_host::fs::MountTable;
use plimsoll_host::machine::{MachineInfo, kernel_version, os_version};
use plimsoll_host::proc::stat::ProcStat;
use plimsoll_host::{Clock, Descriptors, HostError, HostRoot, ReadBuf, Timestamp};
use plimsoll_observe::events::EventStore;
use plimsoll_observe::machine::{MachineState, StaticInfo};
use plimsoll_observe::oom::OomCounters;
use plimsoll_observe::sampler::{self, ExtraReads, Message, Sampler};
use plimsoll_observe::slow_sources::{self, Intervals, SlowSources};
use plimsoll_observe::store::Store;
use plimsoll_observe::{Group, Observer, OnDemandSampler, oom_watch};

use crate::monitor::SamplerWrites;
use crate::protect;
use crate::states::{ClusterStateCell, PodHint};
use crate::workloads::WorkloadsSource;
use crate::{Config, NodeHandle};
use plimsoll_history::{KernelSources, UsageHistory, recorder};

/// Where runtimes that can stop containers listen, the default first.
const CRI_SOCKETS: [&str; 4] = [
    "/run/containerd/containerd.sock",
    "/var/run/containerd/containerd.sock",
    "/var/run/containerd.sock",
    "/var/run/crio/crio.sock",
];

/// Everything outside of the process that the agent uses.
#[derive(Debug, Clone)]
pub struct World {
    pub clock: Clock,
    pub root: HostRoot,
}

#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(
        "cannot use the data directory {path}; create it, make it writable, or choose another with --data-dir"
    )]
    DataDir {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error(transparent)]
    Containers(#[from] plimsoll_containers::BuildError),
}

/// Built and checked, not started.
#[derive(Debug)]
pub struct Agent {
    world: World,
    config: Config,
    hierarchies: Arc<Hierarchies>,
    observer: Arc<Observer>,
    containers: Containers,
    exporter: Arc<Exporter>,
    cluster_state: ClusterStateCell,
    history: Option<Arc<UsageHistory>>,
    pod_hint: PodHint,
}

impl Config {
    /// Reads the machine and checks the configuration; starts nothing.
    pub fn build(mut self, world: World) -> Result<Agent, BuildError> {
        let mut buf = ReadBuf::default();
        let hierarchies = Hierarchies::detect(&world.root, &mut buf)?.watching(&self.watched());
        self.find_sockets(&world.root);
        let now = world.clock.now();
        let info = MachineInfo::read(&world.root, &self.id_files, now, &mut buf)?;
        let started = boot_time(&world.root, &mut buf);
        let fixed = StaticInfo {
            started,
            boot: Timestamp::from_secs(started.secs().div_euclid(60) * 60),
            all_cpus: match info.num_cores {
                0 | 1 => "0".to_owned(),
                n => format!("0-{}", n - 1),
            },
            kernel_version: kernel_version(&world.root, &mut buf),
            os_version: os_version(&world.root, &mut buf),
        };
        let oom = match &self.data_dir {
            Some(dir) => OomCounters::open(usable_dir(dir)?.join("oom.json"), &info.boot_id),
            None => OomCounters::default(),
        };
        let observer = Arc::new(Observer {
            store: Arc::new(Store::new(self.storage_duration)),
            events: Arc::new(EventStore::new(self.events)),
            oom: Arc::new(oom),
            machine: Arc::new(MachineState::new(world.clock.clone(), fixed, info)),
            clock: world.clock.clone(),
            root: world.root.clone(),
            groups: self.groups,
            is_v2: hierarchies.is_v2(),
            on_demand: OnDemandSampler::default(),
        });
        let containers = plimsoll_containers::Config {
            clock: world.clock.clone(),
            rules: self.rules.clone(),
            runtimes: self.runtimes.clone(),
            env_whitelist: self.env_whitelist.clone(),
            rescan_interval: self.rescan,
            ..plimsoll_containers::Config::new(hierarchies.clone())
        };
        let cluster_state = ClusterStateCell::default();
        let history = self.usage_history.clone().map(|mut config| {
            let below = |name| self.data_dir.as_ref().map(|dir| dir.join(name));
            let folder = &mut config.store.folder;
            *folder = folder.take().or_else(|| below("metric-data"));
            let folder = &mut config.forecast.checkpoints;
            *folder = folder.take().or_else(|| below("prediction-checkpoints"));
            self.sampling.needs.extend(config.needs());
            let nodes = observer.machine.info().topology.len();
            self.sampling.extra_reads = ExtraReads {
                machine: true,
                pod_numa: nodes > 1,
                pressure: config.collect.pressure_every.is_some(),
            };
            Arc::new(UsageHistory::open(config, now))
        });
        Ok(Agent {
            cluster_state,
            history,
            pod_hint: PodHint::default(),
            containers: containers.build()?,
            exporter: Arc::new(Exporter::new(Arc::clone(&observer), self.labels.clone())),
            observer,
            hierarchies: Arc::new(hierarchies),
            config: self,
            world,
        })
    }
}

impl Config {
    /// Sockets that are not at their usual places are where the machine's folders were mounted.
    fn find_sockets(&mut self, root: &HostRoot) {
        let elsewhere = |socket: &Path| match socket.exists() {
            true => None,
            false => root.elsewhere(socket),
        };
        let runtimes = std::mem::take(&mut self.runtimes).into_iter();
        self.runtimes = runtimes
            .map(|runtime| match elsewhere(runtime.socket()) {
                Some(socket) => runtime.at(socket),
                None => runtime,
            })
            .collect();
        if let Some(protect) = &mut self.protect {
            let asked = &protect.evict_socket;
            let all = match asked.as_path() == Path::new(CRI_SOCKETS[0]) {
                true => CRI_SOCKETS.map(PathBuf::from).to_vec(),
                false => vec![asked.clone()],
            };
            let mut all = all.into_iter().map(|socket| {
                let at = elsewhere(&socket);
                at.unwrap_or(socket)
            });
            if let Some(there) = all.find(|socket| socket.exists()) {
                protect.evict_socket = there;
            }
        }
    }

    /// The v1 hierarchies whose cgroups are containers: those the original looks at for the groups that are on.
    fn watched(&self) -> Vec<Controller> {
        use Controller::{Blkio, Cpu, Cpuacct, Cpuset, Devices, Hugetlb, Memory, PerfEvent, Pids};
        let on = |group, controller| self.groups.has(group).then_some(controller);
        let by_group = [
            on(Group::Cpu, Cpu),
            on(Group::Cpu, Cpuacct),
            on(Group::Memory, Memory),
            on(Group::DiskIo, Blkio),
            on(Group::PerfEvent, PerfEvent),
            on(Group::Process, Pids),
            on(Group::Cpuset, Cpuset),
            on(Group::Hugetlb, Hugetlb),
        ];
        let by_group = by_group.into_iter().flatten();
        std::iter::once(Devices).chain(by_group).collect()
    }

    /// Logs one line: what is observed, and what this machine lacks.
    fn say_what_is_on(&self, hierarchies: &Hierarchies, kernel_log: bool) {
        let groups: Vec<&str> = self.groups.iter().map(|group| group.name()).collect();
        let runtimes: Vec<String> = self
            .runtimes
            .iter()
            .map(|r| format!("{}={}", r.kind(), r.socket().display()))
            .collect();
        let pressure = hierarchies
            .dir(Controller::Cpu, "/")
            .is_some_and(|dir| hierarchies.is_v2() && dir.join("cpu.pressure").exists());
        tracing::info!(cgroups = ?hierarchies.mode(), pressure, kernel_log, interval = ?self.sampling.interval,
            groups = groups.join(","), runtimes = runtimes.join(","), "watching");
        if !self.unavailable_features.is_empty() {
            let gates = self.unavailable_features.join(",");
            tracing::warn!(gates, "ignoring feature gates that are not implemented");
        }
    }
}

/// Creates the directory where needed, and proves that it can be written to.
fn usable_dir(dir: &PathBuf) -> Result<&PathBuf, BuildError> {
    let wrap = |source| BuildError::DataDir {
        path: dir.clone(),
        source,
    };
    std::fs::create_dir_all(dir).map_err(wrap)?;
    let probe = dir.join(".write-test");
    std::fs::write(&probe, b"").map_err(wrap)?;
    std::fs::remove_file(&probe).map_err(wrap)?;
    Ok(dir)
}

/// When the machine was started.
fn boot_time(root: &HostRoot, buf: &mut ReadBuf) -> Timestamp {
    let mut stat = ProcStat::default();
    match stat.read(root, buf) {
        Ok(true) => stat.boot(),
        Ok(false) | Err(_) => Timestamp::ZERO,
    }
}

impl Agent {
    /// Starts the threads and tasks. Must be called within a tokio runtime.
    pub fn spawn(self) -> std::io::Result<Running> {
        let started = self.world.clock.now();
        let mounts = Arc::new(MountTable::new(self.world.root.clone()));
        let slow_sources = SlowSources::new(
            slow_sources::Paths {
                root: self.world.root.clone(),
                id_files: self.config.id_files.clone(),
                kubelet_dir: self.config.kubelet_dir.clone(),
            },
            Arc::clone(&mounts),
            Arc::clone(&self.observer.machine),
            Arc::clone(&self.observer.store),
            self.config.groups,
            self.containers.counters().runtimes.clone(),
        );
        let slow_sources = slow_sources::spawn(
            slow_sources,
            Intervals {
                filesystems: self.config.sampling.interval,
                machine: self.config.machine_refresh,
            },
        )?;
        let descriptors = Descriptors::from_limit();
        let mut sampling = self.config.sampling.clone();
        let writes = Arc::new(SamplerWrites::new(self.world.root.clone()));
        sampling.writes = Some(writes.clone());
        let sampler = Sampler::new(
            sampling,
            Arc::clone(&self.observer),
            Arc::clone(&self.hierarchies),
            &self.world.root,
            Arc::clone(&descriptors),
        );
        let sampler = sampler::spawn(sampler)?;
        let (containers, changes) = self.containers.spawn(&tokio::runtime::Handle::current())?;
        let forward = sampler.sender();
        let pod_hint = self.pod_hint.clone();
        let changes = std::thread::Builder::new()
            .name("changes".into())
            .spawn(move || forward_changes(&changes, &forward, &pod_hint))?;
        let kernel_log = oom_watch::spawn(
            &self.world.root,
            self.world.clock.clone(),
            Arc::clone(&self.observer.events),
            Arc::clone(&self.observer.oom),
        );
        let kernel_log = match kernel_log {
            Ok(Some(handle)) => Some(handle),
            Ok(None) => {
                self.observer.oom.set_kmsg_unavailable();
                tracing::warn!("no kernel log: OOM kills are not seen; give the agent /dev/kmsg");
                None
            }
            Err(error) => {
                self.observer.oom.set_kmsg_unavailable();
                tracing::warn!(%error, "cannot read the kernel log: OOM kills are not seen");
                None
            }
        };
        let recorder = match &self.history {
            Some(history) => Some(recorder::spawn(
                Arc::clone(history),
                Arc::clone(&self.observer),
                KernelSources {
                    root: self.world.root.clone(),
                    mounts,
                    hierarchies: Arc::clone(&self.hierarchies),
                    descriptors: Arc::clone(&descriptors),
                    writes,
                },
                self.world.clock.clone(),
                {
                    let mut source = WorkloadsSource::new(self.cluster_state.clone());
                    move || source.current()
                },
            )?),
            None => None,
        };
        let protecting = match (&self.config.protect, &self.history) {
            (Some(config), Some(history)) => {
                let sources = protect::Sources {
                    board: self.cluster_state.clone(),
                    history: Arc::clone(history),
                    store: Arc::clone(&self.observer.store),
                    hierarchies: Arc::clone(&self.hierarchies),
                    root: self.world.root.clone(),
                };
                protect::start(config, sources, self.world.clock.clone())
            }
            _ => None,
        };
        let (protect, protection) = protecting.unzip();
        self.config
            .say_what_is_on(&self.hierarchies, kernel_log.is_some());
        let view = NodeHandle {
            started,
            observer: self.observer,
            exporter: self.exporter,
            hierarchies: self.hierarchies,
            descriptors,
            sampling: sampler.counters(),
            sampler: sampler.sender(),
            plan: self.config.sampling.plan(),
            containers,
            kernel_log: kernel_log.as_ref().map(oom_watch::Handle::counters),
            tokio: tokio::runtime::Handle::current(),
            hide_root: self.config.sampling.no_root_stats,
            node_name: self.config.node_name.clone(),
            cluster_state: self.cluster_state,
            history: self.history,
            unavailable_features: self.config.unavailable_features.clone(),
            pod_hint: self.pod_hint,
            cluster: OnceLock::new(),
            protection,
            audit: self.config.audit.map(protect::audit::Readers::new),
        };
        Ok(Running {
            view: Arc::new(view),
            sampler,
            slow_sources,
            kernel_log,
            recorder,
            changes,
            protect,
        })
    }
}

fn forward_changes(
    changes: &Receiver<ContainerEvent>,
    sampler: &std::sync::mpsc::Sender<Message>,
    pod_hint: &PodHint,
) {
    while let Ok(change) = changes.recv() {
        if let ContainerEvent::Appeared { path, .. } = &change
            && names::is_pod(path)
        {
            pod_hint.notify();
        }
        if sampler.send(Message::Change(change)).is_err() {
            return;
        }
    }
}

/// The running agent.
#[derive(Debug)]
pub struct Running {
    view: Arc<NodeHandle>,
    sampler: sampler::Handle,
    slow_sources: slow_sources::Handle,
    kernel_log: Option<oom_watch::Handle>,
    recorder: Option<recorder::Handle>,
    changes: JoinHandle<()>,
    protect: Option<protect::Handle>,
}

/// Interval of checking that all threads are alive.
const LOOK_EVERY: Duration = Duration::from_secs(5);

impl Running {
    /// The handle that requests use.
    pub fn view(&self) -> Arc<NodeHandle> {
        Arc::clone(&self.view)
    }

    /// Waits until a thread has died; only a panic can cause that.
    pub async fn failure(&self) -> Failure {
        loop {
            if let Some(thread) = self.ended_thread() {
                let failure = Failure {
                    task: thread.to_owned(),
                    cause: Cause::Ended,
                };
                tracing::error!(%failure, "the agent cannot go on; this is a bug, please report it");
                return failure;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    fn ended_thread(&self) -> Option<&'static str> {
        let kernel_log = self.kernel_log.as_ref();
        let recorder = self.recorder.as_ref();
        let threads = [
            ("sampler", self.sampler.has_ended()),
            ("slow_sources", self.slow_sources.has_ended()),
            ("discovery", self.view.containers.has_ended()),
            ("changes", self.changes.is_finished()),
            (
                "protect",
                self.protect
                    .as_ref()
                    .is_some_and(protect::Handle::has_ended),
            ),
            ("kmsg", kernel_log.is_some_and(oom_watch::Handle::has_ended)),
            ("history", recorder.is_some_and(recorder::Handle::has_ended)),
        ];
        threads
            .into_iter()
            .find_map(|(name, ended)| ended.then_some(name))
    }

    /// Stops everything and writes state to disk, within `deadline`. Requests must be over.
    pub async fn drain(self, deadline: Duration) {
        // A request that is still looking keeps the handle; then discovery ends when that request does.
        if let Some(view) = Arc::into_inner(self.view)
            && !view.containers.shutdown(deadline).await
        {
            tracing::warn!("discovery did not end in time");
        }
        let threads = tokio::task::spawn_blocking(move || {
            if let Some(protect) = self.protect {
                protect.stop();
            }
            // Before the sampler, whose last round it may still be taking in.
            if let Some(recorder) = self.recorder {
                recorder.stop();
            }
            self.sampler.stop();
            self.slow_sources.stop();
            if let Some(kernel_log) = self.kernel_log {
                kernel_log.stop();
            }
        });
        if tokio::time::timeout(deadline, threads).await.is_err() {
            tracing::warn!("some threads did not end in time and are left behind");
        }
    }
}
