use std::collections::HashMap;
use std::sync::Arc;

use plimsoll_api::node_metric::AggregatePolicy;
use plimsoll_api::pod::Classes;
use plimsoll_api::priority::{KubeQos, PriorityClass, QosClass};
use plimsoll_predict::reclaim;

use super::*;
use crate::states::{HostApplication, NodeSlo, Phase, Pod};

/// Series by their key, each seen for a quarter of an hour.
#[derive(Default)]
struct Remembered {
    averages: HashMap<String, f64>,
    seen: Duration,
    forecast: Option<reclaim::Reclaimable>,
}

impl UsageSource for Remembered {
    fn summary(&self, series: &Series, window: Duration, _: Timestamp) -> Option<Summary> {
        let avg = *self.averages.get(&series.to_string())?;
        Some(Summary {
            avg,
            last: avg,
            p50: avg * 1.1,
            p90: avg * 1.2,
            p95: avg * 1.3,
            p99: avg * 1.4,
            count: 10,
            span: self.seen.min(window),
        })
    }

    fn forecast(
        &self,
        _: &ClusterState,
        _: Duration,
        _: Timestamp,
    ) -> Option<reclaim::Reclaimable> {
        self.forecast
    }

    fn gpus(&self) -> Vec<Device> {
        Vec::new()
    }
}

fn remembered(figures: &[(&str, f64)]) -> Remembered {
    Remembered {
        averages: figures
            .iter()
            .map(|(key, value)| ((*key).to_owned(), *value))
            .collect(),
        seen: Duration::from_secs(600),
        forecast: None,
    }
}

fn pod(namespace: &str, name: &str, kube_qos: KubeQos) -> Pod {
    Pod {
        uid: format!("uid-{name}").into(),
        namespace: namespace.into(),
        name: name.into(),
        classes: Classes {
            priority: PriorityClass::None,
            qos: QosClass::None,
            kube_qos,
        },
        priority: None,
        phase: Phase::Running,
        created: Timestamp::UNIX_EPOCH,
        terminating: false,
        requests: BTreeMap::new(),
        limits: BTreeMap::new(),
        containers: Box::default(),
        claims: Box::default(),
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
    }
}

fn told(figures: &Remembered, cluster: &ClusterState, gpus: &[Device]) -> Option<Value> {
    let input = Input {
        cluster,
        figures,
        numa_nodes: 1,
        gpus,
        now: "2026-11-15T19:43:49.7Z".parse().unwrap(),
    };
    status(&input).map(|status| serde_json::to_value(status).unwrap())
}

const NODE: [(&str, f64); 4] = [
    ("node_cpu_usage", 1.3039),
    ("node_memory_usage", 1_640_744_953.4),
    ("sys_cpu_usage", 0.4796),
    ("sys_memory_usage", 1_623_784_647.0),
];

#[test]
fn every_field() {
    let mut figures = NODE.to_vec();
    figures.extend([
        ("node_numa_cpu_usage{numa_node_id=0}", 1.3039),
        ("node_numa_memory_usage{numa_node_id=0}", 1_289_880_209.0),
        ("sys_numa_cpu_usage{numa_node_id=0}", 0.4796),
        ("sys_numa_memory_usage{numa_node_id=0}", 1_289_432_689.0),
        ("pod_cpu_usage{pod_uid=uid-b}", 0.2431),
        ("pod_memory_usage{pod_uid=uid-b}", 191_171.0),
        ("pod_cpu_usage{pod_uid=uid-a}", 0.0025),
        ("pod_memory_usage{pod_uid=uid-a}", 1_048_576.0),
        ("host_application_cpu_usage{host_app_name=db}", 0.5),
        ("host_application_memory_usage{host_app_name=db}", 2048.0),
    ]);
    let figures = Remembered {
        forecast: Some(reclaim::Reclaimable {
            amount: Amount::default(),
            peak: Amount {
                cpu: 1.5,
                memory: 1_960_528_674.0,
            },
        }),
        ..remembered(&figures)
    };
    let cluster = ClusterState {
        pods: Some(Arc::from([
            pod("default", "b", KubeQos::Burstable),
            pod("default", "without-figures", KubeQos::Burstable),
            pod("default", "a", KubeQos::BestEffort),
        ])),
        node_slo: Arc::new(NodeSlo {
            host_applications: vec![HostApplication {
                name: "db".into(),
                priority: PriorityClass::Prod,
                qos: QosClass::Ls,
                cgroups: vec!["host-latency-sensitive/db".into()],
            }],
            ..NodeSlo::default()
        }),
        ..ClusterState::default()
    };
    let status = told(&figures, &cluster, &[]).unwrap();
    let usage = |cpu: &str, memory: &str| json!({"resources": {"cpu": cpu, "memory": memory}});
    assert_eq!(status["updateTime"], "2026-11-15T19:43:49Z");
    let node = &status["nodeMetric"];
    assert_eq!(node["nodeUsage"], usage("1303m", "1640744953"));
    assert_eq!(node["systemUsage"], usage("479m", "1623784647"));
    assert_eq!(
        node["numaUsages"],
        json!([{
            "numaNodeID": 0,
            "nodeUsage": usage("1303m", "1289880209"),
            "systemUsage": usage("479m", "1289432689"),
        }])
    );
    let aggregated = node["aggregatedNodeUsages"].as_array().unwrap();
    let durations: Vec<_> = aggregated.iter().map(|one| &one["duration"]).collect();
    assert_eq!(durations, ["5m0s", "10m0s", "30m0s"]);
    assert_eq!(aggregated[1]["usage"]["p90"]["resources"]["cpu"], "1564m");
    // Of half an hour only a third was seen.
    assert_eq!(
        aggregated[2]["usage"],
        json!({"avg": {}, "p50": {}, "p90": {}, "p95": {}, "p99": {}})
    );
    assert_eq!(
        node["aggregatedSystemUsages"][0]["usage"]["avg"],
        usage("479m", "1623784647")
    );
    assert_eq!(
        status["podsMetric"],
        json!([
            {"name": "a", "namespace": "default", "podUsage": usage("2m", "1Mi"), "priority": "koord-batch", "qos": "BE"},
            {"name": "b", "namespace": "default", "podUsage": usage("243m", "191171"), "priority": "koord-prod", "qos": "LS"},
        ])
    );
    assert_eq!(
        status["hostApplicationMetric"],
        json!([{"name": "db", "usage": usage("500m", "2Ki"), "priority": "koord-prod", "qos": "LS"}])
    );
    assert_eq!(
        status["prodReclaimableMetric"],
        json!({"resource": usage("0", "0")})
    );
    assert_eq!(
        status["prodPeakMetric"],
        json!({"resource": usage("1500m", "1960528674")})
    );
}

