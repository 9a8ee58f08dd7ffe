//! One interval: what is new in the observer's store becomes named values of one time.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_api::names::BATCH_CPU;
use plimsoll_api::priority::{PriorityClass, QosClass};
use plimsoll_containers::names::Qos;
use plimsoll_host::Timestamp;
use plimsoll_host::machine::CpuFacts;
use plimsoll_host::proc::stat::ticks_per_second;
use plimsoll_observe::store::UsageSample;
use plimsoll_observe::usage::{
    Dated, MachineCpu, MemoryUse, NumaCpu, cpus_in, machine_memory, memory_use, numa_memory,
    numa_pages, numa_rest, real_limit, rest,
};
use plimsoll_observe::{Group, Observer};
use plimsoll_tsdb::SeriesId;
use rustc_hash::FxHashMap;

use super::catalogue as c;
use super::places::{Place, Places, Role, kube_qos};
use super::{Memory, Metric, Series};
use crate::states::Known;

/// So many series are known without asking the store.
const MOST_IDS: usize = 1 << 14;

/// The figures of one round, on their way into the memory.
#[derive(Debug, Default)]
pub struct Batch {
    values: Vec<(SeriesId, f64)>,
    /// Of series that are not a place's.
    ids: FxHashMap<Series, SeriesId>,
}

impl Batch {
    /// A figure of something that comes and goes with its place, whose series is found once.
    fn of_place(
        &mut self,
        memory: &Memory,
        known: &mut Vec<Option<SeriesId>>,
        position: usize,
        value: f64,
        series: impl FnOnce() -> Series,
    ) {
        if known.len() <= position {
            known.resize(position + 1, None);
        }
        let id = *known[position].get_or_insert_with(|| memory.series(&series()));
        self.values.push((id, value));
    }

    pub fn put(&mut self, memory: &Memory, metric: Metric, properties: &[&str], value: f64) {
        let series = metric.of(properties);
        let id = match self.ids.get(&series) {
            Some(id) => *id,
            None => {
                let id = memory.series(&series);
                self.ids.insert(series, id);
                id
            }
        };
        self.values.push((id, value));
    }

    /// Hands everything over. `false`: series have to be asked for anew.
    pub fn append(&mut self, memory: &Memory, at: Timestamp) -> bool {
        let taken = memory.append(at.millis(), &self.values);
        self.values.clear();
        // Of what has come and gone nobody asks again.
        if !taken || self.ids.len() > MOST_IDS {
            self.ids.clear();
        }
        taken
    }
}

/// What has to be remembered from one round to the next.
#[derive(Debug)]
pub struct Round {
    observer: Arc<Observer>,
    pub places: Places,
    pub batch: Batch,
    machine_cpu: MachineCpu,
    numa_cpu: NumaCpu,
    machine_at: Timestamp,
    node: Option<(Dated, Dated)>,
    numa: Vec<(u32, f64)>,
    numa_memory: Vec<(u32, u64)>,
    cpus: Option<Arc<CpuFacts>>,
    page_size: u64,
}

/// Positions among the series of a place.
const CPU: usize = 0;
const MEMORY: usize = 1;
const THROTTLED: usize = 2;
const PAGE_CACHE: usize = 3;

impl Round {
    pub fn new(observer: Arc<Observer>) -> Self {
        Self {
            observer,
            places: Places::default(),
            batch: Batch::default(),
            machine_cpu: MachineCpu::default(),
            numa_cpu: NumaCpu::default(),
            machine_at: Timestamp::ZERO,
            node: None,
            numa: Vec::new(),
            numa_memory: Vec::new(),
            cpus: None,
            page_size: rustix::param::page_size() as u64,
        }
    }

    pub fn observer(&self) -> &Arc<Observer> {
        &self.observer
    }

    pub fn cpus(&self) -> Option<&Arc<CpuFacts>> {
        self.cpus.as_ref()
    }

    pub fn set_cpus(&mut self, cpus: Arc<CpuFacts>) {
        self.cpus = Some(cpus);
    }

