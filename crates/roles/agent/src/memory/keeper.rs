//! The thread that remembers: once an interval it takes what is new, now and then it trains, saves and tidies up.
//!
//! [`Keeper`] has no thread, clock or channel of its own; [`spawn`] is the thin shell around it.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use plimsoll_host::cgroup::Hierarchies;
use plimsoll_host::fs::{LocalStorage, MountTable};
use plimsoll_host::machine::{CpuFacts, NumaFacts};
use plimsoll_host::{Clock, Descriptors, HostRoot, ReadBuf, Timestamp};
use plimsoll_observe::Observer;
use plimsoll_predict::{Amount, Round as Training};
use plimsoll_waiting::Repeated;

use super::cpi::{self, CpiCollector};
#[cfg(feature = "gpu")]
use super::gpu::GpuCollector;
use super::resctrl::ResctrlCollector;
use super::round::Round;
use super::{Memory, catalogue, cold, facts, pressure};
use crate::states::Known;

/// How often the store is looked after.
const MAINTAIN_EVERY: Duration = Duration::from_secs(5);
/// How often models are forgotten and saved, unless they learn more often.
const TIDY_EVERY: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub struct Keeper {
    memory: Arc<Memory>,
    round: Round,
    maintain: Due,
    train: Due,
    tidy: Due,
    node_info: Due,
    storage_info: Option<Due>,
    storage: Repeated,
    cpu_facts: Repeated,
    numa_facts: Repeated,
    pressure: Option<Due>,
    cpi: Option<(CpiCollector, cpi::Kernel)>,
    cold: Option<Due>,
    resctrl: Option<(Due, ResctrlCollector)>,
    #[cfg(feature = "gpu")]
    gpu: Option<GpuCollector>,
    tools: Tools,
    buf: ReadBuf,
}

/// What it takes to read what the sampling round does not.
#[derive(Debug, Clone)]
pub struct Tools {
    pub root: HostRoot,
    pub mounts: Arc<MountTable>,
    pub hierarchies: Arc<Hierarchies>,
    pub descriptors: Arc<Descriptors>,
}

/// Something that is to be done every so often.
#[derive(Debug, Clone, Copy)]
pub struct Due {
    every: Duration,
    next: Duration,
}

impl Due {
    /// At once, and then every so often.
    pub fn now(every: Duration) -> Self {
        Self {
            every,
            next: Duration::ZERO,
        }
    }

    /// Not before one interval is over.
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
        // After a stall what was missed is not made up for.
        self.next = if next > now { next } else { now + self.every };
        true
    }
}

impl Keeper {
    /// `now` is monotonic.
    pub fn new(memory: Arc<Memory>, observer: Arc<Observer>, tools: Tools, now: Duration) -> Self {
        let config = memory.config();
        let collect = &config.collect;
        #[cfg(not(feature = "gpu"))]
        if collect.gpu {
            tracing::warn!("GPUs are asked for, but this program was built without them");
        }
        Self {
            storage_info: collect.storage_info_every.map(Due::now),
            storage: Repeated::default(),
            cpu_facts: Repeated::default(),
            numa_facts: Repeated::default(),
            pressure: collect.pressure_every.map(|every| Due::later(every, now)),
            cpi: collect
                .cpi
                .map(|config| (CpiCollector::new(config), cpi::Kernel::default())),
            cold: collect
                .cold_pages_every
                .filter(|_| cold::start(&tools.root))
                .map(|every| Due::later(every, now)),
            resctrl: collect
                .resctrl_every
                .map(|every| (Due::now(every), ResctrlCollector::default())),
            #[cfg(feature = "gpu")]
            gpu: match collect.gpu {
                true => GpuCollector::open(&tools.root, &memory),
                false => None,
            },
            tools,
            round: Round::new(observer),
            maintain: Due::later(MAINTAIN_EVERY, now),
            train: Due::later(config.forecast.train_every, now),
            tidy: Due::later(config.forecast.train_every.min(TIDY_EVERY), now),
            node_info: Due::now(config.collect.node_info_every),
            buf: ReadBuf::default(),
            memory,
        }
    }

