//! The history thread: records usage each interval, trains models, writes checkpoints, runs store maintenance.
//!
//! [`Recorder`] has no thread, clock or channel of its own; [`spawn`] is the thin shell around it.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use plimsoll_host::cgroup::Hierarchies;
use plimsoll_host::fs::{LocalStorage, MountTable};
use plimsoll_host::machine::{NodeCpuInfo, NodeNumaInfo};
use plimsoll_host::{Clock, Descriptors, HostRoot, ReadBuf, Timestamp};
use plimsoll_observe::MonitorWrites;
use plimsoll_observe::Observer;
use plimsoll_observe::collect::cold_pages::enable as enable_cold_pages;
use plimsoll_observe::collect::cpi::Kernel;
#[cfg(feature = "gpu")]
use plimsoll_observe::collect::gpu::GpuCollector;
use plimsoll_observe::collect::resctrl::ResctrlCollector;
use plimsoll_predict::{Amount, Round as Training};
use plimsoll_waiting::Repeated;

use super::collect::Collection;
use super::cpi::{self, CpiRecorder};
use super::{UsageHistory, cold_pages, machine_facts, metrics, psi, resctrl};
use crate::Workloads;

/// Interval of store maintenance.
const MAINTAIN_EVERY: Duration = Duration::from_secs(5);
/// Interval for dropping idle models and writing checkpoints, unless models are trained more often.
const TIDY_EVERY: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub struct Recorder {
    history: Arc<UsageHistory>,
    collection: Collection,
    maintain: Periodic,
    train: Periodic,
    tidy: Periodic,
    node_info: Periodic,
    storage_info: Option<Periodic>,
    storage: Repeated,
    cpu_facts: Repeated,
    numa_facts: Repeated,
    pressure: Option<Periodic>,
    cpi: Option<(CpiRecorder, Kernel)>,
    cold: Option<Periodic>,
    resctrl: Option<(Periodic, ResctrlCollector)>,
    #[cfg(feature = "gpu")]
    gpu: Option<GpuCollector>,
    sources: KernelSources,
    buf: ReadBuf,
}

/// What collectors need that read kernel files themselves.
#[derive(Debug, Clone)]
pub struct KernelSources {
    pub root: HostRoot,
    pub mounts: Arc<MountTable>,
    pub hierarchies: Arc<Hierarchies>,
    pub descriptors: Arc<Descriptors>,
    /// Makes the writes that some figures need.
    pub writes: Arc<dyn MonitorWrites>,
}

/// A timer for something done at an interval.
#[derive(Debug, Clone, Copy)]
pub struct Periodic {
    every: Duration,
    next: Duration,
}

impl Periodic {
    /// Due now, and then once an interval.
    pub fn now(every: Duration) -> Self {
        Self {
            every,
            next: Duration::ZERO,
        }
    }

    /// Due for the first time after one interval.
    pub fn later(every: Duration, now: Duration) -> Self {
        Self {
            every,
            next: now + every,
        }
    }

    pub fn is_due(&mut self, now: Duration) -> bool {
        if now < self.next {
            return false;
        }
        let next = self.next + self.every;
        // Intervals missed in a stall are skipped.
        self.next = if next > now { next } else { now + self.every };
        true
    }
}

impl Recorder {
    /// `now` is monotonic.
    pub fn new(
        history: Arc<UsageHistory>,
        observer: Arc<Observer>,
        sources: KernelSources,
        now: Duration,
    ) -> Self {
        let config = history.config();
        let collect = &config.collect;
        #[cfg(not(feature = "gpu"))]
        if collect.gpu {
            tracing::warn!(
                "GPU collection is on, but this program was built without the feature gpu"
            );
        }
        Self {
            storage_info: collect.storage_info_every.map(Periodic::now),
            storage: Repeated::default(),
            cpu_facts: Repeated::default(),
            numa_facts: Repeated::default(),
            pressure: collect
                .pressure_every
                .map(|every| Periodic::later(every, now)),
            cpi: collect.cpi.map(|config| {
                let kernel = Kernel::new(
                    sources.root.clone(),
                    Arc::clone(&sources.hierarchies),
                    Arc::clone(&sources.descriptors),
                );
                (CpiRecorder::new(config), kernel)
            }),
            cold: collect
                .cold_pages_every
                .filter(|_| enable_cold_pages(&sources.root, &*sources.writes))
                .map(|every| Periodic::later(every, now)),
            resctrl: collect
                .resctrl_every
                .map(|every| (Periodic::now(every), ResctrlCollector::default())),
            #[cfg(feature = "gpu")]
            gpu: match collect.gpu {
                true => super::gpu::open(&sources.root, &history),
                false => None,
            },
            sources,
            collection: Collection::new(observer),
            maintain: Periodic::later(MAINTAIN_EVERY, now),
            train: Periodic::later(config.forecast.train_every, now),
            tidy: Periodic::later(config.forecast.train_every.min(TIDY_EVERY), now),
            node_info: Periodic::now(config.collect.node_info_every),
            buf: ReadBuf::default(),
            history,
        }
    }

