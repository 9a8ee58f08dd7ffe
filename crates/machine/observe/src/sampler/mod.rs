//! The sampling round: one plain thread that reads every container when it is due.
//!
//! [`Sampler`] itself has no thread, no clock of its own and no channel: it is told what changed and what time it is,
//! and says when it wants to be called again. [`spawn`] is the thin shell around it.

mod budget;
mod change_queue;
mod collect;
mod hardware;
mod machine;
mod tracked;
mod usage;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use plimsoll_containers::{CgroupPath, ContainerEvent, Identity, names::Rules};
use plimsoll_host::cgroup::Hierarchies;
use plimsoll_host::perf::PerfConfig;
use plimsoll_host::{Clock, Descriptors, HostRoot};
use rustc_hash::FxHashMap;

use crate::events::{Detail, Event};
use crate::needs::{Need, ReadPlan, What, Which};
use crate::{GroupSet, MonitorWrites, Observer, SampleRequest};
pub use budget::Budget;
use change_queue::ChangeQueue;
use collect::Collector;
use tracked::Tracked;

#[derive(Debug, Clone)]
pub struct Config {
    pub interval: Duration,
    /// The longest interval that idle back-off may reach.
    pub max_interval: Duration,
    /// Double the interval of a container whose figures do not move, up to the longest.
    pub back_off: bool,
    /// Each wait is lengthened by up to this share of the interval, so that many machines do not sample in step.
    pub jitter: f64,
    /// All limits are read this often, however seldom containers are sampled: the original has them within five
    /// seconds.
    pub spec_refresh: Duration,
    /// Skip the figures of `/`.
    pub no_root_stats: bool,
    /// Share of one core that the whole process may use before intervals stretch; zero: no limit.
    pub cpu_budget: f64,
    /// Count tasks by state and average the load.
    pub load_reader: bool,
    /// Clear the referenced bits every so many samples; zero: never.
    pub referenced_reset: u64,
    /// The perf events to count.
    pub perf: Option<PerfConfig>,
    pub rules: Rules,
    pub extra_reads: ExtraReads,
    /// Needs of consumers other than the pages.
    pub needs: Vec<Need>,
    /// For a page, what is older is read again. `None`: pages show what was read last, as the original's do.
    pub page_age: Option<Duration>,
    /// Who changes on the machine what some figures need.
    pub writes: Option<Arc<dyn MonitorWrites>>,
}

impl Config {
    /// The reading plan.
    pub fn plan(&self) -> ReadPlan {
        let pages = |what, every| Need {
            consumer: "pages",
            what,
            which: Which::Every,
            every,
        };
        let mut needs = vec![
            pages(What::All, self.interval),
            pages(What::Limits, self.spec_refresh),
        ];
        needs.extend(self.needs.iter().cloned());
        ReadPlan::new(needs, !self.back_off, self.page_age)
    }
}

/// Extra files to read for the usage history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ExtraReads {
    /// The machine's own CPU and memory, with each sample of the root.
    pub machine: bool,
    /// Pods' memory by NUMA node, where there are several nodes.
    pub pod_numa: bool,
    /// Pressure, though its group may be off.
    pub pressure: bool,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(1),
            max_interval: Duration::from_secs(60),
            back_off: false,
            jitter: 0.0,
            spec_refresh: Duration::from_secs(4),
            no_root_stats: false,
            cpu_budget: 0.0,
            load_reader: false,
            referenced_reset: 0,
            perf: None,
            rules: Rules::default(),
            extra_reads: ExtraReads::default(),
            needs: Vec::new(),
            page_age: None,
            writes: None,
        }
    }
}

/// Counters for `/metrics/self`.
#[derive(Debug, Default)]
pub struct Counters {
    pub samples: AtomicU64,
    /// Readings of usage alone.
    pub usage: AtomicU64,
    /// Figures that could not be read or understood.
    pub errors: AtomicU64,
    /// Containers that ended while they were being read.
    pub gone: AtomicU64,
    pub on_demand: AtomicU64,
    /// How far intervals are stretched to stay within the budget, in thousandths.
    pub stretch_milli: AtomicU64,
    pub rounds: AtomicU64,
    /// Time spent in the last round that sampled something, in nanoseconds.
    pub last_round_ns: AtomicU64,
}

