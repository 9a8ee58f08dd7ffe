//! A node with two pods, made up; the shape of every answer is the real kubelet's.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use expect_test::{Expect, expect};
use plimsoll_containers::runtime::cri::{FsUse, ImageFs};
use plimsoll_containers::{Health, Identity, Namespace};
use plimsoll_host::fs::FsUsage;
use plimsoll_host::machine::MachineInfo;
use plimsoll_host::{Clock, HostRoot, Timestamp};
use serde_json::Value;

use super::{resource, write_summary};
use plimsoll_observe::disk_usage::{PodDisk, Volume};
use plimsoll_observe::events::{EventStore, Limits};
use plimsoll_observe::machine::{Layer, MachineState, StaticInfo, Storage, Written};
use plimsoll_observe::oom::OomCounters;
use plimsoll_observe::sample::{Filesystem, Interface};
use plimsoll_observe::store::Store;
use plimsoll_observe::{Group, GroupSet, Observer, OnDemandSampler, Sample, Symbol};

const START: i64 = 1_794_778_000;

struct Node {
    observer: Observer,
}

impl Node {
    fn new() -> Self {
        let clock = Clock::stepped(Timestamp::from_secs(START + 20));
        let info = MachineInfo {
            memory_capacity: 1 << 34,
            swap_capacity: 1 << 30,
            ..MachineInfo::default()
        };
        let machine = MachineState::new(clock.clone(), StaticInfo::default(), info);
        machine.set_filesystems(
            Vec::new(),
            vec![Storage {
                at: Timestamp::from_secs(START + 19),
                device: "/dev/vda".to_owned(),
                mount_point: "/".to_owned(),
                capacity: 1000,
                available: 600,
                usage: 400,
                labels: vec!["root"],
                inodes: Some((100, 70)),
                uuid: None,
            }],
        );
        let observer = Observer {
            store: Arc::new(Store::new(Duration::from_secs(120))),
            events: Arc::new(EventStore::new(Limits::default())),
            oom: Arc::new(OomCounters::default()),
            machine: Arc::new(machine),
            clock,
            root: HostRoot::new("/nonexistent"),
            groups: GroupSet::all(),
            is_v2: true,
            on_demand: OnDemandSampler::default(),
        };
        let node = Self { observer };
        node.add("/", None, |_| {});
        node.add("/kubepods", None, |_| {});
        node.add("/kubepods/poduid-1", None, |sample| sample.memory.swap = 3);
        node.add(
            "/kubepods/poduid-1/c1",
            Some(identity("web", "1")),
            |sample| {
                sample.memory.swap = 3;
            },
        );
        let layer = Filesystem {
            device: Symbol::new("/dev/vda"),
            usage: 50,
            base_usage: 30,
            inodes: 4,
            ..Filesystem::default()
        };
        node.observer.machine.set_layer(
            "/kubepods/poduid-1/c1".into(),
            Layer {
                usage: layer,
                logs: Some(Written {
                    bytes: 20,
                    inodes: 2,
                }),
            },
        );
        node.add("/kubepods/poduid-1/s1", Some(identity("", "1")), |sample| {
            sample.has_network = true;
            for name in ["lo1", "eth0"] {
                sample.network.interfaces.push(Interface {
                    name: Symbol::new(name),
                    rx_bytes: 7,
                    ..Interface::default()
                });
            }
        });
        node
    }

    fn add(&self, path: &str, identity: Option<Identity>, mut fill: impl FnMut(&mut Sample)) {
        let container = self.observer.store.insert(path.into());
        let mut state = container.lock();
        state.identity = identity.map(Arc::new);
        state.created = Timestamp(START * 1_000_000_000 - 500_000_000);
        state.sampled = true;
        state.spec.has_memory = true;
        state.spec.memory_limit = if path.len() > 20 { 1 << 20 } else { u64::MAX };
        state.spec.memory_swap_limit = if path.len() > 20 { 1 << 26 } else { u64::MAX };
        for second in [10, 12] {
            let groups = [Group::Cpu, Group::Memory, Group::DiskIo, Group::Pressure];
            let mut sample = Sample {
                at: Timestamp(START * 1_000_000_000 + second * 1_000_000_000 + 7_000_000),
                groups: GroupSet::of(&groups),
                ..Sample::default()
            };
            sample.cpu.total_ns = second as u64 * 500_000_000;
            sample.cpu_psi.some.avg10_centi = 102;
            sample.memory.usage = 9000;
            sample.memory.working_set = 8192;
            sample.memory.rss = 4096;
            fill(&mut sample);
            state.history.push(&mut sample);
            state.latest = sample;
        }
    }