#[test]
fn without_figures_there_is_nothing_to_tell() {
    assert_eq!(told(&remembered(&[]), &ClusterState::default(), &[]), None);
    // But a node without a forecast, system figures or pods is told of.
    let figures = remembered(&NODE[..2]);
    let status = told(&figures, &ClusterState::default(), &[]).unwrap();
    assert_eq!(status["nodeMetric"]["systemUsage"], json!({}));
    assert_eq!(status["prodReclaimableMetric"], json!({"resource": {}}));
    assert_eq!(status.get("podsMetric"), None);
}

#[track_caller]
fn check_memory(policy: MemoryCollectPolicy, extra: &[(&str, f64)], expected: &str) {
    let mut figures = NODE.to_vec();
    figures.extend(extra);
    let cluster = ClusterState {
        collect_policy: Some(Arc::new(CollectPolicy {
            node_memory_collect_policy: Some(policy),
            ..CollectPolicy::default()
        })),
        ..ClusterState::default()
    };
    let status = told(&remembered(&figures), &cluster, &[]).unwrap();
    let node = &status["nodeMetric"];
    assert_eq!(node["nodeUsage"]["resources"]["memory"], expected);
    // The system's is always without.
    assert_eq!(node["systemUsage"]["resources"]["memory"], "1623784647");
}

#[test]
fn memory_by_policy() {
    use MemoryCollectPolicy::{UsageWithHotPageCache, UsageWithPageCache, UsageWithoutPageCache};
    let both = [
        ("node_memory_usage_with_page_cache", 3e9),
        ("node_memory_with_hot_page_usage", 2e9 + 1.0),
    ];
    check_memory(UsageWithoutPageCache, &both, "1640744953");
    check_memory(UsageWithHotPageCache, &both, "2000000001");
    check_memory(UsageWithPageCache, &both, "3000000000");
    check_memory(UsageWithHotPageCache, &[], "1640744953");
}

#[test]
fn what_is_asked_for() {
    let collect = CollectPolicy {
        aggregate_duration_seconds: Some(10),
        node_aggregate_policy: Some(AggregatePolicy {
            durations: vec!["1m0s".into(), "nonsense".into(), "0s".into()],
        }),
        ..CollectPolicy::default()
    };
    assert_eq!(window(&collect), Duration::from_secs(60));
    assert_eq!(window(&CollectPolicy::default()), Duration::from_secs(300));
    let found = durations(&collect);
    assert_eq!(found, [("1m0s".to_owned(), Duration::from_secs(60))]);
}

#[test]
fn gpus_of_the_node_and_of_a_pod() {
    let gpu = Device {
        minor: 1,
        uuid: "GPU-7".into(),
        memory: 16 << 30,
        ..Device::default()
    };
    let mut figures = NODE.to_vec();
    figures.extend([
        (
            "node_gpu_core_usage{gpu_minor=1,gpu_device_uuid=GPU-7}",
            80.4,
        ),
        (
            "node_gpu_memory_usage{gpu_minor=1,gpu_device_uuid=GPU-7}",
            f64::from(1 << 30) * 4.0,
        ),
        ("pod_cpu_usage{pod_uid=uid-a}", 0.1),
        ("pod_memory_usage{pod_uid=uid-a}", 1024.0),
        (
            "pod_gpu_core_usage{pod_uid=uid-a,gpu_minor=1,gpu_device_uuid=GPU-7}",
            40.0,
        ),
        (
            "pod_gpu_memory_usage{pod_uid=uid-a,gpu_minor=1,gpu_device_uuid=GPU-7}",
            f64::from(1 << 30),
        ),
    ]);
    let cluster = ClusterState {
        pods: Some(Arc::from([pod("default", "a", KubeQos::Guaranteed)])),
        ..ClusterState::default()
    };
    let status = told(&remembered(&figures), &cluster, &[gpu]).unwrap();
    assert_eq!(
        status["nodeMetric"]["nodeUsage"]["devices"],
        json!([{
            "type": "gpu", "id": "GPU-7", "minor": 1, "health": true,
            "resources": {GPU_CORE: "80", GPU_MEMORY: "4Gi", GPU_MEMORY_RATIO: "25"},
        }])
    );
    let of_pod = &status["podsMetric"][0]["podUsage"]["devices"][0]["resources"];
    assert_eq!(of_pod[GPU_MEMORY_RATIO], "6");
}
