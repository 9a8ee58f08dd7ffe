//! One interval: reads what is new in the observer's store and appends it as named samples of one time.

use std::sync::Arc;
use std::time::Duration;

use plimsoll_api::priority::{PriorityClass, QosClass};
use plimsoll_containers::names::Qos;
use plimsoll_host::Timestamp;
use plimsoll_host::machine::NodeCpuInfo;
use plimsoll_host::proc::stat::ticks_per_second;
use plimsoll_observe::store::UsageSample;
use plimsoll_observe::usage::{
    MachineCpu, MemoryUse, NumaCpu, TimedValue, cpus_in, machine_memory, memory_use, numa_memory,
    numa_pages, real_limit, system_usage, system_usage_by_numa,
};
use plimsoll_observe::{Group, Observer};
use plimsoll_tsdb::SeriesId;
use rustc_hash::FxHashMap;

use super::cgroup_roles::{CgroupRole, TrackedCgroup, TrackedCgroups, kube_qos};
use super::metrics as c;
use super::usage_now::{Freshness, UsageNow};
use super::{Metric, Series, UsageHistory};
use crate::Workloads;

/// Series ids cached outside the store.
const MOST_IDS: usize = 1 << 14;

/// The samples of one interval, to be appended in one go.
#[derive(Debug, Default)]
pub struct SampleBatch {
    values: Vec<(SeriesId, f64)>,
    /// Ids of series that belong to no tracked cgroup.
    ids: FxHashMap<Series, SeriesId>,
}

impl SampleBatch {
    /// A figure of something that comes and goes with its cgroup, whose series is found once.
    fn of_cgroup(
        &mut self,
        history: &UsageHistory,
        ids: &mut Vec<Option<SeriesId>>,
        position: usize,
        value: f64,
        series: impl FnOnce() -> Series,
    ) {
        if ids.len() <= position {
            ids.resize(position + 1, None);
        }
        let id = *ids[position].get_or_insert_with(|| history.series(&series()));
        self.values.push((id, value));
    }

    pub fn put(&mut self, history: &UsageHistory, metric: Metric, labels: &[&str], value: f64) {
        let series = metric.of(labels);
        let id = match self.ids.get(&series) {
            Some(id) => *id,
            None => {
                let id = history.series(&series);
                self.ids.insert(series, id);
                id
            }
        };
        self.values.push((id, value));
    }

    /// Appends everything. `false`: some samples were refused, and series ids must be looked up again.
    pub fn append(&mut self, history: &UsageHistory, at: Timestamp) -> bool {
        let taken = history.append(at.millis(), &self.values);
        self.values.clear();
        // Ids of series that have ended are not needed again.
        if !taken || self.ids.len() > MOST_IDS {
            self.ids.clear();
        }
        taken
    }
}

/// Collects usage once an interval; holds what one interval needs of the one before.
#[derive(Debug)]
pub struct Collection {
    observer: Arc<Observer>,
    pub cgroups: TrackedCgroups,
    pub batch: SampleBatch,
    machine_cpu: MachineCpu,
    numa_cpu: NumaCpu,
    machine_at: Timestamp,
    node: Option<(TimedValue, TimedValue)>,
    numa: Vec<(u32, f64)>,
    numa_memory: Vec<(u32, u64)>,
    cpus: Option<Arc<NodeCpuInfo>>,
    page_size: u64,
}

/// Positions in `TrackedCgroup::series`.
const CPU: usize = 0;
const MEMORY: usize = 1;
const THROTTLED: usize = 2;
const PAGE_CACHE: usize = 3;