    /// One interval's work. `monotonic` says what is due, `now` is what samples are dated with.
    pub fn step(&mut self, monotonic: Duration, now: Timestamp) {
        let known = self.memory.board().now();
        if self.node_info.is_due(monotonic) {
            self.read_node_info();
        }
        self.round.collect(&self.memory, &known, now);
        self.collect_more(monotonic);
        if !self.round.batch.append(&self.memory, now) {
            self.round.places.forget_series();
        }
        if self.train.is_due(monotonic) {
            self.train(&known, now);
        }
        if self.tidy.is_due(monotonic) {
            let memory = &self.memory;
            let mut forecasts = memory.forecasts().lock();
            forecasts.maintain(for_people(now), memory.counters());
        }
        if self.maintain.is_due(monotonic) {
            self.memory.maintain(now.millis());
        }
    }

    /// What not every node has, or not every round.
    fn collect_more(&mut self, monotonic: Duration) {
        let memory = &self.memory;
        if due(&mut self.storage_info, monotonic) {
            let tools = &self.tools;
            let mounts = tools.mounts.current();
            let storage = mounts
                .and_then(|mounts| LocalStorage::read(&tools.root, &mounts.list, &mut self.buf));
            memory.gauges().lock().storage_info.count(&storage);
            match storage {
                Ok(storage) => {
                    memory.facts().set(facts::NODE_LOCAL_STORAGE_INFO, storage);
                    if self.storage.well().is_some() {
                        tracing::info!("which disks there are can be read again");
                    }
                }
                Err(error) => {
                    if let Some(said) = self.storage.failed() {
                        let times = said.times;
                        tracing::warn!(%error, times, "cannot read which disks there are, keeping the last ones");
                    }
                }
            }
        }
        let observer = Arc::clone(self.round.observer());
        let cpus = self.round.cpus().cloned();
        let Round { places, batch, .. } = &mut self.round;
        let (tools, buf) = (&self.tools, &mut self.buf);
        if due(&mut self.pressure, monotonic) {
            pressure::note(batch, memory, places.iter());
        }
        if let Some((collector, kernel)) = &mut self.cpi {
            collector.note(monotonic, batch, memory);
            // Where the CPUs are not known yet, nothing is begun.
            if let Some(cpus) = cpus.as_deref().map(cpi::numbers) {
                collector.step(monotonic, memory, places.iter(), |path| {
                    kernel.open(path, &cpus, tools, buf)
                });
            }
        }
        if due(&mut self.cold, monotonic) {
            cold::note(batch, memory, places.iter(), &observer, tools, buf);
        }
        if let Some((due, resctrl)) = &mut self.resctrl
            && due.is_due(monotonic)
        {
            resctrl.note(batch, memory, &tools.root, buf);
        }
        #[cfg(feature = "gpu")]
        if let Some(gpu) = &mut self.gpu {
            gpu.note(batch, memory, places.iter(), &tools.root, buf);
        }
    }

    fn read_node_info(&mut self) {
        let memory = &self.memory;
        let root = &self.tools.root;
        let cpus = CpuFacts::read(root, &mut self.buf);
        let numa = NumaFacts::read(root, &mut self.buf);
        {
            let mut gauges = memory.gauges().lock();
            gauges.cpu_info.count(&cpus);
            gauges.numa_info.count(&numa);
        }
        match cpus {
            Ok(cpus) => {
                if self.cpu_facts.well().is_some() {
                    tracing::info!("the processors' facts can be read again");
                }
                memory.facts().set(facts::NODE_CPU_INFO, cpus);
                if let Some(cpus) = memory.facts().get(facts::NODE_CPU_INFO) {
                    self.round.set_cpus(cpus);
                }
            }
            Err(error) => {
                if let Some(said) = self.cpu_facts.failed() {
                    let times = said.times;
                    tracing::warn!(%error, times, "cannot read the processors' facts, keeping the last ones");
                }
            }
        }
        match numa {
            Ok(mut numa) => {
                if self.numa_facts.well().is_some() {
                    tracing::info!("the NUMA nodes' facts can be read again");
                }
                if !memory.config().collect.hugepages {
                    numa.nodes
                        .iter_mut()
                        .for_each(|node| node.hugepages.clear());
                }
                memory.facts().set(facts::NODE_NUMA_INFO, numa);
            }
            Err(error) => {
                if let Some(said) = self.numa_facts.failed() {
                    let times = said.times;
                    tracing::warn!(%error, times, "cannot read the NUMA nodes' facts, keeping the last ones");
                }
            }
        }
    }