/// If everything is read at one interval, it has this many slots, and a sample is taken in one of them.
const SLOTS_PER_INTERVAL: u32 = 4;
/// Longest slot: a new container is sampled again soon.
const LONGEST_BEAT: Duration = Duration::from_millis(250);
/// Young containers are sampled no less often.
const YOUNG_EVERY: Duration = Duration::from_secs(1);
/// How soon the second sample follows the first.
const SECOND_LOOK: Duration = Duration::from_millis(50);
/// So many samples long a container's limits are expected to change.
const YOUNG_SAMPLES: u64 = 5;
/// One in so many readings of the limits also looks again for files that were missing.
const ABSENT_EVERY: u64 = 3;
/// How long a container waits for its identity before it is shown without.
const IDENTITY_WAIT: Duration = Duration::from_secs(2);
/// The queue may have so many entries for each container before those that count no more are thrown out.
const MOST_ENTRIES_EACH: usize = 4;
/// Groups that somebody asked for beyond the standing ones are read this often, and for this long after.
const EXTRA_EVERY: Duration = Duration::from_secs(10);
const EXTRA_FOR: Duration = Duration::from_secs(300);

#[derive(Debug)]
pub struct Sampler {
    config: Config,
    plan: ReadPlan,
    observer: Arc<Observer>,
    collector: Collector,
    tracked: Vec<Option<Tracked>>,
    free: Vec<usize>,
    by_path: FxHashMap<CgroupPath, usize>,
    /// Containers that the rules refuse as long as no runtime claims them.
    refused: FxHashMap<CgroupPath, ()>,
    due: BinaryHeap<Reverse<(Duration, usize, u64)>>,
    next_epoch: u64,
    specs_due: Duration,
    spec_rounds: u64,
    usage_due: Duration,
    pressure_due: Duration,
    budget: Budget,
    counters: Arc<Counters>,
    extra: GroupSet,
    extra_until: Duration,
}

impl Sampler {
    pub fn new(
        config: Config,
        observer: Arc<Observer>,
        hierarchies: Arc<Hierarchies>,
        root: &HostRoot,
        descriptors: Arc<Descriptors>,
    ) -> Self {
        let counters = Arc::new(Counters::default());
        counters.stretch_milli.store(1000, Ordering::Relaxed);
        let collector = Collector::new(
            hierarchies,
            root,
            descriptors,
            observer.groups,
            &config,
            Arc::clone(&observer.machine),
            Arc::clone(&counters),
        );
        Self {
            budget: Budget::new(config.cpu_budget),
            plan: config.plan(),
            config,
            collector,
            observer,
            tracked: Vec::new(),
            free: Vec::new(),
            by_path: FxHashMap::default(),
            refused: FxHashMap::default(),
            due: BinaryHeap::new(),
            next_epoch: 0,
            specs_due: Duration::ZERO,
            spec_rounds: 0,
            usage_due: Duration::ZERO,
            pressure_due: Duration::ZERO,
            counters,
            extra: GroupSet::EMPTY,
            extra_until: Duration::ZERO,
        }
    }

    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    /// Takes note of one change; `now` is monotonic.
    pub fn apply(&mut self, change: ContainerEvent, now: Duration) {
        match change {
            ContainerEvent::Appeared {
                path,
                identity_pending,
            } => {
                if self.config.rules.accepts(&path, false) {
                    self.track(path, None, identity_pending, now);
                } else {
                    self.refused.insert(path, ());
                }
            }
            ContainerEvent::NoRuntime { path } => self.show(&path),
            ContainerEvent::Identified { path, identity } => self.identify(path, identity, now),
            ContainerEvent::Vanished { path, exit_code } => self.forget(&path, exit_code),
        }
    }

    fn track(
        &mut self,
        path: CgroupPath,
        identity: Option<Arc<Identity>>,
        awaiting: bool,
        now: Duration,
    ) {
        if self.by_path.contains_key(&path) {
            return;
        }
        let container = self.observer.store.insert(Arc::clone(&path));
        let mut tracked = self.collector.open(container, now);
        tracked.set_identity(identity.as_ref(), &self.collector);
        tracked.hidden_until = awaiting.then_some(now + IDENTITY_WAIT);
        {
            let mut state = tracked.container.lock();
            state.visible = !awaiting;
            state.identity = identity;
        }
        self.collector.read_spec(&mut tracked, now);
        if !awaiting {
            announce(&mut tracked, &self.observer);
        }
        let slot = match self.free.pop() {
            Some(slot) => {
                self.tracked[slot] = Some(tracked);
                slot
            }
            None => {
                self.tracked.push(Some(tracked));
                self.tracked.len() - 1
            }
        };
        self.by_path.insert(path, slot);
        self.schedule(slot, now);
    }