    /// Everything that every round has.
    pub fn collect(&mut self, memory: &Memory, known: &Known, now: Timestamp) {
        self.places.update(&self.observer.store, known);
        self.machine(memory);
        let forget = memory.config().forget();
        let page_cache = memory.config().collect.page_cache;
        for place in self.places.iter_mut() {
            let Some(usage) = look(place, forget) else {
                continue;
            };
            note(&mut self.batch, memory, place, &usage, page_cache);
        }
        self.best_effort(memory, known);
        self.system(memory, now);
    }

    /// The node's own figures, if the sampler has read new ones.
    fn machine(&mut self, memory: &Memory) {
        let config = memory.config();
        let observer = Arc::clone(&self.observer);
        let news = observer.machine.look(|figures| {
            let at = figures.at;
            if at == Timestamp::ZERO || at == self.machine_at {
                return false;
            }
            self.machine_at = at;
            let (hz, forget) = (ticks_per_second(), config.forget());
            let used = machine_memory(&figures.memory);
            let cpu = self.machine_cpu.next(at, &figures.cpu, hz, forget);
            if let Some(cpu) = cpu {
                self.batch.put(memory, c::NODE_CPU_USAGE, &[], cpu);
            }
            self.batch
                .put(memory, c::NODE_MEMORY_USAGE, &[], used.usage as f64);
            if config.collect.page_cache {
                let value = used.with_page_cache as f64;
                self.batch
                    .put(memory, c::NODE_MEMORY_USAGE_WITH_PAGE_CACHE, &[], value);
            }
            let dated = |value| Dated { at, value };
            self.node = cpu.map(|cpu| (dated(cpu), dated(used.usage as f64)));
            let cpus = self.cpus.clone();
            let node_of = |cpu| cpus.as_ref()?.node_of(cpu);
            self.numa = self.numa_cpu.next(at, &figures.cpu, node_of, hz, forget);
            self.numa_memory.clear();
            for (node, info) in &figures.numa {
                self.numa_memory.push((*node, numa_memory(info)));
            }
            true
        });
        if !news {
            return;
        }
        for (node, cpu) in &self.numa {
            let node = node.to_string();
            self.batch
                .put(memory, c::NODE_NUMA_CPU_USAGE, &[&node], *cpu);
        }
        for (node, bytes) in &self.numa_memory {
            let node = node.to_string();
            self.batch
                .put(memory, c::NODE_NUMA_MEMORY_USAGE, &[&node], *bytes as f64);
        }
        if let Some((cpu, used)) = self.node {
            let gauges = &mut *memory.gauges().lock();
            (gauges.node_cpu, gauges.node_memory) = (Some(cpu.value), Some(used.value));
        }
    }

    fn best_effort(&mut self, memory: &Memory, known: &Known) {
        let mut whole = None;
        let mut container = None;
        for place in self.places.iter() {
            match &place.role {
                Role::BestEffort => whole = Some(place),
                Role::Container { qos, .. } if *qos == Qos::BestEffort && container.is_none() => {
                    container = Some(place);
                }
                _ => {}
            }
        }
        let Some(whole) = whole else {
            return;
        };
        let (quota, period, own_mask) = {
            let state = whole.container.lock();
            let spec = &state.spec;
            (spec.cpu_quota_us, spec.cpu_period_us, spec.cpu_mask.clone())
        };
        let mask = container.and_then(|place| place.container.lock().spec.cpu_mask.clone());
        let mask = mask.or(own_mask).and_then(|mask| cpus_in(&mask));
        // Without a mask (v1 with the cpuset group off) all CPUs are theirs.
        let cpus = mask.unwrap_or_else(|| self.observer.machine.info().num_cores);
        let limit = real_limit(cpus, quota, period);
        let request: i64 = known
            .pods
            .iter()
            .flat_map(|pods| pods.iter())
            .filter(|pod| pod.classes.effective_qos() == QosClass::Be && !pod.has_ended())
            .filter_map(|pod| pod.requests.get(BATCH_CPU))
            .map(plimsoll_api::quantity::Quantity::value)
            .fold(0, i64::saturating_add);
        let usage = whole.cpu.map(|cpu| cpu.value * 1000.0);
        let mut put = |allocation, value| {
            let properties = ["cpu", allocation];
            self.batch.put(memory, c::NODE_BE, &properties, value);
        };
        put("real-limit", limit);
        put("request", request as f64);
        if let Some(usage) = usage {
            put("usage", usage);
        }
    }