impl Collection {
    pub fn new(observer: Arc<Observer>) -> Self {
        Self {
            observer,
            cgroups: TrackedCgroups::default(),
            batch: SampleBatch::default(),
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

    pub fn cpus(&self) -> Option<&Arc<NodeCpuInfo>> {
        self.cpus.as_ref()
    }

    pub fn set_cpus(&mut self, cpus: Arc<NodeCpuInfo>) {
        self.cpus = Some(cpus);
    }

    /// Collects what is collected each interval.
    pub fn collect(
        &mut self,
        history: &UsageHistory,
        workloads: &Workloads,
        monotonic: Duration,
        now: Timestamp,
    ) {
        self.cgroups.update(&self.observer.store, workloads);
        self.machine(history);
        let forget = history.config().counter_reset_after();
        let page_cache = history.config().collect.page_cache;
        for cgroup in self.cgroups.iter_mut() {
            let Some(usage) = read_usage(cgroup, forget) else {
                continue;
            };
            append_usage(&mut self.batch, history, cgroup, &usage, page_cache);
        }
        let real_limit = self.best_effort(history, workloads);
        self.system(history, now);
        if history.usage_now_cell().is_wanted() {
            self.publish(history, real_limit, monotonic, now);
        }
    }

    /// The node's own usage, if the sampler has read it since.
    fn machine(&mut self, history: &UsageHistory) {
        let config = history.config();
        let observer = Arc::clone(&self.observer);
        let news = observer.machine.with_usage(|figures| {
            let at = figures.at;
            if at == Timestamp::ZERO || at == self.machine_at {
                return false;
            }
            self.machine_at = at;
            let (hz, forget) = (ticks_per_second(), config.counter_reset_after());
            let used = machine_memory(&figures.memory);
            let cpu = self.machine_cpu.next(at, &figures.cpu, hz, forget);
            if let Some(cpu) = cpu {
                self.batch.put(history, c::NODE_CPU_USAGE, &[], cpu);
            }
            self.batch
                .put(history, c::NODE_MEMORY_USAGE, &[], used.usage as f64);
            if config.collect.page_cache {
                let value = used.with_page_cache as f64;
                self.batch
                    .put(history, c::NODE_MEMORY_USAGE_WITH_PAGE_CACHE, &[], value);
            }
            let dated = |value| TimedValue { at, value };
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
                .put(history, c::NODE_NUMA_CPU_USAGE, &[&node], *cpu);
        }
        for (node, bytes) in &self.numa_memory {
            let node = node.to_string();
            self.batch
                .put(history, c::NODE_NUMA_MEMORY_USAGE, &[&node], *bytes as f64);
        }
        if let Some((cpu, used)) = self.node {
            let latest = &mut *history.latest().lock();
            (latest.node_cpu, latest.node_memory) = (Some(cpu.value), Some(used.value));
        }
    }

    /// Gives what best-effort pods may use, in thousandths of a core.
    fn best_effort(&mut self, history: &UsageHistory, workloads: &Workloads) -> Option<f64> {
        let mut whole = None;
        let mut container = None;
        for cgroup in self.cgroups.iter() {
            match &cgroup.role {
                CgroupRole::BestEffort => whole = Some(cgroup),
                CgroupRole::Container { qos, .. }
                    if *qos == Qos::BestEffort && container.is_none() =>
                {
                    container = Some(cgroup);
                }
                _ => {}
            }
        }
        let whole = whole?;
        let (quota, period, own_mask) = {
            let state = whole.container.lock();
            let spec = &state.spec;
            (spec.cpu_quota_us, spec.cpu_period_us, spec.cpu_mask.clone())
        };
        let mask = container.and_then(|cgroup| cgroup.container.lock().spec.cpu_mask.clone());
        let mask = mask.or(own_mask).and_then(|mask| cpus_in(&mask));
        // Without a mask (v1 with the cpuset group off) all CPUs are theirs.
        let cpus = mask.unwrap_or_else(|| self.observer.machine.info().num_cores);
        let limit = real_limit(cpus, quota, period);
        let request = workloads
            .pods
            .iter()
            .flat_map(|pods| pods.iter())
            .filter(|pod| pod.qos == QosClass::Be && !pod.ended)
            .map(|pod| pod.batch_cpu)
            .fold(0, i64::saturating_add);
        let usage = whole.cpu.map(|cpu| cpu.value * 1000.0);
        let mut put = |allocation, value| {
            let labels = ["cpu", allocation];
            self.batch.put(history, c::NODE_BE, &labels, value);
        };
        put("real-limit", limit);
        put("request", request as f64);
        if let Some(usage) = usage {
            put("usage", usage);
        }
        Some(limit)
    }

    /// Hands the newest usage to those who act on it.
    fn publish(
        &self,
        history: &UsageHistory,
        real_limit: Option<f64>,
        monotonic: Duration,
        now: Timestamp,
    ) {
        let every = history.config().interval;
        let fresh = Freshness {
            now,
            oldest: every.saturating_mul(2),
        };
        let (node_cpu, node_memory) = self.node.unzip();
        let mut usage = UsageNow {
            at: monotonic,
            every,
            node_cpu: fresh.of(node_cpu),
            node_memory: fresh.of(node_memory),
            best_effort_real_limit: real_limit,
            ..UsageNow::default()
        };
        usage.take_cgroups(&self.cgroups, fresh);
        history.publish_usage(usage);
    }

    /// Usage of the system: of the node, minus pods and host applications.
    fn system(&mut self, history: &UsageHistory, now: Timestamp) {
        let Some((cpu, used)) = self.node else {
            return;
        };
        let pods = |cgroup: &&TrackedCgroup| matches!(cgroup.role, CgroupRole::Pod { .. });
        let applications =
            |cgroup: &&TrackedCgroup| matches!(cgroup.role, CgroupRole::HostApplication { .. });
        let max_sample_age = history.config().max_sample_age;
        let parts = |figure: fn(&TrackedCgroup) -> Option<TimedValue>| {
            let sums = [
                sum(self.cgroups.iter().filter(pods).filter_map(figure)),
                sum(self.cgroups.iter().filter(applications).filter_map(figure)),
            ];
            sums.into_iter().flatten().collect::<Vec<TimedValue>>()
        };
        // As long as no pod has a sample, all usage would be reported as the system's.
        let mut known = self.cgroups.iter().filter(pods).peekable();
        if known.peek().is_some() && known.all(|cgroup| cgroup.cpu.is_none()) {
            return;
        }
        let cpus = parts(|cgroup| cgroup.cpu);
        let bytes = parts(|cgroup| cgroup.memory);
        if let Some(value) = system_usage(cpu, &cpus, now, max_sample_age) {
            self.batch.put(history, c::SYS_CPU_USAGE, &[], value);
            for (node, value) in system_usage_by_numa(value, &self.numa) {
                let node = node.to_string();
                self.batch
                    .put(history, c::SYS_NUMA_CPU_USAGE, &[&node], value);
            }
        }
        if let Some(value) = system_usage(used, &bytes, now, max_sample_age) {
            self.batch.put(history, c::SYS_MEMORY_USAGE, &[], value);
        }
        if !self.numa_memory.is_empty() {
            let pods = self.pods_by_node();
            for &(node, bytes) in &self.numa_memory {
                let of_pods = pods.get(&node).copied().unwrap_or(0);
                let value = bytes.saturating_sub(of_pods) as f64;
                let node = node.to_string();
                self.batch
                    .put(history, c::SYS_NUMA_MEMORY_USAGE, &[&node], value);
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
        for cgroup in self.cgroups.iter() {
            if !matches!(cgroup.role, CgroupRole::Pod { .. }) {
                continue;
            }
            let state = cgroup.container.lock();
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

    /// Pods whose models are trained: those of the cluster, or without a cluster those that cgroup paths name.
    pub fn pods(&self, workloads: &Workloads, standalone: bool) -> Vec<(Arc<str>, PriorityClass)> {
        match &workloads.pods {
            Some(pods) => pods
                .iter()
                .map(|pod| (Arc::clone(&pod.uid), pod.priority))
                .collect(),
            None if standalone => self
                .cgroups
                .iter()
                .filter_map(|cgroup| match &cgroup.role {
                    CgroupRole::Pod { uid, qos } => {
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

/// The sum, with the time of the newest part; `None` without parts.
fn sum(figures: impl Iterator<Item = TimedValue>) -> Option<TimedValue> {
    figures.reduce(|a, b| TimedValue {
        at: a.at.max(b.at),
        value: a.value + b.value,
    })
}

/// Usage from one new sample of a cgroup.
struct Usage {
    cpu: Option<f64>,
    throttled: Option<f64>,
    memory: Option<MemoryUse>,
}

/// `None`: there is no new sample.
fn read_usage(cgroup: &mut TrackedCgroup, forget: Duration) -> Option<Usage> {
    let state = cgroup.container.lock();
    let latest = &state.usage;
    if !state.sampled || cgroup.sampled == Some(latest.at) {
        return None;
    }
    cgroup.sampled = Some(latest.at);
    let at = latest.at;
    let has_cpu = latest.has(Group::Cpu);
    let usage = Usage {
        cpu: has_cpu
            .then(|| cgroup.rate.next(at, latest.cpu_ns, forget))
            .flatten(),
        throttled: has_cpu
            .then(|| cgroup.throttling.next(&latest.cfs))
            .flatten(),
        memory: used_memory(latest),
    };
    drop(state);
    let dated = |value| TimedValue { at, value };
    if let Some(cpu) = usage.cpu {
        cgroup.cpu = Some(dated(cpu));
    }
    if let Some(throttled) = usage.throttled {
        cgroup.throttled = Some(dated(throttled));
    }
    if let Some(memory) = usage.memory {
        cgroup.memory = Some(dated(memory.usage as f64));
        cgroup.with_page_cache = Some(memory.with_page_cache);
    }
    Some(usage)
}

fn used_memory(latest: &UsageSample) -> Option<MemoryUse> {
    latest
        .has(Group::Memory)
        .then(|| memory_use(&latest.memory))
        .flatten()
}

/// The four metrics that pods, containers and host applications have in common, and the label of their series.
fn metrics(role: &CgroupRole) -> Option<([Metric; 4], &str)> {
    match role {
        CgroupRole::Pod { uid, .. } => Some((
            [
                c::POD_CPU_USAGE,
                c::POD_MEMORY_USAGE,
                c::POD_CPU_THROTTLED,
                c::POD_MEMORY_USAGE_WITH_PAGE_CACHE,
            ],
            uid,
        )),
        CgroupRole::Container { id, .. } => Some((
            [
                c::CONTAINER_CPU_USAGE,
                c::CONTAINER_MEMORY_USAGE,
                c::CONTAINER_CPU_THROTTLED,
                c::CONTAINER_MEMORY_USAGE_WITH_PAGE_CACHE,
            ],
            id,
        )),
        CgroupRole::HostApplication { name } => Some((
            [
                c::HOST_APPLICATION_CPU_USAGE,
                c::HOST_APPLICATION_MEMORY_USAGE,
                // Host applications have no throttling; never used.
                c::HOST_APPLICATION_CPU_USAGE,
                c::HOST_APPLICATION_MEMORY_USAGE_WITH_PAGE_CACHE,
            ],
            name,
        )),
        CgroupRole::BestEffort => None,
    }
}

fn append_usage(
    batch: &mut SampleBatch,
    history: &UsageHistory,
    cgroup: &mut TrackedCgroup,
    usage: &Usage,
    page_cache: bool,
) {
    let Some((metrics, name)) = metrics(&cgroup.role) else {
        return;
    };
    let is_application = matches!(cgroup.role, CgroupRole::HostApplication { .. });
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
    let ids = &mut cgroup.series;
    for (position, value) in values {
        let Some(value) = value else {
            continue;
        };
        batch.of_cgroup(history, ids, position, value, || {
            metrics[position].of(&[name])
        });
    }
}