    /// Teaches the models what was used since they were last taught.
    fn train(&mut self, known: &Known, now: Timestamp) {
        let memory = &self.memory;
        let (window, now) = (memory.config().forecast.train_every, for_people(now));
        let pods = self.round.pods(known, memory.config().alone);
        // As long as nobody has said what pods there are, all would be taken for the system's.
        if known.pods.is_none() && !memory.config().alone {
            return;
        }
        let p90 = |cpu: catalogue_pair::Pair, name: &[&str]| {
            let series = [cpu.0.of(name), cpu.1.of(name)];
            match memory.summaries(&series, window, now).as_slice() {
                [Some(cpu), Some(memory)] => Some(Amount {
                    cpu: cpu.p90,
                    memory: memory.p90,
                }),
                _ => None,
            }
        };
        let training = Training {
            node: p90(catalogue_pair::NODE, &[]),
            pods: pods
                .iter()
                .filter_map(|(uid, class)| {
                    Some((&**uid, *class, p90(catalogue_pair::POD, &[uid])?))
                })
                .collect(),
        };
        memory
            .forecasts()
            .lock()
            .train(&training, now, memory.counters());
    }

    #[cfg(test)]
    pub fn places(&self) -> impl Iterator<Item = &super::places::Place> {
        self.round.places.iter()
    }

    /// Saves what is not on disk yet.
    pub fn finish(self) {
        self.memory.close();
    }
}

/// Whether something that may not be wanted at all is to be done now.
fn due(what: &mut Option<Due>, now: Duration) -> bool {
    what.as_mut().is_some_and(|due| due.is_due(now))
}

/// CPU and memory of the same thing.
mod catalogue_pair {
    use super::catalogue as c;
    use crate::memory::Metric;

    pub type Pair = (Metric, Metric);
    pub const NODE: Pair = (c::NODE_CPU_USAGE, c::NODE_MEMORY_USAGE);
    pub const POD: Pair = (c::POD_CPU_USAGE, c::POD_MEMORY_USAGE);
}

/// Wall-clock time in the type that the cluster's objects have.
fn for_people(now: Timestamp) -> jiff::Timestamp {
    jiff::Timestamp::from_nanosecond(i128::from(now.nanos())).unwrap_or_default()
}

/// A running keeper.
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

    /// Ends the thread after the round it is in; what is noted is saved.
    pub fn stop(mut self) {
        // Already gone is as good as stopped.
        let _ = self.stop.send(());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Runs the keeper on a thread of its own.
pub fn spawn(
    memory: Arc<Memory>,
    observer: Arc<Observer>,
    tools: Tools,
    clock: Clock,
) -> std::io::Result<Handle> {
    let (stop, stopped) = channel();
    let keeper = Keeper::new(memory, observer, tools, clock.monotonic());
    let thread = std::thread::Builder::new()
        .name("memory".into())
        .spawn(move || run(keeper, &clock, &stopped))?;
    Ok(Handle {
        stop,
        thread: Some(thread),
    })
}

/// The sampler reads on whole beats of its interval. Taking notes a little later, every note finds one new sample; at the
/// same moment it would find none now and two then.
fn between_rounds(interval: Duration, now: Duration) -> Due {
    let whole = now.as_nanos() / interval.as_nanos().max(1) + 1;
    let next = interval * u32::try_from(whole).unwrap_or(u32::MAX) + interval / 8;
    Due {
        every: interval,
        next: next.min(now + interval * 2),
    }
}

fn run(mut keeper: Keeper, clock: &Clock, stopped: &Receiver<()>) {
    let interval = keeper.memory.config().interval;
    let mut beat = between_rounds(interval, clock.monotonic());
    loop {
        let wait = beat.next.saturating_sub(clock.monotonic());
        match stopped.recv_timeout(wait) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => break,
        }
        let monotonic = clock.monotonic();
        if beat.is_due(monotonic) {
            keeper.step(monotonic, clock.now());
        }
    }
    keeper.finish();
}