    fn page(&self) -> String {
        let text = crate::exposition::Gathered::from(resource(&self.observer)).to_string();
        let lines = text.lines().filter(|line| !line.starts_with("# HELP"));
        lines.map(|line| format!("{line}\n")).collect()
    }

    fn summary(&self, brief: bool) -> Value {
        let mut out = Vec::new();
        write_summary(&self.observer, "node-1", Some(&image_fs()), brief, &mut out).unwrap();
        serde_json::from_slice(&out).unwrap()
    }
}

/// Without a name it is the pod's sandbox.
fn identity(container: &str, pod: &str) -> Identity {
    let name = format!("pod-{pod}");
    let uid = format!("uid-{pod}");
    let labels = [
        ("io.kubernetes.container.name", container),
        ("io.kubernetes.pod.name", &name),
        ("io.kubernetes.pod.namespace", "default"),
        ("io.kubernetes.pod.uid", &uid),
    ];
    let labels = labels.iter().filter(|(_, value)| !value.is_empty());
    Identity {
        namespace: Namespace::Containerd,
        id: String::new(),
        aliases: Vec::new(),
        image: String::new(),
        labels: labels
            .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
            .collect(),
        envs: BTreeMap::new(),
        created: None,
        started: None,
        pid: None,
        owns_network: container.is_empty(),
        health: Health::default(),
        writable_layer: None,
        log_dir: None,
    }
}

#[track_caller]
fn check(found: &str, expected: Expect) {
    expected.assert_eq(found);
}

/// What a runtime would say.
fn image_fs() -> ImageFs {
    let images = FsUse {
        at: Timestamp::from_secs(START),
        dir: "/var/lib/containerd".to_owned(),
        bytes: Some(77),
        inodes: Some(7),
    };
    ImageFs {
        containers: FsUse {
            // Of a file system that nothing more is known of.
            dir: "elsewhere".to_owned(),
            inodes: None,
            ..images.clone()
        },
        images,
    }
}