    /// What is no pod's and no application's.
    fn system(&mut self, memory: &Memory, now: Timestamp) {
        let Some((cpu, used)) = self.node else {
            return;
        };
        let pods = |place: &&Place| matches!(place.role, Role::Pod { .. });
        let applications = |place: &&Place| matches!(place.role, Role::HostApplication { .. });
        let outdated = memory.config().outdated;
        let parts = |figure: fn(&Place) -> Option<Dated>| {
            let sums = [
                sum(self.places.iter().filter(pods).filter_map(figure)),
                sum(self.places.iter().filter(applications).filter_map(figure)),
            ];
            sums.into_iter().flatten().collect::<Vec<Dated>>()
        };
        // Pods of which nothing is known yet would all be the system's.
        let mut known = self.places.iter().filter(pods).peekable();
        if known.peek().is_some() && known.all(|place| place.cpu.is_none()) {
            return;
        }
        let cpus = parts(|place| place.cpu);
        let bytes = parts(|place| place.memory);
        if let Some(value) = rest(cpu, &cpus, now, outdated) {
            self.batch.put(memory, c::SYS_CPU_USAGE, &[], value);
            for (node, value) in numa_rest(value, &self.numa) {
                let node = node.to_string();
                self.batch
                    .put(memory, c::SYS_NUMA_CPU_USAGE, &[&node], value);
            }
        }
        if let Some(value) = rest(used, &bytes, now, outdated) {
            self.batch.put(memory, c::SYS_MEMORY_USAGE, &[], value);
        }
        if !self.numa_memory.is_empty() {
            let pods = self.pods_by_node();
            for &(node, bytes) in &self.numa_memory {
                let of_pods = pods.get(&node).copied().unwrap_or(0);
                let value = bytes.saturating_sub(of_pods) as f64;
                let node = node.to_string();
                self.batch
                    .put(memory, c::SYS_NUMA_MEMORY_USAGE, &[&node], value);
            }
        }
    }

    /// Pods' memory by NUMA node. On a machine with one node all of it is there, and no further file is read.
    fn pods_by_node(&self) -> FxHashMap<u32, u64> {
        let mut sums: FxHashMap<u32, u64> = FxHashMap::default();
        let only = match self.numa_memory.as_slice() {
            [(node, _)] => Some(*node),
            _ => None,
        };
        for place in self.places.iter() {
            if !matches!(place.role, Role::Pod { .. }) {
                continue;
            }
            let state = place.container.lock();
            let latest = &state.usage;
            match only {
                Some(node) => {
                    let bytes = latest.memory.rss.saturating_add(latest.memory.cache);
                    let sum: &mut u64 = sums.entry(node).or_default();
                    *sum = sum.saturating_add(bytes);
                }
                None => {
                    for (node, bytes) in numa_pages(&latest.numa, self.page_size) {
                        let sum = sums.entry(node).or_default();
                        *sum = sum.saturating_add(bytes);
                    }
                }
            }
        }
        sums
    }

    /// The pods that may be trained: those of the cluster, or those that the cgroups' names tell of.
    pub fn pods(&self, known: &Known, alone: bool) -> Vec<(Arc<str>, PriorityClass)> {
        match &known.pods {
            Some(pods) => pods
                .iter()
                .map(|pod| (Arc::clone(&pod.uid), pod.classes.effective_priority()))
                .collect(),
            None if alone => self
                .places
                .iter()
                .filter_map(|place| match &place.role {
                    Role::Pod { uid, qos } => {
                        let qos = QosClass::None.or_by_kube(kube_qos(*qos));
                        Some((Arc::clone(uid), PriorityClass::None.or_by_qos(qos)))
                    }
                    _ => None,
                })
                .collect(),
            None => Vec::new(),
        }
    }
}

