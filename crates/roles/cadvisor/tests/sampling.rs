//! The sampling round on a fixture tree, with a clock that only moves when told to.
#![allow(clippy::unwrap_used, reason = "test code")]

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use plimsoll_cadvisor::exposition::{Dialect, Exporter, Gathered, LabelPolicy, Text};
use plimsoll_containers::{ContainerEvent, Health, Identity, Namespace};
use plimsoll_host::cgroup::Hierarchies;
use plimsoll_host::machine::MachineInfo;
use plimsoll_host::{Clock, Descriptors, HostRoot, Timestamp};
use plimsoll_observe::events::{EventStore, EventType, Limits, Query};
use plimsoll_observe::machine::{MachineState, StaticInfo};
use plimsoll_observe::needs::{Need, What, Which};
use plimsoll_observe::oom::OomCounters;
use plimsoll_observe::sampler::{Config, Sampler};
use plimsoll_observe::store::{Marked, Store};
use plimsoll_observe::{GroupSet, Observer, OnDemandSampler, SampleRequest};

struct Rig {
    dir: tempfile::TempDir,
    clock: Clock,
    observer: Arc<Observer>,
    sampler: Sampler,
}

impl Rig {
    fn new(config: Config) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let clock = Clock::stepped(Timestamp::from_secs(1_700_000_000));
        let root = HostRoot::new(dir.path());
        let machine =
            MachineState::new(clock.clone(), StaticInfo::default(), MachineInfo::default());
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
        let sampler = Sampler::new(
            config,
            Arc::clone(&observer),
            Arc::new(Hierarchies::v2(dir.path().join("cg"))),
            &root,
            Descriptors::new(1000),
        );
        Self {
            dir,
            clock,
            observer,
            sampler,
        }
    }

    fn write(&self, cgroup: &str, file: &str, text: &str) {
        let dir = self.dir.path().join("cg").join(cgroup);
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join(file), text).unwrap();
    }

    fn apply(&mut self, change: ContainerEvent) {
        self.sampler.apply(change, self.clock.monotonic());
    }

    fn appear(&mut self, path: &str, identity_pending: bool) {
        self.apply(ContainerEvent::Appeared {
            path: path.into(),
            identity_pending,
        });
    }

    /// Lets time pass in small steps, running whatever becomes due; returns how many samples were taken.
    fn run(&mut self, time: Duration) -> u64 {
        let step = Duration::from_millis(100);
        let before = self.samples();
        for _ in 0..time.as_millis() / step.as_millis() {
            self.sampler.run_due(self.clock.monotonic());
            self.clock.step(step);
        }
        self.samples() - before
    }

    fn samples(&self) -> u64 {
        self.sampler.counters().samples.load(Ordering::Relaxed)
    }

    fn page(&self) -> String {
        let exporter = Exporter::new(Arc::clone(&self.observer), LabelPolicy::default());
        let containers = exporter.containers(Dialect::Cadvisor, &self.observer.store.all());
        let mut page = Gathered::default();
        page.containers(containers, "container_scrape_error", Text::default());
        page.to_string()
    }

    #[track_caller]
    fn check(&self, present: &[&str], absent: &[&str]) {
        let page = self.page();
        for text in present {
            assert!(page.contains(text), "{text} is not on\n{page}");
        }
        for text in absent {
            assert!(!page.contains(text), "{text} is on\n{page}");
        }
    }
}

fn identity(pod: &str) -> Arc<Identity> {
    Arc::new(Identity {
        namespace: Namespace::Containerd,
        id: "abc".into(),
        aliases: vec!["abc".into(), "/a".into()],
        image: "box:1".into(),
        labels: [("io.kubernetes.pod.name".to_owned(), pod.to_owned())].into(),
        envs: Default::default(),
        created: Some(Timestamp::from_secs(5)),
        started: None,
        pid: None,
        owns_network: false,
        health: Health::default(),
        writable_layer: None,
        log_dir: None,
    })
}

#[test]
fn samples_every_second_without_drift() {
    let mut rig = Rig::new(Config::default());
    rig.write(
        "a",
        "cpu.stat",
        "usage_usec 1000000\nuser_usec 2\nsystem_usec 1\n",
    );
    rig.appear("/a", false);
    // At 0, at the next beat, and then every second.
    assert_eq!(rig.run(Duration::from_secs(10)), 11);
    let container = rig.observer.store.get("/a").unwrap();
    assert_eq!(container.lock().history.samples().len(), 11);
    rig.check(
        &[
            // A family's own labels stand where they sort: before, between and after the container's.
            "container_cpu_usage_seconds_total{cpu=\"total\",id=\"/a\"} 1 1700000009300\n",
            "container_memory_failures_total{failure_type=\"pgfault\",id=\"/a\",scope=\"container\"} 0 ",
            "container_tasks_state{id=\"/a\",state=\"sleeping\"} 0 ",
            "container_start_time_seconds{id=\"/a\"} ",
        ],
        &[],
    );
}