    /// Does one interval's work. `monotonic` decides what is due; `now` is the time of the samples.
    pub fn step(&mut self, monotonic: Duration, now: Timestamp, workloads: &Workloads) {
        if self.node_info.is_due(monotonic) {
            self.read_node_info();
        }
        self.collection
            .collect(&self.history, workloads, monotonic, now);
        self.collect_more(monotonic);
        if !self.collection.batch.append(&self.history, now) {
            self.collection.cgroups.forget_series();
        }
        if self.train.is_due(monotonic) {
            self.train(workloads, now);
        }
        if self.tidy.is_due(monotonic) {
            let history = &self.history;
            let mut forecasts = history.forecasts().lock();
            forecasts.maintain(to_jiff(now), history.counters());
        }
        if self.maintain.is_due(monotonic) {
            self.history.maintain(now.millis());
        }
    }

    /// Runs the collectors that not every node has, or not each interval.
    fn collect_more(&mut self, monotonic: Duration) {
        let history = &self.history;
        if due(&mut self.storage_info, monotonic) {
            let sources = &self.sources;
            let mounts = sources.mounts.current();
            let storage = mounts
                .and_then(|mounts| LocalStorage::read(&sources.root, &mounts.list, &mut self.buf));
            history.latest().lock().storage_info.count(&storage);
            match storage {
                Ok(storage) => {
                    history
                        .facts()
                        .set(machine_facts::NODE_LOCAL_STORAGE_INFO, storage);
                    if self.storage.well().is_some() {
                        tracing::info!("local disks can be read again");
                    }
                }
                Err(error) => {
                    if let Some(said) = self.storage.failed() {
                        let times = said.times;
                        tracing::warn!(%error, times, "cannot read the list of local disks, keeping the last one");
                    }
                }
            }
        }
        let observer = Arc::clone(self.collection.observer());
        let cpus = self.collection.cpus().cloned();
        let Collection { cgroups, batch, .. } = &mut self.collection;
        let (sources, buf) = (&self.sources, &mut self.buf);
        if due(&mut self.pressure, monotonic) {
            psi::collect(batch, history, cgroups.iter());
        }
        if let Some((collector, kernel)) = &mut self.cpi {
            collector.finish_windows(monotonic, batch, history);
            // Windows start once the list of CPUs is known.
            if let Some(cpus) = cpus.as_deref().map(cpi::numbers) {
                collector.start_windows(monotonic, history, cgroups.iter(), |path| {
                    kernel.open(path, &cpus, buf)
                });
            }
        }
        if due(&mut self.cold, monotonic) {
            cold_pages::collect(batch, history, cgroups.iter(), &observer, sources, buf);
        }
        if let Some((due, collector)) = &mut self.resctrl
            && due.is_due(monotonic)
            && let Some(values) = collector.read(&sources.root, buf)
        {
            resctrl::append(batch, history, values);
        }
        #[cfg(feature = "gpu")]
        if let Some(gpu) = &mut self.gpu {
            super::gpu::collect(gpu, batch, history, cgroups.iter(), &sources.root, buf);
        }
    }

    fn read_node_info(&mut self) {
        let history = &self.history;
        let root = &self.sources.root;
        let cpus = NodeCpuInfo::read(root, &mut self.buf);
        let numa = NodeNumaInfo::read(root, &mut self.buf);
        {
            let mut latest = history.latest().lock();
            latest.cpu_info.count(&cpus);
            latest.numa_info.count(&numa);
        }
        match cpus {
            Ok(cpus) => {
                if self.cpu_facts.well().is_some() {
                    tracing::info!("CPU information can be read again");
                }
                history.facts().set(machine_facts::NODE_CPU_INFO, cpus);
                if let Some(cpus) = history.facts().get(machine_facts::NODE_CPU_INFO) {
                    self.collection.set_cpus(cpus);
                }
            }
            Err(error) => {
                if let Some(said) = self.cpu_facts.failed() {
                    let times = said.times;
                    tracing::warn!(%error, times, "cannot read CPU information, keeping the last one");
                }
            }
        }
        match numa {
            Ok(mut numa) => {
                if self.numa_facts.well().is_some() {
                    tracing::info!("NUMA information can be read again");
                }
                if !history.config().collect.hugepages {
                    numa.nodes
                        .iter_mut()
                        .for_each(|node| node.hugepages.clear());
                }
                history.facts().set(machine_facts::NODE_NUMA_INFO, numa);
            }
            Err(error) => {
                if let Some(said) = self.numa_facts.failed() {
                    let times = said.times;
                    tracing::warn!(%error, times, "cannot read NUMA information, keeping the last one");
                }
            }
        }
    }