/// One figure for all of them, as new as the newest; `None` of nothing.
fn sum(figures: impl Iterator<Item = Dated>) -> Option<Dated> {
    figures.reduce(|a, b| Dated {
        at: a.at.max(b.at),
        value: a.value + b.value,
    })
}

/// What a new sample of a place says.
struct Usage {
    cpu: Option<f64>,
    throttled: Option<f64>,
    memory: Option<MemoryUse>,
}

/// `None`: there is no new sample.
fn look(place: &mut Place, forget: Duration) -> Option<Usage> {
    let state = place.container.lock();
    let latest = &state.usage;
    if !state.sampled || place.sampled == Some(latest.at) {
        return None;
    }
    place.sampled = Some(latest.at);
    let at = latest.at;
    let has_cpu = latest.has(Group::Cpu);
    let usage = Usage {
        cpu: has_cpu
            .then(|| place.rate.next(at, latest.cpu_ns, forget))
            .flatten(),
        throttled: has_cpu
            .then(|| place.throttling.next(&latest.cfs))
            .flatten(),
        memory: used_memory(latest),
    };
    drop(state);
    let dated = |value| Dated { at, value };
    if let Some(cpu) = usage.cpu {
        place.cpu = Some(dated(cpu));
    }
    if let Some(memory) = usage.memory {
        place.memory = Some(dated(memory.usage as f64));
        place.with_page_cache = Some(memory.with_page_cache);
    }
    Some(usage)
}

fn used_memory(latest: &UsageSample) -> Option<MemoryUse> {
    latest
        .has(Group::Memory)
        .then(|| memory_use(&latest.memory))
        .flatten()
}

/// The four figures that pods, containers and applications have alike.
fn metrics(role: &Role) -> Option<([Metric; 4], &str)> {
    match role {
        Role::Pod { uid, .. } => Some((
            [
                c::POD_CPU_USAGE,
                c::POD_MEMORY_USAGE,
                c::POD_CPU_THROTTLED,
                c::POD_MEMORY_USAGE_WITH_PAGE_CACHE,
            ],
            uid,
        )),
        Role::Container { id, .. } => Some((
            [
                c::CONTAINER_CPU_USAGE,
                c::CONTAINER_MEMORY_USAGE,
                c::CONTAINER_CPU_THROTTLED,
                c::CONTAINER_MEMORY_USAGE_WITH_PAGE_CACHE,
            ],
            id,
        )),
        Role::HostApplication { name } => Some((
            [
                c::HOST_APPLICATION_CPU_USAGE,
                c::HOST_APPLICATION_MEMORY_USAGE,
                // Applications have none; the place is never used.
                c::HOST_APPLICATION_CPU_USAGE,
                c::HOST_APPLICATION_MEMORY_USAGE_WITH_PAGE_CACHE,
            ],
            name,
        )),
        Role::BestEffort => None,
    }
}

fn note(batch: &mut Batch, memory: &Memory, place: &mut Place, usage: &Usage, page_cache: bool) {
    let Some((metrics, name)) = metrics(&place.role) else {
        return;
    };
    let is_application = matches!(place.role, Role::HostApplication { .. });
    let values = [
        (CPU, usage.cpu),
        (MEMORY, usage.memory.map(|memory| memory.usage as f64)),
        (THROTTLED, usage.throttled.filter(|_| !is_application)),
        (
            PAGE_CACHE,
            usage
                .memory
                .filter(|_| page_cache || is_application)
                .map(|memory| memory.with_page_cache as f64),
        ),
    ];
    let known = &mut place.series;
    for (position, value) in values {
        let Some(value) = value else {
            continue;
        };
        batch.of_place(memory, known, position, value, || {
            metrics[position].of(&[name])
        });
    }
}