/// Everything seldom, usage of what is marked each second.
fn seldom() -> Config {
    let history = Need {
        consumer: "history",
        what: What::Usage,
        which: Which::Marked,
        every: Duration::from_secs(1),
    };
    Config {
        interval: Duration::from_secs(10),
        spec_refresh: Duration::from_secs(10),
        needs: vec![history],
        page_age: Some(Duration::from_secs(1)),
        ..Config::default()
    }
}

#[test]
fn between_readings_of_everything_only_the_usage_of_what_is_marked_is_read() {
    let mut rig = Rig::new(seldom());
    for name in ["a", "b"] {
        rig.write(name, "cpu.stat", "usage_usec 1000000\n");
        rig.write(name, "memory.stat", "anon 4096\ninactive_file 0\n");
        rig.appear(&format!("/{name}"), false);
    }
    // Young containers are looked at more often: at 0, soon after, and three seconds more.
    assert_eq!(rig.run(Duration::from_secs(16)), 2 * 6);
    let [a, b] = ["/a", "/b"].map(|path| rig.observer.store.get(path).unwrap());
    let marked = Marked::new(Arc::clone(&a));
    let usage = |of: &Arc<plimsoll_observe::store::Container>| {
        let state = of.lock();
        (state.usage.at, state.usage.cpu_ns, state.usage.memory.rss)
    };
    let read_at = a.lock().latest.at;
    for second in 1..5 {
        for name in ["a", "b"] {
            rig.write(name, "cpu.stat", &format!("usage_usec {second}\n"));
            rig.write(
                name,
                "memory.stat",
                &format!("anon {second}\ninactive_file 0\n"),
            );
        }
        rig.run(Duration::from_secs(1));
        assert_eq!((usage(&a).1, usage(&a).2), (second * 1000, second));
        assert_eq!(usage(&b).2, 4096);
    }
    assert_eq!(a.lock().latest.at, read_at, "nothing else was read");
    assert!(usage(&a).0 > read_at);
    drop(marked);
    let last = usage(&a).0;
    rig.run(Duration::from_secs(2));
    assert_eq!(usage(&a).0, last, "nobody wants it any more");
    // With everything else, it is read all the same.
    rig.run(Duration::from_secs(10));
    assert_eq!(usage(&a), usage(&b));
}

#[test]
fn lists_of_pages_of_what_does_not_run_are_not_read_again() {
    let mut rig = Rig::new(seldom());
    rig.write("a", "cpu.stat", "usage_usec 1\n");
    rig.write("a", "memory.stat", "anon 1\ninactive_file 0\n");
    rig.appear("/a", false);
    // A reading of everything was made at 16 s at the latest.
    rig.run(Duration::from_secs(16));
    let a = rig.observer.store.get("/a").unwrap();
    let _marked = Marked::new(Arc::clone(&a));
    rig.run(Duration::from_secs(1));
    let usage = || {
        let state = a.lock();
        (state.usage.at, state.usage.memory.rss)
    };
    let (at, rss) = usage();
    assert_eq!(rss, 1);
    rig.write("a", "memory.stat", "anon 2\ninactive_file 0\n");
    rig.run(Duration::from_secs(1));
    assert!(usage().0 > at, "it is known to use no CPU");
    assert_eq!(usage().1, 1);
    rig.write("a", "cpu.stat", "usage_usec 2\n");
    rig.run(Duration::from_secs(1));
    assert_eq!(usage().1, 2);
    // What the kernel reclaims shows with the next reading of everything.
    rig.write("a", "memory.stat", "anon 3\ninactive_file 0\n");
    rig.run(Duration::from_secs(10));
    assert_eq!(usage().1, 3);
}