    /// Trains the models with usage since the last training.
    fn train(&mut self, workloads: &Workloads, now: Timestamp) {
        let history = &self.history;
        let (window, now) = (history.config().forecast.train_every, to_jiff(now));
        let pods = self.collection.pods(workloads, history.config().standalone);
        // Without a pod list all usage would be taken for the system's.
        if workloads.pods.is_none() && !history.config().standalone {
            return;
        }
        let p90 = |cpu: metric_pairs::Pair, name: &[&str]| {
            let series = [cpu.0.of(name), cpu.1.of(name)];
            match history.summaries(&series, window, now).as_slice() {
                [Some(cpu), Some(memory)] => Some(Amount {
                    cpu: cpu.p90,
                    memory: memory.p90,
                }),
                _ => None,
            }
        };
        let training = Training {
            node: p90(metric_pairs::NODE, &[]),
            pods: pods
                .iter()
                .filter_map(|(uid, class)| Some((&**uid, *class, p90(metric_pairs::POD, &[uid])?)))
                .collect(),
        };
        history
            .forecasts()
            .lock()
            .train(&training, now, history.counters());
    }

    #[cfg(test)]
    pub fn cgroups(&self) -> impl Iterator<Item = &super::cgroup_roles::TrackedCgroup> {
        self.collection.cgroups.iter()
    }

    /// Writes what is not on disk yet.
    pub fn finish(self) {
        self.history.close();
    }
}

/// Whether an optional timer is due.
fn due(what: &mut Option<Periodic>, now: Duration) -> bool {
    what.as_mut().is_some_and(|due| due.is_due(now))
}

/// CPU and memory metric of the same thing.
mod metric_pairs {
    use super::metrics as c;
    use crate::Metric;

    pub type Pair = (Metric, Metric);
    pub const NODE: Pair = (c::NODE_CPU_USAGE, c::NODE_MEMORY_USAGE);
    pub const POD: Pair = (c::POD_CPU_USAGE, c::POD_MEMORY_USAGE);
}

/// As `jiff`'s type.
fn to_jiff(now: Timestamp) -> jiff::Timestamp {
    jiff::Timestamp::from_nanosecond(i128::from(now.nanos())).unwrap_or_default()
}

/// A running recorder.
#[derive(Debug)]
pub struct Handle {
    stop: Sender<()>,
    thread: Option<JoinHandle<()>>,
}

impl Handle {
    /// Only a panic ends it before it is stopped.
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Ends the thread after the current interval's work and writes everything to disk.
    pub fn stop(mut self) {
        // Already gone is as good as stopped.
        let _ = self.stop.send(());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Starts the history thread. `workloads` is called once an interval.
pub fn spawn(
    history: Arc<UsageHistory>,
    observer: Arc<Observer>,
    sources: KernelSources,
    clock: Clock,
    workloads: impl FnMut() -> Workloads + Send + 'static,
) -> std::io::Result<Handle> {
    let (stop, stopped) = channel();
    let recorder = Recorder::new(history, observer, sources, clock.monotonic());
    let thread = std::thread::Builder::new()
        .name("history".into())
        .spawn(move || run(recorder, &clock, &stopped, workloads))?;
    Ok(Handle {
        stop,
        thread: Some(thread),
    })
}

/// Runs 1/8 interval after the sampler, so that each run sees exactly one new sample. At the same moment it would
/// sometimes see none and sometimes two.
fn offset_after_sampling(interval: Duration, now: Duration) -> Periodic {
    let whole = now.as_nanos() / interval.as_nanos().max(1) + 1;
    let next = interval * u32::try_from(whole).unwrap_or(u32::MAX) + interval / 8;
    Periodic {
        every: interval,
        next: next.min(now + interval * 2),
    }
}

fn run(
    mut recorder: Recorder,
    clock: &Clock,
    stopped: &Receiver<()>,
    mut workloads: impl FnMut() -> Workloads,
) {
    let interval = recorder.history.config().interval;
    let mut beat = offset_after_sampling(interval, clock.monotonic());
    loop {
        let wait = beat.next.saturating_sub(clock.monotonic());
        match stopped.recv_timeout(wait) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
        }
        let monotonic = clock.monotonic();
        if beat.is_due(monotonic) {
            recorder.step(monotonic, clock.now(), &workloads());
        }
    }
    recorder.finish();
}