#[test]
fn the_resource_page() {
    check(
        &Node::new().page(),
        expect![[r#"
            # TYPE container_cpu_usage_seconds_total counter
            container_cpu_usage_seconds_total{container="web",namespace="default",pod="pod-1"} 6 1794778012007
            # TYPE container_memory_working_set_bytes gauge
            container_memory_working_set_bytes{container="web",namespace="default",pod="pod-1"} 8192 1794778012007
            # TYPE container_start_time_seconds gauge
            container_start_time_seconds{container="web",namespace="default",pod="pod-1"} 1.7947779995e+09
            # TYPE container_swap_limit_bytes gauge
            container_swap_limit_bytes{container="web",namespace="default",pod="pod-1"} 6.7108864e+07 1794778012007
            # TYPE container_swap_usage_bytes gauge
            container_swap_usage_bytes{container="web",namespace="default",pod="pod-1"} 3 1794778012007
            # TYPE node_cpu_usage_seconds_total counter
            node_cpu_usage_seconds_total 6 1794778012007
            # TYPE node_memory_working_set_bytes gauge
            node_memory_working_set_bytes 8192 1794778012007
            # TYPE node_swap_usage_bytes gauge
            node_swap_usage_bytes 0 1794778012007
            # TYPE pod_cpu_usage_seconds_total counter
            pod_cpu_usage_seconds_total{namespace="default",pod="pod-1"} 6 1794778012007
            # TYPE pod_memory_working_set_bytes gauge
            pod_memory_working_set_bytes{namespace="default",pod="pod-1"} 8192 1794778012007
            # TYPE pod_swap_usage_bytes gauge
            pod_swap_usage_bytes{namespace="default",pod="pod-1"} 3 1794778012007
            # TYPE resource_scrape_error gauge
            resource_scrape_error 0
        "#]],
    );
}

#[test]
fn a_page_without_a_node_says_so() {
    let node = Node::new();
    node.observer.store.remove("/");
    assert!(node.page().ends_with("resource_scrape_error 1\n"));
    write_summary(&node.observer, "node-1", None, false, Vec::new()).unwrap_err();
}

#[test]
fn what_could_not_be_read_is_missing_rather_than_zero() {
    let node = Node::new();
    node.add("/", None, |sample| {
        sample.groups = GroupSet::of(&[Group::Memory]);
        sample.cpu.total_ns = 0;
    });
    node.add(
        "/kubepods/poduid-1/c1",
        Some(identity("web", "1")),
        |sample| {
            sample.groups = GroupSet::of(&[Group::Cpu]);
            sample.memory = Default::default();
        },
    );
    let page = node.page();
    assert!(!page.contains("node_cpu_usage_seconds_total"), "{page}");
    assert!(
        page.contains("node_memory_working_set_bytes 8192"),
        "{page}"
    );
    assert!(
        page.contains("container_cpu_usage_seconds_total{"),
        "{page}"
    );
    assert!(
        !page.contains("container_memory_working_set_bytes"),
        "{page}"
    );
    let summary = node.summary(false);
    assert!(summary["node"]["cpu"].is_null() && !summary["node"]["memory"].is_null());
    let container = &summary["pods"][0]["containers"][0];
    assert!(container["memory"].is_null() && !container["cpu"].is_null());
}

#[test]
fn what_the_runtime_takes_of_the_disk() {
    let node = Node::new();
    let told = &node.summary(false)["node"]["runtime"];
    let images = &told["imageFs"];
    assert_eq!(images["time"], "2026-11-15T21:26:40Z");
    assert_eq!(
        (&images["usedBytes"], &images["inodesUsed"]),
        (&77.into(), &7.into())
    );
    assert_eq!(
        (&images["capacityBytes"], &images["inodesFree"]),
        (&1000.into(), &70.into())
    );
    let layers = told["containerFs"].as_object().unwrap();
    assert_eq!(layers["usedBytes"], 77);
    assert_eq!(layers.keys().collect::<Vec<_>>(), ["time", "usedBytes"]);
    // A runtime that does not tell leaves the place.
    let mut out = Vec::new();
    write_summary(&node.observer, "node-1", None, false, &mut out).unwrap();
    let silent: Value = serde_json::from_slice(&out).unwrap();
    let place = silent["node"]["runtime"]["imageFs"].as_object().unwrap();
    assert!(place.contains_key("capacityBytes") && !place.contains_key("usedBytes"));
}

#[test]
fn what_a_pod_takes_of_the_disk() {
    let node = Node::new();
    let volume = |name: &str, bytes, is_ephemeral| Volume {
        name: name.to_owned(),
        used: Written { bytes, inodes: 3 },
        on: Some(FsUsage {
            capacity: 1000,
            free: 650,
            available: 600,
            inodes: Some((100, 70)),
        }),
        is_ephemeral,
    };
    let disk = PodDisk {
        at: Timestamp::from_secs(START + 15),
        volumes: vec![
            volume("scratch", 100, true),
            volume("kube-api-access", 7, false),
        ],
        own: Written {
            bytes: 4,
            inodes: 1,
        },
    };
    node.observer.machine.set_pod_disk("uid-1".to_owned(), disk);
    let pod = &node.summary(false)["pods"][0];
    expect![[r#"
        {
          "availableBytes": 600,
          "capacityBytes": 1000,
          "inodes": 100,
          "inodesFree": 70,
          "inodesUsed": 3,
          "name": "scratch",
          "time": "2026-11-15T21:26:55Z",
          "usedBytes": 100
        }"#]]
    .assert_eq(&serde_json::to_string_pretty(&pod["volume"][0]).unwrap());
    assert_eq!(pod["volume"][1]["name"], "kube-api-access");
    // Layer 30 and logs 20 of the container, the volume on the node's disk, the hosts file.
    let ephemeral = &pod["ephemeral-storage"];
    assert_eq!(ephemeral["usedBytes"], 30 + 20 + 100 + 4);
    assert_eq!(ephemeral["inodesUsed"], 4 + 2 + 3 + 1);
    assert_eq!(ephemeral["time"], "2026-11-15T21:26:55Z");
    assert!(node.summary(true)["pods"][0]["volume"].is_null());
}

/// As a kubelet 1.36.3 shows them whose cAdvisor knows the runtime.
#[test]
fn containers_without_limits() {
    let node = Node::new();
    let free = node.observer.store.get("/kubepods/poduid-1/c1").unwrap();
    free.lock().spec.memory_limit = 9_223_372_036_854_771_712;
    free.lock().spec.memory_swap_limit = 9_223_372_036_854_771_712;
    assert!(!node.page().contains("container_swap_limit_bytes"));
    let summary = node.summary(false);
    let container = &summary["pods"][0]["containers"][0];
    assert!(container["memory"].get("availableBytes").is_none());
    assert!(container["swap"].get("swapAvailableBytes").is_none());
    assert_eq!(container["swap"]["swapUsageBytes"], 3);
}

#[test]
fn processes_of_containers_are_counted() {
    let node = Node::new();
    let with = |count: u64| {
        move |sample: &mut Sample| {
            sample.groups = GroupSet::of(&[Group::Cpu, Group::Memory, Group::Process]);
            sample.processes.count = count;
        }
    };
    node.add("/kubepods/poduid-1/c1", Some(identity("web", "1")), with(3));
    node.add(
        "/kubepods/poduid-1/c2",
        Some(identity("side", "1")),
        with(2),
    );
    node.add("/kubepods/poduid-1/s1", Some(identity("", "1")), with(1));
    let told = &node.summary(false)["pods"][0]["process_stats"];
    assert_eq!(told["process_count"], 5, "the sandbox's are not");
    assert!(node.summary(true)["pods"][0].get("process_stats").is_none());
}

#[test]
fn a_pod_between_two_attempts_is_not_told_of() {
    let node = Node::new();
    node.add("/kubepods/poduid-2", None, |_| {});
    node.add("/kubepods/poduid-2/s2", Some(identity("", "2")), |_| {});
    assert!(!node.page().contains("pod-2"));
    assert_eq!(node.summary(true)["pods"].as_array().unwrap().len(), 1);
    node.add("/kubepods/poduid-2/c2", Some(identity("web", "2")), |_| {});
    assert!(
        node.page()
            .contains("pod_cpu_usage_seconds_total{namespace=\"default\",pod=\"pod-2\"}")
    );
    assert_eq!(node.summary(true)["pods"].as_array().unwrap().len(), 2);
}

#[test]
fn leftovers_and_doubles_are_not_shown() {
    let node = Node::new();
    let ended = |sample: &mut Sample| {
        sample.cpu.total_ns = 1;
        sample.memory = Default::default();
    };
    node.add("/kubepods/poduid-1/c0", Some(identity("old", "1")), ended);
    assert!(!node.page().contains("old"));
    // The same pod made anew, with another uid, while the first is still being cleared away.
    let mut anew = identity("web", "1");
    anew.labels
        .insert("io.kubernetes.pod.uid".to_owned(), "uid-2".to_owned());
    node.add("/kubepods/poduid-2/c9", Some(anew), |_| {});
    let page = node.page();
    let doubled = page.matches("container_cpu_usage_seconds_total{").count();
    assert_eq!(doubled, 1, "{page}");
}

#[test]
fn the_summary() {
    let summary = Node::new().summary(false);
    check(
        &serde_json::to_string_pretty(&summary["pods"][0]).unwrap(),
        expect![[r#"
            {
              "containers": [
                {
                  "cpu": {
                    "psi": {
                      "full": {
                        "avg10": 0,
                        "avg300": 0,
                        "avg60": 0,
                        "total": 0
                      },
                      "some": {
                        "avg10": 1.02,
                        "avg300": 0,
                        "avg60": 0,
                        "total": 0
                      }
                    },
                    "time": "2026-11-15T21:26:52Z",
                    "usageCoreNanoSeconds": 6000000000,
                    "usageNanoCores": 500000000
                  },
                  "io": {
                    "psi": {
                      "full": {
                        "avg10": 0,
                        "avg300": 0,
                        "avg60": 0,
                        "total": 0
                      },
                      "some": {
                        "avg10": 0,
                        "avg300": 0,
                        "avg60": 0,
                        "total": 0
                      }
                    },
                    "time": "2026-11-15T21:26:52Z"
                  },
                  "logs": {
                    "availableBytes": 600,
                    "capacityBytes": 1000,
                    "inodes": 100,
                    "inodesFree": 70,
                    "inodesUsed": 2,
                    "time": "2026-11-15T21:26:52Z",
                    "usedBytes": 20
                  },
                  "memory": {
                    "availableBytes": 1040384,
                    "majorPageFaults": 0,
                    "pageFaults": 0,
                    "psi": {
                      "full": {
                        "avg10": 0,
                        "avg300": 0,
                        "avg60": 0,
                        "total": 0
                      },
                      "some": {
                        "avg10": 0,
                        "avg300": 0,
                        "avg60": 0,
                        "total": 0
                      }
                    },
                    "rssBytes": 4096,
                    "time": "2026-11-15T21:26:52Z",
                    "usageBytes": 9000,
                    "workingSetBytes": 8192
                  },
                  "name": "web",
                  "rootfs": {
                    "availableBytes": 600,
                    "capacityBytes": 1000,
                    "inodes": 100,
                    "inodesFree": 70,
                    "inodesUsed": 4,
                    "time": "2026-11-15T21:26:52Z",
                    "usedBytes": 30
                  },
                  "startTime": "2026-11-15T21:26:39Z",
                  "swap": {
                    "swapAvailableBytes": 67108861,
                    "swapUsageBytes": 3,
                    "time": "2026-11-15T21:26:52Z"
                  }
                }
              ],
              "cpu": {
                "psi": {
                  "full": {
                    "avg10": 0,
                    "avg300": 0,
                    "avg60": 0,
                    "total": 0
                  },
                  "some": {
                    "avg10": 1.02,
                    "avg300": 0,
                    "avg60": 0,
                    "total": 0
                  }
                },
                "time": "2026-11-15T21:26:52Z",
                "usageCoreNanoSeconds": 6000000000,
                "usageNanoCores": 500000000
              },
              "ephemeral-storage": {
                "availableBytes": 600,
                "capacityBytes": 1000,
                "inodes": 100,
                "inodesFree": 70,
                "inodesUsed": 6,
                "time": "2026-11-15T21:26:52Z",
                "usedBytes": 50
              },
              "io": {
                "psi": {
                  "full": {
                    "avg10": 0,
                    "avg300": 0,
                    "avg60": 0,
                    "total": 0
                  },
                  "some": {
                    "avg10": 0,
                    "avg300": 0,
                    "avg60": 0,
                    "total": 0
                  }
                },
                "time": "2026-11-15T21:26:52Z"
              },
              "memory": {
                "majorPageFaults": 0,
                "pageFaults": 0,
                "psi": {
                  "full": {
                    "avg10": 0,
                    "avg300": 0,
                    "avg60": 0,
                    "total": 0
                  },
                  "some": {
                    "avg10": 0,
                    "avg300": 0,
                    "avg60": 0,
                    "total": 0
                  }
                },
                "rssBytes": 4096,
                "time": "2026-11-15T21:26:52Z",
                "usageBytes": 9000,
                "workingSetBytes": 8192
              },
              "network": {
                "interfaces": [
                  {
                    "name": "lo1",
                    "rxBytes": 7,
                    "rxErrors": 0,
                    "txBytes": 0,
                    "txErrors": 0
                  },
                  {
                    "name": "eth0",
                    "rxBytes": 7,
                    "rxErrors": 0,
                    "txBytes": 0,
                    "txErrors": 0
                  }
                ],
                "name": "eth0",
                "rxBytes": 7,
                "rxErrors": 0,
                "time": "2026-11-15T21:26:52Z",
                "txBytes": 0,
                "txErrors": 0
              },
              "podRef": {
                "name": "pod-1",
                "namespace": "default",
                "uid": "uid-1"
              },
              "startTime": "2026-11-15T21:26:39Z",
              "swap": {
                "swapUsageBytes": 3,
                "time": "2026-11-15T21:26:52Z"
              }
            }"#]],
    );
    let node = &summary["node"];
    assert_eq!(node["fs"]["usedBytes"], 400);
    assert_eq!(node["fs"]["inodesUsed"], 30);
    assert_eq!(node["systemContainers"][0]["name"], "pods");
    assert_eq!(node["swap"]["swapAvailableBytes"], 1 << 30);
}

#[test]
fn the_brief_summary() {
    let summary = Node::new().summary(true);
    let keys =
        |value: &Value| -> Vec<String> { value.as_object().unwrap().keys().cloned().collect() };
    assert_eq!(
        keys(&summary["node"]),
        [
            "cpu",
            "memory",
            "nodeName",
            "startTime",
            "swap",
            "systemContainers"
        ]
    );
    assert_eq!(
        keys(&summary["pods"][0]),
        ["containers", "cpu", "memory", "podRef", "startTime", "swap"]
    );
    assert_eq!(
        keys(&summary["pods"][0]["containers"][0]),
        ["cpu", "memory", "name", "startTime", "swap"]
    );
}