#[test]
fn a_page_has_old_figures_read_and_the_next_reading_comes_an_interval_later() {
    let mut rig = Rig::new(seldom());
    rig.write("a", "cpu.stat", "usage_usec 1\n");
    rig.appear("/a", false);
    rig.run(Duration::from_secs(20));
    rig.run(Duration::from_secs(4));
    let ask = |rig: &mut Rig| {
        let request = SampleRequest {
            containers: Vec::new(),
            max_age: Duration::from_secs(1),
            also: GroupSet::EMPTY,
            done: Box::new(|| ()),
        };
        let before = rig.samples();
        rig.sampler.pass(request, rig.clock.monotonic());
        rig.samples() - before
    };
    assert_eq!(ask(&mut rig), 1);
    assert_eq!(ask(&mut rig), 0, "that was just now");
    assert_eq!(rig.run(Duration::from_secs(9)), 0);
    assert_eq!(rig.run(Duration::from_secs(3)), 1);
}

#[test]
fn an_idle_container_backs_off_and_stays_there_until_it_moves() {
    let mut rig = Rig::new(Config {
        back_off: true,
        max_interval: Duration::from_secs(8),
        ..Config::default()
    });
    rig.write("a", "cpu.stat", "usage_usec 1\n");
    rig.appear("/a", false);
    // At 0, 1, 3, 7, 15, 23, … : no saw-tooth back to one second.
    assert_eq!(rig.run(Duration::from_secs(64)), 11);
    rig.write("a", "cpu.stat", "usage_usec 2\n");
    rig.run(Duration::from_secs(8));
    rig.write("a", "cpu.stat", "usage_usec 3\n");
    assert!(rig.run(Duration::from_secs(4)) >= 2);
}

#[test]
fn one_broken_file_costs_one_group() {
    let mut rig = Rig::new(Config::default());
    rig.write("a", "cpu.stat", "usage_usec what\n");
    rig.write("a", "memory.current", "4096\n");
    rig.write("b", "memory.current", "8192\n");
    rig.appear("/a", false);
    rig.appear("/b", false);
    rig.run(Duration::from_secs(2));
    rig.check(
        &[
            "container_memory_usage_bytes{id=\"/a\"} 4096 ",
            "container_memory_usage_bytes{id=\"/b\"} 8192 ",
        ],
        &["container_cpu_user_seconds_total{id=\"/a\""],
    );
    assert_eq!(rig.sampler.counters().errors.load(Ordering::Relaxed), 3);
}

#[test]
fn every_file_that_breaks_off_is_counted_and_none_is_taken_for_zeros() {
    let mut rig = Rig::new(Config::default());
    let cpu = "usage_usec 9000000\nuser_usec 5000000\nsystem_usec 4000000\n";
    rig.write("a", "cpu.stat", cpu);
    rig.write("a", "memory.current", "4096\n");
    rig.appear("/a", false);
    rig.run(Duration::from_secs(2));
    let series = [
        "container_cpu_user_seconds_total{id=\"/a\"} 5 ",
        "container_memory_usage_bytes{id=\"/a\"} 4096 ",
    ];
    rig.check(&series, &[]);
    let counters = rig.sampler.counters();
    assert_eq!(counters.errors.load(Ordering::Relaxed), 0);
    rig.write("a", "cpu.stat", "");
    rig.write("a", "memory.stat", "anon 1");
    let samples = rig.samples();
    rig.run(Duration::from_secs(2));
    let missing = [
        "container_cpu_user_seconds_total{id=\"/a\"",
        "container_memory_usage_bytes{id=\"/a\"",
    ];
    rig.check(&["container_last_seen{id=\"/a\"}"], &missing);
    let broken = (rig.samples() - samples) * 2;
    assert_eq!(counters.errors.load(Ordering::Relaxed), broken);
    rig.write("a", "cpu.stat", cpu);
    rig.write("a", "memory.stat", "anon 1\ninactive_file 0\n");
    rig.run(Duration::from_secs(2));
    rig.check(&series, &[]);
}

#[test]
fn a_limit_that_makes_no_sense_is_counted_and_costs_itself() {
    let mut rig = Rig::new(Config::default());
    rig.write("a", "memory.current", "4096\n");
    rig.write("a", "memory.max", "8192\n");
    rig.write("a", "cpu.max", "20000 100000\n");
    rig.appear("/a", false);
    rig.run(Duration::from_secs(1));
    let quota = "container_spec_cpu_quota{id=\"/a\"} 20000\n";
    rig.check(&[quota], &[]);
    assert_eq!(rig.sampler.counters().errors.load(Ordering::Relaxed), 0);
    rig.write("a", "cpu.max", "plenty 100000\n");
    rig.run(Duration::from_secs(1));
    let limit = "container_spec_memory_limit_bytes{id=\"/a\"} 8192\n";
    rig.check(&[limit], &["container_spec_cpu_quota{id=\"/a\""]);
    assert!(rig.sampler.counters().errors.load(Ordering::Relaxed) > 0);
}

