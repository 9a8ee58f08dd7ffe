//! The sampling round, the recorder and the history together, on a fixture tree and with a clock that is stepped.

mod cycles;
mod forecasts;
mod keeping;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use jiff::SignedDuration;
use plimsoll_api::priority::{PriorityClass, QosClass};
use plimsoll_containers::ContainerEvent;
use plimsoll_host::cgroup::Hierarchies;
use plimsoll_host::fs::MountTable;
use plimsoll_host::machine::MachineInfo;
use plimsoll_host::{Clock, Descriptors, HostRoot, Timestamp};
use plimsoll_observe::events::{EventStore, Limits};
use plimsoll_observe::machine::{MachineState, StaticInfo};
use plimsoll_observe::oom::OomCounters;
use plimsoll_observe::sampler::{self, ExtraReads, Sampler};
use plimsoll_observe::store::Store;
use plimsoll_observe::{GroupSet, Observer, OnDemandSampler};
use plimsoll_predict::Amount;
use plimsoll_predict::reclaim::Reclaimable;

use super::metrics as c;
use super::recorder::{KernelSources, Recorder};
use super::{Config, HostApplication, Metric, Pod, UsageHistory, Workloads};

const START: i64 = 1_700_000_000;
const UID: &str = "11111111-2222-3333-4444-555555555555";
const POD: &str = "kubepods/burstable/pod11111111-2222-3333-4444-555555555555";
const ID: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const SANDBOX: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";
const MIB: u64 = 1 << 20;

struct Rig {
    dir: tempfile::TempDir,
    clock: Clock,
    workloads: Workloads,
    sampler: Sampler,
    recorder: Recorder,
    history: Arc<UsageHistory>,
    seconds: u64,
}

impl Rig {
    fn new(config: Config) -> Self {
        let dir = tempfile::tempdir().unwrap();
        Self::on(dir, config, START)
    }

    fn on(dir: tempfile::TempDir, config: Config, start: i64) -> Self {
        let clock = Clock::stepped(Timestamp::from_secs(start));
        let root = HostRoot::new(dir.path());
        machine(dir.path());
        let info = MachineInfo {
            num_cores: 4,
            ..MachineInfo::default()
        };
        let machine = MachineState::new(clock.clone(), StaticInfo::default(), info);
        let observer = Arc::new(Observer {
            store: Arc::new(Store::new(Duration::from_secs(120))),
            events: Arc::new(EventStore::new(Limits::default())),
            oom: Arc::new(OomCounters::default()),
            machine: Arc::new(machine),
            clock: clock.clone(),
            root: root.clone(),
            groups: GroupSet::from_flags(None, None).unwrap(),
            is_v2: true,
            on_demand: OnDemandSampler::default(),
        });
        let hierarchies = Arc::new(Hierarchies::v2(dir.path().join("cg")));
        let descriptors = Descriptors::new(1000);
        let sampler = Sampler::new(
            sampler::Config {
                extra_reads: ExtraReads {
                    machine: true,
                    pod_numa: true,
                    pressure: true,
                },
                ..sampler::Config::default()
            },
            Arc::clone(&observer),
            Arc::clone(&hierarchies),
            &root,
            Arc::clone(&descriptors),
        );
        let history = Arc::new(UsageHistory::open(config, clock.now()));
        let sources = KernelSources {
            mounts: Arc::new(MountTable::new(root.clone())),
            root,
            hierarchies,
            descriptors,
            writes: Arc::new(NothingToWrite),
        };
        let recorder = Recorder::new(Arc::clone(&history), observer, sources, clock.monotonic());
        let mut rig = Self {
            dir,
            clock,
            workloads: Workloads::default(),
            sampler,
            recorder,
            history,
            seconds: 0,
        };
        rig.appear("/");
        rig
    }

    fn put(&self, path: &str, text: &str) {
        put(self.dir.path(), path, text);
    }

