use std::sync::Arc;

use plimsoll_api::node_topology::ZoneResource;
use plimsoll_api::pod::Classes;
use plimsoll_api::priority::{KubeQos, PriorityClass, QosClass};
use plimsoll_host::machine::{HugePages, NumaNodeFacts};
use plimsoll_host::proc::meminfo::Meminfo;
use serde_json::{Value, json};

use super::*;
use crate::states::{KubeletConfiguration, Phase, Pod};

/// Two sockets, each a NUMA node of two cores of two threads: 0 and 4 are one core, 1 and 5 the next.
fn cpus() -> NodeCpuInfo {
    let processors = (0..8).map(|cpu| Processor {
        cpu,
        core: cpu % 4,
        socket: cpu % 4 / 2,
        node: cpu % 4 / 2,
        l3: None,
    });
    NodeCpuInfo {
        model: "Fast CPU".into(),
        vendor_id: "GenuineIntel".into(),
        hyper_threads: true,
        processors: processors.collect(),
        ..NodeCpuInfo::default()
    }
}

fn numa() -> NodeNumaInfo {
    let nodes = (0..2).map(|id| NumaNodeFacts {
        id,
        memory: Meminfo {
            total: 8 << 30,
            ..Meminfo::default()
        },
        hugepages: vec![HugePages {
            page_size_kib: 2048,
            num_pages: 512,
        }],
    });
    NodeNumaInfo {
        nodes: nodes.collect(),
    }
}

fn tell(cluster: &ClusterState, state: Option<&str>) -> (TopologyReport, Vec<String>) {
    let (cpus, numa) = (cpus(), numa());
    let facts = Facts {
        cpus: &cpus,
        numa: &numa,
        hugepages: true,
        cpu_manager_state: state,
    };
    build_topology(cluster, &facts)
}