#[test]
fn a_container_waits_for_its_name_but_not_for_ever() {
    let mut rig = Rig::new(Config::default());
    for name in ["a", "b"] {
        rig.write(name, "memory.current", "1\n");
        rig.appear(&format!("/{name}"), true);
    }
    rig.run(Duration::from_secs(1));
    rig.check(&[], &["id=\"/a\"", "id=\"/b\""]);
    rig.apply(ContainerEvent::Identified {
        path: "/a".into(),
        identity: identity("web-0"),
    });
    let labels =
        "container_label_io_kubernetes_pod_name=\"web-0\",id=\"/a\",image=\"box:1\",name=\"abc\"";
    rig.check(
        &[
            &format!("container_memory_usage_bytes{{{labels}}} 1 "),
            &format!("container_creation_time_seconds{{{labels}}} 5\n"),
        ],
        &["id=\"/b\""],
    );
    rig.run(Duration::from_secs(2));
    rig.check(
        &["container_label_io_kubernetes_pod_name=\"\",id=\"/b\""],
        &[],
    );
}

#[test]
fn an_on_demand_pass_reads_only_what_is_stale() {
    let mut rig = Rig::new(Config {
        interval: Duration::from_secs(60),
        ..Config::default()
    });
    rig.write("a", "memory.current", "1\n");
    rig.appear("/a", false);
    rig.run(Duration::from_secs(5));
    rig.write("a", "memory.current", "2\n");
    let (done, finished) = std::sync::mpsc::channel();
    for (max_age, expected) in [(60, "1"), (1, "2")] {
        let done = done.clone();
        let pass = SampleRequest {
            containers: vec!["/a".into()],
            max_age: Duration::from_secs(max_age),
            also: GroupSet::EMPTY,
            done: Box::new(move || done.send(()).unwrap()),
        };
        rig.sampler.pass(pass, rig.clock.monotonic());
        finished.try_recv().unwrap();
        let usage = "container_memory_usage_bytes{id=\"/a\"}";
        rig.check(&[&format!("{usage} {expected} ")], &[]);
    }
}

#[test]
fn a_creation_is_told_with_the_time_that_the_runtime_says() {
    let mut rig = Rig::new(Config::default());
    for cgroup in ["a", "b", "c", "d"] {
        rig.write(cgroup, "memory.current", "1\n");
    }
    let told = Arc::new(Mutex::new(Vec::new()));
    let listener = Arc::clone(&told);
    let creations = Query {
        types: vec![EventType::ContainerCreation],
        container: "/".to_owned(),
        subcontainers: true,
        start: None,
        end: None,
        most: None,
    };
    rig.observer.events.subscribe(creations, move |event| {
        let told = (event.container.to_string(), event.at);
        listener.lock().unwrap().push(told);
        true
    });
    rig.appear("/a", true);
    rig.appear("/b", true);
    rig.appear("/c", true);
    assert_eq!(*told.lock().unwrap(), []);
    rig.apply(ContainerEvent::Identified {
        path: "/a".into(),
        identity: identity("web-0"),
    });
    let expected = ("/a".to_owned(), Timestamp::from_secs(5));
    assert_eq!(*told.lock().unwrap(), [expected]);
    rig.apply(ContainerEvent::NoRuntime { path: "/b".into() });
    rig.apply(ContainerEvent::Vanished {
        path: "/c".into(),
        exit_code: None,
    });
    rig.appear("/d", false);
    rig.run(Duration::from_secs(5));
    let told = told.lock().unwrap();
    let names: Vec<&str> = told.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["/a", "/b", "/c", "/d"]);
}

#[test]
fn a_vanished_container_is_gone_and_its_deletion_told() {
    let mut rig = Rig::new(Config::default());
    rig.write("a", "memory.current", "1\n");
    rig.appear("/a", false);
    rig.run(Duration::from_secs(1));
    std::fs::remove_dir_all(rig.dir.path().join("cg/a")).unwrap();
    rig.run(Duration::from_secs(1));
    rig.apply(ContainerEvent::Vanished {
        path: "/a".into(),
        exit_code: Some(137),
    });
    assert_eq!(rig.page(), "");
    assert!(rig.observer.store.get("/a").is_none());
    assert_eq!(rig.observer.events.added(), 2);
    assert_eq!(rig.run(Duration::from_secs(3)), 0);
}