    fn appear(&mut self, path: &str) {
        let change = ContainerEvent::Appeared {
            path: path.into(),
            identity_pending: false,
        };
        self.sampler.apply(change, self.clock.monotonic());
    }

    /// What a cgroup has used so far, and holds.
    fn cgroup(&self, path: &str, cpu_us: u64, bytes: u64) {
        let at = format!("cg/{path}");
        let periods = self.seconds * 12;
        self.put(
            &format!("{at}/cpu.stat"),
            &format!(
                "usage_usec {cpu_us}\nuser_usec 0\nsystem_usec 0\nnr_periods {periods}\nnr_throttled {}\nthrottled_usec 0\n",
                periods / 4
            ),
        );
        let (a, b, c) = (bytes / 2, bytes / 4, bytes / 4);
        self.put(
            &format!("{at}/memory.stat"),
            &format!(
                "anon {bytes}\nfile 300\ninactive_anon {a}\nactive_anon {b}\ninactive_file 100\nactive_file 200\nunevictable {c}\n"
            ),
        );
        self.put(
            &format!("{at}/memory.current"),
            &format!("{}\n", bytes + 300),
        );
    }

    /// One more second of a machine that uses 2 cores and 8 of 16 GiB, a pod that uses one and a half and 1 GiB, and
    /// an application that uses a quarter.
    fn second(&mut self) {
        self.seconds += 1;
        let n = self.seconds;
        let ticks = n * 200;
        let cpus: String = (0..4)
            .map(|cpu| format!("cpu{cpu} {} 0 0 0\n", n * 50))
            .collect();
        self.put(
            "proc/stat",
            &format!("cpu  {ticks} 0 0 0 9 0 0 9\n{cpus}btime 1\n"),
        );
        let meminfo = "MemTotal: 16777216 kB\nMemFree: 1048576 kB\nMemAvailable: 8388608 kB\n";
        self.put("proc/meminfo", meminfo);
        self.put(
            "sys/devices/system/node/node0/meminfo",
            "Node 0 MemTotal: 16777216 kB\nNode 0 MemFree: 1048576 kB\nNode 0 Active(file): 4194304 kB\n\
             Node 0 Inactive(file): 1048576 kB\nNode 0 SReclaimable: 1048576 kB\n",
        );
        self.cgroup("", 2_000_000 * n, 0);
        self.cgroup("kubepods/besteffort", 100_000 * n, 0);
        self.put("cg/kubepods/besteffort/cpuset.cpus.effective", "0-2\n");
        self.put("cg/kubepods/besteffort/cpu.max", "150000 100000\n");
        self.cgroup(POD, 1_500_000 * n, 1024 * MIB);
        self.cgroup(&format!("{POD}/{ID}"), 1_400_000 * n, 1000 * MIB);
        self.cgroup(&format!("{POD}/{SANDBOX}"), 1000 * n, MIB);
        self.cgroup("host/yarn", 250_000 * n, 256 * MIB);
        if n == 1 {
            for path in ["kubepods/besteffort", POD, "host/yarn"] {
                self.appear(&format!("/{path}"));
            }
            self.appear(&format!("/{POD}/{ID}"));
            self.appear(&format!("/{POD}/{SANDBOX}"));
        }
        self.sampler.run_due(self.clock.monotonic());
        let workloads = self.workloads.clone();
        self.recorder
            .step(self.clock.monotonic(), self.clock.now(), &workloads);
        self.clock.step(Duration::from_secs(1));
    }

    fn run(&mut self, seconds: u64) {
        for _ in 0..seconds {
            self.second();
        }
    }

    fn now(&self) -> jiff::Timestamp {
        jiff::Timestamp::from_nanosecond(i128::from(self.clock.now().nanos())).unwrap()
    }

    fn forecast(&self, workloads: &Workloads) -> Reclaimable {
        let window = Duration::from_secs(300);
        self.history.forecast(workloads, window, self.now())
    }