    fn schedule(&mut self, slot: usize, at: Duration) {
        self.next_epoch += 1;
        if let Some(tracked) = &mut self.tracked[slot] {
            tracked.epoch = self.next_epoch;
            tracked.due = at;
            self.due.push(Reverse((at, slot, self.next_epoch)));
        }
    }

    fn identify(&mut self, path: CgroupPath, identity: Arc<Identity>, now: Duration) {
        self.observer.oom.bind_workload(&path, &identity);
        let Some(&slot) = self.by_path.get(&path) else {
            self.refused.remove(&path);
            self.track(path, Some(identity), false, now);
            return;
        };
        if let Some(tracked) = &mut self.tracked[slot] {
            tracked.set_identity(Some(&identity), &self.collector);
            tracked.hidden_until = None;
            let mut state = tracked.container.lock();
            state.identity = Some(identity);
            state.visible = true;
            drop(state);
            announce(tracked, &self.observer);
            self.observer.store.touch();
        }
    }

    fn show(&mut self, path: &str) {
        let Some(&slot) = self.by_path.get(path) else {
            return;
        };
        if let Some(tracked) = &mut self.tracked[slot]
            && tracked.hidden_until.take().is_some()
        {
            tracked.container.lock().visible = true;
            announce(tracked, &self.observer);
            self.observer.store.touch();
        }
    }

    fn forget(&mut self, path: &CgroupPath, exit_code: Option<i32>) {
        self.refused.remove(path);
        let Some(slot) = self.by_path.remove(path) else {
            return;
        };
        if let Some(mut tracked) = self.tracked[slot].take() {
            announce(&mut tracked, &self.observer);
            self.collector.close(&tracked);
        }
        self.free.push(slot);
        self.observer.store.remove(path);
        self.observer.events.add(Event {
            container: Arc::clone(path),
            at: self.observer.clock.now(),
            detail: Detail::ContainerDeletion {
                exit_code: exit_code.unwrap_or(-1),
            },
        });
    }

    /// Samples everything that is due; returns when to be called again.
    pub fn run_due(&mut self, now: Duration) -> Option<Duration> {
        let started = self.observer.clock.monotonic();
        let mut sampled = 0u64;
        while let Some(Reverse((at, slot, epoch))) = self.due.peek().copied() {
            if at > now {
                break;
            }
            self.due.pop();
            let current = self.tracked[slot]
                .as_ref()
                .is_some_and(|t| t.epoch == epoch);
            if !current {
                continue;
            }
            let quiet = self.sample(slot, now);
            sampled += 1;
            let wait = self.wait_after(slot, quiet);
            // From the time it was due, not from now: rounds do not drift. After a stall the missed ones are skipped.
            let next = match self.tracked[slot].as_ref() {
                // The first sample came with the cgroup, before its runtime was done with it: look again soon.
                Some(tracked) if tracked.samples == 1 => now + SECOND_LOOK,
                _ => (at + wait).max(now + wait / 2),
            };
            self.schedule(slot, self.beat_after(slot, next));
        }
        self.refresh_usage(now);
        if sampled > 0 {
            let spent = self.observer.clock.monotonic().saturating_sub(started);
            self.counters.rounds.fetch_add(1, Ordering::Relaxed);
            self.counters
                .last_round_ns
                .store(spent.as_nanos() as u64, Ordering::Relaxed);
            if let Some(stretch) = self.budget.update(now) {
                self.counters
                    .stretch_milli
                    .store((stretch * 1000.0) as u64, Ordering::Relaxed);
            }
        }
        self.refresh_specs(now);
        let next = self.due.peek().map(|Reverse((at, _, _))| *at);
        // Without containers there are no limits to read, and nobody's usage.
        let others = match self.plan.usage {
            Some(_) => self.specs_due.min(self.usage_due),
            None => self.specs_due,
        };
        next.map(|at| at.min(others))
    }

    /// Reads all limits when it is time: in one go, since each is a matter of microseconds.
    fn refresh_specs(&mut self, now: Duration) {
        if now < self.specs_due {
            return;
        }
        // With a round of readings.
        self.specs_due = self.align_to_slot(now + self.plan.limits);
        self.spec_rounds += 1;
        let look_again = self.spec_rounds.is_multiple_of(ABSENT_EVERY);
        for tracked in self.tracked.iter_mut().flatten() {
            if look_again {
                self.collector.retry_absent(tracked);
            }
            self.collector.read_spec(tracked, now);
        }
    }