fn pod(name: &str, qos: QosClass, cpuset: &str) -> Pod {
    let status = format!(r#"{{"cpuset":"{cpuset}"}}"#);
    Pod {
        uid: format!("uid-{name}").into(),
        namespace: "default".into(),
        name: name.into(),
        classes: Classes {
            priority: PriorityClass::None,
            qos,
            kube_qos: KubeQos::Guaranteed,
        },
        priority: None,
        phase: Phase::Running,
        created: jiff::Timestamp::UNIX_EPOCH,
        terminating: false,
        requests: BTreeMap::new(),
        limits: BTreeMap::new(),
        containers: Box::default(),
        claims: Box::default(),
        labels: BTreeMap::new(),
        annotations: [(names::ANNOTATION_RESOURCE_STATUS.into(), status.into())].into(),
    }
}

fn node(annotations: &[(&str, &str)], labels: &[(&str, &str)]) -> Option<Arc<Node>> {
    let texts = |pairs: &[(&str, &str)]| {
        let pairs = pairs.iter();
        pairs
            .map(|(key, value)| ((*key).into(), (*value).into()))
            .collect()
    };
    Some(Arc::new(Node {
        annotations: texts(annotations),
        labels: texts(labels),
        capacity: [
            ("cpu".into(), "8".parse().unwrap()),
            ("memory".into(), "16Gi".parse().unwrap()),
        ]
        .into(),
        allocatable: [
            ("cpu".into(), "7500m".parse().unwrap()),
            ("memory".into(), "15Gi".parse().unwrap()),
        ]
        .into(),
        ..Node::default()
    }))
}

fn pools_of(report: &TopologyReport, name: &str) -> String {
    report.annotations[name].clone()
}

#[test]
fn a_machine_nobody_has_said_anything_about() {
    let (report, warnings) = tell(&ClusterState::default(), None);
    assert!(warnings.is_empty());
    let annotation = |name: &str| report.annotations[name].as_str();
    assert_eq!(
        annotation(names::ANNOTATION_CPU_BASIC_INFO),
        r#"{"cpuModel":"Fast CPU","hyperThreadEnabled":true,"vendorID":"GenuineIntel"}"#
    );
    assert_eq!(
        annotation(names::ANNOTATION_CPU_SHARED_POOLS),
        r#"[{"socket":0,"node":0,"cpuset":"0-1,4-5"},{"socket":1,"node":1,"cpuset":"2-3,6-7"}]"#
    );
    assert!(
        annotation(names::ANNOTATION_CPU_TOPOLOGY)
            .starts_with(r#"{"detail":[{"id":0,"core":0,"socket":0,"node":0},"#)
    );
    assert_eq!(annotation(names::ANNOTATION_CPU_MANAGER_POLICY), "{}");
    assert_eq!(annotation(names::ANNOTATION_POD_CPU_ALLOCS), "null");
    assert_eq!(annotation(names::ANNOTATION_RESERVATION), "{}");
    assert_eq!(annotation(names::ANNOTATION_SYSTEM_QOS), "{}");
    assert_eq!(report.policy, "None");
    assert_eq!(
        report.zones[1].resources,
        [
            ZoneResource::whole("cpu", 4),
            ZoneResource::whole("hugepages-1Gi", 0),
            ZoneResource::whole("hugepages-2Mi", "1Gi"),
            ZoneResource::whole("memory", "7Gi"),
        ]
    );
}

#[test]
fn cpus_of_pods_leave_the_pools() {
    let ended = Pod {
        phase: Phase::Succeeded,
        ..pod("ended", QosClass::Lse, "1,5")
    };
    let cluster = ClusterState {
        pods: Some(Arc::from([
            pod("lsr", QosClass::Lsr, "0,4"),
            pod("lse", QosClass::Lse, "2"),
            pod("odd", QosClass::Lsr, "x"),
            // All of a NUMA node: its pool is gone.
            pod("big", QosClass::Lsr, "3,6-7"),
            ended,
        ])),
        ..ClusterState::default()
    };
    let (report, warnings) = tell(&cluster, None);
    assert_eq!(warnings.len(), 1);
    assert_eq!(
        pools_of(&report, names::ANNOTATION_CPU_SHARED_POOLS),
        r#"[{"socket":0,"node":0,"cpuset":"1,5"}]"#
    );
    assert_eq!(
        pools_of(&report, names::ANNOTATION_BE_CPU_SHARED_POOLS),
        r#"[{"socket":0,"node":0,"cpuset":"0-1,4-5"},{"socket":1,"node":1,"cpuset":"3,6-7"}]"#
    );
    assert_eq!(report.pools.shared[0].cpuset, "1,5");
}

#[test]
fn what_the_node_keeps_leaves_them_too() {
    let cluster = ClusterState {
        node: node(
            &[
                (
                    names::ANNOTATION_RESERVATION,
                    r#"{"resources":{"cpu":"2500m"},"applyPolicy":"Default"}"#,
                ),
                (names::ANNOTATION_SYSTEM_QOS, r#"{"cpuset":"7"}"#),
            ],
            &[],
        ),
        ..ClusterState::default()
    };
    let (report, _) = tell(&cluster, None);
    // Three CPUs: a whole core, and one thread of the next.
    assert_eq!(
        report.annotations[names::ANNOTATION_RESERVATION],
        r#"{"resources":{"cpu":"2500m"},"reservedCPUs":"0-1,4","applyPolicy":"Default"}"#
    );
    assert_eq!(
        pools_of(&report, names::ANNOTATION_CPU_SHARED_POOLS),
        r#"[{"socket":0,"node":0,"cpuset":"5"},{"socket":1,"node":1,"cpuset":"2-3,6"}]"#
    );
    let shared = ClusterState {
        node: node(
            &[(
                names::ANNOTATION_SYSTEM_QOS,
                r#"{"cpuset":"7","cpusetExclusive":false}"#,
            )],
            &[],
        ),
        ..ClusterState::default()
    };
    let (report, _) = tell(&shared, None);
    assert!(pools_of(&report, names::ANNOTATION_CPU_SHARED_POOLS).contains("2-3,6-7"));
}

fn kubelet(policy: &str) -> KubeletConfiguration {
    KubeletConfiguration {
        cpu_manager_policy: policy.into(),
        topology_manager_policy: "single-numa-node".into(),
        topology_manager_scope: "pod".into(),
        kube_reserved: [("cpu".to_owned(), "500m".to_owned())].into(),
        system_reserved: [("cpu".to_owned(), "600m".to_owned())].into(),
        ..KubeletConfiguration::default()
    }
}

const STATE: &str = r#"{"policyName":"static","defaultCpuSet":"0,4-7","entries":{
    "uid-of-kubelet":{"a":"1","b":"2-3"},"uid-ours":{"a":"6"},"uid-unknown":{"a":"7"}},"checksum":1}"#;

#[test]
fn a_kubelet_that_gives_out_cpus() {
    let mut of_kubelet = pod("of-kubelet", QosClass::None, "");
    of_kubelet.annotations.clear();
    let cluster = ClusterState {
        kubelet: Some(Arc::new(kubelet("static"))),
        pods: Some(Arc::from([of_kubelet, pod("ours", QosClass::Ls, "")])),
        ..ClusterState::default()
    };
    let (report, warnings) = tell(&cluster, Some(STATE));
    assert!(warnings.is_empty(), "{warnings:?}");
    assert_eq!(report.policy, "SingleNUMANodePodLevel");
    assert_eq!(
        report.annotations[names::ANNOTATION_CPU_MANAGER_POLICY],
        r#"{"policy":"static","reservedCPUs":"0,4"}"#
    );
    let allocs: Value =
        serde_json::from_str(&report.annotations[names::ANNOTATION_POD_CPU_ALLOCS]).unwrap();
    assert_eq!(
        allocs,
        json!([
            {"namespace": "default", "name": "of-kubelet", "uid": "uid-of-kubelet", "cpuset": "1-3", "managedByKubelet": true},
            {"uid": "uid-unknown", "cpuset": "7", "managedByKubelet": true},
        ])
    );
    assert_eq!(
        pools_of(&report, names::ANNOTATION_BE_CPU_SHARED_POOLS),
        r#"[{"socket":0,"node":0,"cpuset":"0,4-5"},{"socket":1,"node":1,"cpuset":"6"}]"#
    );
    let none = ClusterState {
        kubelet: Some(Arc::new(kubelet("none"))),
        ..cluster
    };
    let (report, _) = tell(&none, Some(STATE));
    assert_eq!(report.annotations[names::ANNOTATION_POD_CPU_ALLOCS], "null");
    assert_eq!(
        report.annotations[names::ANNOTATION_CPU_MANAGER_POLICY],
        r#"{"policy":"none"}"#
    );
}

#[test]
fn reserved_numa_nodes() {
    let cluster = ClusterState {
        node: node(&[], &[(names::LABEL_NUMA_RESERVATION, "true")]),
        ..ClusterState::default()
    };
    let (report, _) = tell(&cluster, None);
    assert_eq!(report.labels[names::LABEL_NUMA_RESERVATION], "true");
    let cpu = report.zones[0].resource("cpu").unwrap();
    assert_eq!(
        (cpu.capacity.as_str(), cpu.allocatable.as_str()),
        ("4", "3750m")
    );
    let memory = report.zones[0].resource("memory").unwrap();
    assert_eq!(memory.allocatable, "6656Mi");
}

#[test]
fn what_others_wrote_into_the_object_stays() {
    let (report, _) = tell(&ClusterState::default(), None);
    let mut object = report.object("n1", "u1");
    assert_eq!(object["metadata"]["ownerReferences"][0]["uid"], "u1");
    assert_eq!(
        object["metadata"]["labels"],
        json!({"app.kubernetes.io/managed-by": "Koordinator"})
    );
    assert_eq!(report.merged(&object), None);
    object["metadata"]["annotations"]["other"] = "1".into();
    object["metadata"]["resourceVersion"] = "7".into();
    object["metadata"]["annotations"][names::ANNOTATION_RESERVATION] = "{ }".into();
    let batch = json!({"name": "kubernetes.io/batch-cpu", "capacity": "1", "allocatable": "1", "available": "1"});
    object["zones"][0]["resources"]
        .as_array_mut()
        .unwrap()
        .insert(3, batch.clone());
    assert_eq!(report.merged(&object), None);
    object["zones"][0]["resources"][0]["capacity"] = "3".into();
    object["metadata"]["annotations"][names::ANNOTATION_CPU_TOPOLOGY] = "{}".into();
    let merged = report.merged(&object).unwrap();
    assert_eq!(merged["zones"][0]["resources"][0]["capacity"], "4");
    assert_eq!(merged["zones"][0]["resources"][3], batch);
    assert_eq!(merged["metadata"]["annotations"]["other"], "1");
    assert_eq!(merged["metadata"]["resourceVersion"], "7");
}