    fn average(&self, metric: Metric, of: &[&str]) -> Option<f64> {
        let window = Duration::from_secs(300);
        let summary = self.history.summary(&metric.of(of), window, self.now())?;
        Some(summary.avg)
    }

    #[track_caller]
    fn check(&self, metric: Metric, of: &[&str], expected: f64) {
        let found = self.average(metric, of);
        let near = found.is_some_and(|found| (found - expected).abs() <= expected * 1e-3 + 1e-4);
        assert!(
            near,
            "{} of {of:?} is {found:?}, not {expected}",
            metric.name
        );
    }
}

/// Four CPUs on one node.
fn machine(root: &Path) {
    put(root, "sys/devices/system/cpu/online", "0-3\n");
    for cpu in 0..4 {
        let at = format!("sys/devices/system/cpu/cpu{cpu}/topology");
        put(root, &format!("{at}/core_id"), &format!("{cpu}\n"));
        put(root, &format!("{at}/physical_package_id"), "0\n");
        put(
            root,
            &format!("sys/devices/system/node/node0/cpu{cpu}/x"),
            "",
        );
    }
}

fn put(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// Four cores and 16 GiB, a pod that is production's and one that is not.
fn workloads(created: jiff::Timestamp) -> Workloads {
    let gib = 1024.0 * MIB as f64;
    let pod = Pod {
        uid: UID.into(),
        config_hash: None,
        priority: PriorityClass::Prod,
        qos: QosClass::Ls,
        created,
        terminating: false,
        ended: false,
        request: Amount {
            cpu: 3.0,
            memory: 4.0 * gib,
        },
        batch_cpu: 0,
        containers: [ID.into()].into(),
    };
    let batch = Pod {
        uid: "batch".into(),
        priority: PriorityClass::Batch,
        qos: QosClass::Be,
        request: Amount::default(),
        batch_cpu: 700,
        ..pod.clone()
    };
    Workloads {
        pods: Some([pod, batch].into()),
        host_applications: [HostApplication {
            name: "yarn".into(),
            cgroups: vec!["host.slice/yarn".into(), "host/yarn".into()],
        }]
        .into(),
        allocatable: Some(Amount {
            cpu: 4.0,
            memory: 16.0 * gib,
        }),
    }
}

/// Days old, so that its past counts.
fn old_pod(rig: &Rig) -> Workloads {
    workloads(rig.now() - SignedDuration::from_hours(48))
}

#[test]
fn what_is_used_is_remembered_by_name() {
    let mut rig = Rig::new(Config::default());
    rig.workloads = old_pod(&rig);
    rig.run(20);
    let gib = 1024.0 * MIB as f64;
    rig.check(c::NODE_CPU_USAGE, &[], 2.0);
    rig.check(c::NODE_MEMORY_USAGE, &[], 8.0 * gib);
    rig.check(c::POD_CPU_USAGE, &[UID], 1.5);
    rig.check(c::POD_MEMORY_USAGE, &[UID], gib);
    rig.check(c::POD_CPU_THROTTLED, &[UID], 0.25);
    rig.check(c::CONTAINER_CPU_USAGE, &[ID], 1.4);
    rig.check(c::HOST_APPLICATION_CPU_USAGE, &["yarn"], 0.25);
    rig.check(c::SYS_CPU_USAGE, &[], 0.25);
    rig.check(c::SYS_MEMORY_USAGE, &[], 6.75 * gib);
    rig.check(c::NODE_NUMA_CPU_USAGE, &["0"], 2.0);
    rig.check(c::NODE_NUMA_MEMORY_USAGE, &["0"], 9.0 * gib);
    rig.check(c::SYS_NUMA_CPU_USAGE, &["0"], 0.25);
    rig.check(c::SYS_NUMA_MEMORY_USAGE, &["0"], 8.0 * gib);
    rig.check(c::NODE_BE, &["cpu", "usage"], 100.0);
    rig.check(c::NODE_BE, &["cpu", "request"], 700.0);
    rig.check(c::NODE_BE, &["cpu", "real-limit"], 1500.0);
    // The sandbox is no container, and the page cache was not asked for.
    assert_eq!(rig.average(c::CONTAINER_CPU_USAGE, &[SANDBOX]), None);
    assert_eq!(
        rig.average(c::POD_MEMORY_USAGE_WITH_PAGE_CACHE, &[UID]),
        None
    );
}

#[test]
fn without_a_cluster_cgroups_tell_which_pods_there_are() {
    let mut rig = Rig::new(Config::default());
    rig.run(10);
    rig.check(c::POD_CPU_USAGE, &[UID], 1.5);
    rig.check(c::CONTAINER_CPU_USAGE, &[ID], 1.4);
    rig.check(c::SYS_CPU_USAGE, &[], 0.5);
}

#[test]
fn a_static_pod_is_known_by_its_mirror() {
    let mut rig = Rig::new(Config::default());
    let mut workloads = old_pod(&rig);
    let mut pods = workloads.pods.take().unwrap().to_vec();
    pods[0].uid = "mirror".into();
    pods[0].config_hash = Some(UID.into());
    workloads.pods = Some(pods.into());
    rig.workloads = workloads;
    rig.run(10);
    rig.check(c::POD_CPU_USAGE, &["mirror"], 1.5);
    assert_eq!(rig.average(c::POD_CPU_USAGE, &[UID]), None);
}

#[test]
fn pressure_and_page_cache_where_they_are_asked_for() {
    let mut config = Config::default();
    config.collect.pressure_every = Some(Duration::from_secs(2));
    config.collect.page_cache = true;
    let mut rig = Rig::new(config);
    let line = |some| {
        format!(
            "some avg10={some} avg60=0.00 avg300=0.00 total=1\nfull avg10=0.50 avg60=0.00 avg300=0.00 total=1\n"
        )
    };
    for resource in ["cpu", "memory", "io"] {
        rig.put(&format!("cg/{POD}/{resource}.pressure"), &line("12.50"));
    }
    rig.run(10);
    rig.check(c::POD_PSI, &[UID, "mem", "10", "some"], 12.5);
    rig.check(c::POD_PSI, &[UID, "cpu", "10", "full"], 0.5);
    rig.check(c::POD_PSI_CPU_FULL_SUPPORTED, &[UID], 1.0);
    let bytes = (1024 * MIB + 300) as f64;
    rig.check(c::POD_MEMORY_USAGE_WITH_PAGE_CACHE, &[UID], bytes);
    rig.check(
        c::NODE_MEMORY_USAGE_WITH_PAGE_CACHE,
        &[],
        15.0 * 1024.0 * MIB as f64,
    );
}

/// These machines are files, which need no settings.
#[derive(Debug)]
struct NothingToWrite;

impl plimsoll_observe::MonitorWrites for NothingToWrite {
    fn clear_refs(&self, _: u32) -> plimsoll_host::Result<bool> {
        Ok(true)
    }

    fn scan_cold_pages(&self) -> plimsoll_host::Result<()> {
        Ok(())
    }

    fn create_group(
        &self,
        _: &plimsoll_host::resctrl::Resctrl,
        control: &Path,
        _: &str,
        _: &[u32],
    ) -> plimsoll_host::Result<std::path::PathBuf> {
        Ok(control.to_owned())
    }

    fn remove_group(
        &self,
        _: &plimsoll_host::resctrl::Resctrl,
        _: &Path,
    ) -> plimsoll_host::Result<bool> {
        Ok(true)
    }
}

#[test]
fn cold_pages_where_the_kernel_looks_for_them() {
    let dir = tempfile::tempdir().unwrap();
    for file in ["scan_period_in_seconds", "use_hierarchy"] {
        put(dir.path(), &format!("sys/kernel/mm/kidled/{file}"), "0\n");
    }
    let rows = ["cfei", "dfei", "cfui", "dfui"].map(|row| format!("{row} 9 9 9 9 9 10 10 5\n"));
    for cgroup in ["", POD] {
        let file = format!("cg/{cgroup}/memory.idle_page_stats");
        put(dir.path(), &file, &rows.concat());
    }
    let mut config = Config::default();
    config.collect.cold_pages_every = Some(Duration::from_secs(5));
    let mut rig = Rig::on(dir, config, START);
    rig.run(12);
    rig.check(c::POD_MEMORY_COLD_PAGE_SIZE, &[UID], 100.0);
    let hot = (1024 * MIB + 200) as f64;
    rig.check(c::POD_MEMORY_WITH_HOT_PAGE_USAGE, &[UID], hot);
    rig.check(c::NODE_MEMORY_COLD_PAGE_SIZE, &[], 100.0);
}

#[test]
fn several_numa_nodes_have_pods_of_their_own() {
    let dir = tempfile::tempdir().unwrap();
    put(
        dir.path(),
        "sys/devices/system/node/node1/meminfo",
        "Node 1 MemTotal: 4096 kB\nNode 1 MemFree: 1024 kB\n",
    );
    put(
        dir.path(),
        &format!("cg/{POD}/memory.numa_stat"),
        "anon N0=1048576 N1=524288\nfile N0=0 N1=524288\nunevictable N0=0 N1=0\n",
    );
    let mut rig = Rig::on(dir, Config::default(), START);
    rig.run(10);
    let mib = MIB as f64;
    rig.check(c::NODE_NUMA_MEMORY_USAGE, &["1"], 3.0 * mib);
    rig.check(c::SYS_NUMA_MEMORY_USAGE, &["1"], 2.0 * mib);
    rig.check(c::SYS_NUMA_MEMORY_USAGE, &["0"], (9.0 * 1024.0 - 1.0) * mib);
}

#[test]
fn cache_and_bandwidth_of_the_classes() {
    let mut config = Config::default();
    config.collect.resctrl_every = Some(Duration::from_secs(2));
    config.collect.storage_info_every = Some(Duration::from_secs(2));
    let mut rig = Rig::new(config);
    let features = "llc_occupancy\nmbm_total_bytes\nmbm_local_bytes\n";
    rig.put("sys/fs/resctrl/info/L3_MON/mon_features", features);
    for (file, value) in [
        ("llc_occupancy", 4096),
        ("mbm_total_bytes", 70),
        ("mbm_local_bytes", 50),
    ] {
        let path = format!("sys/fs/resctrl/LS/mon_data/mon_L3_01/{file}");
        rig.put(&path, &format!("{value}\n"));
    }
    rig.put("sys/block/vda/dev", "253:0\n");
    rig.put("proc/1/mountinfo", "20 1 253:0 / / rw - ext4 /dev/vda rw\n");
    rig.run(6);
    rig.check(c::RESCTRL_RESOURCE_LLC, &["LS", "1"], 4096.0);
    rig.check(
        c::RESCTRL_RESOURCE_MB,
        &["LS", "1", "mbm_total_bytes"],
        70.0,
    );
    rig.check(
        c::RESCTRL_RESOURCE_MB,
        &["LS", "1", "mbm_local_bytes"],
        50.0,
    );
    assert_eq!(rig.average(c::RESCTRL_RESOURCE_LLC, &["BE", "1"]), None);
    let disks = rig
        .history
        .facts()
        .get::<plimsoll_host::fs::LocalStorage>(super::machine_facts::NODE_LOCAL_STORAGE_INFO);
    assert_eq!(disks.unwrap().mount_disks["/"], "/dev/vda");
    let cpus = rig
        .history
        .facts()
        .get::<plimsoll_host::machine::NodeCpuInfo>(super::machine_facts::NODE_CPU_INFO);
    assert_eq!(cpus.unwrap().processors.len(), 4);
}