    /// The next beat at or after `due`. Containers that share a beat are read in one go, which costs a fraction of
    /// waking up for each: the code, the kernel's and ours, stays in the cache.
    fn align_to_slot(&self, due: Duration) -> Duration {
        match self.plan.usage {
            // There is a round at each of these anyway.
            Some(usage) => next_multiple(due, usage),
            None => next_multiple(due, self.short_beat()),
        }
    }

    fn short_beat(&self) -> Duration {
        (self.plan.shortest() / SLOTS_PER_INTERVAL).clamp(Duration::from_millis(1), LONGEST_BEAT)
    }

    /// The second sample of a container follows the first soon, whatever the pace of the others.
    fn beat_after(&self, slot: usize, due: Duration) -> Duration {
        match self.tracked[slot].as_ref() {
            Some(tracked) if tracked.samples == 1 => next_multiple(due, self.short_beat()),
            _ => self.align_to_slot(due),
        }
    }

    fn sample(&mut self, slot: usize, now: Duration) -> bool {
        let extra = if now < self.extra_until {
            self.extra
        } else {
            GroupSet::EMPTY
        };
        let Some(tracked) = &mut self.tracked[slot] else {
            return true;
        };
        if tracked.hidden_until.is_some_and(|until| now >= until) {
            tracked.hidden_until = None;
            tracked.container.lock().visible = true;
            announce(tracked, &self.observer);
            self.observer.store.touch();
        }
        self.collector.complete(tracked);
        // Runtimes set limits after making the cgroup, so the first few samples look every time.
        let young = (1..=YOUNG_SAMPLES).contains(&tracked.samples);
        if young {
            self.collector.retry_absent(tracked);
            self.collector.read_spec(tracked, now);
        }
        let skip = self.config.no_root_stats && tracked.is_root();
        if skip {
            tracked.sampled_at = Some(now);
            self.collector
                .read_machine(tracked, None, now, &self.observer.clock);
            return true;
        }
        self.collector
            .sample(tracked, extra, now, &self.observer.clock)
    }

    fn wait_after(&mut self, slot: usize, quiet: bool) -> Duration {
        let base = self.config.interval;
        let Some(tracked) = &mut self.tracked[slot] else {
            return base;
        };
        tracked.interval = if self.config.back_off && quiet {
            // Stays at the longest until something moves; it does not start over.
            (tracked.interval * 2)
                .min(self.config.max_interval)
                .max(base)
        } else {
            base
        };
        if tracked.samples < YOUNG_SAMPLES && !self.config.back_off {
            tracked.interval = base.min(YOUNG_EVERY);
        }
        let jitter = 1.0 + self.config.jitter * fastrand::f64();
        tracked.interval.mul_f64(jitter * self.budget.stretch())
    }

    /// An on-demand pass: whatever is older than asked for is read now.
    pub fn pass(&mut self, request: SampleRequest, now: Duration) {
        self.counters.on_demand.fetch_add(1, Ordering::Relaxed);
        let extra_reads = request.also.without(self.observer.groups);
        if extra_reads != GroupSet::EMPTY {
            let news = now >= self.extra_until || self.extra.union(extra_reads) != self.extra;
            self.extra = if now < self.extra_until {
                self.extra.union(extra_reads)
            } else {
                extra_reads
            };
            self.extra_until = now + EXTRA_FOR;
            if news {
                for tracked in self.tracked.iter_mut().flatten() {
                    tracked.extra_read = None;
                }
            }
        }
        let slots: Vec<usize> = if request.containers.is_empty() {
            self.by_path.values().copied().collect()
        } else {
            request
                .containers
                .iter()
                .filter_map(|path| self.by_path.get(path).copied())
                .collect()
        };
        for slot in slots {
            let stale = self.tracked[slot].as_ref().is_some_and(|t| {
                let wants_extra = extra_reads != GroupSet::EMPTY && t.extra_read.is_none();
                wants_extra
                    || t.sampled_at
                        .is_none_or(|at| now.saturating_sub(at) > request.max_age)
            });
            if stale {
                self.sample(slot, now);
                self.put_off(slot, now);
            }
        }
        (request.done)();
    }