#[test]
fn files_and_limits_that_come_after_the_directory_are_found() {
    let mut rig = Rig::new(Config::default());
    rig.write("a", "cgroup.procs", "");
    rig.appear("/a", false);
    rig.run(Duration::from_secs(1));
    rig.check(
        &["container_memory_usage_bytes{id=\"/a\"} 0 "],
        &["container_spec_memory"],
    );
    rig.write("a", "memory.current", "4096\n");
    rig.write("a", "memory.max", "8192\n");
    rig.run(Duration::from_secs(2));
    rig.check(
        &[
            "container_memory_usage_bytes{id=\"/a\"} 4096 ",
            "container_spec_memory_limit_bytes{id=\"/a\"} 8192\n",
        ],
        &[],
    );
}

#[test]
fn a_changed_limit_is_seen_within_five_seconds_however_seldom_samples_are_taken() {
    let mut rig = Rig::new(Config {
        interval: Duration::from_secs(60),
        ..Config::default()
    });
    rig.write("a", "memory.current", "4096\n");
    rig.write("a", "memory.max", "8192\n");
    rig.appear("/a", false);
    rig.run(Duration::from_secs(400));
    rig.check(
        &["container_spec_memory_limit_bytes{id=\"/a\"} 8192\n"],
        &[],
    );
    let before = rig.samples();
    rig.write("a", "memory.max", "max\n");
    rig.write("a", "cpu.max", "50000 100000\n");
    rig.run(Duration::from_secs(5));
    rig.check(
        &["container_spec_memory_limit_bytes{id=\"/a\"} 0\n"],
        &["container_spec_memory_limit_bytes{id=\"/a\"} 8192\n"],
    );
    // A file that was not there before takes a little longer to be noticed.
    rig.run(Duration::from_secs(10));
    rig.check(&["container_spec_cpu_quota{id=\"/a\"} 50000\n"], &[]);
    assert_eq!(rig.samples(), before, "no sample was due");
}

/// Kernel files that are cut off, garbled and extreme, in any order: every sample is one or an error, and pages are made of
/// whatever was read.
#[test]
fn whatever_the_files_say_is_survived() {
    use plimsoll_test_support::hostile::{garbled, rounds};
    const FILES: [(&str, &str); 17] = [
        (
            "cpu.stat",
            "usage_usec 9000000\nuser_usec 5000000\nsystem_usec 4000000\nnr_periods 10\nnr_throttled 3\nthrottled_usec 400\nnr_bursts 1\nburst_usec 2\n",
        ),
        ("cpu.max", "20000 100000\n"),
        ("cpu.weight", "100\n"),
        ("memory.current", "4096\n"),
        ("memory.max", "8192\n"),
        ("memory.high", "max\n"),
        ("memory.low", "0\n"),
        ("memory.swap.current", "0\n"),
        ("memory.swap.max", "max\n"),
        (
            "memory.stat",
            "anon 1024\nfile 2048\nkernel_stack 16384\nslab 100\nfile_mapped 4\ninactive_file 512\nactive_file 12\npgfault 1000\npgmajfault 5\nworkingset_refault_anon 1\n",
        ),
        (
            "memory.numa_stat",
            "anon N0=1024 N1=5\nfile N0=2048 N1=0\nunevictable N0=1 N1=1\n",
        ),
        ("memory.events", "low 0\nhigh 1\nmax 2\noom 3\noom_kill 4\n"),
        (
            "io.stat",
            "253:0 rbytes=4096 wbytes=8192 rios=1 wios=2 dbytes=0 dios=0\n8:0 rbytes=1\n",
        ),
        ("pids.current", "5\n"),
        ("pids.max", "max\n"),
        (
            "cpu.pressure",
            "some avg10=0.12 avg60=0.05 avg300=0.01 total=12345\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=678\n",
        ),
        (
            "memory.pressure",
            "some avg10=99.99 avg60=0.05 avg300=0.01 total=18446744073709551615\n",
        ),
    ];
    rounds(12, |seed| {
        let random = &mut fastrand::Rng::with_seed(seed);
        let mut rig = Rig::new(Config::default());
        for _ in 0..10 {
            for (name, text) in FILES {
                let text = match random.u8(..4) {
                    0 => text.as_bytes().to_vec(),
                    _ => garbled(text.as_bytes(), random),
                };
                let dir = rig.dir.path().join("cg/a");
                std::fs::create_dir_all(&dir).unwrap();
                std::fs::write(dir.join(name), text).unwrap();
            }
            if rig.observer.store.get("/a").is_none() {
                rig.appear("/a", false);
            }
            rig.run(Duration::from_secs(1 + random.u64(..4)));
            let page = rig.page();
            assert!(page.len() < 1 << 20, "{}", page.len());
        }
    });
}
