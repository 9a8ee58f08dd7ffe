//! Machines made up for tests of pages: every figure is there, and always the same.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use plimsoll_containers::{Health, Identity, Namespace};
use plimsoll_host::cgroup::{Hugetlb, IoRow, NumaNode};
use plimsoll_host::machine::MachineInfo;
use plimsoll_host::{Clock, HostRoot, Timestamp};

use crate::rest::fixture::identity;
use plimsoll_observe::events::{self, EventStore};
use plimsoll_observe::machine::{MachineState, StaticInfo};
use plimsoll_observe::oom::OomCounters;
use plimsoll_observe::sample::{
    Fields, Filesystem, Interface, PerfCount, PerfUncoreCount, ResctrlDomain, Walk,
};
use plimsoll_observe::store::{DeviceNames, Store};
use plimsoll_observe::{Group, GroupSet, Observer, OnDemandSampler, Sample, Symbol};

const NOW: i64 = 1_794_778_100;

fn machine(groups: GroupSet) -> Arc<Observer> {
    let clock = Clock::stepped(Timestamp::from_secs(NOW));
    let info = MachineInfo::default();
    let observer = Observer {
        store: Arc::new(Store::new(Duration::from_secs(120))),
        events: Arc::new(EventStore::new(events::Limits::default())),
        oom: Arc::new(OomCounters::default()),
        machine: Arc::new(MachineState::new(
            clock.clone(),
            StaticInfo::default(),
            info,
        )),
        clock,
        root: HostRoot::new("/"),
        groups,
        is_v2: true,
        on_demand: OnDemandSampler::default(),
    };
    let names = DeviceNames::new([((253, 0), "/dev/vda".to_owned())]);
    observer.store.set_devices(names);
    Arc::new(observer)
}

/// The machine itself, a pod with a container whose labels are awkward, and a container that was not sampled yet.
pub fn few() -> Arc<Observer> {
    let observer = machine(GroupSet::all());
    add(&observer, "/", None, Some(1));
    let awkward = [("a.b/c", "q\"uo\\te\nd,}"), ("empty", ""), ("z", "ü")];
    let mut known = pod_container("b1", awkward.map(|(key, value)| (key.into(), value.into())));
    known.health = Health("healthy".into());
    add(&observer, "/kubepods/podb1/c1", Some(known), Some(3));
    add(&observer, "/system.slice/later", None, None);
    observer
}

/// So many containers with so many label names of their own, as wide as real ones.
pub fn many(containers: usize, labels: usize) -> Arc<Observer> {
    let observer = machine(GroupSet::of(&[Group::Cpu, Group::Memory, Group::DiskIo]));
    for index in 0..containers {
        let own = (0..labels).map(|label| {
            let key = format!("example.com/label-number-{label}");
            (key, format!("value-{label}-of-{index}"))
        });
        let known = pod_container(&index.to_string(), own);
        let path = format!("/kubepods/pod{index}/{index:064x}");
        add(&observer, &path, Some(known), Some(index as u64 + 1));
    }
    observer
}

fn pod_container(uid: &str, more: impl IntoIterator<Item = (String, String)>) -> Identity {
    let labels = [
        ("io.kubernetes.container.name", "main".to_owned()),
        ("io.kubernetes.pod.name", format!("web-{uid}")),
        ("io.kubernetes.pod.namespace", "default".to_owned()),
        ("io.kubernetes.pod.uid", uid.to_owned()),
    ];
    let labels = labels.map(|(key, value)| (key.to_owned(), value));
    Identity {
        image: "registry.example/box:1".to_owned(),
        labels: labels.into_iter().chain(more).collect(),
        envs: BTreeMap::from([("PATH".to_owned(), "/bin".to_owned())]),
        ..identity(Namespace::Containerd, &["main", uid])
    }
}

/// `seed`: what its figures hang on; `None`: it was not sampled yet.
fn add(observer: &Observer, path: &str, known: Option<Identity>, seed: Option<u64>) {
    let container = observer.store.insert(path.into());
    let mut state = container.lock();
    state.identity = known.map(Arc::new);
    state.created = Timestamp::from_secs(NOW - 100);
    state.spec.has_cpu = true;
    state.spec.cpu_shares = 512;
    state.spec.cpu_period_us = 100_000;
    state.spec.cpu_quota_us = 50_000;
    state.spec.has_memory = true;
    state.spec.memory_limit = 1 << 30;
    if let Some(seed) = seed {
        state.sampled = true;
        state.latest = sample(seed);
    }
    drop(state);
    observer.store.touch();
}

/// Every group, every list, numbers of all sizes.
fn sample(seed: u64) -> Sample {
    let mut sample = Sample {
        at: Timestamp(NOW * 1_000_000_000 - seed as i64 * 1_000_000),
        groups: GroupSet::all(),
        has_network: true,
        hugetlb: vec![Hugetlb::default(); 2],
        filesystems: vec![Filesystem::default(); 2],
        resctrl: vec![ResctrlDomain::default(); 2],
        perf: vec![PerfCount::default(); 2],
        perf_uncore: vec![PerfUncoreCount::default()],
        ..Sample::default()
    };
    sample.cpu.per_cpu_ns = vec![0; 2];
    sample.numa.own = vec![NumaNode::default()];
    sample.numa.hierarchical = vec![NumaNode::default()];
    sample.network.interfaces = vec![Interface::default(); 2];
    sample.network.advanced_tcp = vec![0; 4];
    for rows in sample.io.lists_mut() {
        rows.resize(2, IoRow::default());
    }
    let (at, groups) = (sample.at, sample.groups);
    sample.walk(&mut Filler { seed, calls: 0 });
    (sample.at, sample.groups) = (at, groups);
    for rows in sample.io.lists_mut() {
        for (row, (major, minor)) in rows.iter_mut().zip([(253, 0), (7, 1)]) {
            (row.major, row.minor, row.present) = (major, minor, 0x7f);
        }
    }
    for (fs, device) in sample.filesystems.iter_mut().zip(["/dev/vda", "/dev/vdb"]) {
        fs.device = Symbol::new(device);
    }
    let interfaces = sample.network.interfaces.iter_mut();
    for (interface, name) in interfaces.zip(["eth0", "lo"]) {
        interface.name = Symbol::new(name);
    }
    for (size, huge) in [2 << 20, 1 << 30].into_iter().zip(&mut sample.hugetlb) {
        huge.page_size = size;
    }
    for (cpu, count) in sample.perf.iter_mut().enumerate() {
        (count.event, count.cpu) = (Symbol::new("instructions"), cpu as u64);
        count.scaling_ratio = 1.0 / (seed as f64 + 2.0);
    }
    for count in &mut sample.perf_uncore {
        (count.event, count.pmu) = (Symbol::new("cas_count_read"), Symbol::new("uncore_imc_0"));
        count.scaling_ratio = 0.25;
    }
    sample
}

struct Filler {
    seed: u64,
    calls: u64,
}

impl Walk for Filler {
    fn value(&mut self, value: &mut u64) {
        self.calls += 1;
        // The time and the groups come first, and decide what else is walked.
        if self.calls > 2 {
            let scrambled = (self.seed << 32 | self.calls).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            *value = scrambled >> (self.calls % 64);
        }
    }

    fn list<T: Fields + Default + Clone>(&mut self, list: &mut Vec<T>) {
        for item in list {
            item.walk(self);
        }
    }
}