    /// Read for a page, limits and all, a container needs no reading for its own sake soon.
    fn put_off(&mut self, slot: usize, now: Duration) {
        let Some(tracked) = &mut self.tracked[slot] else {
            return;
        };
        if self.plan.page_age.is_none() || tracked.samples < YOUNG_SAMPLES {
            return;
        }
        self.collector.read_spec(tracked, now);
        let wait = tracked.interval.max(self.config.interval);
        let (wait, due) = (wait.mul_f64(self.budget.stretch()), tracked.due);
        let next = self.align_to_slot(now + wait).max(due);
        if next > due {
            self.schedule(slot, next);
        }
        // Whoever asks again and again leaves an entry each time.
        if self.due.len() > MOST_ENTRIES_EACH * self.tracked.len() + MOST_ENTRIES_EACH {
            let tracked = &self.tracked;
            self.due.retain(|Reverse((_, slot, epoch))| {
                tracked[*slot].as_ref().is_some_and(|t| t.epoch == *epoch)
            });
        }
    }

    /// The files that are read for one container.
    pub fn sources(&self, path: &str) -> Vec<String> {
        let Some(&slot) = self.by_path.get(path) else {
            return Vec::new();
        };
        self.tracked[slot]
            .as_ref()
            .map(Tracked::sources)
            .unwrap_or_default()
    }
}

/// The first multiple of `beat` at or after `due`.
fn next_multiple(due: Duration, beat: Duration) -> Duration {
    match due.as_nanos() % beat.as_nanos().max(1) {
        0 => due,
        late => due + beat - Duration::from_nanos(u64::try_from(late).unwrap_or(0)),
    }
}

/// Tells once that a container was made: when its runtime has said at what time, or nobody is to be waited for.
fn announce(tracked: &mut Tracked, observer: &Observer) {
    if !std::mem::replace(&mut tracked.announced, true) {
        let at = tracked.container.lock().created();
        observer.events.add(Event {
            container: Arc::clone(tracked.container.path()),
            at,
            detail: Detail::ContainerCreation,
        });
    }
}

/// What reaches the sampler's thread.
#[derive(Debug)]
pub enum Message {
    Change(ContainerEvent),
    SampleNow(SampleRequest),
    /// Which files are read for a container.
    Sources(String, Sender<Vec<String>>),
    Stop,
}

/// A running sampler.
#[derive(Debug)]
pub struct Handle {
    sender: Sender<Message>,
    thread: Option<JoinHandle<()>>,
    counters: Arc<Counters>,
}

impl Handle {
    pub fn counters(&self) -> Arc<Counters> {
        Arc::clone(&self.counters)
    }

    pub fn sender(&self) -> Sender<Message> {
        self.sender.clone()
    }

    /// Only a panic ends it before it is stopped.
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Ends the thread after the container it is reading.
    pub fn stop(mut self) {
        // Already gone is as good as stopped.
        let _ = self.sender.send(Message::Stop);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Runs the sampler on a thread of its own.
pub fn spawn(sampler: Sampler) -> std::io::Result<Handle> {
    let (sender, receiver) = channel();
    let counters = sampler.counters();
    sampler.observer.on_demand.connect(sender.clone());
    let thread = std::thread::Builder::new()
        .name("sampler".into())
        .spawn(move || run(sampler, &receiver))?;
    Ok(Handle {
        sender,
        thread: Some(thread),
        counters,
    })
}

/// Changes are taken in at least for this long at a time, however late samples are.
const CHANGES_AT_LEAST: Duration = Duration::from_millis(20);

fn run(mut sampler: Sampler, receiver: &Receiver<Message>) {
    let clock: Clock = sampler.observer.clock.clone();
    let mut queue = ChangeQueue::default();
    loop {
        let next = sampler.run_due(clock.monotonic());
        let now = clock.monotonic();
        let wait = match queue.is_empty() {
            true => next.map_or(Duration::from_secs(3600), |at| at.saturating_sub(now)),
            false => Duration::ZERO,
        };
        let mut message = receiver.recv_timeout(wait);
        // Everything that has piled up, before the next reading: a storm of short-lived cgroups is mostly over by now.
        loop {
            match message {
                Ok(Message::Change(change)) => queue.push(change),
                Ok(Message::SampleNow(request)) => sampler.pass(request, clock.monotonic()),
                Ok(Message::Sources(path, reply)) => {
                    let _ = reply.send(sampler.sources(&path));
                }
                Err(RecvTimeoutError::Timeout) => break,
                Ok(Message::Stop) | Err(RecvTimeoutError::Disconnected) => return,
            }
            message = receiver.recv_timeout(Duration::ZERO);
        }
        // No storm keeps the others from their samples.
        let now = clock.monotonic();
        let until = next.map_or(Duration::MAX, |at| at.max(now + CHANGES_AT_LEAST));
        while let Some(change) = queue.next() {
            let now = clock.monotonic();
            sampler.apply(change, now);
            if now >= until {
                break;
            }
        }
    }
}
